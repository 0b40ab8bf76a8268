"""A task that every model must learn in seconds: say the source again, token by token."""

from __future__ import annotations

import torch

from seqloom.batch import Batch, Tokens
from seqloom.models.generator import Generator
from seqloom.specials import EOS, SPECIALS

WORDS = 8
VOCABULARY = len(SPECIALS) + WORDS


def echoes(count: int, seed: int) -> Batch:
    """Sources of one to four words, each its own target."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for length in torch.randint(1, 5, (count,), generator=generator).tolist():
        rows.append([*torch.randint(len(SPECIALS), VOCABULARY, (length,), generator=generator).tolist(), EOS])
    tokens = Tokens.pad(rows)
    return Batch({"source": tokens}, tokens)


def trained(model: Generator, steps: int = 150, lr: float = 5e-3) -> Generator:
    """A few steps of Adam, warmed up and cooled down; fresh pairs at every step."""
    torch.manual_seed(1)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = lr * min((step + 1) / 20, 1 - step / steps)
        loss = model.losses(echoes(64, seed=step))[0].mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model.eval()


@torch.no_grad()
def share_right(model: Generator, count: int = 100) -> float:
    """How many of so many unseen sources are said again without a mistake: the best token is gold at every step."""
    batch = echoes(count, seed=10_000)
    assert batch.target is not None
    best = model.head.log_probs(*model.forced(batch)).argmax(-1)
    right = (best == batch.target.ids) | ~batch.target.mask
    return float(right.all(1).double().mean())

"""A task small enough to train in milliseconds, with everything that makes resuming hard: dropout, tied and frozen
weights, a buffer, padding, batches of different sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.batch import Batch, Tokens
from seqloom.runtime import seed_step, seeded_random
from seqloom.specials import EOS
from seqloom.tasks.base import Loss, Task

VOCABULARY = 12
Example = tuple[list[int], list[int]]


class ToyModel(nn.Module):
    def __init__(self, width: int = 8, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.frozen = nn.Linear(width, width)
        self.frozen.requires_grad_(False)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, VOCABULARY)
        self.output.weight = self.embedding.weight  # tied
        self.register_buffer("temperature", torch.tensor(1.5))

    def forward(self, source: Tokens, target: Tokens) -> torch.Tensor:
        mask = source.mask[..., None]
        summary = (self.embedding(source.ids) * mask).sum(1) / mask.sum(1)  # B D
        shifted = F.pad(target.ids, (1, -1))  # B T
        inputs = self.dropout(self.embedding(shifted)) + self.frozen(summary)[:, None]  # B T D
        return self.output(self.dropout(self.norm(self.cell(inputs)[0]))) / self.temperature


class ToyTask(Task[ToyModel, Example, list[int]]):
    def collate(self, examples: Sequence[Example]) -> Batch:
        sources, targets = zip(*examples, strict=True)
        return Batch({"source": Tokens.pad(sources)}, Tokens.pad(targets), tuple(range(len(examples))))

    def loss(self, model: ToyModel, batch: Batch, step: int) -> Loss:
        source, target = batch.sources["source"], batch.target
        assert isinstance(source, Tokens)
        assert target is not None
        logits = model(source, target)
        nll = F.cross_entropy(logits[target.mask], target.ids[target.mask], reduction="sum")
        smooth = -logits[target.mask].log_softmax(-1).mean(-1).sum()
        return Loss(0.9 * nll + 0.1 * smooth, target.mask.sum(), nll.detach())

    def predict(self, model: ToyModel, batch: Batch) -> list[list[int]]:
        raise NotImplementedError


class ToyBatches:
    """Reversal of short sequences; order and make-up of the batches depend on the epoch alone."""

    def __init__(self, examples: int = 22, size: int = 4) -> None:
        draw = seeded_random(7, 0, stream="toy")
        sources = [[draw.randrange(6, VOCABULARY) for _ in range(draw.randrange(1, 6))] for _ in range(examples)]
        self.examples: list[Example] = [(source, [*reversed(source), EOS]) for source in sources]
        self.size = size

    def count(self, number: int) -> int:
        return -(-len(self.examples) // self.size)

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        order = list(range(len(self.examples)))
        seeded_random(7, number, stream="order").shuffle(order)
        for start in range(skip * self.size, len(order), self.size):
            chosen = order[start : start + self.size]
            batch = ToyTask().collate([self.examples[i] for i in chosen])
            yield Batch(batch.sources, batch.target, tuple(chosen))


def toy_model(seed: int = 3, dropout: float = 0.2, dtype: torch.dtype = torch.float32) -> ToyModel:
    seed_step(seed, 0, stream="init")
    return ToyModel(dropout=dropout).to(dtype)


def toy_validation() -> Callable[[nn.Module], dict[str, float]]:
    """Mean nll over all examples; it also draws random numbers, which must not matter."""
    batch = ToyTask().collate(ToyBatches().examples)

    def validate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        assert isinstance(model, ToyModel)
        torch.rand(3)
        loss = ToyTask().loss(model, batch, 0)
        return {"nll": float(loss.nll / loss.count), "accuracy": 0.0}

    return validate

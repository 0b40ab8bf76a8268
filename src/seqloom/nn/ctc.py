"""Connectionist temporal classification: what an encoder says by itself, position by position (Graves et al. 2006).

Every position of the memory says a token or nothing (the blank); an output is what is left when repetitions are merged
and blanks taken out, and its probability is the sum over all ways to say it. Beside a decoder with attention it keeps
the order of time, which attention alone must find (Kim, Hori and Watanabe 2017). The blank is PAD, which no target
holds; the end is never said. Tap: `encoder.ctc` = log-probabilities (B S V), computed only where somebody listens.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.batch import Tokens
from seqloom.nn.layers import exact
from seqloom.shapes import Bool, Float, Tensor
from seqloom.specials import EOS, PAD

CTC = "encoder.ctc"
BLANK = PAD
NEVER = -1e4  # a log-probability of what is never said; minus infinity would leave no gradient to anything


class Ctc(nn.Module):
    """log softmax(W s + b) of every position; behind a source's end the blank is certain, so that it adds nothing."""

    def __init__(self, *, width: int, vocabulary: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, vocabulary)

    def forward(self, states: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S V"]:
        scores = exact(self.linear(states))
        scores[..., EOS] = NEVER
        nothing = torch.full_like(scores[0, 0], NEVER)
        nothing[BLANK] = 0.0
        return torch.where(mask[..., None], scores.log_softmax(-1), nothing)


def ctc_nll(log_probs: Float[Tensor, "B S V"], target: Tokens) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"]]:
    """-log P(target), its end left out, and whether it fits: it needs a position per token, and one per repetition.

    Where it does not fit, the value is zero and has no gradient.
    """
    said = target.mask & (target.ids != EOS)
    ids, lengths = target.ids.masked_fill(~said, 0), said.sum(1)
    repeated = ((ids[:, 1:] == ids[:, :-1]) & said[:, 1:]).sum(1)
    positions = (log_probs[..., EOS + 1 :] > NEVER).any(-1).sum(1)  # behind the end there is the blank alone
    fits = (lengths + repeated <= positions) & (lengths > 0)
    values = F.ctc_loss(
        log_probs.transpose(0, 1), ids, positions, lengths, blank=BLANK, reduction="none", zero_infinity=True
    )
    return torch.where(fits, values, 0.0), fits

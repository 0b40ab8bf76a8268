"""Losses on where a model looks, a of every target token t over the source positions i, averaged over the heads.

    guided     -sum_i A_ti log a_ti                   A the gold alignment, rows of 0 where none is known (Chen 2016)
    coverage   sum_i min(a_ti, sum_{t' < t} a_t'i)    looking again where one has looked before (See 2017)
    doubly stochastic   sum_i (1 - sum_t a_ti)^2      looking everywhere about once (Xu 2015); added to the last token

All come from the same forward pass as the token's own loss, by a tape that keeps gradients, and are added to it token
by token: counts stay those of tokens, and examples' weights apply. The model is asked for nothing but its taps.
"""

from __future__ import annotations

import torch

from seqloom.batch import Batch
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.nn.layers import exact
from seqloom.nn.tape import Tape
from seqloom.shapes import Bool, Float, Tensor


class AttentionLoss:
    """Weighs these losses; `layer` counts from 1 where a decoder attends in several, the last by default."""

    def __init__(self, guided: float, coverage: float, doubly: float = 0.0, layer: int | None = None) -> None:
        self.guided, self.coverage, self.doubly, self.layer = guided, coverage, doubly, layer

    def tap(self, model: Generator) -> str:
        """Where the weights pass; a tape that keeps gradients listens there."""
        named = {"guided_alignment": self.guided, "coverage_loss": self.coverage, "doubly_stochastic": self.doubly}
        taps, where = model.decoder.attention_taps, f"task.{next(key for key, weight in named.items() if weight)}"
        if not taps:
            fix = "use a decoder with attention, such as model.decoder.kind: luong, or leave this key out"
            raise SeqloomError("E_RECIPE", "this model has no attention over the source", where=where, fix=fix)
        if self.layer is not None and self.layer > len(taps):
            what = f"layer {self.layer} of {len(taps)} that attend"
            raise SeqloomError("E_RECIPE", what, where="task.attention_layer", fix="leave it out for the last one")
        return taps[-1 if self.layer is None else self.layer - 1]

    def values(self, tape: Tape, model: Generator, batch: Batch) -> Float[Tensor, "M"]:
        """What to add to the loss of each of the M real target tokens, after the pass that `tape` listened to."""
        assert batch.target is not None
        weights = exact(tape.joined(self.tap(model), dim=2)).mean(1)  # B T S
        total = torch.zeros_like(weights[..., 0])  # B T
        if self.guided and batch.alignment is not None:  # a batch may hold none of those that are known
            total = total + self.guided * guided(weights, batch.alignment)
        if self.coverage:
            total = total + self.coverage * repeated(weights)
        if self.doubly:
            total = total + self.doubly * unevenness(weights, batch.target.mask)
        return total[batch.target.mask]


def guided(weights: Float[Tensor, "B T S"], gold: Float[Tensor, "B T s"]) -> Float[Tensor, "B T"]:
    """Cross-entropy of the weights; a memory may go on behind the source (tags), where nothing is aligned."""
    if weights.shape[-1] < gold.shape[-1]:
        what = f"{gold.shape[-1]} source tokens became {weights.shape[-1]} positions: alignments cannot be followed"
        raise SeqloomError(
            "E_RECIPE", what, where="task.guided_alignment", fix="use an encoder that keeps every position"
        )
    known = weights[..., : gold.shape[-1]]
    return -(gold.to(known.dtype) * known.clamp(min=torch.finfo(known.dtype).tiny).log()).sum(-1)


def repeated(weights: Float[Tensor, "B T S"]) -> Float[Tensor, "B T"]:
    """How much of each token's attention falls where earlier attention fell."""
    past = weights.cumsum(1) - weights
    return torch.minimum(weights, past).sum(-1)


def unevenness(weights: Float[Tensor, "B T S"], said: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """How far every position's weights are from summing to 1 over the target, at each row's last real token.

    What is no position of a row has no weight at any time, and nothing is asked of it.
    """
    real = weights.masked_fill(~said[..., None], 0.0)
    there = (real.detach() > 0).any(1)  # B S
    total = ((1 - real.sum(1)) ** 2 * there).sum(-1)  # B
    last = torch.arange(said.shape[1], device=said.device) == said.sum(1, keepdim=True) - 1  # B T
    return total[:, None] * last

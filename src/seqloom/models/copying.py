"""Copying: a word is generated from the vocabulary, or pointed at in the source (the pointer-generator of See 2017).

    p(w) = g~ p_gen(w) + (1 - g) sum over positions i with copies_i = w of a_i,    g = sigma(v . h + b)

h are the decoder's features, a its own weights over the memory, averaged over the heads. A position that holds nothing
to copy (copies_i = -1: the end of the source, tags beside it) gives its weight back to the generator, g~ = g + (1 - g)
sum over those of a_i, so that all of W sums to 1: the V tokens of the vocabulary, then the X pieces that only sources
of this batch hold. Everything is in log space and at least float32. What the ids mean is not known here.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.batch import Tokens
from seqloom.models.contracts import State
from seqloom.nn.frontends import Embedding
from seqloom.nn.layers import exact, spread
from seqloom.nn.tape import tap
from seqloom.shapes import Bool, Float, Int, LogProbs, Tensor, Weights
from seqloom.specials import UNK


class ReadsCopies(Embedding):
    """An embedding for a decoder that may have copied: ids from V on are read as UNK."""

    def __init__(self, inner: Embedding) -> None:
        super().__init__()
        self.inner, self.width = inner, inner.width

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        embedded: Tensor = self.inner(ids.masked_fill(ids >= self.vocabulary, UNK))
        return embedded

    @property
    def vocabulary(self) -> int:
        return self.inner.vocabulary

    @property
    def table(self) -> Float[Tensor, "V D"]:
        return self.inner.table


def copyable(source: Tokens, vocabulary: int) -> dict[str, Tensor]:
    """For `State.sources`: "copies" (B S), and "extras" (B X), True where a source holds the extra piece V + x.

    Its width is X, the most that any source of the batch holds: it stays the same when sources leave, and asking for it
    does not wait for the device. Nothing where this source was not prepared for copying: then all is generated.
    """
    if source.copies is None:
        return {}
    copies = source.copies.masked_fill(~source.mask, -1)
    extras = max(0, int(copies.max()) + 1 - vocabulary) if copies.numel() else 0
    column = (copies - vocabulary).masked_fill(copies < vocabulary, extras)  # the last one is cut off
    held = torch.zeros(len(copies), extras + 1, dtype=torch.bool, device=copies.device).scatter(1, column, True)
    return {"copies": copies, "extras": held[:, :extras]}


class Pointer(nn.Module):
    """The gate between generating and copying, and the mixture of both. Tap: `copy.gate` = the logit of g (N T)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gate = nn.Linear(features, 1)

    def forward(
        self, generated: Float[Tensor, "N T V"], features: Float[Tensor, "N T D"], weights: Weights, state: State
    ) -> LogProbs:
        """log p(w) for all of W, from log p_gen (N T V); -inf for extra pieces that a row's source does not hold."""
        copies = positions(state, weights)  # N S
        width = generated.shape[-1] + state.sources["extras"].shape[1]
        column = copies.masked_fill(copies < 0, width)  # what is no piece goes to a column that is cut off
        where = column[:, None].expand(weights.shape)  # N T S
        mass = exact(weights).new_zeros(*weights.shape[:2], width + 1).scatter_add(2, where, exact(weights))
        held = torch.zeros(len(copies), width + 1, dtype=torch.bool, device=copies.device).scatter(1, column, True)
        generate, point = self._shares(features, weights, copies[:, None] < 0)
        spoken = F.pad(generate[..., None] + generated, (0, width - generated.shape[-1]), value=-torch.inf)
        pointed = (point[..., None] + _log(mass[..., :width])).masked_fill(~held[:, None, :width], -torch.inf)
        return torch.logaddexp(spoken, pointed)

    def gold(
        self,
        generated: Float[Tensor, "M"],
        features: Float[Tensor, "M D"],
        weights: Float[Tensor, "M S"],
        copies: Int[Tensor, "M S"],
        gold: tuple[Int[Tensor, "M"], Bool[Tensor, "M"]],
    ) -> Float[Tensor, "M"]:
        """log p(gold) without ever making all of W; `gold` is (the id, is it generated at all: is it below V?)."""
        ids, spoken = gold
        here = copies == ids[:, None]  # M S
        mass = exact(weights).masked_fill(~here, 0.0).sum(-1)
        generate, point = self._shares(features, weights, copies < 0)
        said = (generate + generated).masked_fill(~spoken, -torch.inf)
        pointed = (point + _log(mass)).masked_fill(~here.any(-1), -torch.inf)
        return torch.logaddexp(said, pointed)

    def _shares(
        self, features: Float[Tensor, "*r D"], weights: Float[Tensor, "*r S"], nothing: Bool[Tensor, "... S"]
    ) -> tuple[Float[Tensor, "*r"], Float[Tensor, "*r"]]:
        """log g~ and log (1 - g); `nothing` marks the positions that hold nothing to copy."""
        gate = exact(tap("copy.gate", self.gate(features).squeeze(-1)))
        point = F.logsigmoid(-gate)
        returned = exact(weights).masked_fill(~nothing, 0.0).sum(-1)
        return torch.logaddexp(F.logsigmoid(gate), point + _log(returned)), point


def positions(state: State, weights: Float[Tensor, "N T S"]) -> Int[Tensor, "N S"]:
    """What each memory position of each row holds; a memory may go on behind the source (tags) with nothing to copy."""
    copies = spread(state.sources["copies"], weights.shape[0])
    behind = weights.shape[-1] - copies.shape[1]
    assert behind >= 0, "copying needs a memory position for every token of the source"
    return F.pad(copies, (0, behind), value=-1)


def _log(mass: Float[Tensor, "*r"]) -> Float[Tensor, "*r"]:
    """log, finite for what underflows to zero (e^-87 in float32), so that a piece which can be said never costs inf."""
    return mass.clamp(min=torch.finfo(mass.dtype).tiny).log()

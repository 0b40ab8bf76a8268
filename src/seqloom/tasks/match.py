"""Matching: which of the batch's texts answers which source? Cross-entropy with in-batch negatives.

    loss = sum_i -log( exp(s(x_i, y_i) / tau) / sum_j exp(s(x_i, y_j) / tau) ),   j over the texts of the batch

A text that is right for x_i in another row is no negative there: one that equals y_i, and one that answers a source
that equals x_i. The others of its batch are a part of an example's loss, so a batch is never split, and batches that
are accumulated do not make a larger one: law 11 does not hold here, and both are refused. Several processes each encode
some rows of a batch, and hold them against the texts of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from seqloom.batch import Batch, Source, Tokens
from seqloom.data.batching import collate_pairs
from seqloom.data.corpus import Pair
from seqloom.models.dual import DualEncoder
from seqloom.ranks.group import ALONE, Group
from seqloom.shapes import Bool, Float, Int, Tensor
from seqloom.tasks.base import Loss, Task


class Match(Task[DualEncoder, Pair, list[int]]):
    """Training of a dual encoder. Losses are counted by examples, not by tokens."""

    splits = False

    def __init__(self, ranks: Group = ALONE) -> None:
        self.ranks = ranks

    def collate(self, examples: Sequence[Pair]) -> Batch:
        return collate_pairs(examples)

    def loss(self, model: DualEncoder, batch: Batch, step: int) -> Loss:
        ranks = self.ranks if model.training else ALONE
        rows = ranks.rows(len(batch))
        own = torch.tensor([*rows] or [0], device=batch.sources["source"].mask.device)  # b: one is computed in any case
        nll = -self._log_probs(model, batch, own, ranks).gather(1, own[:, None])[:, 0]  # b
        weights = torch.ones_like(nll) if batch.weights is None else batch.weights[own].to(nll)
        weights = weights if rows else torch.zeros_like(weights)
        total = (nll * weights).sum()
        return Loss(total, weights.sum(), total.detach())

    def _log_probs(
        self, model: DualEncoder, batch: Batch, own: Int[Tensor, "b"], ranks: Group = ALONE
    ) -> Float[Tensor, "b B"]:
        """log p(y_j | x_i) of own rows i among the texts of the batch; of what is right in another row, none."""
        part = batch.rows(own)
        assert part.target is not None, "an example is a source and its text"
        queries, candidates = model.queries(part.sources), model.candidates(part.target)
        candidates = ranks.whole(candidates[: len(ranks.rows(len(batch)))], len(batch))  # B D
        logits = model.logits(queries, candidates)
        return F.log_softmax(logits.masked_fill(~negatives(batch)[own], -torch.inf), dim=1)

    def obstacle(self, model: DualEncoder) -> str | None:
        return "which texts of a batch are the same is looked for in each"

    @torch.no_grad()
    def predict(self, model: DualEncoder, batch: Batch) -> list[list[int]]:
        """For each source the rows of the batch's texts, the best first."""
        rows = torch.arange(len(batch), device=batch.sources["source"].mask.device)
        ranked: list[list[int]] = (
            self._log_probs(model, batch, rows).argsort(dim=1, descending=True, stable=True).tolist()
        )
        return ranked


def negatives(batch: Batch) -> Bool[Tensor, "B B"]:
    """Which texts (columns) each source (row) is held against: its own, and those that are wrong for it."""
    assert batch.target is not None
    texts, sources = _groups(batch.target), _groups(batch.sources["source"])
    right = texts[:, None] == texts  # B B: the same text
    right = right | (sources[:, None] == sources)  # or another answer to the same source
    return ~right | torch.eye(len(batch), dtype=torch.bool, device=right.device)


def _groups(source: Source) -> Int[Tensor, "B"]:
    """A number for each row, the same for rows that hold the same tokens."""
    assert isinstance(source, Tokens), "a dual encoder reads tokens"
    real = source.ids.masked_fill(~source.mask, -1)
    found: Tensor = torch.unique(real, dim=0, return_inverse=True)[1]
    return found

"""Ranked lists: is a right answer among the first k, and how far up does the first right one stand?

An output is a list of candidates, the best first, with tabs between them; every reference is a right answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from seqloom.metrics.base import Metric
from seqloom.metrics.rates import Rate, collapse

CANDIDATES = "\t"  # between the candidates of a list


def first_right(output: str, references: Sequence[str]) -> int | None:
    """The place of the first right candidate, from 1 up; None where none is right."""
    right = {collapse(reference) for reference in references}
    places = (place for place, text in enumerate(output.split(CANDIDATES), start=1) if collapse(text) in right)
    return next(places, None)


class RecallAt(Rate):
    """Share of lists with a right answer among their first k."""

    of_lists = True

    class Settings(Metric.Settings):
        kind: Literal["recall_at"] = "recall_at"
        k: int = Field(1, ge=1, le=1_000_000)  # how many candidates are looked at

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.k = self.depth = settings.k
        self.name = f"recall@{settings.k}"
        self.rule = f"count:lists|right:any-reference|k:{settings.k}|space:collapsed"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        places = map(first_right, predictions, references)
        return [(int(place is not None and place <= self.k), 1) for place in places]


class ReciprocalRank(Rate):
    """MRR, mean reciprocal rank in %: 1 / place of the first right answer, 0 where the list has none."""

    of_lists = True
    rule = "mean:1/rank|right:any-reference|missing:0|space:collapsed"

    class Settings(Metric.Settings):
        kind: Literal["mrr"] = "mrr"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "MRR"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        places = map(first_right, predictions, references)
        return [(0.0 if place is None else 1 / place, 1.0) for place in places]

"""distinct-n (Li et al. 2016): do outputs vary, or say the same to everything?

    100 x different n-grams of all outputs / all n-grams of all outputs

References are not looked at. Rows add up, as those of all metrics do: an n-gram that stands k times in the outputs
counts 1 / k wherever it stands, so that the sum is the number of different ones. Of a part of the outputs (a bucket of
lengths, a resample) it says what that part gives to the variety of the whole. The more outputs, the more n-grams
return: only numbers of equally many outputs compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from seqloom.metrics.base import Metric
from seqloom.metrics.cutting import Cut, cutter, grams
from seqloom.metrics.rates import Rate


class Options(Metric.Settings):
    """What both may be told."""

    tokenize: Cut = "blank"


class Distinct(Rate):
    """The share of n-grams that are not repetitions of others."""

    compares = False
    order: int

    def __init__(self, settings: Options) -> None:
        super().__init__()
        self.cut = cutter(settings.tokenize)
        self.name = f"distinct-{self.order}"
        self.rule = f"order:{self.order}|tok:{settings.tokenize}|case:lc|over:set"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        said = [grams(self.cut(output.lower()), self.order) for output in predictions]
        counts = Counter(gram for some in said for gram in some)
        return [(sum(1 / counts[gram] for gram in some), len(some)) for some in said]


class Distinct1(Distinct):
    """Of words."""

    order = 1

    class Settings(Options):
        kind: Literal["distinct_1"] = "distinct_1"


class Distinct2(Distinct):
    """Of pairs of neighbouring words."""

    order = 2

    class Settings(Options):
        kind: Literal["distinct_2"] = "distinct_2"

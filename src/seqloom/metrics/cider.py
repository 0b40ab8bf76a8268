"""CIDEr-D (Vedantam et al. 2015): outputs judged by what they share with all of their references.

    10 mean_n mean_j exp(-(l_c - l_j)^2 / 2 s^2) sum_w min(g(c)_w, g(j)_w) g(j)_w / (|g(c)| |g(j)|)
    g_w = count of the n-gram w times log(items / items with w in a reference), n = 1 to 4, s = 6

Texts are in lower case. Words are weighed by the set that is judged: one that stands in every item's references says
nothing, and of one item alone nothing is known. It is told as papers on captions tell it, 100 being a good caption and
1000 the most there is. What the scripts of COCO and of the E2E challenge call CIDEr is this, with `tokenize: captions`;
the challenge tells a hundredth of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from seqloom.metrics.base import Counted, Metric, Total
from seqloom.metrics.cutting import Cut, Gram, cutter, grams

ORDERS = range(1, 5)
TEN, PERCENT = 10.0, 100.0


class CiderD(Counted):
    """Agreement with all references in words that say something, averaged over outputs."""

    columns = 2  # value, 1

    class Settings(Metric.Settings):
        kind: Literal["cider"] = "cider"
        sigma: float = Field(6.0, gt=0.0)  # how many words an output may be longer or shorter
        tokenize: Cut = "blank"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.sigma, self.cut = settings.sigma, cutter(settings.tokenize)
        self.name = "CIDEr-D"
        self.rule = f"variant:D|order:4|sigma:{settings.sigma:g}|tok:{settings.tokenize}|case:lc|idf:set|scale:100"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        wanted = [[self._words(one) for one in several] for several in references]
        rarity = _rarity(wanted)
        return [
            (PERCENT * self._agreement(self._words(output), several, rarity, math.log(len(wanted))), 1.0)
            for output, several in zip(predictions, wanted, strict=True)
        ]

    def _words(self, text: str) -> list[str]:
        return self.cut(text.lower())

    def _agreement(
        self, output: Sequence[str], references: Sequence[Sequence[str]], rarity: dict[Gram, float], unseen: float
    ) -> float:
        """`unseen` weighs what stands in no reference: as much as what stands in those of one item."""
        said = [_weighed(output, n, rarity, unseen) for n in ORDERS]
        total = 0.0
        for one in references:
            near = math.exp(-((len(output) - len(one)) ** 2) / (2 * self.sigma**2))
            wanted = [_weighed(one, n, rarity, unseen) for n in ORDERS]
            total += near * sum(map(_cosine, said, wanted)) / len(ORDERS)
        return TEN * total / len(references)

    def value(self, total: Total) -> float:
        return float(total[0] / total[1]) if total[1] else 0.0


def _rarity(items: Sequence[Sequence[Sequence[str]]]) -> dict[Gram, float]:
    """log(items / items with this n-gram in a reference)."""
    found: Counter[Gram] = Counter()
    for several in items:
        found.update({gram for one in several for n in ORDERS for gram in grams(one, n)})
    return {gram: math.log(len(items) / count) for gram, count in found.items()}


def _weighed(words: Sequence[str], n: int, rarity: dict[Gram, float], unseen: float) -> dict[Gram, float]:
    return {gram: count * rarity.get(gram, unseen) for gram, count in Counter(grams(words, n)).items()}


def _cosine(said: dict[Gram, float], wanted: dict[Gram, float]) -> float:
    """Of clipped counts: to say a word more often than the reference wins nothing."""
    sizes = math.sqrt(sum(x * x for x in said.values())) * math.sqrt(sum(x * x for x in wanted.values()))
    common = sum(min(weight, wanted[gram]) * wanted[gram] for gram, weight in said.items() if gram in wanted)
    return common / sizes if sizes else 0.0

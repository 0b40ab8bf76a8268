"""Outputs judged by what they share with several references: ROUGE-L (Lin 2004) and CIDEr-D (Vedantam et al. 2015).

    ROUGE-L   l = longest common subsequence, P = l / |output|, R = l / |reference|,
              F = (1 + b^2) P R / (R + b^2 P), of the reference that gives the most
    CIDEr-D   10 mean_n mean_j exp(-(l_c - l_j)^2 / 2 s^2) sum_w min(g(c)_w, g(j)_w) g(j)_w / (|g(c)| |g(j)|)
              g_w = count of the n-gram w times log(items / items with w in a reference), n = 1 to 4, s = 6

Texts are words between blanks, in lower case. CIDEr-D weighs words by the set that is judged: one that stands in every
item's references says nothing, and of one item alone nothing is known. It is told as papers tell it, 100 being a good
caption and 1000 the most there is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from seqloom.metrics.base import Counted, Metric, Total

Gram = tuple[str, ...]
ORDERS = range(1, 5)
TEN, PERCENT = 10.0, 100.0


class _Averaged(Counted):
    """A value of every output, averaged over them."""

    columns = 2  # value, 1

    def value(self, total: Total) -> float:
        return float(total[0] / total[1]) if total[1] else 0.0


class RougeL(_Averaged):
    """The F measure of the longest common subsequence with the best reference."""

    class Settings(Metric.Settings):
        kind: Literal["rouge"] = "rouge"
        beta: float = Field(1.0, gt=0.0)  # above 1 recall counts for more; captions are often judged with 1.2

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.beta = settings.beta
        self.name, self.rule = "ROUGE-L", f"beta:{settings.beta:g}|tok:blank|case:lc|reference:best"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        pairs = zip(predictions, references, strict=True)
        return [
            (PERCENT * max(self._f(_words(output), _words(one)) for one in wanted), 1.0) for output, wanted in pairs
        ]

    def _f(self, output: Sequence[str], reference: Sequence[str]) -> float:
        if not output or not reference:
            return float(len(output) == len(reference))
        common = longest_common(output, reference)
        if not common:
            return 0.0
        precision, recall, weight = common / len(output), common / len(reference), self.beta**2
        return (1 + weight) * precision * recall / (recall + weight * precision)


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest subsequence of both."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for place, theirs in enumerate(other, start=1):
            kept = row[place]
            row[place] = before + 1 if word == theirs else max(kept, row[place - 1])
            before = kept
    return row[-1]


class CiderD(_Averaged):
    """Agreement with all references in words that say something."""

    class Settings(Metric.Settings):
        kind: Literal["cider"] = "cider"
        sigma: float = Field(6.0, gt=0.0)  # how many words an output may be longer or shorter

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.sigma = settings.sigma
        self.name, self.rule = "CIDEr-D", f"sigma:{settings.sigma:g}|tok:blank|case:lc|idf:set"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        wanted = [[_words(one) for one in several] for several in references]
        rarity = _rarity(wanted)
        return [
            (PERCENT * self._agreement(_words(output), several, rarity), 1.0)
            for output, several in zip(predictions, wanted, strict=True)
        ]

    def _agreement(
        self, output: Sequence[str], references: Sequence[Sequence[str]], rarity: dict[Gram, float]
    ) -> float:
        unseen = max(rarity.values(), default=0.0)  # as rare as what stands in one item
        said = [_weighed(output, n, rarity, unseen) for n in ORDERS]
        total = 0.0
        for one in references:
            near = math.exp(-((len(output) - len(one)) ** 2) / (2 * self.sigma**2))
            wanted = [_weighed(one, n, rarity, unseen) for n in ORDERS]
            total += near * sum(map(_cosine, said, wanted)) / len(ORDERS)
        return TEN * total / len(references)


def _rarity(items: Sequence[Sequence[Sequence[str]]]) -> dict[Gram, float]:
    """log(items / items with this n-gram in a reference)."""
    found: Counter[Gram] = Counter()
    for several in items:
        found.update({gram for one in several for n in ORDERS for gram in _grams(one, n)})
    return {gram: math.log(len(items) / count) for gram, count in found.items()}


def _weighed(words: Sequence[str], n: int, rarity: dict[Gram, float], unseen: float) -> dict[Gram, float]:
    return {gram: count * rarity.get(gram, unseen) for gram, count in Counter(_grams(words, n)).items()}


def _cosine(said: dict[Gram, float], wanted: dict[Gram, float]) -> float:
    """Of clipped counts: to say a word more often than the reference wins nothing."""
    sizes = math.sqrt(sum(x * x for x in said.values())) * math.sqrt(sum(x * x for x in wanted.values()))
    common = sum(min(weight, wanted[gram]) * wanted[gram] for gram, weight in said.items() if gram in wanted)
    return common / sizes if sizes else 0.0


def _grams(words: Sequence[str], n: int) -> list[Gram]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def _words(text: str) -> list[str]:
    return text.lower().split()

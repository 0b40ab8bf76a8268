"""NIST (Doddington 2002): n-grams in common, each by how much it says, as mteval tells it.

    score = sum_n (sum of info(w) over n-grams in common) / (n-grams of the outputs)  x  exp(-b log^2 min(1, l / r))
    info(w_1 ... w_n) = log2(count of w_1 ... w_{n-1} / count of w_1 ... w_n), counted in all references of the set;
                        of one word: log2(all words / count of the word)

n goes from 1 to 5. An n-gram counts as often as the reference has it that has it most. l are the words of the outputs,
r those of the references, averaged over the references of each output; b = -log 0.5 / log^2 1.5, so that outputs of two
thirds of the length are worth half. Its unit is bits, and there is no best value: the weights come from the references
that are judged by, so numbers of different sets do not compare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from seqloom.metrics.base import Counted, Metric, Statistics, Total
from seqloom.metrics.cutting import Cut, Gram, cutter, grams

BREVITY = -math.log(0.5) / math.log(1.5) ** 2


class Nist(Counted):
    """Bits in common with the references. Rows: bits by order, n-grams by order, words of an average reference."""

    class Settings(Metric.Settings):
        kind: Literal["nist"] = "nist"
        order: int = Field(5, ge=1, le=12)
        tokenize: Cut = "13a"
        lowercase: bool = True

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.order, self.lowercase, self.cut = settings.order, settings.lowercase, cutter(settings.tokenize)
        self.columns = 2 * self.order + 1
        self.name = "NIST" if self.order == 5 else f"NIST-{self.order}"
        case = "lc" if self.lowercase else "mixed"
        self.rule = f"order:{self.order}|tok:{settings.tokenize}|case:{case}|brevity:mteval|info:set"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        wanted = [[self._words(one) for one in several] for several in references]
        counts = self._counted(wanted)
        rows = [
            self._row(self._words(said), several, counts) for said, several in zip(predictions, wanted, strict=True)
        ]
        return np.array(rows, dtype=np.float64)

    def _words(self, text: str) -> list[str]:
        return self.cut(text.lower() if self.lowercase else text)

    def _counted(self, wanted: Sequence[Sequence[Sequence[str]]]) -> Counter[Gram]:
        """How often each n-gram stands in any reference; the empty one, as often as there are words."""
        counts: Counter[Gram] = Counter()
        for several in wanted:
            for one in several:
                counts[()] += len(one)
                for n in range(1, self.order + 1):
                    counts.update(grams(one, n))
        return counts

    def _row(self, said: Sequence[str], several: Sequence[Sequence[str]], counts: Counter[Gram]) -> list[float]:
        bits, sizes = [], []
        for n in range(1, self.order + 1):
            ours = Counter(grams(said, n))
            most: Counter[Gram] = Counter()
            for one in several:
                most |= Counter(grams(one, n))
            common = ours & most
            bits.append(sum(times * math.log2(counts[gram[:-1]] / counts[gram]) for gram, times in common.items()))
            sizes.append(float(ours.total()))
        return [*bits, *sizes, sum(map(len, several)) / len(several)]

    def value(self, total: Total) -> float:
        bits, sizes, wanted = total[: self.order], total[self.order : -1], float(total[-1])
        score = float(sum(some / size for some, size in zip(bits, sizes, strict=True) if size))
        words = float(sizes[0])
        if not words or words >= wanted:
            return score
        return score * math.exp(-BREVITY * math.log(words / wanted) ** 2)

"""Counts as a language model: what a neural one must beat.

Interpolated Kneser-Ney (Kneser and Ney 1995; Chen and Goodman 1998) over tokens of a vocabulary of V ids. With c(h w)
how often w follows h, N(h .) how many different tokens do, and h' the history h without its first token,

    p(w given h) = max(c(h w) - D, 0) / c(h .) + D N(h .) / c(h .) p(w given h'),   p(w given nothing seen) = 1 / V

where below the longest histories c counts different tokens in front instead of occurrences. Order 1 is the unigram
model.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

DISCOUNT = 0.75

Gram = tuple[int, ...]


class NGrams:
    """A model of the given order; texts are id sequences, and `start` stands before each as often as is needed."""

    def __init__(self, texts: Iterable[Sequence[int]], order: int, vocabulary: int, start: int) -> None:
        assert order >= 1, order
        self.order, self.vocabulary, self.start = order, vocabulary, start
        counts: list[Counter[Gram]] = [Counter() for _ in range(order + 1)]
        for text in texts:
            padded = (*[start] * (order - 1), *text)
            counts[order].update(zip(*(padded[i:] for i in range(order)), strict=False))
        for size in range(order - 1, 0, -1):  # each different longer one counts once for what it ends with
            counts[size].update(gram[1:] for gram in counts[size + 1])
        self.counts = counts
        self.totals: list[dict[Gram, tuple[int, int]]] = [{} for _ in range(order + 1)]  # of a history: c(h .), N(h .)
        for size in range(1, order + 1):
            sums: dict[Gram, list[int]] = defaultdict(lambda: [0, 0])
            for gram, count in counts[size].items():
                entry = sums[gram[:-1]]
                entry[0] += count
                entry[1] += 1
            self.totals[size] = {history: (total, kinds) for history, (total, kinds) in sums.items()}

    def probability(self, token: int, history: Gram) -> float:
        """p(token given history); of a longer history only the last order - 1 tokens are known."""
        probability = 1 / self.vocabulary
        for size in range(1, self.order + 1):
            before = history[len(history) - size + 1 :] if size > 1 else ()
            if len(before) < size - 1 or before not in self.totals[size]:
                break
            total, kinds = self.totals[size][before]
            seen = max(self.counts[size].get((*before, token), 0) - DISCOUNT, 0.0)
            probability = seen / total + DISCOUNT * kinds / total * probability
        return probability

    def log_prob(self, text: Sequence[int]) -> float:
        """log P(text), from its first token on."""
        padded = (*[self.start] * (self.order - 1), *text)
        return sum(
            math.log(self.probability(padded[place], padded[place - self.order + 1 : place]))
            for place in range(self.order - 1, len(padded))
        )

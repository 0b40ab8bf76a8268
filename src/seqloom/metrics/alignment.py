"""METEOR's word alignment: the largest one-to-one matching, in the fewest chunks, with the least crossing.

A beam over the output's words, as in METEOR itself. It sees positions and weights only, never words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

BEAM = 40


class _Partial(NamedTuple):
    """An alignment of the words so far; tuples compare by cost first, so that `min` is the best."""

    unmatched: int  # output words left out, fewest first
    chunks: int
    distance: int  # sum of |i - j|
    lost: float  # weight given away against exact matches
    used: int  # bit mask of reference positions taken
    pairs: tuple[tuple[int, int], ...]

    def skip(self) -> _Partial:
        return self._replace(unmatched=self.unmatched + 1)

    def match(self, i: int, j: int, weight: float) -> _Partial:
        continues = bool(self.pairs) and self.pairs[-1] == (i - 1, j - 1)
        return _Partial(
            self.unmatched,
            self.chunks + (not continues),
            self.distance + abs(i - j),
            self.lost + 1 - weight,
            self.used | 1 << j,
            (*self.pairs, (i, j)),
        )


def align(edges: Sequence[Mapping[int, float]], beam: int = BEAM) -> list[tuple[int, int]]:
    """Pairs (i, j). `edges[i]` maps each reference position that output word i may match to the match's weight."""
    rivals = Counter(j for options in edges for j in options)
    partials = [_Partial(0, 0, 0, 0.0, 0, ())]
    for i, options in enumerate(edges):
        # A word and a position that have only each other stand in every largest matching: no need to branch.
        certain = len(options) == 1 and all(rivals[j] == 1 for j in options)
        grown = [] if certain else [partial.skip() for partial in partials]
        for partial in partials:
            grown.extend(partial.match(i, j, weight) for j, weight in options.items() if not partial.used >> j & 1)
        partials = _prune(grown, beam)
    return list(min(partials).pairs)


def _prune(partials: Iterable[_Partial], beam: int) -> list[_Partial]:
    """The best `beam`; of those that can only continue alike (same positions used, same last pair) just the best."""
    kept: dict[tuple[int, tuple[int, int] | None], _Partial] = {}
    for partial in sorted(partials):
        kept.setdefault((partial.used, partial.pairs[-1] if partial.pairs else None), partial)
        if len(kept) == beam:
            break
    return list(kept.values())


def count_chunks(pairs: Sequence[tuple[int, int]]) -> int:
    """Runs of pairs that stand side by side and in order on both sides."""
    breaks = sum(1 for (i, j), following in pairwise(pairs) if following != (i + 1, j + 1))
    return breaks + 1 if pairs else 0

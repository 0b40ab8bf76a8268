"""Byte pair encoding with dropped merges (Provilkov et al. 2020), of many words at once.

A word begins as its characters. In every step each pair of neighbours that has a merged piece is passed over with the
probability of dropout; of the others the best is merged, the first of equals; where none is left, the word is cut. All
words take their steps together, as rows of a few arrays: one by one in Python, the words of a corpus take longer than a
GPU takes to train on them. What is drawn depends on a word's key, the step and the place alone, so that a word is cut
alike whoever stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

NOTHING = -1  # behind the end of a word, and the rank of a pair that cannot be merged
MOST_CELLS = 1 << 18  # of one array: what a processor's cache holds
_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class Cuts(NamedTuple):
    """Many words in pieces: `pieces` are places in `names`, one word behind the other, of so many pieces each."""

    names: Sequence[str]
    pieces: Numbers
    lengths: Numbers


def mixed(values: Keys) -> Keys:
    """Every bit of the result depends on every bit given (the last steps of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_ODD[2])
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_ODD[3])
    return values ^ (values >> np.uint64(31))


class Merges:
    """The merges of an inventory: pieces with scores, a higher one being merged earlier."""

    def __init__(self, scores: Mapping[str, float], dropout: float) -> None:
        self.known = len(scores)  # names beyond are characters that no piece is
        self.names = list(scores)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        merges = [
            (self._number(piece[:cut]), self._number(piece[cut:]), number)
            for number, piece in enumerate(list(scores))
            for cut in range(1, len(piece))
            if all(len(side) == 1 or side in scores for side in (piece[:cut], piece[cut:]))
        ]
        by_score = np.argsort([scores[name] for name in self.names[: self.known]], kind="stable")
        values = np.array([scores[name] for name in self.names[: self.known]])[by_score]
        ranks = np.empty(self.known, np.int32)
        ranks[by_score] = np.cumsum(np.r_[True, values[1:] != values[:-1]]) if self.known else 0  # equals rank alike
        table = np.array(merges, np.int64).reshape(-1, 3)
        keys = (table[:, 0] << 32) | table[:, 1]
        order = np.argsort(keys)
        self._pairs = np.append(keys[order], np.iinfo(np.int64).max)  # one more: a search may end behind the last
        self._merged = np.append(table[order, 2], NOTHING)
        self._ranks = np.append(ranks[table[order, 2]], NOTHING).astype(np.int32)
        self._dropped = np.uint64(min(round(dropout * 2**32), 2**32))  # of 2**32 draws

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def cuts(self, words: Sequence[str], keys: Keys) -> Cuts:
        """Each word in pieces, drawn by its key; neighbouring characters that no piece is are one piece."""
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        lengths = np.zeros(len(words), np.int64)
        found: list[tuple[Numbers, Numbers]] = []  # which words, and their pieces side by side
        order = np.argsort(sizes, kind="stable")  # words of like lengths together
        start = 0
        while start < len(order):
            end = start + 1
            while end < len(order) and (end + 1 - start) * sizes[order[end]] <= MOST_CELLS:
                end = min(len(order), end + 256)
            rows = order[start:end]
            pieces = self._merged_all(self._characters([words[row] for row in rows.tolist()], sizes[rows]), keys[rows])
            lengths[rows] = (pieces != NOTHING).sum(1)
            found.append((rows, pieces))
            start = end
        return self._joined(Cuts(self.names, _flat(found, lengths), lengths))

    def _characters(self, words: Sequence[str], sizes: Numbers) -> Numbers:
        """The words as rows of numbers of their characters."""
        numbers = np.fromiter((self._number(character) for word in words for character in word), np.int64, sizes.sum())
        cells = np.full((len(words), int(sizes.max(initial=1))), NOTHING)
        cells[np.arange(cells.shape[1]) < sizes[:, None]] = numbers
        return cells

    def _merged_all(self, cells: Numbers, keys: Keys) -> Numbers:
        """Rows of characters as rows of pieces, filled up with NOTHING."""
        done = np.full_like(cells, NOTHING)
        rows = np.arange(len(cells))  # those that are not done yet
        ranks, merged = self._looked_up(cells[:, :-1], cells[:, 1:])
        step = 0
        while len(rows) and cells.shape[1] > 1:
            chances = np.where(self._passed(keys[rows], ranks.shape[1], step), NOTHING, ranks)
            place = chances.argmax(1)
            every = np.arange(len(rows))
            going = chances[every, place] > NOTHING
            if not going.all():
                done[rows[~going], : cells.shape[1]] = cells[~going]
                rows, cells, place = rows[going], cells[going], place[going]
                ranks, merged, every = ranks[going], merged[going], np.arange(len(rows))
            width = max(1, int((cells != NOTHING).sum(1).max(initial=1)) - 1)
            cells, ranks, merged = self._after(cells, ranks, merged, place, width)
            step += 1
        done[rows, : cells.shape[1]] = cells
        return done

    def _after(
        self, cells: Numbers, ranks: Numbers, merged: Numbers, place: Numbers, width: int
    ) -> tuple[Numbers, Numbers, Numbers]:
        """One merge in every row, at its place; no row has more than `width` pieces then."""
        every, columns = np.arange(len(cells)), np.arange(width)
        cells[every, place] = merged[every, place]
        later = columns + (columns > place[:, None])
        cells = np.take_along_axis(cells, later, 1)
        beside = columns[:-1] + (columns[:-1] >= place[:, None])  # the pair that was merged is gone
        ranks, merged = (np.take_along_axis(values, beside, 1) for values in (ranks, merged))
        for left in (place - 1, place):
            there = every[(left >= 0) & (left < width - 1)]
            at = left[there]
            ranks[there, at], merged[there, at] = self._looked_up(cells[there, at], cells[there, at + 1])
        return cells, ranks, merged

    def _looked_up(self, left: Numbers, right: Numbers) -> tuple[Numbers, Numbers]:
        """(rank, merged piece) of pairs of neighbours, NOTHING where there is none."""
        keys = (left << 32) | right
        at = np.searchsorted(self._pairs, keys)
        there = (self._pairs[at] == keys) & (right >= 0) & (left >= 0)
        return np.where(there, self._ranks[at], NOTHING), np.where(there, self._merged[at], NOTHING)

    def _passed(self, keys: Keys, places: int, step: int) -> npt.NDArray[np.bool_]:
        """Which pairs of neighbours are passed over in this step: one draw of 32 bits for each."""
        if not self._dropped:
            return np.zeros((len(keys), places), bool)
        drawn = mixed(keys + np.uint64((step * _ODD[0]) % 2**64))
        odd = np.array([((2 * place + 1) * _ODD[1]) % 2**64 | 1 for place in range(places)], np.uint64)
        spread = (drawn[:, None] * odd) ^ (drawn[:, None] >> np.uint64(29))
        return ((spread * np.uint64(_ODD[2])) >> np.uint64(32)) < self._dropped

    def _joined(self, cuts: Cuts) -> Cuts:
        """Runs of characters that no piece is become one piece, as sentencepiece does it."""
        unknown = cuts.pieces >= self.known
        first = np.zeros(len(cuts.pieces), bool)
        first[(np.cumsum(cuts.lengths) - cuts.lengths)[cuts.lengths > 0]] = True
        goes_on = unknown & ~first
        goes_on[1:] &= unknown[:-1]
        if not goes_on.any():
            return cuts
        pieces, names = cuts.pieces.copy(), list(self.names)
        numbers: dict[str, int] = {}
        for start in np.flatnonzero(np.append(goes_on[1:], False) & ~goes_on).tolist():
            end = start + 1
            while end < len(pieces) and goes_on[end]:
                end += 1
            name = "".join(self.names[number] for number in cuts.pieces[start:end].tolist())
            pieces[start] = numbers.setdefault(name, len(names))
            if pieces[start] == len(names):
                names.append(name)
        words = np.repeat(np.arange(len(cuts.lengths)), cuts.lengths)
        lengths = cuts.lengths - np.bincount(words[goes_on], minlength=len(cuts.lengths))
        return Cuts(names, pieces[~goes_on], lengths)


def _flat(found: Sequence[tuple[Numbers, Numbers]], lengths: Numbers) -> Numbers:
    """All rows one behind the other, in the order of their words."""
    ends = np.cumsum(lengths)
    flat = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
    for rows, pieces in found:
        real = pieces != NOTHING
        places = (ends - lengths)[rows][:, None] + np.arange(pieces.shape[1])
        flat[places[real]] = pieces[real]
    return flat

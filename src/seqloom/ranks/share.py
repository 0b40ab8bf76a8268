"""Which part of a step's batches one of several processes computes.

A step is what the recipe says, however many processes work on it: `accumulate` batches. As many of them as there are
processes are dealt out whole, as often as that goes; of the others every process takes some rows. So all examples of a
step are computed once, nobody needs to know how many batches an epoch has, and law 11 makes the sum the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """The share of rank `rank` of `size`, in steps of `every` batches; the first `whole` of them stay whole."""

    rank: int = 0
    size: int = 1
    every: int = 1
    whole: int = 0

    @staticmethod
    def of_steps(rank: int, size: int, batches: int, *, rows_only: bool = False) -> Share:
        """For steps of so many batches; `rows_only` where a batch goes on in the next, so that rows must stay."""
        return Share(rank, size, batches, 0 if rows_only else batches // size * size)

    @staticmethod
    def of_batches(rank: int, size: int) -> Share:
        """Whole batches in turn."""
        return Share(rank, size, size, size)

    def rows(self, place: int, count: int) -> slice | None:
        """Which of its `count` rows, of the batch with this number in its epoch; None where there is none."""
        if self.size == 1:
            return slice(None)
        place %= self.every
        if place < self.whole:
            return slice(None) if place % self.size == self.rank else None
        return slice(self.rank, None, self.size) if self.rank < count else None

    def most(self, rows: int) -> int:
        """The most rows of a batch that has at most so many."""
        return rows if self.size == 1 or self.whole else -(-rows // self.size)


WHOLE = Share()

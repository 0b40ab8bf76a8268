"""Several corpora as one: how many pairs of each an epoch holds, and which ones.

Shares are given, or follow from the sizes under a temperature. A corpus is walked through in shuffled passes that go
on from epoch to epoch: with a large share it is repeated, with a small one only a part of it is seen per epoch, and
no pair is seen twice before all are seen once. Pure arithmetic on (seed, epoch): nothing is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from seqloom import config
from seqloom.errors import SeqloomError

Draws = npt.NDArray[np.int64]


class Mixing(config.Settings):
    """How corpora without a share of their own are mixed."""

    temperature: float | None = Field(default=None, ge=1.0)  # shares ~ size^(1/T): 1 is as they come, much: all alike


def shares_of(sizes: Sequence[int], given: Sequence[float | None], temperature: float | None) -> list[float]:
    """The share of each corpus in an epoch; they sum to 1.

    Given shares are taken as they are, and the rest goes to the other corpora by size; where all are given they are
    relative. With a temperature they follow from the sizes alone.
    """
    if temperature is not None:
        powers = [size ** (1 / temperature) for size in sizes]
        return [power / math.fsum(powers) for power in powers]
    fixed = [share for share in given if share is not None]
    if len(fixed) == len(given):
        return [share / math.fsum(fixed) for share in fixed]
    rest = 1 - math.fsum(fixed)
    others = sum(size for size, share in zip(sizes, given, strict=True) if share is None)
    return [rest * size / others if share is None else share for size, share in zip(sizes, given, strict=True)]


class Mixture:
    """Which pairs of a corpus of corpora stand in an epoch. An epoch has as many pairs as all corpora together."""

    def __init__(self, sizes: Sequence[int], given: Sequence[float | None], temperature: float | None = None) -> None:
        if empty := [number for number, size in enumerate(sizes, start=1) if not size]:
            what = f"corpus {empty[0]} of {len(sizes)} has no pairs left to mix"
            raise SeqloomError("E_EMPTY", what, where="data.train", fix="check its file and data.limits, or drop it")
        self.sizes = tuple(sizes)
        self.shares = shares_of(sizes, given, temperature)

    def draws(self, seed: int, epoch: int) -> Draws:
        """Indices of the epoch's pairs, corpora one after the other; a pair may stand there several times."""
        parts, first = [], 0
        for number, (size, share) in enumerate(zip(self.sizes, self.shares, strict=True)):
            quota = share * sum(self.sizes)
            start, end = math.floor(epoch * quota), math.floor((epoch + 1) * quota)
            parts.append(first + _walked(size, start, end, seed, number))
            first += size
        return np.concatenate(parts)


def _walked(size: int, start: int, end: int, seed: int, number: int) -> Draws:
    """Steps `start` to `end` of an endless walk: a new shuffled pass through the corpus whenever one is done."""
    passes = [
        np.random.default_rng((seed, number, turn, 1)).permutation(size)[
            max(0, start - turn * size) : max(0, end - turn * size)
        ]
        for turn in range(start // size, -(-end // size))
    ]
    return np.concatenate([*passes, np.zeros(0, np.int64)])

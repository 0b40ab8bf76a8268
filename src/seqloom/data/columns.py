"""Many pairs in a few long arrays: a batch of them is a handful of array operations and no loop over pairs.

A GPU takes less time for a step than Python needs to look at every pair of its batch. `Columns` hold what most pairs
are made of, ids and weights; pairs with more (copies, alignments) are put side by side one by one, in `batching`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt
import torch

from seqloom.batch import Batch, Source, Tokens
from seqloom.data.codecs import Ids, Pair
from seqloom.specials import EOS, PAD

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """Sequences of different lengths, one behind the other: the i-th is flat[offsets[i] : offsets[i + 1]]."""

    flat: Ids
    offsets: Numbers

    @classmethod
    def of(cls, sequences: Sequence[Ids]) -> Ragged:
        lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
        flat = np.concatenate(sequences) if len(sequences) else np.zeros(0, np.int64)
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Numbers:
        return np.diff(self.offsets)

    def rows(self, rows: Numbers) -> Ragged:
        """These sequences alone, in this order."""
        starts, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(self.flat[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)], offsets)

    def ended(self, rows: Numbers | None = None) -> Tokens:
        """These sequences (default: all) side by side, padded, with EOS after each; no loop over tokens."""
        rows = np.arange(len(self)) if rows is None else rows
        starts, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        places = np.arange(int(lengths.max(initial=0)) + 1)  # S
        ids = np.full((len(rows), len(places)), PAD, dtype=np.int64)  # B S
        inside = places < lengths[:, None]
        ids[inside] = self.flat[(starts[:, None] + places)[inside]]
        ids[np.arange(len(rows)), lengths] = EOS
        return Tokens(torch.from_numpy(ids), torch.from_numpy(places <= lengths[:, None]))


@dataclass(frozen=True)
class Columns:
    """Plain pairs; `index` is the place of each in its corpus, and without weights each counts as one."""

    source: Ragged
    target: Ragged
    index: Numbers
    extras: Mapping[str, Ragged] = field(default_factory=dict)
    weights: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int) -> Pair:
        extras = {name: column[row] for name, column in self.extras.items()}
        weight = 1.0 if self.weights is None else float(self.weights[row])
        return Pair(self.source[row], self.target[row], int(self.index[row]), extras, weight=weight)

    def batch(self, rows: Numbers) -> Batch:
        """As `batching.collate_pairs` makes it of the same pairs."""
        sources: dict[str, Source] = {"source": self.source.ended(rows)}
        sources |= {name: column.ended(rows) for name, column in self.extras.items()}
        weights = None if self.weights is None else self.weights[rows]
        weighted = weights is not None and bool((weights != 1).any())
        return Batch(
            sources,
            self.target.ended(rows),
            self.index[rows].tolist(),
            torch.tensor(weights, dtype=torch.float32) if weighted else None,
        )


class Indexed(Protocol):
    """Pairs that are looked up one by one: a list, or a corpus."""

    def __getitem__(self, row: int, /) -> Pair: ...


class Picked(Sequence[Pair]):
    """Some pairs of many, looked up when they are asked for; whoever knows columns never asks."""

    def __init__(self, columns: Columns, rows: Numbers) -> None:
        self.columns, self.numbers = columns, rows

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Pair: ...
    @overload
    def __getitem__(self, place: slice) -> Picked: ...
    def __getitem__(self, place: int | slice) -> Pair | Picked:
        if isinstance(place, slice):
            return Picked(self.columns, self.numbers[place])
        return self.columns[int(self.numbers[place])]

    def batch(self) -> Batch:
        return self.columns.batch(self.numbers)


def picked(pairs: Columns | Indexed, rows: Numbers) -> Sequence[Pair]:
    """These pairs, ready to be put side by side: by columns where there are any."""
    return Picked(pairs, rows) if isinstance(pairs, Columns) else [pairs[row] for row in rows.tolist()]

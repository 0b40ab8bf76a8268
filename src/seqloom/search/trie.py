"""Outputs of a given list: a trie in flat arrays, for a million entries on any device.

The edges of the trie are one sorted array of `parent * base + token`; edge e leads to node e + 1, and the root is node
0. So the children of a node are a slice, a child is found by bisection, and a batch of rows is one call of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import Field

from seqloom import config
from seqloom.errors import SeqloomError
from seqloom.search.language import FAR, Language
from seqloom.shapes import Bool, Rows, Tensor
from seqloom.specials import SPECIALS, UNK

Flat = Int64[np.ndarray, "n"]


class Trie(Language):
    """The output is one of the entries, each a sequence of tokens. With a beam as wide as the list this ranks it."""

    whole = "the list"

    class Settings(config.Settings):
        kind: Literal["trie"] = "trie"
        entries: tuple[tuple[int, ...], ...] = Field(min_length=1)

    def __init__(self, settings: Settings) -> None:
        self._take(settings.entries)

    @classmethod
    def of(cls, entries: Iterable[Sequence[int]]) -> Trie:
        """The same from any sequences, without a copy of them as settings: for long lists."""
        trie = cls.__new__(cls)
        trie._take(list(entries))
        return trie

    def _take(self, entries: Sequence[Sequence[int]]) -> None:
        if not entries:
            raise SeqloomError("E_USAGE", "the list of possible outputs is empty")
        lengths = np.fromiter(map(len, entries), dtype=np.int64, count=len(entries))
        flat = np.fromiter((token for entry in entries for token in entry), dtype=np.int64, count=int(lengths.sum()))
        if flat.size and (
            flat.min() < 0 or np.isin(flat, [token for token in range(len(SPECIALS)) if token != UNK]).any()
        ):
            raise SeqloomError("E_USAGE", "an entry of the list holds a token that is never said")
        self.longest = int(lengths.max())
        self.base = int(flat.max(initial=0)) + 1
        edges, levels, ends = _edges(flat, lengths, self.base)
        self.edges = torch.from_numpy(edges)
        self.missing = torch.from_numpy(_distances(edges // self.base, levels, ends))
        nodes = np.arange(len(self.missing) + 1, dtype=np.int64)
        self.firsts = torch.from_numpy(
            np.searchsorted(edges, nodes * self.base)
        )  # of a node's edges; one more at the end

    def _settle(self, device: torch.device) -> None:
        self.edges, self.firsts, self.missing = (t.to(device) for t in (self.edges, self.firsts, self.missing))

    def room(self) -> int:
        return self.longest

    def openings(self, at: Rows, left: Rows, width: int) -> Bool[Tensor, "N W"]:
        if self.base > width:
            what = f"an entry of the list holds token {self.base - 1}, the vocabulary ends at {width - 1}"
            raise SeqloomError("E_USAGE", what)
        first = self.firsts[at]
        counts = self.firsts[at + 1] - first
        rows = torch.arange(len(at), device=at.device).repeat_interleave(counts)  # one for every child of every row
        before = counts.cumsum(0) - counts
        edges = torch.arange(len(rows), device=at.device) + (first - before)[rows]
        near = self.missing[edges + 1] <= left[rows]
        mask = torch.zeros(len(at), width, dtype=torch.bool, device=at.device)
        mask[rows, self.edges[edges] % self.base] = near
        return mask

    def following(self, at: Rows, tokens: Rows) -> Rows:
        wanted = at * self.base + tokens
        edge = torch.searchsorted(self.edges, wanted).clamp(max=len(self.edges) - 1)
        known = (tokens < self.base) & (at < len(self.missing) - 1)
        if not len(self.edges):  # the empty output is the only entry
            return torch.full_like(at, len(self.missing) - 1)
        return torch.where(known & (self.edges[edge] == wanted), edge + 1, len(self.missing) - 1)


def _edges(flat: Flat, lengths: Flat, base: int) -> tuple[Flat, list[int], Flat]:
    """(all edges in order, where the edges of each level begin, the node at which each entry ends), level by level."""
    offsets = np.cumsum(lengths) - lengths
    at = np.zeros(len(lengths), dtype=np.int64)
    edges, levels, count = [np.zeros(0, dtype=np.int64)], [0], 0
    going = np.flatnonzero(lengths > 0)
    for depth in range(int(lengths.max())):
        found, which = np.unique(at[going] * base + flat[offsets[going] + depth], return_inverse=True)
        at[going] = count + 1 + which
        edges.append(found)
        count += len(found)
        levels.append(count)
        going = going[lengths[going] > depth + 1]
    return np.concatenate(edges), levels, at


def _distances(parents: Flat, levels: Sequence[int], ends: Flat) -> Flat:
    """For every node the tokens that are missing to the nearest end below it; the last node is that of the lost."""
    missing = np.full(len(parents) + 2, FAR, dtype=np.int64)
    missing[ends] = 0
    for first, last in zip(levels[-2::-1], levels[:0:-1], strict=True):  # the deepest first
        np.minimum.at(missing, parents[first:last], missing[first + 1 : last + 1] + 1)
    return np.minimum(missing, FAR)

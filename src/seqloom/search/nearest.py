"""The nearest of many vectors, exactly: every query is held against every one of them, block by block.

Equal scores are ordered by place, so that results depend neither on blocks nor on what stands beside a query. Where
faiss is installed and the vectors are many, its flat index, which is exact as well, does the products. Nothing here
knows what a vector is of.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import torch

from seqloom.shapes import Float, Int, Tensor

CELLS = 1 << 23  # scores that exist at once
LARGE = 200_000  # vectors from which on faiss is asked, where it is there

Found = tuple[Float[Tensor, "Q k"], Int[Tensor, "Q k"]]  # scores and places, the best first
Nearest = Callable[[Float[Tensor, "Q D"], int], Found]


def nearest_of(vectors: Float[Tensor, "N D"]) -> Nearest:
    """What finds the nearest of these by their dot products; it is asked for at most N."""
    if len(vectors) >= LARGE and find_spec("faiss") is not None:
        return by_faiss(vectors)
    return lambda queries, count: exactly(queries, vectors, count)


def exactly(queries: Float[Tensor, "Q D"], vectors: Float[Tensor, "N D"], count: int, cells: int = CELLS) -> Found:
    """The `count` nearest of each query by the dot product, in blocks of at most so many cells."""
    assert 1 <= count <= len(vectors)
    rows = max(1, min(len(queries), cells // max(1, count)))
    parts = [_some(part, vectors, count, max(1, cells // rows)) for part in torch.split(queries, rows)]
    if not parts:
        return queries.new_zeros(0, count), torch.zeros(0, count, dtype=torch.long, device=queries.device)
    return torch.cat([scores for scores, _ in parts]), torch.cat([places for _, places in parts])


def _some(queries: Float[Tensor, "Q D"], vectors: Float[Tensor, "N D"], count: int, block: int) -> Found:
    scores = queries.new_empty(len(queries), 0)
    places = torch.empty(len(queries), 0, dtype=torch.long, device=queries.device)
    for start in range(0, len(vectors), block):
        more = queries @ vectors[start : start + block].T  # Q n
        theirs = torch.arange(start, start + more.shape[1], device=queries.device).expand_as(more)
        scores, order = _first(torch.cat([scores, more], dim=1), count)
        places = torch.cat([places, theirs], dim=1).gather(1, order)
    return scores, places


def _first(scores: Float[Tensor, "Q n"], count: int) -> Found:
    """The `count` best of each row and where they stand; of equal ones those that stand first."""
    count = min(count, scores.shape[1])
    last = scores.topk(count).values[:, -1:]  # Q 1
    above, equal = scores > last, scores == last
    room = count - above.sum(1, keepdim=True)
    kept = above | (equal & (equal.cumsum(1) <= room))
    places = kept.nonzero()[:, 1].view(len(scores), count)  # in their order
    best, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return best, places.gather(1, order)


def by_faiss(vectors: Float[Tensor, "N D"]) -> Nearest:
    """The same by faiss's flat index; which of equal scores stands first is then faiss's choice."""
    faiss = import_module("faiss")
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors.float().cpu().contiguous().numpy())

    def nearest(queries: Float[Tensor, "Q D"], count: int) -> Found:
        scores, places = index.search(queries.float().cpu().contiguous().numpy(), count)
        return torch.from_numpy(scores).to(queries), torch.from_numpy(places).to(queries.device)

    return nearest

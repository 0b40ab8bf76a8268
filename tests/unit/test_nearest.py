"""The nearest vectors: by blocks as by sorting everything, equal scores by place, faiss as exactly."""

from __future__ import annotations

import pytest
import torch

from seqloom.search import nearest
from seqloom.search.nearest import by_faiss, exactly, nearest_of
from seqloom.shapes import Tensor


def sorted_all(queries: Tensor, vectors: Tensor, count: int) -> tuple[Tensor, Tensor]:
    scores, places = (queries @ vectors.T).sort(dim=1, descending=True, stable=True)
    return scores[:, :count], places[:, :count]


def drawn(rows: int, seed: int, width: int = 3) -> Tensor:
    """Small whole numbers: products are exact, and many scores are equal."""
    return torch.randint(-2, 3, (rows, width), generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("cells", [1, 7, 40, 10_000])
@pytest.mark.parametrize("count", [1, 4, 50])
def test_blocks_change_nothing_and_equal_scores_stand_in_their_order(cells: int, count: int) -> None:
    queries, vectors = drawn(9, seed=1), drawn(50, seed=2)
    scores, places = exactly(queries, vectors, count, cells)
    expected, wanted = sorted_all(queries, vectors, count)
    assert torch.equal(scores, expected)
    assert torch.equal(places, wanted)


def test_no_query_has_no_answer() -> None:
    scores, places = exactly(drawn(0, seed=1), drawn(5, seed=2), 3)
    assert scores.shape == places.shape == (0, 3)


def test_few_vectors_are_compared_here() -> None:
    queries, vectors = drawn(4, seed=3), drawn(20, seed=4)
    assert torch.equal(nearest_of(vectors)(queries, 5)[1], sorted_all(queries, vectors, 5)[1])


def test_faiss_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    generator = torch.Generator().manual_seed(5)
    queries, vectors = torch.randn(20, 16, generator=generator), torch.randn(500, 16, generator=generator)
    monkeypatch.setattr(nearest, "LARGE", 100)
    for find in (by_faiss(vectors), nearest_of(vectors)):
        scores, places = find(queries, 10)
        expected, wanted = exactly(queries, vectors, 10)
        torch.testing.assert_close(scores, expected)
        assert torch.equal(places, wanted)

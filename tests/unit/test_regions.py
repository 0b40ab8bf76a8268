"""Regions of a picture in nine named parts: every region in one, both ends alike, and no weight lost."""

from __future__ import annotations

import numpy as np
import pytest

from seqloom.probe.regions import in_parts, named_parts


def test_nine_parts_by_name() -> None:
    names, places = named_parts(3, 3)
    assert names == [
        *("top-left", "top", "top-right"),
        *("left", "middle", "right"),
        *("bottom-left", "bottom", "bottom-right"),
    ]
    assert places.tolist() == list(range(9))


@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (4, 4), (6, 6), (8, 5), (1, 7)])
def test_every_grid_is_named_alike_from_both_ends(grid: tuple[int, int]) -> None:
    names, places = named_parts(*grid)
    assert set(places.tolist()) == set(range(len(names)))
    turned = places.reshape(grid)[::-1, ::-1].reshape(-1)
    assert (np.bincount(turned) == np.bincount(places)).all()
    assert (turned == len(names) - 1 - places).all()
    if grid == (1, 1):
        assert names == ["middle"]


def test_weights_are_summed_and_what_is_no_region_stays() -> None:
    weights = np.random.default_rng(1).dirichlet(np.ones(37), size=(2, 5)).astype(np.float32)
    names, shown = in_parts(weights, (6, 6))
    assert shown.shape == (2, 5, len(names) + 1)
    np.testing.assert_allclose(shown.sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(shown[..., -1], weights[..., -1])
    np.testing.assert_allclose(shown[..., 0], weights[..., [0, 1, 6, 7]].sum(-1), atol=1e-6)

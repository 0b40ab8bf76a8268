"""Law 11 for several processes: what 2 and 4 of them learn is what one learns from the joined batches."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import several
import several_cases
from seqloom import weights
from seqloom.ranks.group import ALONE
from seqloom.ranks.share import WHOLE, Share


@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_learn_what_one_does(size: int, tmp_path: Path) -> None:
    """Float64, with accumulation, batches that are cut or dealt out whole, ranks that have nothing to do at the end of
    an epoch, examples with weights, a parameter without a gradient, and states carried from window to window."""
    command = [sys.executable, several_cases.__file__, tmp_path]
    with several.start([command] * size) as ranks:
        assert ranks.codes() == [0] * size, ranks.everything()
    for case in several_cases.CASES:
        expected, logged = several_cases.trained(case, ALONE)
        found = weights.read(tmp_path / f"{case.name}.safetensors")
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-10, msg=f"{case.name}: {name}")
        assert torch.equal(found["model/unused"], torch.ones(3, 3, dtype=torch.float64))
        for one, other in zip(logged, json.loads((tmp_path / f"{case.name}.json").read_text()), strict=True):
            assert other == pytest.approx(one, abs=1e-10)


@given(
    size=st.integers(1, 9),
    batches=st.integers(1, 20),
    rows_only=st.booleans(),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=40),
)
def test_every_row_of_every_batch_is_computed_once(size: int, batches: int, rows_only: bool, counts: list[int]) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for rank in range(size):
        share = Share.of_steps(rank, size, batches, rows_only=rows_only)
        for place, count in enumerate(counts):
            rows = share.rows(place, count)
            own = [] if rows is None else np.arange(count)[rows].tolist()
            assert rows is None or own, "an empty batch cannot be computed"
            assert len(own) <= share.most(count)
            seen.update((place, row) for row in own)
    assert seen == Counter((place, row) for place, count in enumerate(counts) for row in range(count))


def test_whole_batches_are_dealt_out_where_there_are_enough() -> None:
    shares = [Share.of_steps(rank, 2, 5) for rank in range(2)]
    rows = [[share.rows(place, 6) for share in shares] for place in range(5)]
    all_of_it = slice(None)
    assert rows[:4] == [[all_of_it, None], [None, all_of_it]] * 2
    assert rows[4] == [slice(0, None, 2), slice(1, None, 2)]
    assert WHOLE.rows(3, 6) == all_of_it

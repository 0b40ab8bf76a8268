"""Made-up recipes, vocabularies, cards, weight files and HTTP bodies: each is read, or refused with a name.

A small share in every test run; `benchmarks/fuzz.py` does the same for as long as it is told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
fuzz = import_module("fuzz")
sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[bytes], None]]:
    found: dict[str, Callable[[bytes], None]] = fuzz.targets(tmp_path_factory.mktemp("fuzz"))
    return found


@pytest.mark.parametrize("name", fuzz.SEEDS)
def test_whatever_stands_there_is_read_or_refused(name: str, targets: dict[str, Any]) -> None:
    target = targets[name]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(st.binary(max_size=200), st.randoms(use_true_random=False).map(fuzz.mutant(name))))
    def check(data: bytes) -> None:
        target(data)

    check()


@pytest.mark.parametrize("name", fuzz.SEEDS)
def test_what_is_right_is_read(name: str, targets: dict[str, Any]) -> None:
    """The seeds themselves are no nonsense: a target that refuses everything would find nothing."""
    assert all(targets[name](seed) for seed in fuzz.SEEDS[name])

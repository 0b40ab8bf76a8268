"""Phases: seconds add up, inner phases stop the outer clock, and without a watcher nothing is kept."""

from __future__ import annotations

from itertools import count

import pytest

from seqloom.training.phases import REST, Phases, drawn, phase


def test_inner_phases_stop_the_clock_of_outer_ones() -> None:
    ticks = count()  # every look at the clock takes a second
    with Phases(lambda: float(next(ticks))) as phases, phase("outer"):
        with phase("inner"):
            pass
        with phase("inner"):
            pass
    # looks: begin, outer, inner, end, inner, end, end of outer, end of all
    assert phases.seconds == {REST: 2.0, "outer": 3.0, "inner": 2.0}
    assert list(phases.shares()) == ["outer", "inner", REST]
    assert sum(phases.shares().values()) == pytest.approx(1.0)


def test_the_wait_for_an_item_is_counted_and_its_use_is_not() -> None:
    now = [0.0]

    def items() -> list[int]:
        return [1, 2]

    def slow() -> object:
        for item in items():
            now[0] += 10.0
            yield item

    with Phases(lambda: now[0]) as phases:
        for _ in drawn("data", slow()):  # type: ignore[arg-type]
            now[0] += 1.0
    assert phases.seconds == {REST: 2.0, "data": 20.0}


def test_an_error_inside_a_phase_closes_it() -> None:
    with Phases() as phases:
        with pytest.raises(ValueError, match="no"), phase("work"):
            raise ValueError("no")
        with phase("other"):
            pass
    assert set(phases.seconds) == {REST, "work", "other"}


def test_nobody_watching_costs_nothing() -> None:
    with phase("work"):
        assert list(drawn("data", [1, 2])) == [1, 2]
    with Phases() as phases:
        pass
    assert set(phases.seconds) == {REST}

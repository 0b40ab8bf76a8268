"""Scheduled sampling: every schedule is a probability that never rises, begins near gold and ends where it says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.tasks.sampling import SAMPLING, Constant, Exponential, InverseSigmoid, LinearDecay, Schedule

FAR = 10**9
every_schedule = pytest.mark.parametrize("kind", list(SAMPLING))


def schedule(kind: str, **raw: object) -> Schedule:
    return SAMPLING.build(SAMPLING.settings({"kind": kind, **raw}))


@every_schedule
def test_a_schedule_is_a_probability_that_never_rises(kind: str) -> None:
    steps = [*range(0, 30_000, 500), 10**5, 10**6, FAR, 10**30]
    values = [schedule(kind).gold(step) for step in steps]
    assert all(0.0 <= value <= 1.0 for value in values)
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.999


@pytest.mark.parametrize("kind", [kind for kind in SAMPLING if "least" in SAMPLING.settings_class(kind).model_fields])
def test_decay_ends_at_the_least_share(kind: str) -> None:
    assert schedule(kind).gold(FAR) == pytest.approx(0.0, abs=1e-12)
    assert schedule(kind, least=0.25).gold(FAR) == 0.25
    assert schedule(kind, least=0.25).gold(0) > 0.999
    assert schedule(kind, least=1.0).gold(FAR) == 1.0


@given(st.floats(0, 1, allow_subnormal=False), st.integers(0, FAR))
def test_constant(gold: float, step: int) -> None:
    assert Constant(Constant.Settings(gold=gold)).gold(step) == gold


def test_the_default_is_teacher_forcing() -> None:
    assert Constant(Constant.Settings()).gold(FAR) == 1.0


@given(st.integers(1, 10**6), st.integers(0, 10**7))
def test_linear(steps: int, step: int) -> None:
    found = LinearDecay(LinearDecay.Settings(steps=steps)).gold(step)
    assert found == pytest.approx(max(0.0, 1 - step / steps))
    assert LinearDecay(LinearDecay.Settings(steps=steps)).gold(steps) == 0.0


@given(st.floats(0.5, 0.99999), st.integers(0, 1000))
def test_exponential(k: float, step: int) -> None:
    found = Exponential(Exponential.Settings(k=k)).gold(step)
    assert found == pytest.approx(math.exp(step * math.log(k)))


@given(st.floats(1.0, 1e4), st.integers(0, 5000))
def test_inverse_sigmoid(k: float, step: int) -> None:
    found = InverseSigmoid(InverseSigmoid.Settings(k=k)).gold(step)
    wanted = k / (k + math.exp(step / k)) if step / k < 700 else 0.0
    assert found == pytest.approx(wanted, abs=1e-12)


def test_inverse_sigmoid_begins_at_k_over_k_plus_one_and_is_half_where_k_is_the_exponential() -> None:
    inverse = InverseSigmoid(InverseSigmoid.Settings(k=100.0))
    assert inverse.gold(0) == pytest.approx(100 / 101)
    assert inverse.gold(round(100 * math.log(100))) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "constant", "gold": 1.5},
        {"kind": "constant", "gold": -0.1},
        {"kind": "constant", "gold": float("nan")},
        {"kind": "linear", "steps": 0},
        {"kind": "linear", "least": 2},
        {"kind": "exponential", "k": 1.0},
        {"kind": "exponential", "k": 0.0},
        {"kind": "inverse_sigmoid", "k": 0.5},
        {"kind": "inverse_sigmoid", "k": float("inf")},
    ],
    ids=str,
)
def test_impossible_schedules_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(SeqloomError, match="E_RECIPE"):
        validated(SAMPLING.settings_class(str(raw["kind"])), raw, "test")

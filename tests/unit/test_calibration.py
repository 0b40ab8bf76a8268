"""Confidence: honest after fitting, monotone in the log-probability, sane with little or lopsided data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS
from seqloom.metrics.calibration import (
    LARGEST_TEMPERATURE,
    Calibration,
    correct_outputs,
    expected_calibration_error,
    reliability,
)


def outputs_of_a_boastful_model(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log-probabilities, lengths and outcomes: true log-odds z, claimed log-odds 3 z + 1, longer outputs worse."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 15, count)
    z = rng.normal(0.5, 1.2, count)
    claimed = 3 * (z + 0.5 * np.log(lengths)) + 1
    correct = rng.random(count) < 1 / (1 + np.exp(-z))
    return -np.logaddexp(0, -claimed), lengths, correct


def test_fitting_makes_a_boastful_model_honest_on_new_data() -> None:
    calibration = Calibration.fit(*outputs_of_a_boastful_model(2000, seed=1))
    log_probs, lengths, correct = outputs_of_a_boastful_model(2000, seed=2)
    raw = expected_calibration_error(np.exp(log_probs), correct)
    fitted = expected_calibration_error(calibration.confidences(log_probs, lengths), correct)
    assert raw > 0.2
    assert fitted < 0.04
    assert calibration.temperature == pytest.approx(3, rel=0.25)
    assert calibration.length_weight < 0
    assert calibration.examples == 2000


def test_an_honest_model_is_left_alone() -> None:
    rng = np.random.default_rng(3)
    p = rng.uniform(0.02, 0.98, 5000)
    calibration = Calibration.fit(np.log(p), [5] * 5000, rng.random(5000) < p)
    assert calibration.temperature == pytest.approx(1, abs=0.1)
    assert calibration.bias == pytest.approx(0, abs=0.1)


def test_unfitted_confidence_is_the_models_own_probability() -> None:
    for p in 1e-5, 0.3, 0.5, 0.999:
        assert Calibration().confidence(math.log(p), 7) == pytest.approx(p)


@given(
    log_probs=st.tuples(st.floats(-50, 0, allow_subnormal=False), st.floats(-50, 0, allow_subnormal=False)),
    length=st.integers(0, 200),
    temperature=st.floats(0.1, 50, allow_subnormal=False),
    bias=st.floats(-3, 3, allow_subnormal=False),
)
def test_confidence_rises_with_the_log_probability(
    log_probs: tuple[float, float], length: int, temperature: float, bias: float
) -> None:
    calibration = Calibration(temperature=temperature, bias=bias, length_weight=-0.3, typical_length=10)
    low, high = (calibration.confidence(value, length) for value in sorted(log_probs))
    assert 0 < low <= high < 1


@pytest.mark.parametrize("log_prob", [0.0, 1e-9, -1e300, -math.inf, math.nan])
def test_extreme_log_probabilities_stay_inside_0_and_1(log_prob: float) -> None:
    assert 0 < Calibration().confidence(log_prob, 0) < 1


@pytest.mark.parametrize("count", [1, 5, 19, 1000])
def test_one_outcome_only_pulls_towards_it_and_never_to_certainty(count: int) -> None:
    log_probs, lengths = np.linspace(-4, -0.1, count), [6] * count
    unfitted = Calibration().confidence(-1.0, 6)
    right = Calibration.fit(log_probs, lengths, [True] * count).confidence(-1.0, 6)
    wrong = Calibration.fit(log_probs, lengths, [False] * count).confidence(-1.0, 6)
    assert wrong < unfitted < right
    doubt = 0.1 / (count + 2)
    assert doubt < wrong
    assert right < 1 - doubt


def test_no_data_is_the_models_own_probability() -> None:
    assert Calibration.fit([], [], []) == Calibration()


def test_a_handful_of_examples_moves_only_a_little() -> None:
    few = Calibration.fit([-1.0, -1.0], [5, 5], [True, False])
    assert few.temperature == pytest.approx(1, abs=0.3)


def test_when_likelier_outputs_are_worse_the_order_is_still_kept() -> None:
    log_probs = np.linspace(-8, -0.1, 400)
    calibration = Calibration.fit(log_probs, [5] * 400, np.arange(400) < 200)
    assert calibration.temperature == pytest.approx(LARGEST_TEMPERATURE)
    assert calibration.confidence(-4, 5) == pytest.approx(0.5, abs=0.02)
    assert calibration.confidence(-8, 5) < calibration.confidence(-0.1, 5)


def test_a_perfect_split_converges() -> None:
    log_probs = np.linspace(-8, -0.1, 300)
    calibration = Calibration.fit(log_probs, [5] * 300, log_probs > -2)
    assert calibration.confidence(-0.2, 5) > 0.95
    assert calibration.confidence(-6.0, 5) < 0.05


def test_the_fit_is_a_minimum() -> None:
    """No step away from the fit lowers the penalised loss: Newton's method ended where it should."""
    from seqloom.metrics import calibration as module

    log_probs, lengths, correct = outputs_of_a_boastful_model(300, seed=4)
    fit = Calibration.fit(log_probs, lengths, correct)
    features = module._features(log_probs, lengths, fit.typical_length)
    best = np.array([1 / fit.temperature, fit.bias, fit.length_weight])
    for step in np.vstack([np.eye(3), -np.eye(3)]) * 1e-2:
        assert module._loss(features, correct, best + step) > module._loss(features, correct, best)


def test_it_survives_json() -> None:
    calibration = Calibration.fit(*outputs_of_a_boastful_model(100, seed=5), criterion="BLEU >= 50")
    assert Calibration.model_validate(json.loads(json.dumps(calibration.model_dump()))) == calibration


def test_reliability_bins_and_error_by_hand() -> None:
    rows = reliability([0.05, 0.15, 0.15, 1.0], [False, True, False, True], bins=10)
    assert [(row.low, row.high, row.count) for row in rows] == [(0, 0.1, 1), (0.1, 0.2, 2), (0.9, 1, 1)]
    assert [row.accuracy for row in rows] == [0, 0.5, 1]
    # 1/4 * 0.05 + 2/4 * 0.35 + 1/4 * 0
    assert expected_calibration_error([0.05, 0.15, 0.15, 1.0], [False, True, False, True]) == pytest.approx(0.1875)
    assert expected_calibration_error([], []) == 0


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(SeqloomError) as caught:
        Calibration.fit([-1.0], [3], [True, False])
    assert caught.value.code == "E_ALIGN"
    with pytest.raises(SeqloomError) as caught:
        reliability([0.5], [])
    assert caught.value.code == "E_ALIGN"


def test_what_counts_as_right() -> None:
    outputs, references = ["a b c d", "a b c x"], [["a b c d"]] * 2

    def right(kind: str, threshold: float | None = None) -> list[bool]:
        return correct_outputs(METRICS.build(METRICS.settings(kind)), outputs, references, threshold).tolist()

    assert right("exact") == right("bleu") == right("cer") == [True, False]
    assert right("bleu", 50) == right("wer", 25) == [True, True]


@pytest.mark.parametrize("log_prob", [-math.inf, math.nan, -1e5, -40.0, -1.0, -1e-3, -1e-9, 0.0, 3.0])
@pytest.mark.parametrize("length", [0, 1, 7, 500])
def test_one_confidence_is_that_of_many(log_prob: float, length: int) -> None:
    for calibration in (
        Calibration(),
        Calibration(temperature=0.05, bias=-3, length_weight=2, typical_length=9),
        Calibration(temperature=1e-3, bias=900.0),
    ):
        one = calibration.confidence(log_prob, length)
        assert 0 < one < 1
        assert one == pytest.approx(float(calibration.confidences([log_prob], [length])[0]), rel=1e-9)

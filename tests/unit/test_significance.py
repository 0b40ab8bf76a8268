"""Intervals and tests: sacrebleu's numbers where it has them, and the laws any test must obey."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from fitting import fitted
from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS, Metric, significance
from seqloom.metrics.significance import SEED, approximate_randomisation, bootstrap, paired_bootstrap

KINDS = [kind for kind in METRICS if METRICS[kind].compares]


def build(raw: object) -> Metric:
    return METRICS.build(METRICS.settings(raw))


def noisy(references: list[str], rate: float, seed: int) -> list[str]:
    """References with a share of their words replaced."""
    rng = np.random.default_rng(seed)
    return [" ".join("x" if rng.random() < rate else word for word in text.split()) for text in references]


RNG = np.random.default_rng(1)
WORDS = [f"w{i}" for i in range(40)]
REFERENCES = [" ".join(RNG.choice(WORDS, RNG.integers(4, 12))) for _ in range(80)]
LISTS = [[text] for text in REFERENCES]
GOOD, FAIR, BAD = noisy(REFERENCES, 0.2, 2), noisy(REFERENCES, 0.24, 3), noisy(REFERENCES, 0.5, 4)


@pytest.fixture(autouse=True)
def _sacrebleus_default_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)


@pytest.mark.parametrize("cells", [significance.CELLS, 1000])  # in one piece and in many
def test_the_interval_is_sacrebleus(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "CELLS", cells)
    for raw, theirs in ("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF()):
        metric = build(raw)
        interval = bootstrap(metric, metric.statistics(GOOD, LISTS), samples=200)
        expected = theirs.corpus_score(GOOD, [REFERENCES], n_bootstrap=200)
        assert interval.value == expected.score
        assert (interval.high - interval.low) / 2 == pytest.approx(expected._ci, rel=1e-5)
        assert interval.seed == SEED


@pytest.mark.parametrize("other", [FAIR, BAD], ids=["near", "far"])
@pytest.mark.parametrize(("kind", "test"), [("bs", paired_bootstrap), ("ar", approximate_randomisation)])
def test_p_values_are_sacrebleus(kind: str, test: object, other: list[str]) -> None:
    samples = 500
    theirs = PairedTest(
        [("good", GOOD), ("other", other)], {"BLEU": sacrebleu.BLEU()}, [REFERENCES], test_type=kind, n_samples=samples
    )
    _, results = theirs()
    metric = build("bleu")
    ours = test(metric, metric.statistics(GOOD, LISTS), metric.statistics(other, LISTS), samples=samples)  # type: ignore[operator]
    assert ours.a == results["BLEU"][0].score
    assert ours.b == results["BLEU"][1].score
    assert ours.p == pytest.approx(results["BLEU"][1].p_value, abs=1.5 / samples)  # they drop ties; at most one here


@pytest.mark.parametrize("kind", KINDS)
def test_laws_of_both_tests_for_every_metric(kind: str) -> None:
    metric = build(kind)
    good, bad = (metric.statistics(*fitted(kind, outputs, LISTS)) for outputs in (GOOD, BAD))
    for test in paired_bootstrap, approximate_randomisation:
        same = test(metric, good, good, samples=200)
        assert same.p == 1
        assert same.difference == same.low == same.high == 0
        assert same.better() is None
        there, back = test(metric, bad, good, samples=200), test(metric, good, bad, samples=200)
        assert there.p == pytest.approx(back.p, abs=0.02)
        assert there.difference == -back.difference
        assert there.low <= there.difference <= there.high
        assert 0 < there.p <= 0.05
        assert there.better() == "b"
        assert back.better() == "a"


def test_the_same_seed_repeats_and_another_differs() -> None:
    metric = build("bleu")
    rows = metric.statistics(FAIR, LISTS)
    assert bootstrap(metric, rows, 100) == bootstrap(metric, rows, 100)
    assert bootstrap(metric, rows, 100, seed=1).low != bootstrap(metric, rows, 100, seed=2).low


def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    metric, rng = build("exact"), np.random.default_rng(5)
    covered = 0
    for seed in range(200):
        right = (rng.random(100) < 0.7).astype(np.float64)
        interval = bootstrap(metric, np.stack([right, np.ones(100)], axis=1), samples=200, seed=seed)
        covered += interval.low <= 70 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99


def test_p_is_small_by_chance_only_as_often_as_it_says() -> None:
    metric, rng = build("exact"), np.random.default_rng(6)
    rejected = {"paired bootstrap": 0, "approximate randomisation": 0}
    for seed in range(100):
        a, b = (np.stack([rng.random(100) < 0.6, np.ones(100)], axis=1).astype(np.float64) for _ in range(2))
        for test in paired_bootstrap, approximate_randomisation:
            comparison = test(metric, a, b, samples=200, seed=seed)
            rejected[comparison.test] += comparison.p < 0.05
    assert rejected["approximate randomisation"] <= 12
    assert rejected["paired bootstrap"] <= 20  # about twice its level: see its docstring


def test_odd_sizes() -> None:
    metric = build("exact")
    one = metric.statistics(["a"], [["a"]])
    assert bootstrap(metric, one) == significance.Interval(100, 100, 100, 1000, SEED)
    assert bootstrap(metric, one[:0]).value == 0
    assert bootstrap(metric, one, samples=0).low == 100
    assert str(bootstrap(metric, one)) == "100.00 [100.00, 100.00]"
    with pytest.raises(SeqloomError, match="1 outputs, system B 0") as caught:
        paired_bootstrap(metric, one, one[:0])
    assert caught.value.code == "E_ALIGN"
    with pytest.raises(SeqloomError) as caught:
        approximate_randomisation(metric, one[:0], one[:0])
    assert caught.value.code == "E_EMPTY"
    with pytest.raises(SeqloomError) as caught:
        paired_bootstrap(metric, one, one, samples=0)
    assert caught.value.code == "E_USAGE"

"""Agreement and association against worked examples of the literature, and against what can be counted by hand."""

from __future__ import annotations

import math
import random

import pytest

from seqloom.data.judgments import agreement_of
from seqloom.metrics.agreement import Level, cohen, krippendorff
from seqloom.metrics.association import kendall, pearson, spearman
from seqloom.metrics.significance import at_least, holm, sign_test

# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section C: four observers, gaps.
FOUR = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]


def units(rows: list[str]) -> list[list[float]]:
    """The judgments on each unit, of rows of observers."""
    columns = zip(*(row.split() for row in rows), strict=True)
    return [[float(value) for value in column if value != "."] for column in columns]


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_four_observers_with_gaps(level: Level, alpha: float) -> None:
    assert krippendorff(units(FOUR), level) == pytest.approx(alpha, abs=0.0006)


def test_alpha_of_two_observers() -> None:
    """The same paper, sections A (two values) and B (names; here numbers stand for them)."""
    assert krippendorff(units(["0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0"]), "nominal") == pytest.approx(
        0.095, abs=6e-4
    )
    meg, owen = "aabbdcccedda", "babbbccceddd"
    rows = [" ".join(str(ord(letter)) for letter in letters) for letters in (meg, owen)]
    assert krippendorff(units(rows), "nominal") == pytest.approx(0.692, abs=6e-4)


@pytest.mark.parametrize("level", ["nominal", "interval"])
def test_alpha_is_that_of_judgments_in_files(level: Level) -> None:
    """`data/judgments.py` sums the same up in another way."""
    rng = random.Random(3)
    judged = [[float(rng.randint(1, 5)) for _ in range(rng.randint(1, 5))] for _ in range(40)]
    told = agreement_of([[f"{value:g}" for value in unit] for unit in judged], numbers=level == "interval")
    assert told is not None
    assert krippendorff(judged, level) == pytest.approx(told.alpha)


def test_alpha_says_nothing_where_nothing_can_differ() -> None:
    assert krippendorff([], "nominal") is None
    assert krippendorff([[1.0], [2.0]], "nominal") is None
    assert krippendorff([[1.0, 1.0], [1.0, 1.0]], "ordinal") is None


def test_alpha_of_perfect_and_of_reversed_judges() -> None:
    assert krippendorff([[1, 1], [2, 2], [5, 5]], "ordinal") == 1
    reversed_judges = krippendorff([[1, 5], [5, 1]], "interval")
    assert reversed_judges is not None
    assert reversed_judges < 0


def table(*rows: tuple[int, ...]) -> list[tuple[float, float]]:
    return [(float(i), float(j)) for i, row in enumerate(rows) for j, count in enumerate(row) for _ in range(count)]


def test_kappa_of_textbook_tables() -> None:
    """Two readers of 50 grants: 0.7 agree, 0.5 would by chance. Fleiss 1981, diagnoses of 100 patients: .89, .66."""
    assert cohen(table((20, 5), (10, 15))) == pytest.approx(0.4)
    assert cohen(table((75, 1, 4), (5, 4, 1), (0, 0, 10))) == pytest.approx((0.89 - 0.66) / (1 - 0.66), abs=0.006)


def test_weighted_kappa_forgives_what_is_near() -> None:
    """By hand: rows 2 1 0 / 0 2 1 / 0 0 2; squares of differences sum to 2, by chance to 92 / 8."""
    pairs = table((2, 1, 0), (0, 2, 1), (0, 0, 2))
    chance = sum((i - j) ** 2 * a * b for i, a in enumerate((3, 3, 2)) for j, b in enumerate((2, 3, 3))) / 8
    assert cohen(pairs, "ordinal") == pytest.approx(1 - 2 / chance)
    plain, weighted = cohen(pairs), cohen(pairs, "ordinal")
    assert plain is not None
    assert weighted is not None
    assert weighted > plain


def test_kappa_says_nothing_of_one_value() -> None:
    assert cohen([]) is None
    assert cohen([(1.0, 1.0), (1.0, 1.0)]) is None


def test_association_of_numbers_that_can_be_counted() -> None:
    assert pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert pearson([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert spearman([1, 10, 100], [1, 2, 3]) == pytest.approx(1)
    assert kendall([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)
    assert kendall([1, 2, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(2 * 3))  # one pair tied in x
    for measure in (pearson, spearman, kendall):
        assert measure([], []) is None
        assert measure([1], [2]) is None
        assert measure([1, 1, 1], [1, 2, 3]) is None


def test_the_sign_test_is_exact() -> None:
    assert sign_test(0, 0) == 1
    assert sign_test(5, 5) == 1
    assert sign_test(8, 1) == sign_test(1, 8) == pytest.approx(2 * (1 + 9) / 2**9)
    assert sign_test(1000, 900) == pytest.approx(0.0235, abs=0.001)


def test_a_binomial_tail_is_exact() -> None:
    assert at_least(0, 5, 0.2) == pytest.approx(1)
    assert at_least(2, 2, 0.5) == pytest.approx(0.25)
    assert at_least(4, 6, 0.2) == pytest.approx(15 * 0.0016 * 0.64 + 6 * 0.00032 * 0.8 + 0.000064)


def test_holm_makes_several_tests_one() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]

"""Several judgments of one item: agreement as the literature counts it, and what training makes of them."""

from __future__ import annotations

import pytest

from seqloom.data.examples import Example
from seqloom.data.judgments import Judgments, agreement_of, decided, learned
from seqloom.errors import SeqloomError

# Four observers, twelve units, some missing: Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, example C.
OBSERVED = ["1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3", ". 3 3 3 2 3 4 2 2 5 1 .", "1 2 3 3 2 4 4 1 2 5 1 ."]
UNITS = [[value for value in unit if value != "."] for unit in zip(*(row.split() for row in OBSERVED), strict=True)]


def test_alpha_is_that_of_the_literature() -> None:
    nominal, interval = agreement_of(UNITS), agreement_of(UNITS, numbers=True)
    assert nominal is not None
    assert interval is not None
    assert nominal.alpha == pytest.approx(0.743, abs=5e-4)
    assert interval.alpha == pytest.approx(0.849, abs=5e-4)
    assert (nominal.items, nominal.judgments) == (11, 40), "a lone judgment agrees with nobody"
    assert interval.majority is None


def test_agreement_by_majority() -> None:
    found = agreement_of([["a", "a ", "b"], ["a", "b"], ["a"], ["b", "b"]])
    assert found is not None
    assert found.majority == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert found.undecided == 1
    assert "2.3 judgments on each of 3 items" in found.line
    assert agreement_of([["a"], ["b"]]) is None
    same = agreement_of([["a", "a"], ["a", "a"]])
    assert same is not None
    assert same.alpha is None
    assert "all are the same" in same.line


def judged(*references: str, weight: float = 1.0) -> Example:
    return Example("s", references, "f", 1, weight=weight)


@pytest.mark.parametrize(
    ("how", "targets"),
    [("first", [("b", 2.0)]), ("majority", [("a", 2.0)]), ("each", [("b", 2 / 3), ("a", 4 / 3)])],
)
def test_what_is_learned_of_several_judgments(how: Judgments, targets: list[tuple[str, float]]) -> None:
    found = [(one.target, pytest.approx(one.weight)) for one in learned([judged("b", "a", " a", weight=2.0)], how)]
    assert found == targets


def test_all_judgments_stay_where_one_of_them_is_put_first() -> None:
    assert decided(judged("b", "a", "a"), "majority").references == ("a", "b", "a")
    assert decided(judged("b", "a"), "majority").references == ("b", "a"), "of equally frequent ones the first"
    assert decided(judged("b"), "majority").references == ("b",)


def test_the_mean_of_numbers() -> None:
    assert decided(judged("1", "2", "4.5"), "mean").target == "2.5"
    with pytest.raises(SeqloomError, match=r"the judgment 'x' is no finite number.*f:1"):
        decided(judged("1", "x"), "mean")

"""distinct-1 and distinct-2 against counts by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.metrics import METRICS, Metric

outputs_of = st.lists(st.lists(st.sampled_from("abcd"), max_size=5).map(" ".join), min_size=1, max_size=6)


def metric(order: int, **wanted: object) -> Metric:
    return METRICS.build(METRICS.settings({"kind": f"distinct_{order}", **wanted}))


def score(order: int, outputs: list[str]) -> float:
    return metric(order).score(outputs, [["whatever"]] * len(outputs))


def test_two_replies_by_hand() -> None:
    """a b a b c: three different words of five; (a b) twice and (b c): two different pairs of three."""
    outputs = ["a b", "A b c"]
    assert score(1, outputs) == pytest.approx(60)
    assert score(2, outputs) == pytest.approx(200 / 3)


def test_pairs_do_not_reach_over_replies() -> None:
    assert score(2, ["a", "b", "a b"]) == pytest.approx(100)


def test_the_same_reply_to_everything_is_worth_little() -> None:
    assert score(1, ["i do not know"] * 50) == pytest.approx(100 / 50)
    assert score(2, ["i do not know"] * 50) == pytest.approx(100 / 50)


def test_all_different_is_the_most_and_nothing_is_nothing() -> None:
    assert score(1, ["a b", "c d"]) == pytest.approx(100)
    assert score(1, ["", ""]) == score(2, ["", "a"]) == 0


@pytest.mark.parametrize("order", [1, 2])
@given(outputs=outputs_of, data=st.data())
def test_it_is_the_count_in_any_order(order: int, outputs: list[str], data: st.DataObject) -> None:
    cut = [text.split() for text in outputs]
    every = [tuple(words[i : i + order]) for words in cut for i in range(len(words) - order + 1)]
    expected = 100 * len({*every}) / len(every) if every else 0
    assert score(order, data.draw(st.permutations(outputs))) == pytest.approx(expected)


def test_name_and_signature() -> None:
    assert metric(1).name == "distinct-1"
    assert "order:2|tok:blank|case:lc|over:set" in metric(2).signature()
    words = metric(1, tokenize="words")
    assert words.score(["a, a."], [["a"]]) == pytest.approx(50)

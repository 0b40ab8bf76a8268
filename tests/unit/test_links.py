"""Word links: read, judged and joined, on examples small enough to be worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.metrics.links import (
    SYMMETRISATIONS,
    Gold,
    Judged,
    Links,
    grow_diagonal,
    grow_diagonal_final,
    read_gold,
    read_links,
    turned,
)

LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20)


def links(text: str) -> Links:
    return read_links(text, "")


def test_gold_links_are_sure_or_possible() -> None:
    gold = read_gold("0-0 1p2 3-1 2?2", "gold:1")
    assert gold.sure == {(0, 0), (3, 1)}
    assert gold.possible == {(0, 0), (3, 1), (1, 2), (2, 2)}
    assert read_gold("", "gold:2") == Gold(frozenset(), frozenset())


@pytest.mark.parametrize("text", ["0", "0-", "a-b", "0--1", "-1-2", "0-1x", "1:2", "٣-٤", "0-99999999999999999999"])
def test_what_is_no_link_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(SeqloomError, match="gold:7") as caught:
        read_links(f"0-0 {text}", "gold:7")
    assert caught.value.code == "E_DATA"


def test_error_rate_precision_and_recall_by_hand() -> None:
    """A = 4 links, 2 of them sure of 3, 3 of them possible: AER = 1 - (2 + 3) / (4 + 3)."""
    judged = Judged.of(links("0-0 1-1 2-1 5-5"), read_gold("0-0 1-1 3-3 2p1", ""))
    assert judged == Judged(links=4, sure=3, right=2, acceptable=3)
    assert judged.aer == pytest.approx(2 / 7)
    assert judged.precision == pytest.approx(3 / 4)
    assert judged.recall == pytest.approx(2 / 3)


def test_nothing_said_of_nothing_sure_is_no_error() -> None:
    assert (Judged().aer, Judged().precision, Judged().recall) == (0.0, 1.0, 1.0)
    assert Judged.of(frozenset(), read_gold("0-0", "")).aer == 1.0


def test_growing_takes_what_stands_aslant_between_free_words() -> None:
    both = "1-1"
    assert grow_diagonal(links(f"{both} 2-2"), links(f"{both} 0-0")) == links("0-0 1-1 2-2")
    assert grow_diagonal(links(f"{both} 1-2"), links(both)) == links(both)  # the source word has a link already
    assert grow_diagonal(links(f"{both} 3-3"), links(both)) == links(both)  # not beside a link
    assert grow_diagonal(links(f"{both} 2-2 3-3"), links(both)) == links("1-1 2-2 3-3")  # beside one that grew
    assert grow_diagonal(links(f"{both} 0-0 0-2"), links(both)) == links("1-1 0-2")  # the first of two that exclude


def test_the_final_step_links_free_words_anywhere() -> None:
    forward, backward = links("1-1 5-3 4-3"), links("1-1 4-6")
    assert grow_diagonal(forward, backward) == links("1-1")
    assert grow_diagonal_final(forward, backward) == links("1-1 4-3")  # 5-3 and 4-6 would give a word a second link


@given(LINKS, LINKS)
def test_every_joining_lies_between_intersection_and_union(forward: Links, backward: Links) -> None:
    for join in SYMMETRISATIONS.values():
        joined = join(forward, backward)
        assert forward & backward <= joined <= forward | backward
        assert join(forward, forward) == forward
    assert grow_diagonal(forward, backward) <= grow_diagonal_final(forward, backward)


@given(LINKS)
def test_turning_round_twice_changes_nothing(given_links: Links) -> None:
    assert turned(turned(given_links)) == given_links


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), max_size=4))
def test_counts_add_up_and_rates_stay_between_0_and_1(rows: list[tuple[Links, Links, Links]]) -> None:
    parts = [Judged.of(said, Gold(sure, sure | possible)) for said, sure, possible in rows]
    total = Judged.total(parts)
    assert total.links == sum(part.links for part in parts)
    for part in (*parts, total):
        assert 0 <= part.aer <= 1
        assert 0 <= part.precision <= 1
        assert 0 <= part.recall <= 1

"""NIST against values worked out by hand, and against nltk where both define the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seqloom.metrics import METRICS

words = st.lists(st.sampled_from("abcd"), min_size=5, max_size=9)


def metric(**wanted: object):  # type: ignore[no-untyped-def]
    return METRICS.build(METRICS.settings({"kind": "nist", **wanted}))


def test_a_copy_of_two_words() -> None:
    """a and b are one of two words each: log2(2) = 1 bit. "b" follows "a" always: log2(1/1) = 0 bits."""
    assert metric().score(["a b"], [["a b"]]) == pytest.approx(1)


def test_several_references_by_hand() -> None:
    """Of four words two are a, one is c: 1 and 2 bits, (1 + 2) / 2 a word. "c" follows one of two a: 1 bit a pair."""
    assert metric().score(["a c"], [["a b", "a c"]]) == pytest.approx(1.5 + 1)


def test_an_n_gram_counts_as_often_as_one_reference_has_it() -> None:
    """Of five words three are a: log2(5/3). "a a" stands once after three a: log2(3). 2 words, 2.5 are average."""
    brevity = math.exp(math.log(0.5) * (math.log(2 / 2.5) / math.log(1.5)) ** 2)
    score = metric().score(["a a"], [["a b", "a a c"]])
    assert score == pytest.approx((math.log2(5 / 3) + math.log2(3)) * brevity)
    once = metric().score(["a a"], [["a b", "a c c"]])  # nowhere twice: one of two words, no pair
    assert once == pytest.approx(math.log2(5 / 2) / 2 * brevity)


def test_two_thirds_of_the_length_are_worth_half() -> None:
    """Three words of log2(3) bits each; pairs that follow always say nothing."""
    assert metric().score(["a b c"], [["a b c"]]) == pytest.approx(math.log2(3))
    assert metric().score(["a b"], [["a b c"]]) == pytest.approx(math.log2(3) / 2)
    assert metric().score(["a b c", ""], [["a b c"], [""]]) == pytest.approx(math.log2(3))


def test_longer_outputs_lose_by_precision_alone() -> None:
    """Three of four words; "c z" is no pair of the reference, the others say nothing."""
    assert metric().score(["a b c z"], [["a b c"]]) == pytest.approx(math.log2(3) * 3 / 4)


def test_words_are_cut_as_mteval_does() -> None:
    copied = metric().score(["The rope, 10.50."], [["the rope , 10.50 ."]])
    assert copied == metric().score(["the rope , 10.50 ."], [["the rope , 10.50 ."]])
    assert metric(lowercase=False).score(["THE"], [["the"]]) == 0


@given(pairs=st.lists(st.tuples(words, words), min_size=1, max_size=4))
def test_with_one_reference_it_is_nltks(pairs: list[tuple[list[str], list[str]]]) -> None:
    nltk = pytest.importorskip("nltk.translate.nist_score")
    outputs, references = zip(*pairs, strict=True)
    expected = nltk.corpus_nist([[one] for one in references], outputs, 5)
    score = metric().score([" ".join(one) for one in outputs], [[" ".join(one)] for one in references])
    assert score == pytest.approx(expected)


@given(pairs=st.lists(st.tuples(words, words), min_size=2, max_size=4), data=st.data())
def test_the_order_of_the_set_and_of_the_references_does_not_matter(
    pairs: list[tuple[list[str], list[str]]], data: st.DataObject
) -> None:
    items = [(" ".join(said), [" ".join(wanted), "a b"]) for said, wanted in pairs]
    mixed = [(said, wanted[::-1]) for said, wanted in data.draw(st.permutations(items))]
    one, other = (metric().score([said for said, _ in some], [wanted for _, wanted in some]) for some in (items, mixed))
    assert one == pytest.approx(other)


@given(references=st.lists(words, min_size=2, max_size=4))
def test_a_copy_is_worth_more_than_rubbish(references: list[list[str]]) -> None:
    assume(len({word for one in references for word in one}) > 1)  # one word alone says nothing: 0 bits
    wanted = [[" ".join(one)] for one in references]
    copies = [one[0] for one in wanted]
    assert metric().score(copies, wanted) > metric().score(["zz"] * len(wanted), wanted)
    assert metric().score([""] * len(wanted), wanted) == 0


def test_the_signature_tells_the_rule() -> None:
    assert "order:5|tok:13a|case:lc|brevity:mteval|info:set" in metric().signature()
    assert metric().name == "NIST"
    assert metric(order=3).name == "NIST-3"

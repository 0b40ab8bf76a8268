"""CIDEr-D against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from seqloom.metrics import METRICS


def metric(kind: str, **wanted: object):  # type: ignore[no-untyped-def]
    return METRICS.build(METRICS.settings({"kind": kind, **wanted}))


@pytest.mark.parametrize(("output", "value"), [("", 0.0), ("z", 0.0)])
def test_nothing_in_common(output: str, value: float) -> None:
    assert metric("cider").score([output, "a b"], [["a b"], ["c"]]) == value


def test_cider_of_two_items_by_hand() -> None:
    """Items "a b" and "c d": every n-gram stands in one of two, log 2 each, which cancels in the cosine.

    "a b" is right in orders 1 and 2 and has no longer n-grams: 10 (1 + 1 + 0 + 0) / 4 = 5. "c x" shares one word of
    two with "c d": 1 / (sqrt 2 sqrt 2) in order 1 alone: 10 / 2 / 4 = 1.25. Their mean is 3.125, told as 312.5.
    """
    assert metric("cider").score(["a b", "c x"], [["a b"], ["c d"]]) == pytest.approx(312.5)


def test_cider_of_several_references_is_their_mean_and_length_counts() -> None:
    """Against "a b" as above 5, against "e" 0; the mean 2.5. One word too many: exp(-1/72), and cosines as below."""
    references = [["a b", "e f"], ["c d"]]
    cider = metric("cider")
    assert cider.sentence_values(cider.statistics(["a b", "c d"], references)).tolist() == pytest.approx([250, 500])
    longer = cider.sentence_values(cider.statistics(["a b", "c d d"], [["a b"], ["c d"]]))
    # c d d: c once, d twice (clipped to one): 2 / (sqrt 5 sqrt 2); orders 2: (c d), (d d) against (c d)
    cosines = 2 / math.sqrt(5 * 2) + 1 / math.sqrt(2)
    assert longer[1] == pytest.approx(1000 * math.exp(-1 / 72) * cosines / 4)


def test_words_of_every_item_say_nothing() -> None:
    """ "the" stands everywhere: log 1 = 0. Saying it alone is worth nothing."""
    assert metric("cider").score(["the", "the b"], [["the a"], ["the b"]]) == pytest.approx(0 + 500 / 2)


def test_what_no_reference_says_weighs_as_much_as_what_one_item_says() -> None:
    """ "a" stands in both items: log(2 / 2) = 0. "z" in none: log 2, as "b", which stands in one. One word of two."""
    rows = metric("cider").statistics(["a b z", "c"], [["a b"], ["a c"]])
    orders = 1 / math.sqrt(2) + 1 / math.sqrt(2)  # words: b of (b, z); pairs: (a b) of (a b), (b z)
    assert rows[0, 0] == pytest.approx(1000 * math.exp(-1 / 72) * orders / 4)


def test_punctuation_may_be_left_out() -> None:
    outputs, references = ["The Mill, by the river.", "A pub!"], [["the mill by the river"], ["a pub"]]
    same = metric("cider").score([one[0] for one in references], references)
    assert metric("cider", tokenize="captions").score(outputs, references) == pytest.approx(same)
    assert metric("cider").score(outputs, references) < same


def test_the_signature_says_which_cider_it_is() -> None:
    assert "variant:D|order:4|sigma:6|tok:blank|case:lc|idf:set|scale:100" in metric("cider").signature()

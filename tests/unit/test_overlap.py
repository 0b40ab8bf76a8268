"""ROUGE-L and CIDEr-D against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from seqloom.metrics import METRICS
from seqloom.metrics.overlap import longest_common


def metric(kind: str, **wanted: object):  # type: ignore[no-untyped-def]
    return METRICS.build(METRICS.settings({"kind": kind, **wanted}))


def test_the_longest_common_subsequence() -> None:
    assert longest_common(["police", "killed", "the", "gunman"], ["police", "kill", "the", "gunman"]) == 3
    assert longest_common(["the", "gunman", "kill", "police"], ["police", "kill", "the", "gunman"]) == 2
    assert longest_common([], ["a"]) == 0


def test_lins_example_of_rouge_l() -> None:
    """Lin 2004: against "police killed the gunman", "police kill the gunman" has 3/4, "the gunman kill police" 2/4."""
    rouge, reference = metric("rouge"), [["police killed the gunman"]]
    assert rouge.score(["police kill the gunman"], reference) == pytest.approx(75)
    assert rouge.score(["the gunman kill police"], reference) == pytest.approx(50)


def test_rouge_takes_the_best_reference_and_weighs_recall() -> None:
    """l = 2 of 2 words against 4: P = 1, R = 1/2; F1 = 2/3, and with beta 2 F = 5/2 / (1/2 + 4) = 5/9."""
    references = [["x y", "a b c d"]]
    assert metric("rouge").score(["a b"], references) == pytest.approx(200 / 3)
    assert metric("rouge", beta=2).score(["a b"], references) == pytest.approx(500 / 9)


@pytest.mark.parametrize(("output", "value"), [("", 0.0), ("z", 0.0)])
def test_nothing_in_common(output: str, value: float) -> None:
    assert metric("rouge").score([output], [["a b"]]) == value
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


def test_signatures_tell_the_rule() -> None:
    rouge = metric("rouge")
    rouge.score(["a"], [["a", "b"]])
    assert rouge.signature().startswith("nrefs:2|beta:1|tok:blank|case:lc|reference:best|version:")
    assert "idf:set" in metric("cider").signature()

"""ROUGE-1, ROUGE-2 and ROUGE-L against values worked out by hand."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS
from seqloom.metrics.rouge import longest_common

KINDS = ("rouge_1", "rouge_2", "rouge_l", "rouge")
texts = st.lists(st.sampled_from(["rope", "barge", "the", "came", "12"]), min_size=2, max_size=6).map(" ".join)


def metric(kind: str, **wanted: object):  # type: ignore[no-untyped-def]
    return METRICS.build(METRICS.settings({"kind": kind, **wanted}))


def test_the_longest_common_subsequence() -> None:
    assert longest_common(["police", "killed", "the", "gunman"], ["police", "kill", "the", "gunman"]) == 3
    assert longest_common(["the", "gunman", "kill", "police"], ["police", "kill", "the", "gunman"]) == 2
    assert longest_common([], ["a"]) == 0


@pytest.mark.parametrize("kind", ["rouge", "rouge_l"])
def test_lins_example_of_rouge_l(kind: str) -> None:
    """Lin 2004: against "police killed the gunman", "police kill the gunman" has 3/4, "the gunman kill police" 2/4."""
    rouge, reference = metric(kind), [["police killed the gunman"]]
    assert rouge.score(["police kill the gunman"], reference) == pytest.approx(75)
    assert rouge.score(["the gunman kill police"], reference) == pytest.approx(50)


def test_n_grams_in_common_by_hand() -> None:
    """6 of 6 and of 7 words: F = 12/13. 4 of 5 and of 6 pairs: F = 8/11. The words in order: as the words alone."""
    output, references = ["the cat was under the bed"], [["the cat was found under the bed"]]
    assert metric("rouge_1").score(output, references) == pytest.approx(100 * 12 / 13)
    assert metric("rouge_2").score(output, references) == pytest.approx(100 * 8 / 11)
    assert metric("rouge_l").score(output, references) == pytest.approx(100 * 12 / 13)


def test_a_word_said_too_often_counts_as_often_as_it_is_wanted() -> None:
    """One of three words, one of two: F = 2 * 1 / (3 + 2)."""
    assert metric("rouge_1").score(["rope rope rope"], [["rope barge"]]) == pytest.approx(40)


def test_the_best_reference_counts_and_recall_may_weigh_more() -> None:
    """l = 2 of 2 words against 4: P = 1, R = 1/2; F1 = 2/3, and with beta 2 F = 5/2 / (1/2 + 4) = 5/9."""
    references = [["x y", "a b c d"]]
    assert metric("rouge_l").score(["a b"], references) == pytest.approx(200 / 3)
    assert metric("rouge_l", beta=2).score(["a b"], references) == pytest.approx(500 / 9)


def test_precision_and_recall_may_come_from_different_references() -> None:
    """Against "a b c d" P = 2/3, R = 1/2; against "z" P = 1/3, R = 1. Apart: P = 2/3, R = 1, F = 4/5."""
    references = [["a b c d", "z"]]
    assert metric("rouge_l").score(["a b z"], references) == pytest.approx(100 * 4 / 7)
    assert metric("rouge_l", reference="parts").score(["a b z"], references) == pytest.approx(80)


def test_the_score_of_a_set_is_the_mean_of_its_texts() -> None:
    outputs, references = ["a b", "z"], [["a b"], ["c"]]
    assert metric("rouge_1").score(outputs, references) == pytest.approx(50)


def test_punctuation_and_case_do_not_count_unless_blanks_alone_cut() -> None:
    assert metric("rouge_l").score(["Re: rope, barge!"], [["RE rope (barge)"]]) == pytest.approx(100)
    assert metric("rouge").score(["Re: rope, barge!"], [["RE rope (barge)"]]) == 0


def test_stems_make_forms_of_a_word_one() -> None:
    pytest.importorskip("nltk")
    assert metric("rouge_1").score(["meetings"], [["meeting"]]) == 0
    stemmed = metric("rouge_1", stem=True)
    assert stemmed.score(["meetings"], [["meeting"]]) == pytest.approx(100)
    assert stemmed.score(["was"], [["wa"]]) == 0, "a word of three letters stays as it is"
    assert "tok:words+porter" in stemmed.signature()


def test_stems_without_nltk_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.stem.porter", None)
    with pytest.raises(SeqloomError, match="stems need nltk") as caught:
        metric("rouge_1", stem=True)
    assert caught.value.code == "E_EXTRA"


@pytest.mark.parametrize("kind", KINDS)
@given(outputs=st.lists(texts, min_size=1, max_size=5))
def test_a_copy_is_perfect_and_nothing_is_worth_nothing(kind: str, outputs: list[str]) -> None:
    references = [[text, "something else"] for text in outputs]
    assert metric(kind).score(outputs, references) == pytest.approx(100)
    assert metric(kind).score([""] * len(outputs), references) == 0


def test_one_word_has_no_pairs() -> None:
    assert metric("rouge_2").score(["rope"], [["rope"]]) == 0
    assert metric("rouge_2").score([""], [[""]]) == 100


def test_signatures_tell_the_rule() -> None:
    rouge = metric("rouge")
    rouge.score(["a"], [["a", "b"]])
    assert rouge.signature().startswith("nrefs:2|beta:1|tok:blank|case:lc|reference:best|version:")
    assert [metric(kind).name for kind in KINDS] == ["ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-L"]
    challenge = metric("rouge_l", beta=1.2, tokenize="captions", reference="parts")
    assert "beta:1.2|tok:captions|case:lc|reference:parts" in challenge.signature()

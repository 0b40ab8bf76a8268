"""METEOR: the alignment is the best one, the arithmetic is the paper's, and the name says what was at work."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS
from seqloom.metrics.alignment import align, count_chunks
from seqloom.metrics.meteor import Meteor, frequent_words, words

PLAIN = {"modules": ("exact",), "function_words": (), "alpha": 0.5, "beta": 1.0, "gamma": 0.5}


def meteor(**changes: object) -> Meteor:
    built = METRICS.build(METRICS.settings({"kind": "meteor", **changes}))
    assert isinstance(built, Meteor)
    return built


def edges_of(output: str, reference: str) -> list[dict[int, float]]:
    return [{j: 1.0 for j, b in enumerate(reference) if a == b} for a in output]


def cost(pairs: list[tuple[int, int]], output: str) -> tuple[int, int, int]:
    """What the alignment minimises: words left out, then chunks, then distance."""
    return len(output) - len(pairs), count_chunks(pairs), sum(abs(i - j) for i, j in pairs)


def brute_force(edges: list[dict[int, float]], output: str) -> tuple[int, int, int]:
    """The least cost over every one-to-one alignment."""
    choices = [[None, *options] for options in edges]
    candidates = []
    for chosen in itertools.product(*choices):
        pairs = [(i, j) for i, j in enumerate(chosen) if j is not None]
        if len({j for _, j in pairs}) == len(pairs):
            candidates.append(cost(pairs, output))
    return min(candidates)


@given(output=st.text("abc", max_size=6), reference=st.text("abc", max_size=6))
@settings(max_examples=150, deadline=None)
def test_the_alignment_is_the_best_of_all(output: str, reference: str) -> None:
    edges = edges_of(output, reference)
    pairs = align(edges)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    assert all(j in edges[i] for i, j in pairs)
    assert cost(pairs, output) == brute_force(edges, output)


def test_chunks_are_runs_on_both_sides() -> None:
    assert count_chunks([]) == 0
    assert count_chunks([(0, 0), (1, 1), (2, 2)]) == 1
    assert count_chunks([(0, 1), (1, 0)]) == 2
    assert count_chunks([(0, 0), (2, 1)]) == 2


def test_the_arithmetic_by_hand() -> None:
    # "a b x" against "a b c d": 2 matches in 1 chunk; P = 2/3, R = 2/4, F = 2PR/(P+R) = 4/7;
    # penalty = 0.5 * (1/2)^1 = 1/4; METEOR = 3/4 * 4/7 = 3/7.
    assert meteor(**PLAIN).score(["a b x"], [["a b c d"]]) == pytest.approx(100 * 3 / 7)


def test_word_order_costs_by_the_penalty_alone() -> None:
    metric = meteor(**PLAIN)
    # All words match; "c d a b" is 2 chunks of 4 words: penalty 0.5 * 2/4.
    assert metric.score(["a b c d"], [["a b c d"]]) == pytest.approx(100)
    assert metric.score(["c d a b"], [["a b c d"]]) == pytest.approx(75)


def test_function_words_weigh_less() -> None:
    # delta 0.75: missing a content word costs three times what missing a function word does.
    metric = meteor(**PLAIN | {"function_words": ("f",), "delta": 0.75, "gamma": 0.0, "alpha": 0.0})
    assert metric.score(["c f"], [["c x"]]) == pytest.approx(75)  # alpha = 0: F = P = 0.75 / (0.75 + 0.25)
    assert metric.score(["c f"], [["x f"]]) == pytest.approx(25)


def test_stems_match_at_their_weight() -> None:
    pytest.importorskip("nltk")
    common = {**PLAIN, "gamma": 0.0}
    assert meteor(**common).score(["cats"], [["cat"]]) == 0
    assert meteor(**common | {"modules": ("exact", "stem")}).score(["cats"], [["cat"]]) == pytest.approx(60)
    assert meteor(**common | {"modules": ("exact", "stem")}).score(["cat"], [["cat"]]) == pytest.approx(100)


def test_the_exact_word_is_preferred_to_its_cousin() -> None:
    # Both output words may match both reference words by stem; only the straight alignment has weight 2.
    assert align([{0: 1.0, 1: 0.6}, {0: 0.6, 1: 1.0}]) == [(0, 0), (1, 1)]


def test_the_best_reference_counts_and_order_does_not_matter() -> None:
    metric = meteor(**PLAIN)
    near, far = "the cat sat", "a dog ran home"
    expected = metric.statistics(["the cat sat down"], [[near]])
    for references in ([near, far], [far, near]):
        np.testing.assert_array_equal(metric.statistics(["the cat sat down"], [references]), expected)


def test_the_corpus_score_is_of_sums_not_a_mean() -> None:
    metric = meteor(**PLAIN)
    # matches 1 + 2 = 3, lengths 1 + 3 = 4 and 1 + 4 = 5, chunks 0 + 1 (a perfect sentence is not fragmented)
    precision, recall, penalty = 3 / 4, 3 / 5, 0.5 * 1 / 3
    expected = (1 - penalty) * 2 * precision * recall / (precision + recall)
    assert metric.score(["z", "a b x"], [["z"], ["a b c d"]]) == pytest.approx(100 * expected)


def test_the_name_lists_the_modules_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert meteor(modules=("exact",)).name == "METEOR (exact)"
    assert meteor(language="xx").name == "METEOR (exact)"  # no stemmer for that language
    pytest.importorskip("nltk")
    assert meteor(modules=("stem", "exact")).name == "METEOR (exact, stem)"
    assert meteor(language="de-CH", modules=("exact", "stem")).name == "METEOR (exact, stem)"
    assert meteor().name.startswith("METEOR (exact, stem")
    monkeypatch.setitem(sys.modules, "nltk.stem.snowball", None)
    monkeypatch.setitem(sys.modules, "nltk.corpus", None)
    assert meteor().name == "METEOR (exact)"


def test_a_module_asked_for_and_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.stem.snowball", None)
    with pytest.raises(SeqloomError, match=r"seqloom\[meteor\]") as caught:
        meteor(modules=("exact", "stem"))
    assert caught.value.code == "E_EXTRA"


def test_synonyms_match_where_wordnet_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """WordNet's data is on few machines, so a stand-in of two synsets takes its place."""

    class Synset:
        def __init__(self, name: str) -> None:
            self._name = name

        def name(self) -> str:
            return self._name

    class WordNet:
        def ensure_loaded(self) -> None: ...

        def synsets(self, word: str) -> list[Synset]:
            return {"car": [Synset("car.n.01")], "auto": [Synset("car.n.01"), Synset("x.n.01")]}.get(word, [])

    corpus = type(sys)("nltk.corpus")
    corpus.__dict__["wordnet"] = WordNet()
    monkeypatch.setitem(sys.modules, "nltk.corpus", corpus)
    metric = meteor(**PLAIN | {"modules": ("exact", "synonym"), "gamma": 0.0})
    assert metric.name == "METEOR (exact, synonym)"
    assert metric.score(["my auto"], [["my car"]]) == pytest.approx(90)
    assert metric.score(["my boat"], [["my car"]]) == pytest.approx(50)


def test_words_are_lower_case_with_marks_apart() -> None:
    assert words("He didn't, “Zoë”!") == ["he", "didn't", ",", "“", "zoë", "”", "!"]


def test_frequent_words_are_those_above_the_share() -> None:
    assert frequent_words(["the cat the dog the end ."] * 5, share=0.2) == ("the",)


def test_the_signature_states_every_number() -> None:
    signature = meteor(modules=("exact",), alpha=0.7).signature()
    for part in ("modules:exact=1", "alpha:0.7", "beta:0.2", "gamma:0.6", "delta:0.75", "lang:en", "functionwords:"):
        assert part in signature


@pytest.mark.parametrize("bad", [{"alpha": 1.5}, {"delta": 1.0}, {"modules": ["paraphrase"]}, {"gama": 0.1}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        meteor(**bad)

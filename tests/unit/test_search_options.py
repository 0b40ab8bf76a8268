"""What options mean: strategies, words as tokens, samples that agree, text that streams. No model is trained here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from fitting import fitted
from seqloom.api import stream
from seqloom.api.asking import Asking
from seqloom.api.options import Options, Risk
from seqloom.api.risk import _ranked, agreements
from seqloom.config import kind_of, validated
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Limits
from seqloom.tasks.risk import Risk as Expected
from seqloom.tasks.transduce import SearchSettings

TEXTS = ["New York is big, he said.", "the U.S. said: no", "old York, new york"] * 10


def codec(kind: str = "words", **more: object) -> TextCodec:
    settings = TextCodec.Settings.model_validate({"tokenizer": {"kind": kind, **more}})
    return TextCodec.train(settings, lambda: TEXTS, seed=1)


def options(**wishes: object) -> Options:
    return validated(Options, wishes, "options")


def strategy(recipe: object = "beam", **wishes: object) -> dict[str, object]:
    search = SearchSettings.model_validate({"strategy": recipe})
    return options(**wishes).searching(search).strategy.model_dump()


# --- strategies --------------------------------------------------------------------------------------------------


def test_wishes_change_the_recipes_beam() -> None:
    recipe = {"kind": "beam", "size": 6, "stop": "all", "length": {"kind": "gnmt", "alpha": 0.5}}
    plain = strategy(recipe)
    assert strategy(recipe, must=["a"]) == {**plain, "kind": "lexical"}
    assert strategy(recipe, groups=3) == {**plain, "kind": "diverse", "groups": 3, "penalty": 0.5}
    grouped = strategy(recipe, beam=4, groups=2, diversity=1.5, n_best=3)
    assert grouped == {**plain, "kind": "diverse", "size": 4, "groups": 2, "penalty": 1.5, "n_best": 3}
    assert strategy(recipe, coverage_penalty=0.2) == {**plain, "n_best": 6}, "all of the beam is judged again"
    assert strategy(recipe, coverage_penalty=0.2, beam=3)["n_best"] == 3
    assert strategy({**recipe, "stop": "finished", "finish": 2}, coverage_penalty=0.2)["n_best"] == 2
    assert strategy("greedy", groups=2)["size"] == 4
    assert strategy("sample", n_best=4)["samples"] == 4
    assert strategy(recipe, risk={"samples": 8}, n_best=7) == plain, "the samples are what n_best is taken from"


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"groups": 4}, "groups: 4 does not divide the beam's size 6; one of 1, 2, 3, 6"),
        ({"diversity": 1.0}, "without groups"),
        ({"groups": 2, "must": ["a"]}, "must"),
        ({"strategy": "greedy", "must": ["a"]}, "greedy search cannot promise"),
        ({"strategy": "sample", "must": ["a"]}, "sample search cannot promise"),
        ({"strategy": "sample", "groups": 2}, "sample search has no beam to divide"),
        ({"strategy": "greedy", "groups": 2}, "greedy search has no beam to divide"),
        ({"strategy": "greedy", "coverage_penalty": 0.1}, "nothing to choose from"),
        ({"coverage_penalty": -1}, "coverage_penalty"),
        ({"one_of": []}, "one_of: the list of possible outputs is empty"),
        ({"one_of": ["", ""]}, "one_of: the list of possible outputs is empty"),
        ({"must": ["a"], "pattern": ".*"}, "put the phrases there"),
        ({"risk": {"samples": 1}}, "samples"),
        ({"risk": {"metric": "blue"}}, 'did you mean "bleu"?'),
        ({"risk": {}, "n_best": 33}, "n_best 33 is over the number of samples 32"),
        ({"risk": {}, "coverage_penalty": 0.1}, "leave coverage_penalty out"),
        ({"risk": {}, "must": ["a"]}, "must"),
        ({"risk": {}, "beam": 4}, "beam has no meaning"),
        ({"n_best": 7}, "n_best 7 is over the beam's size 6"),
    ],
)
def test_wishes_that_contradict_are_refused(wishes: dict[str, object], said: str) -> None:
    with pytest.raises(SeqloomError) as caught:
        strategy({"kind": "beam", "size": 6}, **wishes)
    assert said in caught.value.line


# --- words as tokens ---------------------------------------------------------------------------------------------


def asking(side: TextCodec, **wishes: object) -> Asking:
    return Asking.of(options(**wishes), SearchSettings(), Codecs(side, side))


def test_phrases_are_spelled_once_for_all_sources() -> None:
    side = codec()
    asked = asking(side, must=["New York", "big"], prefix="the", max_length=9)
    assert asked.prefix == ("the",)
    wishes = asked.wishes([side.encode("the")] * 3)
    assert wishes.phrases == [(tuple(side.encode("New York")), tuple(side.encode("big")))] * 3
    assert wishes.prefixes is not None
    assert wishes.prefixes.ids.tolist() == [side.encode("the")] * 3
    assert wishes.limits == Limits(max_length=9)
    assert kind_of(asked.strategy) == "lexical"
    with pytest.raises(SeqloomError, match="the model cannot say 'Boston'"):
        asking(side, must=["New Boston"])
    with pytest.raises(SeqloomError, match="is empty"):
        asking(side, must=[""])
    with pytest.raises(SeqloomError, match="prefix: the model cannot say 'Boston', 'Rome'"):
        asking(side, prefix="New Boston, old Rome")
    with pytest.raises(SeqloomError, match="prefix: it has 2 tokens, max_length is 1"):
        asking(side, prefix="New York", max_length=1)


def banned(side: TextCodec, *texts: str) -> list[list[str]]:
    """What may not be said, as pieces."""
    found: list[list[str]] = []
    for constraint in asking(side, banned=texts).constraints:
        single = getattr(constraint, "tokens", ())
        found += [[side.vocabulary.piece(token)] for token in single]
        if not single:
            pairs = zip(constraint._heads.tolist(), constraint._lasts.tolist(), strict=True)  # type: ignore[attr-defined]
            found += [side.pieces([token for token in (*head, last) if token >= 0]) for head, last in pairs]
    return sorted(found)


def test_banned_texts_are_tokens_or_phrases() -> None:
    side = codec()
    assert banned(side, "York") == [["York"]]
    assert banned(side, ".") == sorted([["￭."], ["￭.￭"]]), "however it is attached"
    assert banned(side, "New York") == [["New", "York"]]
    assert banned(side, "said.", "big") == sorted([["big"], ["said", "￭."], ["said", "￭.￭"]])
    assert banned(codec("characters"), "York") == [["Y", "o", "r", "k"]]
    with pytest.raises(SeqloomError, match="no token"):
        banned(side, "New Boston")
    for unwanted in ("York", "New York"):
        with pytest.raises(SeqloomError, match="must occur, and a part of it is banned"):
            asking(side, must=["big", "New York is"], banned=[unwanted])
    asking(side, must=["New York"], banned=["York New"])


def test_a_list_of_outputs_names_what_the_model_cannot_say() -> None:
    side = codec("characters")
    with pytest.raises(SeqloomError) as caught:
        asking(side, one_of=["York", "Zürich", "Ulm", "Köln", "Fürth", "big"])
    assert "4 of 6" in caught.value.line
    assert "'Zürich', 'Ulm', 'Köln', ..." in caught.value.line
    (trie,) = asking(side, one_of=["York", "big"]).constraints
    assert trie.room() == 4


# --- samples that agree ------------------------------------------------------------------------------------------


def hypothesis(token: int, log_prob: float) -> Hypothesis:
    return Hypothesis((token,), (log_prob,), log_prob, log_prob, truncated=False)


def test_the_output_that_others_agree_with() -> None:
    """exact match: "b" was drawn twice of four, so it is worth 50; "a" and "c" 25 each, the likelier goes first."""
    drawn = [hypothesis(6, -1.0), hypothesis(7, -2.0), hypothesis(8, -0.5), hypothesis(7, -2.0)]
    ranked = _ranked(drawn, [], METRICS.build(METRICS.settings("exact")), ["a", "b", "c", "b"])
    assert [(h.tokens, h.score, h.log_prob) for h in ranked] == [((7,), 50, -2.0), ((8,), 25, -0.5), ((6,), 25, -1.0)]


def test_what_a_beam_found_competes_and_does_not_count() -> None:
    drawn, more = [hypothesis(6, -1.0), hypothesis(7, -1.0)], [hypothesis(8, -0.1)]
    ranked = _ranked(drawn, more, METRICS.build(METRICS.settings("exact")), ["b", "a", "c"])
    assert [(h.tokens, h.score) for h in ranked] == [((7,), 50), ((6,), 50), ((8,), 0)], "a tie goes by text"


ODD = ("pearson", "spearman", "nist")  # of one number: nothing; by nist, what is rare says more than what is common


@pytest.mark.parametrize("kind", [kind for kind in METRICS if METRICS[kind].compares and kind not in ODD])
def test_any_metric_prefers_what_is_like_the_others(kind: str) -> None:
    texts, _ = fitted(kind, ["the cat sat on the mat", "the cat sat on my mat", "the cat sat on the mat", "no"], [])
    worth = agreements(METRICS.build(METRICS.settings(kind)), texts[1:], texts)
    assert worth.shape == (3, 4)
    assert int(worth.mean(1).argmax()) == 1
    assert np.isfinite(worth).all()


def test_what_looks_at_outputs_alone_is_no_agreement() -> None:
    for kind in ("distinct_1", "distinct_2"):
        for settings in (Risk, Expected):
            with pytest.raises(ValidationError, match="looks at outputs alone"):
                settings.model_validate({"metric": kind})


# --- text that streams -------------------------------------------------------------------------------------------


def told(side: TextCodec, steps: Sequence[Sequence[int]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told when these beginnings become certain one after the other."""

    def certain(*_: object) -> Iterator[tuple[Sequence[int], bool]]:
        yield from ((tokens, False) for tokens in steps)
        yield steps[-1], True

    monkeypatch.setattr(stream, "certain", certain)
    model = SimpleNamespace(codecs=SimpleNamespace(decode=lambda tokens, _: side.decode(tokens)))
    return list(stream.pieces_of_text(model, SimpleNamespace(foreign=()), Options()))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["words", "characters", "bytes", "symbols", "bpe", "unigram"])
def test_streamed_text_is_never_taken_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any tokens in any order, told one by one: together they are the whole."""
    side = codec(kind, **({"size": 60} if kind in ("bpe", "unigram") else {}))
    rng = np.random.default_rng(2)
    for _ in range(60):
        tokens = rng.integers(6, len(side.vocabulary), size=8).tolist()
        pieces = told(side, [tokens[:end] for end in range(9)], monkeypatch)
        assert "".join(pieces) == side.decode(tokens)


def test_half_a_character_waits_for_its_other_half(monkeypatch: pytest.MonkeyPatch) -> None:
    side = codec("bytes")
    tokens = side.encode("a€b")  # € has three bytes
    assert told(side, [tokens[:end] for end in range(6)], monkeypatch) == ["a", "€", "b"]
    assert told(side, [tokens[:end] for end in range(4)], monkeypatch) == ["a", "\ufffd"], "the end tells what there is"


def test_the_beginning_that_all_share() -> None:
    assert stream.shared_beginning([[6, 7, 8], [6, 7], [6, 7, 9]]) == [6, 7]
    assert stream.shared_beginning([[6], [7]]) == []
    assert stream.shared_beginning([[6, 7]]) == [6, 7]


@pytest.mark.parametrize("wish", [{"risk": {}}, {"coverage_penalty": 0.1}, {"replace_unknown": True}, {"n_best": 2}])
def test_what_is_judged_at_the_end_cannot_be_streamed(wish: dict[str, object]) -> None:
    with pytest.raises(SeqloomError, match="E_USAGE"):
        stream.refuse_streaming(options(**wish))

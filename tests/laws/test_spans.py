"""The span decoder beside its equations; where an answer stands in its source; answers as SQuAD judges them."""

from __future__ import annotations

import math

import pytest
import torch
from cases import SHARED, TARGET_VOCABULARY, WIDTH, Case, fresh, model, small, some_tokens

from seqloom.batch import Batch, Tokens
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.metrics import METRICS
from seqloom.models.tables import DECODERS
from seqloom.nn.tape import Tape
from seqloom.recipe import Recipe
from seqloom.specials import EOS, UNK

LONGEST = 3


def network(**wanted: object) -> object:
    decoder = small(DECODERS, "span", query="tags", longest=LONGEST, **wanted)
    return fresh(Case("span", model(decoder=decoder), {"tags": SHARED}))


def asked(words: int, span: tuple[int, int]) -> Batch:
    """A source of so many words (and its end), a query, and the span from one place to another, both included."""
    target = Tokens.pad([[*range(TARGET_VOCABULARY + span[0], TARGET_VOCABULARY + span[1] + 1), EOS]])
    sources = {"source": some_tokens([words + 1], 12), "tags": some_tokens([3], 12, seed=9)}
    return Batch(sources, target)


@pytest.mark.parametrize("compare", ["none", "attention"])
@torch.no_grad()
def test_words_in_turn_multiply_to_start_and_end(compare: str) -> None:
    generator = network(compare=compare)
    every = [(start, end) for start in range(5) for end in range(start, min(5, start + LONGEST))]
    total = 0.0
    for start, end in every:
        batch = asked(5, (start, end))
        with Tape("decoder.attention") as tape:
            nll = generator.nll(batch)  # type: ignore[attr-defined]
        weights = tape.steps("decoder.attention")[0][0, 0]  # T S: p(start), then p(end | start, end >= here)
        expected = math.log(weights[0, start]) + math.log(weights[1, end])  # the first end is over all that may be
        assert float(-nll.sum()) == pytest.approx(expected, abs=1e-9)
        assert weights[1, :start].sum() == 0
        assert weights[1, start + LONGEST :].sum() == 0
        total += math.exp(float(-nll.sum()))
    assert total == pytest.approx(1.0, abs=1e-9), "these are all spans that can be said"


@torch.no_grad()
def test_looking_elsewhere_makes_it_say_something_else() -> None:
    generator, batch = network(), asked(5, (1, 2))

    def there(weights: torch.Tensor, step: int) -> torch.Tensor:
        moved = torch.zeros_like(weights)
        moved[..., 3] = 1
        return moved

    with Tape(replace={"decoder.attention": there}):
        features, _ = generator.forced(batch)  # type: ignore[attr-defined]
    assert int(features[0, 0].argmax()) == TARGET_VOCABULARY + 3


def codecs(tokenizer: object, *texts: str, longest: int = 8) -> Codecs:
    settings = TextCodec.Settings.model_validate({"tokenizer": tokenizer})
    one = TextCodec.train(settings, lambda: texts, seed=1)
    other = TextCodec.train(settings, lambda: ["nothing"] * 3 + list(texts), seed=1)
    return Codecs(one, other, copies=True, points=longest)


TEXT = 'In 1863 "Mary (of York)" went to York, U.S.A., by train.'


@pytest.mark.parametrize("tokenizer", ["words", "symbols", {"kind": "bpe", "size": 60}, "characters"])
@pytest.mark.parametrize("answer", ["1863", "went to", "by", "In", "Mary", "York", "U.S.A.", "(of York)"])
def test_an_answer_is_a_part_of_its_text(tokenizer: object, answer: str) -> None:
    both = codecs(tokenizer, TEXT, longest=20)
    pair, read = both.pair(TEXT, answer)
    ids = pair.target.tolist()
    if tokenizer == "symbols" and answer not in TEXT.split():
        if " " not in answer:
            assert ids == [UNK], "what stands between blanks is one piece"
        return
    if ids != [UNK]:  # a subword may reach over the ends of an answer: then nothing points at it
        assert [one - ids[0] for one in ids] == list(range(len(ids)))
        assert both.decode(ids, read.foreign).strip() == answer
        assert both.decode(ids, read.foreign).strip() in TEXT
    else:
        assert isinstance(tokenizer, dict)


def test_what_does_not_stand_there_is_unknown_and_so_is_what_is_too_long() -> None:
    both = codecs("words", TEXT, longest=2)
    assert both.pair(TEXT, "Paris")[0].target.tolist() == [UNK]
    assert both.pair(TEXT, "went to York")[0].target.tolist() == [UNK]
    assert both.pair(TEXT, "ent to")[0].target.tolist() == [UNK], "no part of a word"
    first = len(both.target.vocabulary)
    assert both.pair("a b a b", "b")[0].target.tolist() == [first + 1], "the first of several"


def judged(kind: str, said: str, *wanted: str) -> float:
    return METRICS.build(METRICS.settings(kind)).score([said], [list(wanted)])


def test_answers_are_judged_by_their_words() -> None:
    assert judged("answer_exact", "The Eiffel Tower.", "eiffel tower") == 100
    assert judged("answer_exact", "tower", "eiffel tower") == 0
    assert judged("answer_f1", "tower", "eiffel tower") == pytest.approx(100 * 2 / 3)  # P 1, R 1/2
    assert judged("answer_f1", "a tower, a tower", "tower") == pytest.approx(100 * 2 / 3)  # words count as they stand
    assert judged("answer_f1", "x", "y z", "x y") == pytest.approx(100 * 2 / 3)  # the best of several
    assert judged("answer_f1", "the", "a") == 100, "nothing is left of either"
    assert judged("answer_f1", "", "x") == 0
    mean = METRICS.build(METRICS.settings("answer_f1")).score(["tower", "x"], [["eiffel tower"], ["x"]])
    assert mean == pytest.approx((200 / 3 + 100) / 2)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"extras": {"q": {}}, "model": {"decoder": "span"}}, "a span is of the source alone"),
        ({"extras": {"q": {"use": "shared"}}, "model": {"decoder": "span"}}, "say which source asks: q"),
        ({"extras": {"q": {"use": "shared"}}, "target": {"tokenizer": "characters"}}, "compares pieces of text"),
        ({"extras": {"q": {"use": "shared"}}, "task": {"history": {"drop": 0.1}}}, "stand in the source"),
        ({"extras": {"q": {"use": "shared"}}, "model": {"decoder": {"kind": "span", "query": "w"}}}, "'w'"),
        (
            {"extras": {"q": {"use": "shared"}}, "model": {"decoder": {"kind": "span", "query": "q"}, "head": "copy"}},
            "head",
        ),
    ],
)
def test_what_a_span_cannot_do_is_refused(parts: dict[str, object], said: str) -> None:
    base: dict[str, object] = {
        "data": {"train": {"path": "x.tsv", "extras": {"q": 2}}},
        "model": {"decoder": {"kind": "span", "query": "q"}},
        "training": {"steps": 1},
    }
    with pytest.raises(ValueError, match=said):
        Recipe.model_validate({**base, **parts})


def test_width_is_free() -> None:
    """An odd width is read again by one that two directions can share."""
    odd = model(encoder={"kind": "bag", "width": WIDTH + 1}, decoder=small(DECODERS, "span", query="tags"))
    assert fresh(Case("odd", odd, {"tags": SHARED})).nll(asked(4, (0, 1))).isfinite().all()

"""Search errors and model errors that were put there on purpose, told apart; symptoms and words by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

from seqloom.api.align import looked
from seqloom.api.diagnose import Diagnoses, diagnose
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.batch import Source
from seqloom.config import validated
from seqloom.data.codec import TextCodec
from seqloom.data.examples import Example
from seqloom.errors import SeqloomError
from seqloom.metrics import METRICS
from seqloom.models.contracts import State
from seqloom.models.heads import Linear
from seqloom.models.model import Ensemble
from seqloom.probe.align import Picks
from seqloom.probe.diagnose import Diagnosis, Side, Spoken, counting, diagnosed
from seqloom.probe.forced import Forced, forced
from seqloom.probe.symptoms import Compared, named, quoted, symptoms
from seqloom.recipe import recipe_from
from seqloom.search.loop import Limits, Wishes
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import EOS, UNSPEAKABLE
from seqloom.wiring import build_model, joined_codecs

WORDS = "a b c d e f"
Script = Mapping[str, Mapping[str, float]]


class Scripted:
    """p(next word | words so far) from a table; what it does not name shares the rest evenly."""

    def __init__(self, script: Script, codec: TextCodec) -> None:
        self.script, self.codec = script, codec

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        count = next(iter(sources.values())).mask.shape[0]
        return State({"read": torch.zeros(count * hypotheses, 0, dtype=torch.long)})

    def step(self, last: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        read = torch.cat([state.rows["read"], last[:, None]], 1)
        return torch.stack([self._next(row) for row in read.tolist()]).log(), state.with_rows(read=read)

    def _next(self, read: Sequence[int]) -> torch.Tensor:
        said = " ".join(self.codec.vocabulary.piece(token) for token in read if token not in (EOS, *UNSPEAKABLE))
        named = self.script.get(said, self.script.get("*", {}))
        width = len(self.codec.vocabulary)
        row = torch.full((width,), (1 - sum(named.values())) / (width - len(named)), dtype=torch.float64)
        for word, probability in named.items():
            row[EOS if word == "." else self.codec.vocabulary.ids([word])[0]] = probability
        return row


def model(
    changes: Mapping[str, object] | None = None,
    texts: Sequence[str] = (WORDS,),
    extras: Mapping[str, TextCodec] | None = None,
) -> Model:
    """Any network, untrained, over a few words; `changes` are keys of the recipe."""
    raw: dict[str, object] = {
        "data": {"train": "nowhere.tsv", "limits": {"max_source": 12, "max_target": 12}},
        "model": {
            "source_embedding": {"width": 8},
            "target_embedding": {"width": 8},
            "encoder": {"width": 8},
            "decoder": {"width": 8},
        },
        "training": {"steps": 1},
        "runtime": {"precision": "float32"},
    }
    recipe = recipe_from({**raw, **(changes or {})}, "test")
    source = TextCodec.train(recipe.source, lambda: texts, seed=1)
    target = source if recipe.model.one_vocabulary else TextCodec.train(recipe.target, lambda: texts, seed=1)
    codecs = joined_codecs(recipe, source, target, extras)
    return Model("made", recipe, codecs, build_model(recipe, codecs))


def scripted(script: Script, changes: Mapping[str, object] | None = None) -> Model:
    made = model(changes)
    made.scorer = Scripted(script, made.target)
    return made


def options(**wishes: object) -> Options:
    return validated(Options, {"split": False, **wishes}, "options")


def one(asked: Model, *references: str, source: str = "a b", **wishes: object) -> Diagnosis:
    (found,) = diagnose(asked, [Example(source, references, "test", 1)], options(**wishes))
    json.dumps(found.as_dict(), allow_nan=False)
    assert found.where == "test:1"
    return found


# --- search errors and model errors ------------------------------------------------------------------------------

# Greedy walks into "a", behind which nothing is likely: 0.6 x 0.3 x 1. "b c" has 0.38 x 1 x 1. "d" has 0.01 x 1.
GARDEN: Script = {
    "": {"a": 0.6, "b": 0.38, "d": 0.01},
    "a": {"c": 0.3, "d": 0.28, "e": 0.27},
    "b": {"c": 0.99},
    "*": {".": 0.99},
}


def test_what_search_missed_is_a_search_error() -> None:
    asked = scripted(GARDEN)
    found = one(asked, "b c", strategy="greedy")
    assert (found.output, found.verdict) == ("a c", "search error")
    assert found.reference_score == pytest.approx(math.log(0.38 * 0.99 * 0.99), abs=1e-6)
    assert found.score == pytest.approx(math.log(0.6 * 0.3 * 0.99), abs=1e-6)
    assert found.line.startswith(
        'search error: the reference scores -0.988, the output -1.725; the reference begins with "b" (rank 2, p 0.38), '
        'search said "a" (p 0.60)'
    )
    assert one(asked, "b c", beam=2).verdict == "right"


def test_what_the_model_likes_less_is_a_model_error() -> None:
    found = one(scripted(GARDEN), "b d", strategy="greedy")
    assert found.verdict == "model error"
    assert found.line.startswith('model error: the reference begins with "b" (rank 2, p 0.38), the model said "a"')
    later = one(scripted(GARDEN), "b d", beam=2)
    assert later.output == "b c"
    assert later.line.startswith('model error: after "b" the reference goes on with "d" (rank 2, p 0.0009), the model')
    assert later.divergence is not None
    assert (later.divergence.place, later.divergence.right, later.divergence.said) == (1, "d", "c")


# "a" alone: 0.5 x 0.5; "b b b b": 0.4 x 0.7^3 x 0.9. By probability "a" is better, by the mean of its tokens the other.
SHORT: Script = {
    "": {"a": 0.5, "b": 0.4},
    "a": {".": 0.5},
    "b": {"b": 0.7},
    "b b": {"b": 0.7},
    "b b b": {"b": 0.7},
    "b b b b": {".": 0.9},
    "*": {".": 0.99},
}


@pytest.mark.parametrize(
    ("length", "verdict"),
    [
        ("none", "model error"),  # log 0.25 = -1.39 against log 0.1235 = -2.09
        ("mean", "search error"),  # -1.39 / 1 against -2.09 / 4 = -0.52
        ({"kind": "gnmt", "alpha": 0.4}, "model error"),  # -1.39 against -2.09 / 1.5^0.4 = -1.78
        ({"kind": "gnmt", "alpha": 1.2}, "search error"),  # -1.39 against -2.09 / 1.5^1.2 = -1.29
    ],
)
def test_the_score_is_the_one_that_search_maximises(length: object, verdict: str) -> None:
    strategy = {"kind": "beam", "size": 1, "length": length}
    found = one(scripted(SHORT), "b b b b", strategy=strategy)
    assert (found.output, found.verdict) == ("a", verdict)


def test_sampling_and_several_samples_compare_probabilities() -> None:
    found = one(scripted(GARDEN), "d", strategy={"kind": "sample", "seed": 3, "top_k": 1})
    assert (found.output, found.verdict) == ("a c", "model error")
    assert found.reference_score == pytest.approx(math.log(0.01 * 0.99), abs=1e-6)


def test_advice_counts_as_it_does_in_search() -> None:
    """A language model that dislikes "b" turns the search error into the model's own choice."""
    asked = scripted(GARDEN)
    asked.advice = Scripted({"": {"a": 0.9, "b": 0.001}, "*": {".": 0.5, "c": 0.4}}, asked.target)
    found = one(asked, "b c", strategy="greedy")
    assert found.verdict == "model error"
    own = math.log(0.38 * 0.99 * 0.99)
    assert found.reference_score == pytest.approx(own + math.log(0.001 * 0.4 * 0.5), abs=1e-6)


def test_the_best_reference_that_can_be_said_counts() -> None:
    asked = scripted(GARDEN)
    assert one(asked, "d", "b c", "e", strategy="greedy").reference == "b c"
    assert one(asked, "d", "a  c ", strategy="greedy").verdict == "right"
    barred = one(asked, "b c", "d", strategy="greedy", banned=["b"])
    assert (barred.reference, barred.verdict, barred.barred) == ("d", "model error", "")


@pytest.mark.parametrize(
    ("reference", "wishes", "reason"),
    [
        ("b c", {"max_length": 1}, "it has 2 tokens, the limit is 1"),
        ("b c", {"banned": ["c"]}, 'a constraint forbids "c"'),
        ("b c", {"prefix": "a"}, 'a constraint forbids "b"'),
        ("b c", {"one_of": ["a c", "a d", "f"]}, 'a constraint forbids "b"'),
        ("b c", {"pattern": "[ad] c"}, 'a constraint forbids "b"'),
        ("b c", {"min_length": 3}, "a constraint forbids the end"),
        ("b zebra", {}, 'it holds "zebra", which the vocabulary lacks'),
        ("b c", {"must": ["e"], "strategy": "beam"}, "it lacks a phrase that must occur"),
    ],
)
def test_what_search_may_not_say_is_no_search_error(reference: str, wishes: Mapping[str, object], reason: str) -> None:
    """UNK behind "b" is made as likely as "c", so that every reference here scores above the output."""
    script = {**GARDEN, "b": {"c": 0.49, "<unk>": 0.49}}
    found = one(scripted(script), reference, **{"strategy": "greedy", **wishes})
    assert (found.verdict, found.barred) == ("out of reach", reason)
    assert found.line.startswith(f"out of reach: {reason}; ")


def test_a_model_error_whose_reference_is_out_of_reach_says_both() -> None:
    found = one(scripted(GARDEN), "a zebra", strategy="greedy")
    assert found.verdict == "model error"
    assert found.divergence is not None
    assert (found.divergence.right, found.divergence.rank, found.divergence.probability) == ("zebra", None, None)
    assert 'goes on with "zebra", the model said "c" (p 0.30)' in found.line
    assert 'search could not have said the reference: it holds "zebra", which the vocabulary lacks' in found.line


def test_a_reference_is_compared_as_the_target_side_writes_it() -> None:
    asked = scripted(GARDEN, {"target": {"tokenizer": "words", "lowercase": True}})
    assert one(asked, "A c", strategy="greedy").verdict == "right"
    assert one(asked, "B c", strategy="greedy").verdict == "search error"  # as it writes it, it could have been said


def test_an_output_that_does_not_end_is_judged_as_if_it_did() -> None:
    endless: Script = {"*": {"a": 0.9, ".": 0.05}, "": {"a": 0.9, "b": 0.05}, "b": {".": 0.99}}
    found = one(scripted(endless), "b", strategy="greedy", max_length=4)
    assert (found.output, found.verdict) == ("a a a a", "search error")  # 0.9^4 x 0.05 = 0.033 against 0.05 x 0.99
    assert found.score == pytest.approx(math.log(0.9**4 * 0.05), abs=1e-6)
    assert [symptom.kind for symptom in found.symptoms] == ["repeated", "over-translated", "did not end"]
    assert one(scripted(endless), "b", strategy="greedy", max_length=3).verdict == "search error"
    likelier = {**endless, "": {"a": 0.97, "b": 0.01}}
    assert one(scripted(likelier), "b", strategy="greedy", max_length=4).verdict == "model error"
    stuck = one(scripted(endless), "b", strategy="greedy", max_length=4, min_length=4, pattern="a+( a)*|b")
    assert (stuck.verdict, stuck.barred) == ("out of reach", "a constraint forbids the end")
    dead = one(scripted(endless), "f f", strategy="greedy", no_repeat=1, min_length=10)  # no word is left, and no end
    assert dead.score == -math.inf
    assert (dead.verdict, dead.as_dict()["score"]) == ("out of reach", None)
    cut = one(scripted(endless), "a a a a a a", strategy="greedy", max_length=4)
    assert "the output was cut off there" in cut.line
    assert cut.barred == "it has 6 tokens, the limit is 4"


def test_ends_are_tokens_too() -> None:
    asked = scripted(GARDEN)
    early = one(asked, "a c c", strategy="greedy")
    assert 'after "a c" the reference goes on with "c" (rank 2, ' in early.line
    assert "the model ended (p 0.99)" in early.line
    assert "it ends 1 word too early" in early.line
    late = one(asked, "a", strategy="greedy")
    assert 'after "a" the reference ends (rank ' in late.line
    empty = one(asked, "", "", strategy="greedy")
    assert "the reference is empty (rank 4, " in empty.line


def test_examples_that_are_passed_over_say_why() -> None:
    asked = scripted(GARDEN)
    pairs = [("", "a"), (" ", "a"), ("a " * 13, "a"), ("a b", "a c"), ("a", "b " * 13), ("a\nb", "a c")]
    examples = [Example(source, (target,), "test", line) for line, (source, target) in enumerate(pairs, start=1)]
    found = list(diagnose(asked, examples, options(on_long="skip", strategy="greedy"), chunk=2))
    assert [item.verdict for item in found] == [
        "passed over", "passed over", "passed over", "right", "out of reach", "passed over",
    ]  # fmt: skip
    assert [item.where for item in found] == [f"test:{line}" for line in range(1, 7)]
    assert found[2].line == "passed over: the source is longer than the recipe's maximum"
    assert found[4].line == "out of reach: the reference is longer than the recipe's maximum of 12 tokens"
    assert found[5].line == "passed over: it is answered in 2 parts, and its reference is of the whole"
    with pytest.raises(SeqloomError) as caught:
        list(diagnose(asked, examples, options(on_long="error")))
    assert caught.value.code == "E_LONG"
    with pytest.raises(SeqloomError, match="judged by samples") as caught:
        list(diagnose(asked, examples, options(risk={})))
    assert caught.value.code == "E_USAGE"


# --- by force, whatever the model --------------------------------------------------------------------------------

SIZES = {"source_embedding": {"width": 8}, "target_embedding": {"width": 8}}
SMALL = {"width": 8, "layers": 1, "heads": 2}
TAGS = TextCodec.train(
    TextCodec.Settings.model_validate({"tokenizer": {"kind": "symbols", "separator": ";"}}), lambda: ["x;y"], seed=1
)
KINDS: dict[str, dict[str, object]] = {
    "elman": {"model": {**SIZES, "encoder": {"width": 8, "cell": "elman"}, "decoder": {"kind": "luong", "width": 8}}},
    "gru": {"model": {**SIZES, "encoder": {"width": 8, "cell": "gru"}, "decoder": {"kind": "bahdanau", "width": 8}}},
    "lstm": {"model": {**SIZES, "encoder": {"width": 8}, "decoder": {"kind": "luong", "width": 8}}},
    "no attention": {"model": {**SIZES, "encoder": {"width": 8}, "decoder": {"kind": "rnn", "width": 8}}},
    "transformer": {
        "model": {**SIZES, "encoder": {"kind": "transformer", **SMALL}, "decoder": {"kind": "transformer", **SMALL}}
    },
    "convolution": {"model": {**SIZES, "encoder": {"kind": "convolution", "width": 8}, "decoder": {"width": 8}}},
    "joint": {"model": {"kind": "joint", "embedding": {"width": 8}, "decoder": {"kind": "transformer", **SMALL}}},
    "monotonic": {"model": {**SIZES, "encoder": {"width": 8}, "decoder": {"kind": "monotonic", "width": 8}}},
    "copy": {"model": {**SIZES, "encoder": {"width": 8}, "decoder": {"width": 8}, "head": "copy"}},
    "tags before": {"extras": {"tags": {}}},
    "tags by an encoder": {"extras": {"tags": {"use": "encoder"}}},
}


def made(name: str) -> Model:
    tagged = "extras" in KINDS[name]
    data = {"train": {"path": "nowhere.tsv", **({"extras": {"tags": 2}} if tagged else {})}}
    limits = {"limits": {"max_source": 12, "max_target": 12}}
    asked = model({**KINDS[name], "data": {**data, **limits}}, extras={"tags": TAGS} if tagged else None)
    with torch.no_grad():  # so that distributions are not flat
        for parameter in asked.network.double().parameters():
            parameter.mul_(3)
    return asked


def examples_for(name: str) -> list[Example]:
    """Some words are unknown, one source is longer than the others, and there is more than one reference."""
    extras = {"tags": "x;y"} if "extras" in KINDS[name] else {}
    pairs = [("a b c", ("c b a", "a")), ("zebra a", ("zebra", "f e")), ("f", ("f f f",)), ("e d c b a a", ("b",))]
    return [Example(source, references, "test", i, extras) for i, (source, references) in enumerate(pairs, start=1)]


@pytest.mark.parametrize("strategy", ["greedy", "beam", {"kind": "sample", "seed": 2}])
@pytest.mark.parametrize("name", KINDS)
def test_forced_scores_are_those_of_search(name: str, strategy: object) -> None:
    """In batches and alone; ranks are counted in the network's own distributions."""
    asked, wishes = made(name), options(strategy=strategy)
    encoded = [asked.codecs.encode(example.inputs) for example in examples_for(name)]
    found = [hypotheses[0] for hypotheses in asked.search(encoded, wishes)]
    outputs = [hypothesis.tokens for hypothesis in found]
    normalisation = STRATEGIES.build(asked.asking(wishes).strategy).normalisation
    together = forced(asked.network, asked.sources(encoded), outputs, Wishes(Limits()))
    for place, (told, hypothesis) in enumerate(zip(together, found, strict=True)):
        (alone,) = forced(asked.network, asked.sources(encoded[place : place + 1]), [outputs[place]], Wishes(Limits()))
        assert told.log_probs == pytest.approx(alone.log_probs, abs=1e-6)
        assert told.ranks == alone.ranks
        count = len(hypothesis.token_log_probs)
        assert told.log_probs[:count] == pytest.approx(hypothesis.token_log_probs, abs=1e-6)
        assert all(told.allowed)
        if not hypothesis.truncated:
            assert told.reachable
            assert told.score(normalisation) == pytest.approx(hypothesis.score, abs=1e-6)
        if strategy == "greedy":  # the likeliest is taken; what is never said may be likelier
            assert max(told.ranks[:count]) <= 5


def test_a_joint_transformer_looks_at_its_source_as_well() -> None:
    asked, examples = made("joint"), examples_for("joint")
    for example, found in zip(examples, looked(asked, examples), strict=True):
        (alone,) = looked(asked, [example])
        np.testing.assert_allclose(found.weights, alone.weights, atol=1e-6)
        assert found.weights.shape[2:] == (len(example.target.split()) + 1, len(example.source.split()))
        assert found.weights.any()
    parted = [found.divergence for found in diagnose(asked, examples) if found.divergence is not None]
    assert any(part.gaze is not None for part in parted)


def test_what_is_there_twice_is_named_once() -> None:
    assert named(["a", "b", "a", "a"]) == '"a", "b"'
    assert named(["a", "a", "b", "c", "d"]) == '"a", "b", "c" and 1 more'


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_is_diagnosed(name: str) -> None:
    """The verdict is what independent sums say: `Model.score` for log P, divided by hand."""
    asked, examples = made(name), examples_for(name)
    found = list(diagnose(asked, examples, options(beam=2)))
    compared = 0
    for item, example in zip(found, examples, strict=True):
        json.dumps(item.as_dict(), allow_nan=False)
        assert item.output == asked(example.inputs, beam=2, split=False).text
        if item.verdict == "right" or "<unk>" in item.output:  # a text that spells it is read as something else
            continue
        compared += 1
        assert item.score is not None
        assert item.reference_score is not None
        texts = [item.output, *example.references]
        scored = asked.score([(example.inputs, text) for text in texts])
        own, *others = (one.log_prob / max(1, len(one.tokens) - 1) for one in scored)
        assert item.score == pytest.approx(own, abs=1e-4)  # cut off or not: as if it had ended there
        assert item.reference_score == pytest.approx(others[example.references.index(item.reference)], abs=1e-4)
        if not item.barred:
            assert item.verdict == ("search error" if item.reference_score > item.score + 1e-4 else "model error")
        assert item.divergence is not None
        if item.divergence.right is not None:
            assert (item.divergence.gaze is not None) == bool(asked.network.attention_taps)
    assert compared, "some outputs were compared"


def test_what_can_be_copied_can_be_said() -> None:
    found = [item for item in diagnose(made("copy"), examples_for("copy"), options(beam=2)) if "zebra" in item.source]
    assert found[0].verdict == "right" or "vocabulary lacks" not in found[0].barred
    words = next(diagnose(made("lstm"), [Example("zebra a", ("zebra",), "t", 1)], options(beam=2)))
    assert words.barred == 'it holds "zebra", which the vocabulary lacks'
    assert 'unknown in the source: "zebra"' in words.line


def test_an_ensemble_is_read_as_it_is_searched() -> None:
    first, second = made("lstm"), made("lstm")
    with torch.no_grad():
        for parameter in second.network.parameters():
            parameter.add_(torch.linspace(-0.3, 0.3, parameter.numel()).view(parameter.shape))
    first.scorer = Ensemble([first.network, second.network])
    examples = examples_for("lstm")
    compared = 0
    for item, example in zip(diagnose(first, examples, options(beam=2)), examples, strict=True):
        if item.score is None or "<unk>" in item.output:
            continue
        both = first.score([(example.inputs, item.output), (example.inputs, item.reference)])
        own, wanted = (told.log_prob / max(1, len(told.tokens) - 1) for told in both)
        assert (item.score, item.reference_score) == pytest.approx((own, wanted), abs=1e-6)
        compared += 1
    assert compared


def test_a_coverage_penalty_is_a_part_of_the_score() -> None:
    asked, examples = made("lstm"), examples_for("lstm")
    head = asked.network.head
    assert isinstance(head, Linear)
    assert head.bias is not None
    with torch.no_grad():
        head.bias[EOS] += 4  # so that outputs end
    wishes = options(beam=3, coverage_penalty=0.7)
    plain = list(diagnose(asked, examples, options(beam=3)))
    compared = lower = 0
    for item, before, example in zip(diagnose(asked, examples, wishes), plain, examples, strict=True):
        prediction = next(asked.predict([example.inputs], wishes))
        if item.score is not None and not prediction.best.truncated:
            assert item.score == pytest.approx(prediction.score, abs=1e-4)
            compared += 1
        if item.reference_score is not None and item.reference == before.reference:
            assert before.reference_score is not None
            assert item.reference_score <= before.reference_score
            lower += item.reference_score < before.reference_score
    assert compared
    assert lower


# --- where the model looked --------------------------------------------------------------------------------------


def side(text: str, pieces: str | None = None) -> Side:
    """Pieces of one word are joined by "+"."""
    read = (pieces or text).split()
    words = [word.split("+") for word in read]
    places = tuple(place for place, parts in enumerate(words) for _ in parts)
    return Side(text, tuple(part for parts in words for part in parts), tuple(text.split()), places)


def spoken(told: Side, rows: Sequence[Sequence[float]] | None = None, score: float = 0.0, barred: str = "") -> Spoken:
    """Each different piece has an id of its own; probabilities are 1/2, the right one's rank is 3."""
    tokens = tuple(10 + sum(map(ord, piece)) for piece in told.pieces)
    steps = len(tokens) + 1
    read = Forced(tokens, (math.log(0.5),) * steps, (3,) * steps, (True,) * steps, 0.0, 99)
    return Spoken(told, read, score, barred, weights=None if rows is None else np.array(rows))


def test_the_line_says_where_it_looked() -> None:
    """At the divergence both look at "Männer" (0.7); in the reference "walk", two words on, lays claim to it."""
    source = side("zwei Männer fahren")
    step = [0.1, 0.7, 0.2]
    output = spoken(side("two run"), [[0.9, 0.1, 0], step, [0, 0, 1]])
    reference = spoken(side("two ride men"), [[0.9, 0.1, 0], step, [0.1, 0.8, 0.1], [0, 0, 1]], -1.0)
    found = diagnosed(source, output, reference, (), Picks())
    assert found.line.startswith(
        'model error: after "two" the reference goes on with "ride" (rank 3, p 0.50), the model said "run" (p 0.50); '
        '20 % of its attention lay on "fahren", 70 % on "Männer"'
    )
    assert found.divergence is not None
    assert found.divergence.gaze is not None
    assert found.divergence.gaze.as_dict()["mass"] == pytest.approx(0.2)


def test_pieces_are_parts_of_words_and_sums_are_over_them() -> None:
    source = side("Fahr rad!", "Fa+hr rad+!")
    rows = [[0.1, 0.2, 0.3, 0.1], [0.25, 0.2, 0.3, 0.25], [0, 0, 0, 1]]
    found = diagnosed(source, spoken(side("bi", "b+i"), rows), spoken(side("bike", "b+ike"), rows, -1), (), Picks())
    part = found.divergence
    assert part is not None
    assert (part.place, part.after, part.right, part.of, part.said) == (1, "b", "ike", "bike", "i")
    assert part.gaze is not None
    assert (part.gaze.aligned, part.gaze.most) == ("rad!", "rad!")
    assert (part.gaze.mass, part.gaze.most_mass) == pytest.approx((0.55, 0.55))
    assert 'goes on with "ike" of "bike"' in found.line


def test_shifted_weights_align_and_the_step_itself_is_weighed() -> None:
    source = side("x y")
    rows = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]
    output, reference = spoken(side("a"), [[0.9, 0.1], [0.5, 0.5]]), spoken(side("b c"), rows, -1)
    plain = diagnosed(source, output, reference, (), Picks()).divergence
    shifted = diagnosed(source, output, reference, (), Picks(shift=True)).divergence
    assert plain is not None
    assert shifted is not None
    assert plain.gaze is not None
    assert shifted.gaze is not None
    assert (plain.gaze.aligned, plain.gaze.mass) == ("x", pytest.approx(0.9))
    assert (shifted.gaze.aligned, shifted.gaze.mass) == ("y", pytest.approx(0.1))


def test_without_attention_the_rest_is_told() -> None:
    found = diagnosed(side("x"), spoken(side("a")), spoken(side("b"), score=-1.0), (), Picks())
    assert found.divergence is not None
    assert found.divergence.gaze is None
    assert "attention" not in found.line


def test_scores_that_are_nearly_equal_are_no_search_error() -> None:
    verdicts = [
        diagnosed(side("x"), spoken(side("a")), spoken(side("b"), score=score), (), Picks()).verdict
        for score in (-1.0, 0.0, 5e-5, 1e-3)
    ]
    assert verdicts == ["model error", "model error", "model error", "search error"]


def test_the_reachable_reference_counts_before_the_better_one() -> None:
    best, barred, other = (
        spoken(side(text), score=score, barred=why) for text, score, why in
        [("a", -2.0, ""), ("b", -1.0, "no"), ("c", -3.0, "")]
    )  # fmt: skip
    assert counting([other, barred, best]) is best
    assert counting([barred]) is barred


# --- symptoms ----------------------------------------------------------------------------------------------------


def shown(output: str, reference: str, source: str = "x y z", **more: object) -> list[str]:
    case = Compared(source.split(), output.split(), reference.split(), **{"words": True, **more})  # type: ignore[arg-type]
    return [symptom.words for symptom in symptoms(case)]


@pytest.mark.parametrize(
    ("output", "reference", "words"),
    [
        ("a a b", "a b c", ['it says "a" 2 times in a row']),
        ("a a b", "a a c", []),
        ("<unk> <unk> b", "a b c", []),
        ("a a a b", "a a c d", ['it says "a" 3 times in a row']),
        ("a b a b a b", "a b a b c d", ['it says "a b" 3 times in a row']),
        ("a a a a", "b c d e", ['it says "a" 4 times in a row']),
        ("a b c d a b c", "a b c d e f g", ['it says "a b c" 2 times']),
        ("a b c d a b c", "a b c e a b c", []),
        ("a b", "a b c", ["it ends 1 word too early"]),
        ("a b", "a b c d e", ["it is much shorter than the reference (2 words for 5)", "it ends 3 words too early"]),
        ("a b c d e", "a b c", ["it is much longer than the reference (5 words for 3)"]),
        ("a b c d", "a b c", []),
        ("x y z b", "a b c d", ['it copies "x y z" from the source']),
        ("x y z b", "x y z d", []),
        ("x y b c", "a b c d", []),
    ],
)
def test_symptoms_are_what_the_reference_does_not_show(output: str, reference: str, words: list[str]) -> None:
    assert shown(output, reference) == words


def test_letters_repeat_themselves_more_easily_than_words() -> None:
    assert shown("x y z", "a b c", words=False) == []
    assert shown("p q r s t", "a b c", source="p q r s t", words=False)[0] == 'it copies "p q r s t" from the source'
    assert shown("h e l l o", "h e l o", words=False) == []
    assert shown("b a n a n a", "b a n a s s", words=False) == ['it says "a n" 2 times in a row']


def test_coverage_tells_what_was_left_out_and_what_was_said_twice() -> None:
    """Coverages of x, y, z: 0.1 against 0.9; 2.4 against 1.1; 0.5 against 0.6. A full stop is never missing."""
    covered = (np.array([0.1, 2.4, 0.5, 0.0]), np.array([0.9, 1.1, 0.6, 0.9]))
    found = shown("a b c", "d e f", source="x y z .", covered=covered)
    assert found == ['it leaves out "x"', 'it comes back to "y"']
    assert shown("a b c", "d e f", source="x y z .", covered=covered[::-1]) == []


def test_data_cannot_move_the_cursor() -> None:
    assert quoted("a\x1b[31m\n\u202eb\ud800") == '"a\\x1b[31m\\n\\u202eb\\ud800"'
    assert quoted("é 日本") == '"é 日本"'
    assert len(quoted("x" * 1000)) < 80
    assert quoted("x" * 100 + "end", tail=True).endswith('xend"')
    strange = side("two \x1b[2J")
    found = diagnosed(side("x"), spoken(side("two a")), spoken(strange, score=-1.0), ("\x07",), Picks())
    assert found.line.isprintable()


# --- the table ---------------------------------------------------------------------------------------------------


def test_the_table_counts_and_ranks() -> None:
    asked = scripted(GARDEN)
    texts = ["a c", "b c", "a d", "a zebra", "e", "c f f f f"]
    examples = [Example("a b", (text,), "test", line) for line, text in enumerate(texts, start=1)]
    examples.append(Example("", ("a",), "test", 7))
    items = list(diagnose(asked, examples, options(strategy="greedy")))
    table = Diagnoses.of(items, examples, METRICS.build(METRICS.settings("wer")))
    assert table.verdicts == {
        "right": 1, "model error": 4, "search error": 1, "out of reach": 0, "passed over": 1,
    }  # fmt: skip
    assert (table.errors, table.barred) == (5, 1)
    assert table.symptoms["under-translated"] == 1
    ranks = [item.divergence.rank for item in items if item.divergence is not None]
    assert ranks[:3] == [2, 2, None]  # b after nothing, d after a, and a word that has no rank
    known = [rank for rank in ranks if rank is not None]
    assert table.mean_rank == pytest.approx(sum(known) / len(known))
    # WER: e is 2 edits for 1 word, "c f f f f" at least 4 for 5, "a d" and "a zebra" 1 for 2, "b c" 1 for 2
    assert [item.where for item, _ in table.worst(2)] == ["test:5", "test:6"]
    assert table.worst(1)[0][1] == 200
    plain = json.loads(json.dumps(table.as_dict(), allow_nan=False))
    assert sum(row["count"] for row in plain["verdicts"]) == 7
    assert sum(row["share"] for row in plain["verdicts"]) == pytest.approx(1)
    assert len(plain["worst"]) == 5
    higher = Diagnoses.of(items, examples, METRICS.build(METRICS.settings("chrf")))
    values = [value for _, value in higher.worst()]
    assert values == sorted(values)


def test_a_table_of_nothing_wrong() -> None:
    asked = scripted(GARDEN)
    examples = [Example("a", ("a c",), "test", 1)]
    table = Diagnoses.of(
        list(diagnose(asked, examples, options(strategy="greedy"))), examples, METRICS.build(METRICS.settings("exact"))
    )
    assert (table.errors, table.mean_rank, table.median_rank, table.mean_mass) == (0, None, None, None)
    assert table.worst() == []

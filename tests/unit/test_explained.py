"""Explanations: what was looked at, how the beam went, and what an edit changes. No model is trained here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from seqloom.api.explain import replaced
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.tokenizers import Characters
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.nn.tape import Replacement, Tape
from seqloom.probe.edits import Edits, Look, Silence
from seqloom.probe.explain import Explanation, Forced, explained
from seqloom.probe.tree import Tree, Watcher
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import BOS, EOS

TEXTS = ["abc def", "fed cba", "a b c"]
SIZES = {"source_embedding": {"width": 8}, "target_embedding": {"width": 8}}
STACK = {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "feedforward": 32}
NETWORKS: dict[str, dict[str, object]] = {
    "luong": {"encoder": {"width": 16}, "decoder": {"kind": "luong", "width": 16}},
    "bahdanau": {"encoder": {"width": 16}, "decoder": {"kind": "bahdanau", "width": 16}},
    "transformer": {"encoder": STACK, "decoder": STACK},
    "monotonic": {"encoder": {"width": 16}, "decoder": {"kind": "monotonic", "width": 16}},
    "one vector": {"encoder": {"width": 16}, "decoder": {"kind": "rnn", "width": 16}},
}
ATTENDING = [name for name in NETWORKS if name != "one vector"]
CODEC = TextCodec.train(TextCodec.Settings(tokenizer=Characters.Settings()), lambda: TEXTS, seed=1)
CODECS = Codecs(CODEC, CODEC)


def network(name: str, **model: object) -> Generator:
    torch.manual_seed(3)
    settings = EncoderDecoder.Settings.model_validate({**SIZES, **NETWORKS[name], **model})
    size = len(CODEC.vocabulary)
    built = EncoderDecoder(settings, source_vocabulary=size, target_vocabulary=size).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(3)  # so that it has opinions
    return built


def joint() -> Generator:
    settings = {"kind": "joint", "embedding": {"width": 16}, "decoder": STACK}
    size = len(CODEC.vocabulary)
    return MODELS.build(MODELS.settings(settings), source_vocabulary=size, target_vocabulary=size).eval()


def language() -> Generator:
    settings = {"kind": "language", "embedding": {"width": 16}, "decoder": STACK}
    size = len(CODEC.vocabulary)
    return MODELS.build(MODELS.settings(settings), source_vocabulary=size, target_vocabulary=size).eval()


def looked(
    model: Generator, source: str, target: str, edit: Edits | Mapping[str, Replacement] | None = None
) -> Explanation:
    pair, encoded = CODECS.pair(source, target)
    forced = Forced(encoded, pair.target)
    put = edit.replacements(model, forced.batch(torch.device("cpu")).sources) if isinstance(edit, Edits) else edit
    return explained(model, CODECS, source, forced, replace=put)


ALONE = {"joint": joint, "language": language}


# --- one forced pass ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NETWORKS, "joint"])
def test_probabilities_ranks_and_runners_up_are_those_of_stepping(name: str) -> None:
    model = joint() if name == "joint" else network(name)
    found = looked(model, "abc", "fed")
    pair, encoded = CODECS.pair("abc", "fed")
    last = BOS
    with torch.inference_mode():
        state = model.start(Forced(encoded, pair.target).batch(torch.device("cpu")).sources, 1)
        for told, token in zip(found.output, [*pair.target.tolist(), EOS], strict=True):
            log_probs, state = model.step(torch.tensor([last]), state)
            order = log_probs[0].sort(descending=True)
            assert told.log_prob == pytest.approx(float(log_probs[0, token]), abs=1e-5)
            assert told.rank == 1 + int((log_probs[0] > log_probs[0, token]).sum())
            assert [piece for piece, _ in told.likeliest] == CODEC.pieces(order.indices[:5].tolist())
            assert [value for _, value in told.likeliest] == pytest.approx(order.values[:5].tolist(), abs=1e-5)
            assert told.token not in dict(told.runners_up)
            last = token
    assert found.log_prob == pytest.approx(sum(told.log_prob for told in found.output))


def test_shapes_and_words_of_every_kind_of_attention() -> None:
    found = looked(network("transformer"), "abc de", "fe d")
    assert found.source == ("a", "b", "c", " ", "d", "e", "<eos>")
    assert found.read == (0, 0, 0, -1, 1, 1, -1)
    assert found.said == (0, 0, -1, 1, -1)
    assert found.weights.shape == (2, 2, 5, 7)
    assert found.within_source.shape == (2, 2, 7, 7)
    assert found.within_output.shape == (2, 2, 5, 5)
    for weights in (found.weights, found.within_source, found.within_output):
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert np.all(np.triu(found.within_output, 1) == 0), "nobody sees what comes later"
    assert looked(joint(), "abc", "de").within_output.size == 0, "its attention is the one to the source"


def test_known_weights_have_known_entropy_coverage_and_words() -> None:
    wanted = torch.tensor([[1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.2, 0.2, 0.2, 0.2, 0.2], [0, 0, 0, 1.0, 0]])
    found = looked(network("luong"), "ab c", "d e", {"decoder.attention": lambda _, __: wanted[None, None]})
    np.testing.assert_allclose(found.weights[0, 0], wanted.numpy())
    np.testing.assert_allclose(found.entropy()[0, 0], [0, 1, math.log2(5), 0], atol=1e-6)
    np.testing.assert_allclose(found.coverage(), [1.7, 0.7, 0.2, 1.2, 0.2], atol=1e-6)
    np.testing.assert_allclose(found.by_words(), [[1.0, 0.0], [0.4, 0.2]], atol=1e-6)
    shown = found.map(words=True)
    assert (shown.source, shown.output) == (("ab", "c"), ("d", "e"))
    assert shown.probabilities[0] == pytest.approx(math.exp(found.output[0].log_prob), rel=1e-5)


def test_a_layer_or_head_that_is_not_there() -> None:
    found = looked(network("transformer"), "abc", "fed")
    assert found.map(1, 2).weights.shape == (1, 4, 4)
    for layer, head in ((3, None), (None, 3)):
        with pytest.raises(SeqloomError, match="1 to 2"):
            found.map(layer, head)


# --- the beam as a tree ------------------------------------------------------------------------------------------

STRATEGIES_SEEN = [
    {"kind": "greedy"},
    {"kind": "beam", "size": 1},
    {"kind": "beam", "size": 4},
    {"kind": "beam", "size": 4, "stop": "all", "length": {"kind": "none"}},
    {"kind": "beam", "size": 3, "stop": "bound"},
    {"kind": "diverse", "size": 4, "groups": 2},
    {"kind": "lexical", "size": 4},
    {"kind": "sample", "samples": 3},
]


def grown(model: Generator, strategy: dict[str, object], most: int = 6) -> tuple[Hypothesis, Tree]:
    settings = STRATEGIES.settings(strategy)
    watcher = Watcher(STRATEGIES.build(settings).normalisation)
    pair, encoded = CODECS.pair("abc def", "")
    sources = Forced(encoded, pair.target).batch(torch.device("cpu")).sources
    (best, *_), *_ = search(model, sources, settings, limits=Limits(max_length=most), observer=watcher)
    return best, watcher.tree(best, lambda ids: CODECS.said(ids))


@pytest.mark.parametrize("strategy", STRATEGIES_SEEN, ids=lambda one: "-".join(map(str, one.values())))
@pytest.mark.parametrize("name", ["luong", "transformer"])
def test_every_hypothesis_that_lived_stands_in_the_tree(name: str, strategy: dict[str, object]) -> None:
    model = network(name)
    best, tree = grown(model, strategy)
    nodes = tree.nodes
    parents = {node.parent for node in nodes}
    rows = int(str(strategy.get("size", strategy.get("samples", 1))))
    for index, node in enumerate(nodes):
        if node.parent is None:
            assert index == 0
            continue
        assert node.parent < index
        assert nodes[node.parent].step == node.step - 1
        assert node.total == pytest.approx(nodes[node.parent].total + node.log_prob, abs=1e-4)
        assert (node.fate == "went on") == (index in parents), "who went on has children, who did not died of something"
        assert node.fate != "ended" or node.token == EOS
    for step in range(1, 7):
        assert sum(node.step == step and node.fate != "ended" for node in nodes) <= rows
    way = [node for node in nodes if node.won]
    assert [node.token for node in way[1:]] == [*best.tokens, *([] if best.truncated else [EOS])]
    assert way[-1].total == pytest.approx(best.log_prob, abs=1e-4)
    told = [line.split(maxsplit=1) for line in tree.lines()[1:]]
    assert sum(rest.lstrip("│├└ ").startswith("*") for _, rest in told) == len(way) - 1
    assert sorted(int(step) for step, _ in told) == sorted(node.step for node in nodes[1:])
    assert len(tree.lines()) == len(nodes) == len(tree.as_dict()["nodes"])  # type: ignore[arg-type]


def test_at_the_limit_what_lives_is_cut_off_and_before_it_is_left() -> None:
    model = network("luong")
    with torch.no_grad():
        model.head.bias[EOS] = -1e4  # type: ignore[operator]
    _, tree = grown(model, {"kind": "beam", "size": 3}, most=4)
    assert {node.fate for node in tree.nodes if node.step == 4} == {"cut off"}
    with torch.no_grad():
        model.head.bias[EOS] = 20.0  # type: ignore[operator]
    _, tree = grown(model, {"kind": "beam", "size": 3, "finish": 1}, most=4)
    fates = [node.fate for node in tree.nodes]
    assert "ended" in fates
    assert "left" in fates
    assert "cut off" not in fates


# --- what if -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATTENDING)
def test_attention_is_put_where_somebody_wants_it(name: str) -> None:
    model = network(name)
    plain = looked(model, "abcd", "fed")
    edits = Edits((Look.parse("2=3"), Look.parse("3=1,0,3")))
    found = looked(model, "abcd", "fed", edits)
    for layer in found.weights:
        for head in layer:
            np.testing.assert_allclose(head[1], [0, 0, 1, 0, 0], atol=1e-6)
            np.testing.assert_allclose(head[2], [0.25, 0, 0.75, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found.weights[:, :, 0], plain.weights[:, :, 0], atol=1e-6)
    assert found.output[0].log_prob == pytest.approx(plain.output[0].log_prob, abs=1e-6), (
        "what came before is as it was"
    )
    assert found.output[1].log_prob != pytest.approx(plain.output[1].log_prob, abs=1e-4)


@pytest.mark.parametrize("build", [joint, language])
def test_a_decoder_that_reads_its_source_itself_looks_elsewhere_in_it(build: Callable[[], Generator]) -> None:
    """What falls on the source is put where it is wanted; how much that is stays as it was, head by head."""
    model = build()
    plain = looked(model, "abcd", "fed")
    found = looked(model, "abcd", "fed", Edits((Look.parse("1:2=3"), Look.parse("1:3=1,0,3"))))
    mass = plain.weights[0].sum(-1)  # H T
    np.testing.assert_allclose(found.weights[0, :, 1], mass[:, 1:2] * [0, 0, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found.weights[0, :, 2], mass[:, 2:3] * [0.25, 0, 0.75, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found.weights[:, :, 0], plain.weights[:, :, 0], atol=1e-6)
    before, after = ([told.log_prob for told in one.output] for one in (plain, found))
    assert after[0] == pytest.approx(before[0], abs=1e-6)
    assert after[1] != pytest.approx(before[1], abs=1e-6)


@pytest.mark.parametrize("name", [*ATTENDING, "joint", "language"])
def test_search_under_an_edit_says_what_the_forced_pass_explains(name: str) -> None:
    model = ALONE[name]() if name in ALONE else network(name)
    edits = Edits((Look.parse("1=3"), Look.parse("2=2")))
    pair, encoded = CODECS.pair("abcd", "")
    sources = Forced(encoded, pair.target).batch(torch.device("cpu")).sources
    with Tape(replace=edits.replacements(model, sources)):
        (best, *_), *_ = search(model, sources, STRATEGIES.settings({"kind": "beam", "size": 3}))
    forced = Forced(encoded, np.array(best.tokens, dtype=np.int64))
    found = explained(model, CODECS, "abcd", forced, replace=edits.replacements(model, sources))
    assert [told.log_prob for told in found.output[: len(best.token_log_probs)]] == pytest.approx(
        best.token_log_probs, abs=1e-4
    )


def test_a_silent_head_finds_nothing() -> None:
    model = network("transformer")
    edits = Edits(silences=(Silence.parse("2.1"), Silence.parse("encoder.1.2"), Silence.parse("decoder.1.1")))
    found = looked(model, "abc", "fed", edits)
    assert not found.weights[1, 0].any()
    assert not found.within_source[0, 1].any()
    assert not found.within_output[0, 0].any()
    assert found.weights[1, 1].any()
    assert found.weights[0].any()


@pytest.mark.parametrize("name", ["1.2", "decoder.1.2"])
def test_a_head_of_a_joint_model_is_silenced_by_either_name(name: str) -> None:
    model = joint()
    plain, found = (looked(model, "abc", "fed", Edits(silences=silences)) for silences in ((), (Silence.parse(name),)))
    assert plain.weights[0, 1].any()
    assert not found.weights[0, 1].any()
    assert found.log_prob != pytest.approx(plain.log_prob, abs=1e-4)


@pytest.mark.parametrize("scale", ["e-300", "e-50", "", "e39", "e307"])
def test_weights_of_any_size_are_shares(scale: str) -> None:
    model = network("luong")
    edits = Edits((Look.parse(f"1=1{scale},0,3{scale}"),))
    found = looked(model, "abc", "fed", edits)
    np.testing.assert_allclose(found.weights[0, 0, 0], [0.25, 0, 0.75, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "edits", "said"),
    [
        ("luong", Edits((Look.parse("1=9"),)), "the source has 4 tokens"),
        ("luong", Edits((Look.parse("0=1"),)), "counted from 1"),
        ("luong", Edits((Look(1, (0.0, 0.0)),)), "one is over 0"),
        ("luong", Edits((Look.parse("1=inf,1"),)), "weights are numbers"),
        ("luong", Edits((Look.parse("1=nan,1"),)), "weights are numbers"),
        ("luong", Edits((Look.parse("2:1=1"),)), "layers 1 to 1"),
        ("luong", Edits(silences=(Silence(1, 2),)), "heads 1 to 1"),
        ("luong", Edits(silences=(Silence.parse("1.0"),)), "heads 1 to 1"),
        ("luong", Edits(silences=(Silence(1, 1, "decoder"),)), "no attention within its decoder"),
        ("one vector", Edits((Look.parse("1=1"),)), "no attention to the source"),
        ("joint", Edits((Look.parse("1=9"),)), "the source has 4 tokens"),
    ],
)
def test_edits_that_cannot_be(name: str, edits: Edits, said: str) -> None:
    model = joint() if name == "joint" else network(name)
    with pytest.raises(SeqloomError, match=said) as refused:
        looked(model, "abc", "fed", edits)
    assert refused.value.code == "E_USAGE"


@pytest.mark.parametrize("text", ["2:3=5", "3=5", "3=0.2,0,0.8"])
def test_looks_are_written_as_they_are_read(text: str) -> None:
    assert str(Look.parse(text)) == text


@pytest.mark.parametrize("text", ["2.1", "encoder.2.1"])
def test_silences_are_written_as_they_are_read(text: str) -> None:
    assert str(Silence.parse(text)) == text


@pytest.mark.parametrize("text", ["", "3", "a=b", "3=", "3=1,x", "x:3=1"])
def test_looks_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SeqloomError, match="cannot be read"):
        Look.parse(text)


@pytest.mark.parametrize("text", ["", "3", "head.1.1", "encoder.1", "1.x"])
def test_silences_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SeqloomError, match="cannot be read"):
        Silence.parse(text)


def test_words_of_a_text_are_replaced() -> None:
    assert replaced("a cat and a category", "cat=dog") == "a dog and a category"
    assert replaced("a cat", "cat=") == "a"
    assert replaced("nation", "t=s") == "nasion", "no word: a part of one"
    for edit in ("dog=cat", "cat", "=x"):
        with pytest.raises(SeqloomError, match="--replace"):
            replaced("a cat", edit)

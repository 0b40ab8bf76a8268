"""Attributions against what is known: finite differences, sums that must come out, one token hidden at a time."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Source, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.models.memories import ExtraSource
from seqloom.models.model import MODELS
from seqloom.nn.frontends import SOURCE, TARGET
from seqloom.nn.tape import Tape
from seqloom.probe.attribution import LEAST, METHODS, Attributed, Embedded, rolled_out
from seqloom.probe.origins import Attribution, Origin, Side, whole_words
from seqloom.probe.pair import alone
from seqloom.specials import EOS, UNK

SIZES = {"source_vocabulary": 12, "target_vocabulary": 10}
STACK = {"width": 4, "heads": 2, "layers": 2, "dropout": 0}
TRANSFORMER = {"kind": "transformer", **STACK}
Raw = dict[str, object]
MODELS_BY_NAME: dict[str, Raw] = {
    "luong": {},
    "bahdanau, GRU": {"decoder": {"kind": "bahdanau", "width": 4, "cell": "gru"}},
    "no attention, Elman": {"decoder": {"kind": "rnn", "width": 4, "cell": "elman"}},
    "transformer": {"encoder": TRANSFORMER, "decoder": TRANSFORMER},
    "post-norm": {"encoder": {**TRANSFORMER, "norm": "post"}, "decoder": {**TRANSFORMER, "norm": "post", "layers": 1}},
    "convolution": {"encoder": {"kind": "convolution", "width": 4, "layers": 2, "dropout": 0}},
    "monotonic": {"decoder": {"kind": "monotonic", "width": 4}},
    "copy": {"head": "copy"},
    "copying transformer": {"encoder": TRANSFORMER, "decoder": TRANSFORMER, "head": "copy"},
    "shared": {"shared": True},
    "onehot": {"source_embedding": "onehot", "target_embedding": "onehot"},
    "extra": {"extras": {"tags": {"embedding": {"width": 3}, "encoder": {"kind": "bag", "width": 6}}}},
    "transformers": {
        "encoder": TRANSFORMER,
        "decoder": TRANSFORMER,
        "extras": {"tags": {"embedding": {"width": 3}, "encoder": {**TRANSFORMER, "layers": 1}}},
    },
    "joint transformer": {"kind": "joint", "decoder": TRANSFORMER},
    "joint LSTM": {"kind": "joint", "decoder": {"kind": "rnn", "width": 4}},
}
WITHOUT_ATTENTION = ("no attention, Elman", "joint LSTM")
ROLLED = ("transformer", "post-norm", "copying transformer", "transformers", "joint transformer")
every_model = pytest.mark.parametrize("name", MODELS_BY_NAME)
every_rolled = pytest.mark.parametrize("name", ROLLED)


@cache
def network(name: str) -> Generator:
    raw = dict(MODELS_BY_NAME[name])
    extras = raw.pop("extras", {})
    assert isinstance(extras, dict)
    embedding = {"kind": "learned", "width": 4}
    if raw.get("kind") == "joint":
        raw = {"embedding": embedding, **raw}
    else:
        small = {"source_embedding": embedding, "target_embedding": embedding}
        raw = {"kind": "encoder_decoder", "encoder": {"width": 4}, "decoder": {"width": 4}, **small, **raw}
    sizes: Raw = dict(SIZES)
    if raw.get("shared"):
        sizes["source_vocabulary"] = sizes["target_vocabulary"]
    if extras:
        sizes["extras"] = {key: (ExtraSource.Settings.model_validate(value), 10) for key, value in extras.items()}
    model = MODELS.build(MODELS.settings(raw), **sizes)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return model.double().eval()


def pair(name: str, target: tuple[int, ...] = (7, 9, 6, EOS)) -> Batch:
    """One pair; a model that copies may say its fourth token by pointing at the source alone (id 11)."""
    source = Tokens.pad([[8, 6, 9, 7, EOS]])
    if "copy" in name:
        source = replace(source, copies=torch.tensor([[8, 10, 9, 11, -1]]))
        target = (7, 11, 6, EOS)
    sources: dict[str, Source] = {"source": source}
    if "extras" in MODELS_BY_NAME[name] or name.startswith("joint"):
        sources["tags"] = Tokens.pad([[7, 8, EOS]])
    return Batch(sources, Tokens.pad([target]))


def found(name: str, method: object, batch: Batch | None = None) -> Attributed:
    return METHODS.build(METHODS.settings(method))(network(name), pair(name) if batch is None else batch)


def methods_of(name: str) -> list[str]:
    lacking = {"rollout"} if name not in ROLLED else set()
    return [kind for kind in METHODS if kind not in lacking and not (kind == "attention" and name in WITHOUT_ATTENTION)]


def test_a_label_owes_everything_to_the_source() -> None:
    """A decoder that names labels reads nothing of what it says."""
    embedding = {"kind": "learned", "width": 4}
    raw = {"encoder": {"width": 4}, "decoder": {"kind": "label", "pooling": "attention"}, "source_embedding": embedding}
    model = MODELS.build(MODELS.settings({"kind": "encoder_decoder", **raw}), **SIZES).double().eval()
    batch = pair("luong", target=(7, EOS))
    for kind in ("attention", "gradient", "integrated", "occlusion"):
        result = METHODS.build(METHODS.settings(kind))(model, batch)
        assert result.of_source[0].any(), kind
        assert not result.of_target.any(), kind


def test_a_word_that_nothing_spoke_for_came_from_nothing() -> None:
    assert str(Origin("dog", -1.0, 0.0, ())) == "dog <- nothing"


# --- what holds for all ----------------------------------------------------------------------------------------------


@every_model
def test_every_method_gives_every_position_that_was_read_a_value(name: str) -> None:
    """Columns are the source's and the extra's; a later token of the output, and the token itself, get nothing."""
    batch = pair(name)
    read = sum(source.mask.shape[1] for source in batch.sources.values())
    for kind in methods_of(name):
        result = found(name, kind)
        assert (result.of_source.shape, result.of_target.shape) == ((4, read), (4, 4)), kind
        assert np.isfinite(result.of_source).all(), kind
        assert result.of_source.any(), kind
        assert not np.triu(result.of_target).any(), kind
        weights = kind in ("attention", "rollout")
        assert result.unit == ("weight" if weights else "log p")
        recurrent = kind == "attention" and not network(name).decoder.self_taps
        assert recurrent or result.of_target[1:].any(1).all(), kind


@every_model
def test_padding_changes_nothing(name: str) -> None:
    plain = pair(name)

    def padded(tokens: Source) -> Tokens:
        assert isinstance(tokens, Tokens)
        ids = torch.cat([tokens.ids, torch.full((1, 2), 6)], 1)
        copies = None if tokens.copies is None else torch.cat([tokens.copies, torch.full((1, 2), 9)], 1)
        return Tokens(ids, torch.cat([tokens.mask, torch.zeros(1, 2, dtype=torch.bool)], 1), copies)

    assert plain.target is not None
    batch = Batch({key: padded(source) for key, source in plain.sources.items()}, padded(plain.target))
    for kind in methods_of(name):
        one, other = found(name, kind, plain), found(name, kind, batch)
        np.testing.assert_allclose(other.of_source, one.of_source, atol=1e-12, err_msg=kind)
        np.testing.assert_allclose(other.of_target, one.of_target, atol=1e-12, err_msg=kind)


@pytest.mark.parametrize("kind", ["gradient", "integrated", "occlusion"])
def test_many_rows_in_small_calls_give_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found("luong", kind)
    monkeypatch.setattr("seqloom.probe.pair.AT_ONCE", 20)
    parts = found("luong", kind)
    np.testing.assert_allclose(parts.of_source, whole.of_source, atol=1e-6)
    np.testing.assert_allclose(parts.of_target, whole.of_target, atol=1e-6)


def test_an_output_that_is_only_its_end() -> None:
    for kind in methods_of("transformer"):
        result = found("transformer", kind, pair("transformer", (EOS,)))
        assert result.of_source.shape == (1, 5)
        assert not result.of_target.any()


# --- taps ------------------------------------------------------------------------------------------------------------


@every_model
@torch.no_grad()
def test_source_and_target_pass_taps_of_their_own(name: str) -> None:
    """What passes is the embedding of exactly these tokens, shared or not, of a joint model or not."""
    model, batch = network(name), pair(name)
    silent = model.nll(batch)
    with Tape(SOURCE, TARGET) as tape:
        assert torch.equal(model.nll(batch), silent)
    tables, assert_equal = model.embeddings(), torch.testing.assert_close
    source = batch.sources["source"]
    assert isinstance(source, Tokens)
    assert_equal(tape.steps(SOURCE)[0], tables["source"](source.ids))
    assert [len(step[0]) for step in tape.steps(SOURCE)] == [len(part.mask[0]) for part in batch.sources.values()]
    assert batch.target is not None
    read = torch.tensor([[2, *batch.target.ids[0, :-1].tolist()]])
    assert_equal(tape.steps(TARGET)[0], tables["target"](read.where(read < 10, UNK)))


@pytest.mark.parametrize("name", ["luong", "transformer", "joint transformer", "joint LSTM"])
@torch.no_grad()
def test_replaced_embeddings_are_read_and_others_stay(name: str) -> None:
    """Another token's embedding in the place of one says what that other token says, in search's way of reading too."""
    model, batch = network(name), pair(name)
    source = batch.sources["source"]
    assert isinstance(source, Tokens)
    assert batch.target is not None
    ids, said = source.ids.clone(), batch.target.ids.clone()
    ids[0, 2], said[0, 1] = 11, 8
    other = Batch({**batch.sources, "source": Tokens(ids, source.mask)}, batch.target)
    expected, _ = model.forced(other, Tokens(said, batch.target.mask))
    tables = model.embeddings()

    def read_other(embedded: Tensor, place: int) -> Tensor:
        return tables["source"](ids) if place == 0 else embedded

    def said_other(embedded: Tensor, place: int) -> Tensor:
        return tables["target"](torch.cat([torch.tensor([[2]]), said[:, :-1]], 1))

    with Tape(replace={SOURCE: read_other, TARGET: said_other}):
        features, _ = model.forced(batch)
    torch.testing.assert_close(features, expected)
    with Tape(replace={SOURCE: read_other}):
        begun = model.start(batch.sources, 1)
    torch.testing.assert_close(
        model.step(torch.tensor([2]), begun)[0], model.step(torch.tensor([2]), model.start(other.sources, 1))[0]
    )


# --- gradients -------------------------------------------------------------------------------------------------------


@every_model
def test_input_x_gradient_is_the_slope_along_the_embedding(name: str) -> None:
    """e . df/de = d f((1 + h) e) / dh at h = 0: by finite differences, one token at a time."""
    function, result, h = Embedded(network(name), alone(pair(name))), found(name, "gradient"), 1e-5
    steps = torch.arange(4)
    whole = [value.expand(4, -1, -1) for value in function.inputs]
    columns = []
    for part, values in enumerate(whole):
        for place in range(values.shape[1]):
            slopes = []
            for sign in (1, -1):
                moved = values.clone()
                moved[:, place] *= 1 + sign * h
                with torch.no_grad():
                    slopes.append(function(*whole[:part], moved, *whole[part + 1 :], steps))
            columns.append((slopes[0] - slopes[1]) / (2 * h))
    expected = torch.stack(columns, 1).numpy()  # T, then every position read
    of_source, of_read = expected[:, : result.of_source.shape[1]], expected[:, result.of_source.shape[1] :]
    np.testing.assert_allclose(result.of_source, of_source, atol=1e-7)
    np.testing.assert_allclose(result.of_target[:, :-1], of_read[:, 1:], atol=1e-7)


@every_model
def test_what_is_attributed_is_the_log_probability(name: str) -> None:
    model, batch = network(name), pair(name)
    function = Embedded(model, alone(batch))
    rows = [value.expand(4, -1, -1) for value in function.inputs]
    with torch.no_grad():
        torch.testing.assert_close(function(*rows, torch.arange(4)), -model.nll(batch)[0])


@every_model
def test_integrated_gradients_sum_to_the_difference_from_nothing(name: str) -> None:
    """Completeness: the attributions of a step sum to f(x) - f(zero embeddings)."""
    result = found(name, {"kind": "integrated", "steps": 300})
    function = Embedded(network(name), alone(pair(name)))
    nothing = [torch.zeros_like(value).expand(4, -1, -1).clone() for value in function.inputs]
    nothing[-1][:, 0] = function.inputs[-1][:, 0]
    with torch.no_grad():
        here = function(*[value.expand(4, -1, -1) for value in function.inputs], torch.arange(4))
        there = function(*nothing, torch.arange(4))
    total = result.of_source.sum(1) + result.of_target.sum(1)
    np.testing.assert_allclose(total, (here - there).numpy(), atol=2e-3)
    assert result.missed is not None
    np.testing.assert_allclose(result.missed, total - (here - there).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("luong", 2e-5), ("no attention, Elman", 2e-5), ("transformer", 5e-4), ("joint transformer", 6e-3)],
)
def test_integrated_gradients_are_the_mean_gradient_on_the_way(name: str, bound: float) -> None:
    """Token by token, against the midpoint rule written out; where a function bends sharply, rules differ more."""
    function, points = Embedded(network(name), alone(pair(name))), 400
    here = [value.expand(4, -1, -1) for value in function.inputs]
    there = [torch.zeros_like(value) for value in here]
    there[-1][:, 0] = here[-1][:, 0]
    totals = [torch.zeros_like(value) for value in here]
    for point in range(points):
        along = (point + 0.5) / points
        leaves = [torch.lerp(a, b, along).requires_grad_() for a, b in zip(there, here, strict=True)]
        for total, slope in zip(
            totals, torch.autograd.grad(function(*leaves, torch.arange(4)).sum(), leaves), strict=True
        ):
            total += slope / points
    *sources, said = (((b - a) * mean).sum(-1) for a, b, mean in zip(there, here, totals, strict=True))
    result = found(name, {"kind": "integrated", "steps": 200})
    np.testing.assert_allclose(result.of_source, torch.cat(sources, 1).numpy(), atol=bound)
    np.testing.assert_allclose(result.of_target[:, :-1], said[:, 1:].numpy(), atol=bound)


def test_without_captum_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_import = builtins.__import__

    def without(name: str, *args: object, **keywords: object) -> object:
        if name.startswith("captum"):
            raise ImportError(name)
        return plain_import(name, *args, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SeqloomError, match=r"E_EXTRA.*seqloom\[explain\]"):
        found("luong", "integrated")
    found("luong", "gradient")


# --- occlusion -------------------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("by", ["unk", "mask"])
@torch.no_grad()
def test_occlusion_is_one_token_hidden_at_a_time(name: str, by: str) -> None:
    model, batch, cover = network(name), pair(name), {"unk": 1, "mask": 4}[by]
    result = found(name, {"kind": "occlusion", "by": by})
    assert batch.target is not None
    plain = model.nll(batch)[0]

    def lost(sources: Mapping[str, Source], history: Tokens) -> Tensor:
        features, state = model.forced(Batch(sources, batch.target), history)
        assert batch.target is not None
        return model.head.nll(features, state, batch.target)[0].clamp(max=-LEAST) - plain

    column = 0
    for key, source in batch.sources.items():
        assert isinstance(source, Tokens)
        for place in range(source.ids.shape[1]):
            ids, copies = source.ids.clone(), source.copies if source.copies is None else source.copies.clone()
            ids[0, place] = cover
            if copies is not None:
                copies[0, place] = -1
            one = lost({**batch.sources, key: Tokens(ids, source.mask, copies)}, batch.target)
            np.testing.assert_allclose(result.of_source[:, column], one.numpy(), atol=1e-10)
            column += 1
    for place in range(3):
        said = batch.target.ids.clone()
        said[0, place] = cover
        one = lost(batch.sources, Tokens(said, batch.target.mask))
        np.testing.assert_allclose(result.of_target[:, place], one.numpy(), atol=1e-10)
        np.testing.assert_allclose(one[: place + 1], 0, atol=1e-10)


def test_what_only_one_place_could_be_copied_from_is_all_of_it() -> None:
    """The second token has no name but its place: hidden, it cannot be said at all."""
    result = found("copy", "occlusion")
    assert result.of_source[1].argmax() == 3
    assert result.of_source[1, 3] > 50


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MODELS_BY_NAME if name not in WITHOUT_ATTENTION])
@torch.no_grad()
def test_attention_is_the_last_layers_mean(name: str) -> None:
    model, batch = network(name), pair(name)
    result = found(name, "attention")
    np.testing.assert_allclose(result.of_source, model.attention(batch)[-1][0].mean(0).numpy(), atol=1e-12)
    if name.startswith("joint"):
        assert result.comparable
        assert (result.of_source.sum(1) + result.of_target.sum(1) < 1).all()  # separators and BOS have the rest
    else:
        np.testing.assert_allclose(result.of_source.sum(1), 1)
        assert not result.comparable


@torch.no_grad()
def test_of_several_layers_one_may_be_chosen() -> None:
    first = found("transformer", {"kind": "attention", "layer": 1})
    expected = network("transformer").attention(pair("transformer"))[0][0].mean(0)
    np.testing.assert_allclose(first.of_source, expected.numpy(), atol=1e-12)
    with pytest.raises(SeqloomError, match="layers 1 to 2"):
        found("transformer", {"kind": "attention", "layer": 3})


@every_rolled
@torch.no_grad()
def test_roll_out_shares_out_one_whole(name: str) -> None:
    """Rows over everything that was read sum to 1; a joint model's separators have a part that is not told."""
    rolled = rolled_out(network(name), alone(pair(name)))
    assert (rolled >= 0).all()
    joint = name.startswith("joint")
    assert torch.all(rolled.sum(1) < 1) if joint else torch.allclose(rolled.sum(1), torch.ones(4).double())
    result = found(name, "rollout")
    left = rolled.sum(1) - rolled[:, -4]  # BOS
    np.testing.assert_allclose(result.of_source.sum(1) + result.of_target.sum(1), left.numpy(), atol=1e-12)


@torch.no_grad()
def test_roll_out_of_one_layer_is_its_closed_form() -> None:
    """Encoder E = (I + A) / 2; decoder: self B, to the memory C. Source: C E / 2; said: (I + B) / 4."""
    one = {**TRANSFORMER, "layers": 1}
    MODELS_BY_NAME["one layer"] = {"encoder": one, "decoder": one}
    try:
        model, batch = network("one layer"), pair("one layer")
        with Tape("encoder.0.self", "decoder.0.self", "decoder.0.cross") as tape:
            model.forced(batch)
        within, before, over = (tape.joined(tap, 2)[0].mean(0) for tap in tape._records)
        result = found("one layer", "rollout")
    finally:
        del MODELS_BY_NAME["one layer"]
    encoded = (torch.eye(5) + within) / 2
    np.testing.assert_allclose(result.of_source, (over @ encoded / 2).numpy(), atol=1e-12)
    said = (torch.eye(4) + before) / 4
    np.testing.assert_allclose(result.of_target[:, :-1], said[:, 1:].numpy(), atol=1e-12)


@torch.no_grad()
def test_roll_out_of_a_joint_model_is_a_product_of_matrices() -> None:
    model, batch = network("joint transformer"), pair("joint transformer")
    with Tape("decoder.0.self", "decoder.1.self") as tape:
        model.forced(batch)
    first, second = (tape.joined(tap, 2)[0].mean(0) for tap in ("decoder.0.self", "decoder.1.self"))
    whole = (torch.eye(14) + second) / 2 @ ((torch.eye(14) + first) / 2)  # 5 SEP 3 SEP 4
    result = found("joint transformer", "rollout")
    np.testing.assert_allclose(result.of_source[:, :5], whole[10:, :5].numpy(), atol=1e-12)
    np.testing.assert_allclose(result.of_source[:, 5:], whole[10:, 6:9].numpy(), atol=1e-12)
    np.testing.assert_allclose(result.of_target[:, :3], whole[10:, 11:].numpy(), atol=1e-12)


@torch.no_grad()
def test_two_encoders_roll_out_beside_each_other() -> None:
    """An extra's Transformer passes the same taps after the source's, with layers of its own number."""
    model, batch = network("transformers"), pair("transformers")
    names = (
        "encoder.0.self",
        "encoder.1.self",
        "decoder.0.self",
        "decoder.1.self",
        "decoder.0.cross",
        "decoder.1.cross",
    )
    with Tape(*names) as tape:
        model.forced(batch)
    (first, tags), (second,), *decoder = ([step[0].mean(0) for step in tape.steps(tap)] for tap in names)
    _, before1, over0, over1 = (torch.cat(steps) for steps in decoder)
    source = (torch.eye(5) + second) / 2 @ ((torch.eye(5) + first) / 2)
    encoded = torch.block_diag(source, (torch.eye(3) + tags) / 2)
    looked = over0 @ encoded / 2
    looked = ((looked + before1 @ looked) / 2 + over1 @ encoded) / 2
    np.testing.assert_allclose(found("transformers", "rollout").of_source, looked.numpy(), atol=1e-12)


def test_what_a_model_lacks_is_said() -> None:
    for name in WITHOUT_ATTENTION:
        with pytest.raises(SeqloomError, match=r"no attention.*use gradient"):
            found(name, "attention")
    for name in [name for name in MODELS_BY_NAME if name not in ROLLED]:
        with pytest.raises(SeqloomError, match=r"roll-out.*use gradient"):
            found(name, "rollout")


# --- with words ------------------------------------------------------------------------------------------------------

READ = Side(("a", "b", "_", "c", "<eos>"), ("ab", "c", "<eos>"), (0, 0, -1, 1, 2), 2)  # "ab c"
SAID = Side(("x", "y", "z", "<eos>"), ("x", "yz", "<eos>"), (0, 1, 1, 2), 2)
OF_SOURCE = np.array([[1, 1, 0, 2, 0], [4, 0, 9, 0, 0], [-1, 0, 0, 1, 0], [0, 0, 0, 0, 5]], dtype=float)
OF_TARGET = np.array([[0, 0, 0, 0], [4, 0, 0, 0], [1, 7, 0, 0], [1, 2, 3, 0]], dtype=float)


def attribution(**changes: object) -> Attribution:
    known = Attributed(OF_SOURCE, OF_TARGET, "log p")
    return Attribution("gradient", READ, SAID, np.log([0.5, 0.5, 0.25, 1.0]), replace(known, **changes))


def test_pieces_become_words() -> None:
    """Parts of log p add up, those to blanks and to a word's own pieces are left out; weights are averaged."""
    merged = attribution().by_words()
    assert (merged.source, merged.output) == (("ab", "c", "<eos>"), ("x", "yz", "<eos>"))
    np.testing.assert_allclose(merged.of_source, [[2, 2, 0], [3, 1, 0], [0, 0, 5]])
    np.testing.assert_allclose(merged.of_target, [[0, 0, 0], [5, 0, 0], [1, 5, 0]])
    np.testing.assert_allclose(np.exp(merged.log_probs), [0.5, 0.125, 1])
    averaged = attribution(unit="weight").by_words()
    np.testing.assert_allclose(averaged.of_source[1], [1.5, 0.5, 0])
    np.testing.assert_allclose(averaged.of_target[2], [0.5 * 2, 2.5 * 2, 0])


def test_shares_are_of_one_whole_or_of_two() -> None:
    source, target = attribution().shares()
    np.testing.assert_allclose(source.sum(1) + target.sum(1), 1)
    np.testing.assert_allclose(source[1], np.array([4, 0, 9, 0, 0]) / 17)
    np.testing.assert_allclose(source[2, 0], 1 / 10)  # what spoke against it mattered too
    apart = attribution(comparable=False).shares()
    np.testing.assert_allclose(apart[0].sum(1), 1)
    np.testing.assert_allclose(apart[1].sum(1), [0, 1, 1, 1])


def test_origins_name_the_words_that_spoke_for_a_word() -> None:
    first, second, end = attribution().origins()
    assert first.sources == ((0, "ab", 0.5), (1, "c", 0.5))
    assert second.sources == ((0, "ab", 0.75), (1, "c", 0.25))
    assert second.from_source == pytest.approx(4 / 9)
    assert end.sources == ((2, "<eos>", 1.0),)
    assert str(second) == "yz <- ab 75%, c 25%"
    assert [len(origin.sources) for origin in attribution().origins(most=1)] == [1, 1, 1]
    assert [len(origin.sources) for origin in attribution().origins(least=0.3)] == [2, 1, 1]
    against = attribution(of_source=-np.abs(OF_SOURCE))
    assert all(origin.sources == () for origin in against.origins())
    assert attribution(comparable=False).origins()[1].from_source is None


def test_letters_stand_for_words_where_a_source_is_one_word() -> None:
    letters = Side(("a", "b", "<eos>"), ("ab", "<eos>"), (0, 0, 1), 1)
    known = Attributed(np.array([[3.0, 1.0, 0.0]]), np.zeros((1, 1)), "weight")
    one = Attribution("attention", letters, whole_words(["x"]), np.zeros(1), known)
    assert one.origins()[0].sources == ((0, "a", 0.75), (1, "b", 0.25))
    assert one.origins(words=True)[0].sources == ((0, "ab", 1.0),)


def test_as_plain_data_and_as_a_map() -> None:
    plain = attribution(missed=np.array([0.0, -0.25, 0.0, 0.1])).as_dict()
    assert plain["missed"] == 0.25
    assert plain["of_source"] == OF_SOURCE.tolist()
    drawn = attribution().map()
    assert (drawn.source, drawn.output) == (READ.tokens, SAID.tokens)
    np.testing.assert_allclose(drawn.mean, attribution().shares()[0], atol=1e-6)
    np.testing.assert_allclose(drawn.probabilities, [0.5, 0.5, 0.25, 1.0])

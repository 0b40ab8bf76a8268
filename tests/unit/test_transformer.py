"""The Transformer against torch.nn with the same weights, its positions against their formulas, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.batch import Batch, Frames, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Memory
from seqloom.models.model import EncoderDecoder
from seqloom.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    TransformerDecoder,
    TransformerEncoder,
    TransformerSettings,
)
from seqloom.nn import multihead
from seqloom.nn.entrance import from_the_start
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.frontends import Learned as LearnedEmbedding
from seqloom.nn.multihead import MultiHead, View
from seqloom.nn.positions import POSITIONS
from seqloom.nn.tape import Tape
from seqloom.training.optim import looked_up
from toy_echo import VOCABULARY, share_right, trained

WIDTH, HEADS, INNER, LAYERS = 8, 2, 12, 2
CLOSE = {"atol": 1e-10, "rtol": 1e-10}
NORMS = pytest.mark.parametrize("norm", ["pre", "post"])


def settings(**raw: object) -> dict[str, object]:
    tiny = {"width": WIDTH, "heads": HEADS, "layers": LAYERS, "feedforward": INNER, "dropout": 0.0}
    return {"kind": "transformer", **tiny, **raw}


def encoder(frames: int | None = WIDTH, **raw: object) -> TransformerEncoder:
    torch.manual_seed(1)
    chosen = TransformerEncoder.Settings.model_validate(settings(**raw))
    return TransformerEncoder(chosen, embedding=None, frames=frames).double().eval()


def decoder(memory: TransformerEncoder | None, **raw: object) -> TransformerDecoder:
    torch.manual_seed(2)
    embedding = LearnedEmbedding(LearnedEmbedding.Settings(width=WIDTH), vocabulary=10)
    chosen = TransformerDecoder.Settings.model_validate(settings(**raw))
    return TransformerDecoder(chosen, embedding=embedding, encoder=memory).double().eval()


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def whole(**raw: object) -> EncoderDecoder:
    """An encoder and a decoder of the same settings, ready to train."""
    torch.manual_seed(0)
    embedding = {"kind": "learned", "width": WIDTH}
    sides = {"source_embedding": embedding, "target_embedding": embedding}
    chosen = EncoderDecoder.Settings.model_validate({**sides, "encoder": settings(**raw), "decoder": settings(**raw)})
    return EncoderDecoder(chosen, source_vocabulary=10, target_vocabulary=10).double()


def some_batch() -> Batch:
    source, target = Tokens.pad([[6, 7, 8, 3], [9, 3]]), Tokens.pad([[7, 3], [8, 9, 6, 3]])
    return Batch({"source": source}, target)


# --- parity with torch.nn --------------------


def copied(layer: EncoderLayer, theirs: nn.Module) -> None:
    """Our weights into a layer of torch's, whose in_proj is [W_q; W_k; W_v] also where ours are W_q and [W_k; W_v]."""
    weights = {
        "self_attn.in_proj_weight": layer.self_attention.qkv.weight,
        "self_attn.in_proj_bias": layer.self_attention.qkv.bias,
    }
    pairs = [("self_attn.out_proj", layer.self_attention.output), ("norm1", layer.around_self.norm)]
    last = "norm2"
    if isinstance(layer, DecoderLayer):
        cross = layer.cross_attention
        assert cross is not None
        weights["multihead_attn.in_proj_weight"] = torch.cat([cross.query.weight, cross.kv.weight])
        weights["multihead_attn.in_proj_bias"] = torch.cat([cross.query.bias, cross.kv.bias])
        pairs += [("multihead_attn.out_proj", cross.output), ("norm2", layer.around_cross.norm)]
        last = "norm3"
    pairs += [("linear1", layer.feedforward.widen), ("linear2", layer.feedforward.narrow)]
    pairs += [(last, layer.around_forward.norm)]
    for name, module in pairs:
        weights |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    theirs.load_state_dict(weights)


def drawn(module: nn.Module) -> None:
    """Norms and biases too: at their start, where they do nothing, they would hide mistakes."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)


@NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_encoder_is_torchs_with_the_same_weights(norm: str, activation: str) -> None:
    ours = encoder(norm=norm, activation=activation)
    drawn(ours)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=norm == "pre")
    final = nn.LayerNorm(WIDTH) if norm == "pre" else None
    theirs = nn.TransformerEncoder(layer, LAYERS, final, enable_nested_tensor=False).double()
    for own, other in zip(ours.layers, theirs.layers, strict=True):
        copied(own, other)  # type: ignore[arg-type]
    if final is not None:
        theirs.norm.load_state_dict(ours.norm.state_dict())  # type: ignore[union-attr]
    values, mask = some(3, 5, WIDTH), torch.arange(5) < torch.tensor([[5], [2], [3]])
    memory = ours(Frames(values, mask))
    placed = ours.entrance(values.masked_fill(~mask[..., None], 0.0), from_the_start(5, mask.device), 5)
    expected = theirs(placed, src_key_padding_mask=~mask)
    torch.testing.assert_close(memory.states[mask], expected[mask], **CLOSE)
    assert not memory.states[~mask].any()
    mean = torch.stack([row[real].mean(0) for row, real in zip(expected, mask, strict=True)])
    torch.testing.assert_close(memory.summary[0][0], mean, **CLOSE)


@NORMS
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_decoder_is_torchs_with_the_same_weights(norm: str, activation: str) -> None:
    reads = encoder()
    ours = decoder(reads, norm=norm, activation=activation, scale_embedding=False)
    drawn(ours)
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=norm == "pre")
    final = nn.LayerNorm(WIDTH) if norm == "pre" else None
    theirs = nn.TransformerDecoder(layer, LAYERS, final).double()
    for own, other in zip(ours.layers, theirs.layers, strict=True):
        copied(own, other)  # type: ignore[arg-type]
    if final is not None:
        theirs.norm.load_state_dict(ours.norm.state_dict())  # type: ignore[union-attr]
    states, mask = some(2, 4, WIDTH), torch.arange(4) < torch.tensor([[4], [2]])
    tokens = torch.tensor([[6, 7, 8], [9, 6, 3]])
    features, _ = ours(tokens, ours.start({"source": Memory(states, mask, ())}, 2))
    later = torch.ones(3, 3, dtype=torch.bool).triu(1)
    placed = ours.entrance(ours.embedding(tokens), from_the_start(3, mask.device), 3)
    expected = theirs(placed, states, tgt_mask=later, memory_key_padding_mask=~mask)
    torch.testing.assert_close(features, expected, **CLOSE)


@pytest.mark.parametrize("kind", list(POSITIONS))
@torch.no_grad()
def test_half_precision_is_carried_in_half_precision(kind: str) -> None:
    """Under autocast what is kept between calls has one type, and results are near those of full precision."""
    model, batch = whole(positions=kind).float().eval(), some_batch()
    exact = model.nll(batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert (model.nll(batch) - exact).abs().max() < 0.1
        state = model.start(batch.sources, 2)
        for lengths in (None, torch.tensor([1, 0, 1, 1]), None):
            _, state = model.decoder(torch.full((4, 1), 6), state, lengths)
    assert {tensor.dtype for name, tensor in state.rows.items() if name != "read"} == {torch.bfloat16}


def test_swiglu_is_its_formula() -> None:
    layer, x = FeedForward(3, 5, "swiglu", 0.0).double(), some(2, 4, 3)
    (w1, w3), (b1, b3) = layer.widen.weight.chunk(2), layer.widen.bias.chunk(2)
    a = x @ w1.t() + b1
    expected = (a * torch.sigmoid(a) * (x @ w3.t() + b3)) @ layer.narrow.weight.t() + layer.narrow.bias
    torch.testing.assert_close(layer(x), expected, **CLOSE)


def test_linear_maps_are_drawn_by_xavier_and_biases_are_zero() -> None:
    model = whole(width=64, feedforward=128)
    parts = [*model.encoder.modules(), *model.decoder.modules()]
    linear = [part for part in parts if isinstance(part, nn.Linear)]
    assert len(linear) > 10
    for part in linear:
        bound = math.sqrt(6 / sum(part.weight.shape))
        assert 0.9 * bound < float(part.weight.detach().abs().max()) <= bound
        assert part.bias is None or not part.bias.any()


# --- places --------------------


@pytest.mark.parametrize("kind", list(POSITIONS))
def test_order_matters_to_every_kind_of_position_but_none(kind: str) -> None:
    reads, values, mask = encoder(positions=kind), some(1, 4, WIDTH), torch.ones(1, 4, dtype=torch.bool)
    there = reads(Frames(values, mask)).states
    back = reads(Frames(values.flip(1), mask)).states.flip(1)
    assert bool((there - back).abs().max() > 1e-3) == (kind != "none")


def test_a_sequence_beyond_learned_positions_is_refused_with_the_fix() -> None:
    few = {"kind": "learned", "max_length": 3}
    reads = encoder(positions=few)
    values = some(2, 4, WIDTH)
    reads(Frames(values[:, :3], torch.ones(2, 3, dtype=torch.bool)))
    with pytest.raises(SeqloomError, match="4 tokens, but positions are learned for 3") as refused:
        reads(Frames(values, torch.ones(2, 4, dtype=torch.bool)))
    assert refused.value.code == "E_LONG"
    assert "max_length: 4" in refused.value.fix
    alone = decoder(None, positions=few)
    state = alone.start(None, 2)
    for _ in range(3):
        _, state = alone(torch.tensor([[6], [7]]), state)
    with pytest.raises(SeqloomError, match="max_length"):
        alone(torch.tensor([[6], [7]]), state)


def test_rows_that_read_less_may_use_slots_beyond_learned_positions() -> None:
    """Two rows of 1 and 2 tokens, read 2 at a time: four slots, but no place beyond the second."""
    alone = decoder(None, positions={"kind": "learned", "max_length": 3})
    tokens = torch.tensor([[6, 7], [8, 9]])
    _, state = alone(tokens, alone.start(None, 2), torch.tensor([1, 0]))
    alone(tokens, state)
    with pytest.raises(SeqloomError, match="max_length"):
        alone(tokens, alone(tokens, state)[1])


def test_learned_positions_are_spared_by_weight_decay_as_embeddings_are() -> None:
    positions = encoder(positions="learned").entrance.positions
    assert list(looked_up(positions)) == list(positions.parameters()) != []


# --- the fused kernel and the explicit way --------------------


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """What the fused kernel is asked, call by call."""
    monkeypatch.setattr(multihead, "FEW_IN_CACHE", 0)  # else few keys are attended to by products
    calls: list[dict[str, object]] = []
    real = F.scaled_dot_product_attention

    def spy(query: Tensor, key: Tensor, value: Tensor, **options: object) -> Tensor:
        calls.append({"query": query.shape, "key": key.shape, **options})
        return real(query, key, value, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return calls


def test_training_and_stepping_build_no_causal_mask(kernel: list[dict[str, object]]) -> None:
    model, batch = whole(layers=1), some_batch()
    model.losses(batch)
    reads, own, cross = kernel
    assert own["is_causal"] is True
    assert own["attn_mask"] is None
    assert cross["is_causal"] is False
    assert reads["attn_mask"].shape == cross["attn_mask"].shape == (2, 1, 1, 4)  # type: ignore[attr-defined]
    state = model.start(batch.sources, 1)
    for _ in range(2):
        kernel.clear()
        _, state = model.step(torch.tensor([6, 7]), state)
        assert kernel[0]["attn_mask"] is None
        assert kernel[0]["is_causal"] is False


def test_hypotheses_ask_together_and_their_memory_is_not_copied(kernel: list[dict[str, object]]) -> None:
    model, batch = whole(layers=1).eval(), some_batch()
    state = model.start(batch.sources, 5)
    assert state.sources["0.keys"].shape == (2, HEADS, 4, WIDTH // HEADS)
    kernel.clear()
    model.step(torch.full((10,), 6), state)
    assert kernel[1]["query"] == (2, HEADS, 5, WIDTH // HEADS)
    assert kernel[1]["key"] == (2, HEADS, 4, WIDTH // HEADS)


def test_nothing_but_keys_and_values_is_carried_until_rows_differ() -> None:
    alone, tokens = decoder(None), torch.tensor([[6, 7], [8, 9]])
    _, state = alone(tokens, alone.start(None, 2))
    assert {name: rows.shape for name, rows in state.rows.items()} == {
        str(i): (2, 2 * HEADS, 2, WIDTH // HEADS) for i in range(LAYERS)
    }
    _, state = alone(tokens, state, torch.tensor([2, 1]))
    assert state.rows["read"].tolist() == [4, 3]
    _, state = alone(tokens[:, :1], state)
    assert state.rows["read"].tolist() == [5, 4]


@pytest.mark.parametrize("hypotheses", [1, 3])
@pytest.mark.parametrize("raw", [{}, {"positions": "rotary"}, {"norm": "post"}], ids=str)
@torch.no_grad()
def test_the_explicit_way_equals_the_kernel(raw: dict[str, object], hypotheses: int) -> None:
    model, batch = whole(**raw).eval(), some_batch()
    names = ("encoder.0.self", "encoder.1.self", *model.decoder.self_taps, *model.decoder.attention_taps)
    tokens = torch.tensor([[6, 7, 8]]).repeat(2 * hypotheses, 1)

    def read() -> Tensor:
        state = model.start(batch.sources, hypotheses)
        first, state = model.decoder(tokens[:, :2], state, torch.tensor([2, 1]).repeat(hypotheses))
        second, state = model.decoder(tokens[:, :2], state)
        return torch.cat([first, second, model.decoder(tokens[:, 2:], state)[0]], dim=1)

    silent = read()
    for name in names:  # each alone, and then all
        with Tape(name):
            torch.testing.assert_close(read(), silent, **CLOSE)
    with Tape(*names) as tape:
        torch.testing.assert_close(read(), silent, **CLOSE)
    for name in names:
        for weights in tape.steps(name):
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), **CLOSE)


@torch.no_grad()
def test_replaced_weights_are_used() -> None:
    """All of every head's weight on the first position: the context is that position's value, projected."""
    model, batch = whole(layers=1).eval(), some_batch()

    def first(weights: Tensor, step: int) -> Tensor:
        only = torch.zeros_like(weights)
        only[..., 0] = 1.0
        return only

    with Tape("decoder.context", "decoder.0.cross", replace={"decoder.0.cross": first}) as tape:
        state = model.start(batch.sources, 2)
        model.step(torch.full((4,), 6), state)
    values = state.sources["0.values"][:, :, 0].flatten(1).repeat_interleave(2, dim=0)  # N D
    cross = model.decoder.layers[0].cross_attention
    torch.testing.assert_close(tape.joined("decoder.context", dim=1)[:, 0], cross.output(values), **CLOSE)
    assert tape.joined("decoder.0.cross", dim=2).shape == (4, HEADS, 1, 4)


def test_weights_are_dropped_in_training_on_both_ways() -> None:
    """The expected value of dropped attention is the plain one, and each draw differs from it."""
    attention = MultiHead(WIDTH, HEADS, 0.5, "x").double()
    query, kept = some(1, HEADS, 2, 4), (some(1, HEADS, 3, 4, seed=1), some(1, HEADS, 3, 4, seed=2))
    plain = attention.eval().attend(query, kept, View())[0]
    attention.train()
    torch.manual_seed(0)
    for tape in (Tape(), Tape("x")):
        with tape, torch.no_grad():
            draws = torch.stack([attention.attend(query, kept, View())[0] for _ in range(3000)])
        assert (draws[0] - plain).abs().max() > 1e-3
        assert (draws.mean(0) - plain).abs().max() < 0.1


# --- checkpointing --------------------


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointing_gives_the_same_gradients(dropout: float) -> None:
    def found(checkpointing: bool) -> list[Tensor]:
        model = whole(checkpointing=checkpointing, dropout=dropout, attention_dropout=dropout).train()
        torch.manual_seed(3)
        model.losses(some_batch())[0].sum().backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    plain, again = found(False), found(True)
    assert len(plain) == len(again) > 20
    for expected, gradient in zip(plain, again, strict=True):
        torch.testing.assert_close(gradient, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    ("training", "listened", "passes"), [(True, False, 2), (True, True, 1), (False, False, 1)], ids=str
)
def test_layers_are_computed_again_in_training_only_and_not_while_somebody_listens(
    training: bool, listened: bool, passes: int
) -> None:
    model = whole(checkpointing=True, layers=1).train(training)
    seen = []
    for stack in (model.encoder, model.decoder):
        stack.layers[0].feedforward.register_forward_pre_hook(lambda *_: seen.append(1))
    names = ("encoder.0.self", "decoder.0.cross") if listened else ()
    with Tape(*names):
        model.losses(some_batch())[0].sum().backward()
    assert len(seen) == 2 * passes


# --- settings --------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"width": 256, "heads": 3}, "heads: 3 heads do not divide the width 256; 2 or 4 do"),
        ({"width": 7, "heads": 2}, "heads: 2 heads do not divide the width 7; 1 or 7 do"),
        ({"width": 6, "heads": 9}, "heads: 9 heads do not divide the width 6; 6 do"),
        ({"width": 6, "heads": 2, "positions": "rotary"}, "positions: rotary"),
        ({"dropout": 1.0}, "dropout"),
        ({"positions": "rotory"}, 'did you mean "rotary"'),
        ({"activation": "tanh"}, "activation"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(raw: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        TransformerSettings.model_validate(raw)


@pytest.mark.parametrize("scaled", [True, False])
def test_embeddings_are_scaled_if_asked(scaled: bool) -> None:
    alone, places = decoder(None, scale_embedding=scaled), from_the_start(2, torch.device("cpu"))
    embedded = alone.embedding(torch.tensor([[6, 7]]))
    found = alone.entrance(embedded, places, 2) - alone.entrance(torch.zeros_like(embedded), places, 2)
    torch.testing.assert_close(found, embedded * (math.sqrt(WIDTH) if scaled else 1.0), **CLOSE)


def test_a_decoder_without_encoder_reads_alone_and_has_no_cross_attention() -> None:
    alone, tokens = decoder(None), torch.tensor([[6, 7, 8], [9, 6, 3]])
    assert alone.attention_taps == ()
    assert not any("cross" in name for name, _ in alone.named_parameters())
    features, state = alone(tokens, alone.start(None, 2))
    assert features.shape == (2, 3, WIDTH)
    assert state.sources == {}
    stepwise, outputs = alone.start(None, 2), []
    for t in range(3):
        output, stepwise = alone(tokens[:, t : t + 1], stepwise)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), features, **CLOSE)


# --- it learns --------------------


def test_a_transformer_learns_to_say_its_source_again() -> None:
    torch.manual_seed(0)
    stack = {"kind": "transformer", "width": 32, "layers": 2, "dropout": 0.0}
    sides = {"source_embedding": {"width": 32}, "target_embedding": {"width": 32}}
    chosen = EncoderDecoder.Settings.model_validate({**sides, "encoder": stack, "decoder": stack})
    model = EncoderDecoder(chosen, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert share_right(model.eval()) < 0.1
    assert share_right(trained(model)) > 0.9


@torch.no_grad()
def test_hypotheses_of_several_sources_find_what_one_source_finds() -> None:
    """On a CPU batches attend by products, a single source by the kernel: the same numbers."""
    model, batch = whole().eval(), some_batch()
    copies = multihead.SEVERAL
    several = {
        name: Tokens(one.ids.repeat(copies, 1), one.mask.repeat(copies, 1)) for name, one in batch.sources.items()
    }
    last = torch.full((3 * len(batch.sources["source"].ids),), 7)
    many, _ = model.step(last.repeat(copies), model.start(several, 3))
    few, _ = model.step(last, model.start(batch.sources, 3))
    assert len(batch.sources["source"].ids) < multihead.SEVERAL
    torch.testing.assert_close(many[: len(few)], few)


@torch.no_grad()
def test_an_encoder_that_does_not_read_the_end_reads_the_rest_as_if_there_were_none() -> None:
    with_end = encoder().eval()
    without = encoder(reads_end=False).eval()
    without.load_state_dict(with_end.state_dict())
    values = some(2, 5, WIDTH)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    found, expected = without(Frames(values, mask)), with_end(Frames(values[:, :4], mask[:, 1:]))
    assert found.mask.tolist() == [[True] * 4 + [False], [True] * 2 + [False] * 3]
    torch.testing.assert_close(found.states[:, :4], expected.states, **CLOSE)
    assert not found.states[:, 4].any()
    alone = without(Frames(values[:1, :1], torch.ones(1, 1, dtype=torch.bool)))
    assert alone.mask.all(), "a source of nothing but its end keeps it: something must be attended to"


def test_the_epsilon_of_layer_norm_is_the_recipes() -> None:
    made = encoder(epsilon=0.01)
    norms = [part for part in made.modules() if isinstance(part, nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {0.01}

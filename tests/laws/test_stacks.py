"""Laws 7 and 8 for Transformers, convolutions and joint models: what taps show, and gradients of every block.

Laws 1 to 5 are those of `test_models.py`, for these as for all.
"""

from __future__ import annotations

import pytest
import torch
from cases import JOINT_CASES, STACK_CASES, WIDTH, Case, build, close, entry, every, randomised, some_batch, some_inputs
from test_gradients import checked, some
from torch import Tensor

from seqloom.batch import Batch, Frames
from seqloom.models.model import EncoderDecoder
from seqloom.models.tables import DECODERS, ENCODERS
from seqloom.models.transformer import TransformerDecoder, TransformerSettings
from seqloom.nn.entrance import from_the_start
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.layers import mean_of_real, spread
from seqloom.nn.multihead import CrossHeads, SelfHeads, View
from seqloom.nn.positions import POSITIONS, Rotary
from seqloom.nn.tape import Tape

STEPS, HYPOTHESES = 3, 2
TRANSFORMERS = [case for case in [*STACK_CASES, *JOINT_CASES] if isinstance(case.settings.decoder, TransformerSettings)]
every_transformer = pytest.mark.parametrize("case", TRANSFORMERS, ids=str)
every_attending_transformer = pytest.mark.parametrize(
    "case", [case for case in TRANSFORMERS if case in STACK_CASES], ids=str
)


def taps_of(generator: EncoderDecoder) -> tuple[str, ...]:
    return (*generator.decoder.self_taps, *generator.decoder.attention_taps)


def read(generator: EncoderDecoder, batch: Batch, pieces: int = 1) -> Tensor:
    """Features of a few forced tokens, read in so many pieces."""
    state = generator.start(batch.sources, HYPOTHESES)
    outputs = []
    for tokens in some_inputs(len(batch) * HYPOTHESES, STEPS).chunk(pieces, dim=1):
        features, state = generator.decoder(tokens, state)
        outputs.append(features)
    return torch.cat(outputs, dim=1)


# --- law 7: tape --------------------


@every_transformer
@torch.no_grad()
def test_weights_observed_or_not_outputs_agree(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    silent = read(generator, batch)
    with Tape(*taps_of(generator)) as tape:
        close(read(generator, batch), silent)
    assert all(tape.steps(name) for name in taps_of(generator))
    with Tape(replace=dict.fromkeys(taps_of(generator), lambda tensor, step: tensor.clone())):
        close(read(generator, batch), silent)
    with Tape("decoder.states", "decoder.context", "encoder.states"):
        assert torch.equal(read(generator, batch), silent)


@every_attending_transformer
@torch.no_grad()
def test_weights_over_the_source_are_a_distribution_over_its_real_positions(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    names = generator.decoder.attention_taps
    assert len(names) == len(generator.decoder.layers)
    with Tape(*names) as whole:
        read(generator, batch)
    with Tape(*names) as stepwise:
        read(generator, batch, pieces=STEPS)
    mask = spread(generator.encode(batch.sources)["source"].mask, len(batch) * HYPOTHESES)
    for name in names:
        weights = whole.joined(name, dim=2)  # N H T S
        assert weights.shape[2:] == (STEPS, mask.shape[1])
        close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=weights.dtype))
        assert not weights.masked_select(~mask[:, None, None].expand_as(weights)).any()
        assert len(stepwise.steps(name)) == STEPS
        close(stepwise.joined(name, dim=2), weights)
    layers = generator.attention(batch)
    assert [layer.shape[0] for layer in layers] == [len(batch)] * len(names)


@every_transformer
@torch.no_grad()
def test_weights_over_tokens_read_see_no_later_one(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    tokens = some_inputs(len(batch), STEPS)
    start = generator.start(batch.sources, 1)
    with Tape(*generator.decoder.self_taps) as tape:
        generator.decoder(tokens, start)
    before = start.rows.get("read", torch.zeros(len(batch), dtype=torch.long))  # a joint model has read its source
    for name in generator.decoder.self_taps:
        weights = tape.joined(name, dim=2)  # N H T P
        close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=weights.dtype))
        places = before[:, None] + torch.arange(STEPS)
        later = torch.arange(weights.shape[3]) > places[..., None]  # N T P
        assert not weights.masked_select(later[:, None].expand_as(weights)).any()


@every_attending_transformer
@torch.no_grad()
def test_replaced_weights_change_what_follows(case: Case) -> None:
    generator, batch = build(case), some_batch((4, 4, 4, 4), case=case)
    plain = read(generator, batch)
    for name in generator.decoder.attention_taps:
        with Tape(name, replace={name: lambda weights, step: weights.flip(-1)}) as tape:
            changed = read(generator, batch)
        assert not torch.equal(changed, plain)
        assert tape.joined(name, dim=2).shape[2] == STEPS


def test_shared_weights_are_those_of_the_last_layer_averaged_over_heads() -> None:
    reads = ENCODERS.build(entry(ENCODERS, "rnn"), embedding=None, frames=WIDTH)
    embedding = build(STACK_CASES[0]).target_embedding
    settings = entry(DECODERS, "transformer", layers=2)
    decoder = randomised(DECODERS.build(settings, embedding=embedding, encoder=reads.double(), shares_weights=True))
    assert isinstance(decoder, TransformerDecoder)
    memory = reads(Frames(some(2, 3, WIDTH), torch.tensor([[True] * 3, [True, False, False]])))
    with Tape("decoder.1.cross", "decoder.states") as tape:
        features, _ = decoder(some_inputs(4, STEPS), decoder.start({"source": memory}, 4))
    close(features[..., : decoder.width].detach(), tape.joined("decoder.states", dim=1))
    close(features[..., decoder.width :].detach(), tape.joined("decoder.1.cross", dim=2).mean(1))


# --- law 8: gradients --------------------


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "swiglu"])
def test_feedforward(activation: str) -> None:
    layer = randomised(FeedForward(3, 4, activation, 0.0))  # type: ignore[arg-type]
    checked(layer, layer, some(1, 2, 3))


@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize("view", ["causal", "masked", "turned", "ragged"])
def test_self_heads(view: str, listened: bool) -> None:
    """With nothing kept; and with two slots kept per row, of which the second row has filled one."""
    layer = randomised(SelfHeads(4, 2, 0.0, "x"))
    places = torch.tensor([[2, 3], [1, 2]])
    views = {
        "causal": View(causal=True),
        "masked": View(visible=torch.tensor([[True, False], [True, True]])[:, None, None]),
        "turned": View(causal=True, turn=Rotary(Rotary.Settings(), width=4).turn(places, 2, some(1), 4)),
        "ragged": View(visible=(torch.arange(4) <= places[..., None])[:, None], slots=places),
    }

    def run(x: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        with Tape(*(("x",) if listened else ())):
            return layer(x, kept[0] if kept else None, views[view])  # type: ignore[no-any-return]

    kept = [some(2, 4, 2, 2, seed=1)] if view == "ragged" else []  # keys of two heads, then values
    checked(layer, run, some(2, 2, 4), *kept)


@pytest.mark.parametrize("listened", [False, True])
def test_cross_heads(listened: bool) -> None:
    layer = randomised(CrossHeads(4, 2, 0.0, "x", 3))
    mask = torch.tensor([[True, True, False], [True, False, False]])

    def run(x: Tensor, states: Tensor) -> Tensor:
        with Tape(*(("x",) if listened else ())):
            return layer(x, layer.keep(states), mask)[0]

    checked(layer, run, some(4, 2, 4), some(2, 3, 3, seed=1))


@every(POSITIONS)
def test_positions_added(kind: str) -> None:
    positions = randomised(POSITIONS.build(entry(POSITIONS, kind, max_length=3), width=4))
    checked(positions, lambda x: positions.added(x, from_the_start(3, x.device), 3), some(2, 3, 4))


def test_the_mean_of_real_states() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    states = some(3, 3, 2)
    found = mean_of_real(states, mask)
    close(found, torch.stack([states[0, :2].mean(0), states[1, 0], torch.zeros(2, dtype=torch.float64)]))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", ["transformer", "convolution"])
def test_encoders(kind: str, norm: str) -> None:
    """States and summary with respect to given vectors and to every parameter."""
    encoder = randomised(ENCODERS.build(entry(ENCODERS, kind, layers=1, norm=norm), embedding=None, frames=3))
    mask = torch.tensor([[True, True, False], [True, True, True]])

    def run(values: Tensor) -> tuple[Tensor, Tensor]:
        memory = encoder(Frames(values, mask))
        return memory.states, memory.summary[0][0]

    checked(encoder, run, some(2, 3, 3))

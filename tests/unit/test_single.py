"""Single steps laid flat: what the layers say up to rounding, whatever the decoder's options; else the layers."""

from __future__ import annotations

import pytest
import torch

from seqloom.batch import Tokens
from seqloom.errors import SeqloomError
from seqloom.models.contracts import State
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS
from seqloom.models.transformer import TransformerDecoder
from seqloom.nn.packed import pack
from seqloom.nn.tape import Tape

SOURCES = {"source": Tokens.pad([[7, 8, 9], [10, 11, 12, 13, 14]])}
ALIKE = {"source": Tokens.pad([[7, 8, 9], [10, 11, 12]])}
MANY = {"source": Tokens.pad([[7, 8, 9], [10, 11], [7, 12, 13, 14], [9], [8, 8]])}  # few keys: attention by products


HALVES = {"kind": "sinusoidal", "layout": "halves", "reaching": True}


def made(**decoder: object) -> Generator:
    """A model of random weights, its biases too, so that no term is missing from a comparison."""
    part = {"kind": "transformer", "width": 16, "heads": 2, "layers": 2, **decoder}
    raw = {
        "kind": "encoder_decoder",
        "source_embedding": {"width": 16},
        "target_embedding": {"width": 12},
        "encoder": {"kind": "transformer", "width": 16, "heads": 2, "layers": 1},
        "decoder": part,
    }
    torch.manual_seed(1)
    model: Generator = MODELS.build(MODELS.settings(raw), source_vocabulary=20, target_vocabulary=20)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
    return model.eval()


def decoder_of(model: Generator) -> TransformerDecoder:
    assert isinstance(model.decoder, TransformerDecoder)
    return model.decoder


@torch.inference_mode()
def steps(model: Generator, sources: dict[str, Tokens], hypotheses: int = 3) -> list[torch.Tensor]:
    """What is said token by token, rows changing places on the way."""
    state = model.start(sources, hypotheses)
    rows = len(sources["source"].ids) * hypotheses
    said = []
    for number in range(4):
        last = (torch.arange(rows) * 3 + number) % 13 + 7
        log_probs, state = model.step(last, state)
        said.append(log_probs)
        state = state.select(torch.arange(rows).view(-1, hypotheses).flip(1).flatten())
    return said


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "swiglu"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", HALVES])
@pytest.mark.parametrize("sources", [SOURCES, ALIKE, MANY], ids=["ragged", "alike", "many"])
def test_flat_steps_say_what_the_layers_say(
    norm: str, activation: str, positions: str, sources: dict[str, Tokens]
) -> None:
    model = made(norm=norm, activation=activation, positions=positions)
    expected = steps(model, sources)
    pack(model)
    assert decoder_of(model)._flat is not None
    for found, wanted in zip(steps(model, sources), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "swiglu"])
def test_in_8_bits_flat_steps_say_what_the_layers_say_in_8_bits(activation: str) -> None:
    model = made(activation=activation)
    pack(model, int8=True)
    flat = steps(model, SOURCES)
    decoder_of(model)._flat = None
    for found, wanted in zip(flat, steps(model, SOURCES), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_other_types_take_the_layers() -> None:
    model = made().double()
    pack(model)
    assert decoder_of(model)._flat is None


def test_one_row_and_a_model_without_an_encoder() -> None:
    model = made()
    alone = TransformerDecoder(
        TransformerDecoder.Settings(width=16, heads=2), embedding=decoder_of(model).embedding, encoder=None
    ).eval()
    tokens = torch.tensor([[7, 9, 11]])
    with torch.inference_mode():
        expected, _ = alone(tokens, alone.start(None, 1))
        pack(alone)
        state = alone.start(None, 1)
        for place in range(3):
            found, state = alone(tokens[:, place : place + 1], state)
            torch.testing.assert_close(found[:, 0], expected[:, place], atol=1e-5, rtol=1e-5)


def test_learned_positions_end_where_they_end() -> None:
    model = made(positions={"kind": "learned", "max_length": 2})
    pack(model)
    with pytest.raises(SeqloomError, match="learned for 2"):
        steps(model, SOURCES)


def test_who_listens_or_wants_a_gradient_gets_the_layers() -> None:
    model = made()
    pack(model)
    decoder = decoder_of(model)
    state, last = model.start(SOURCES, 1), torch.tensor([7, 8])
    with torch.inference_mode(), Tape("decoder.0.cross") as tape:
        model.step(last, state)
    assert tape.steps("decoder.0.cross")[0].shape == (2, 2, 1, 5)
    model.step(last, state)[0].sum().backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is not None for weight in decoder.layers.parameters() if weight.requires_grad)


@torch.inference_mode()
def test_rows_that_have_read_different_numbers_of_tokens_take_the_layers() -> None:
    model = made(positions="rotary")
    decoder = decoder_of(model)

    def after_a_ragged_start() -> torch.Tensor:
        state: State = model.start(SOURCES, 1)
        _, state = decoder(torch.tensor([[7, 8, 9], [10, 0, 0]]), state, torch.tensor([3, 1]))
        return decoder(torch.tensor([[11], [12]]), state)[0]

    expected = after_a_ragged_start()
    pack(model)
    torch.testing.assert_close(after_a_ragged_start(), expected, atol=1e-5, rtol=1e-5)


def test_weights_that_a_copying_head_asks_for_come_from_the_layers() -> None:
    model = made()
    sharing = TransformerDecoder(
        TransformerDecoder.Settings(width=16, heads=2),
        embedding=decoder_of(model).embedding,
        encoder=model.get_submodule("encoder"),  # type: ignore[arg-type]
        shares_weights=True,
    )
    pack(sharing)
    assert sharing._flat is None

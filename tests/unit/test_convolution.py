"""The convolutional encoder against its formula, and how far each position sees."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from seqloom.batch import Frames
from seqloom.models.convolution import ConvolutionalEncoder
from seqloom.models.model import EncoderDecoder
from toy_echo import VOCABULARY, share_right, trained

WIDTH = 4


def encoder(**raw: object) -> ConvolutionalEncoder:
    torch.manual_seed(1)
    chosen = ConvolutionalEncoder.Settings.model_validate({"width": WIDTH, "dropout": 0.0, **raw})
    return ConvolutionalEncoder(chosen, embedding=None, frames=WIDTH).double().eval()


def frames(length: int, rows: int = 1) -> Frames:
    values = torch.randn(rows, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return Frames(values, torch.ones(rows, length, dtype=torch.bool))


@torch.no_grad()
def test_a_layer_is_its_formula() -> None:
    """y_t = [A; B] window_t + c, x_t <- (x_t + a * sigmoid(b)) sqrt(1/2), nothing beyond the ends."""
    reads, source = encoder(layers=1, kernel=3), frames(5)
    layer = reads.layers[0]
    layer.bias.normal_()  # type: ignore[operator, union-attr]
    x = reads.entrance(source.values, torch.arange(5)[None], 5)[0]  # S D

    def window(t: int) -> Tensor:
        rows = [x[i] if 0 <= i < 5 else torch.zeros(WIDTH, dtype=torch.float64) for i in range(t - 1, t + 2)]
        return torch.stack(rows, dim=1)  # D kernel

    for t in range(5):
        a, b = (torch.einsum("odk,dk->o", layer.weight, window(t)) + layer.bias).chunk(2)  # type: ignore[arg-type, operator]
        expected = (x[t] + a * torch.sigmoid(b)) * math.sqrt(0.5)
        torch.testing.assert_close(reads(source).states[0, t], expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(("layers", "kernel", "reach"), [(1, 1, 0), (1, 3, 1), (2, 3, 2), (2, 5, 4), (3, 3, 3)])
def test_every_layer_sees_a_wider_window(layers: int, kernel: int, reach: int) -> None:
    reads, source = encoder(layers=layers, kernel=kernel), frames(11)
    source.values.requires_grad_()
    states = reads(source).states
    (gradient,) = torch.autograd.grad(states[0, 5].sum(), source.values)
    seen = gradient[0].abs().sum(-1).nonzero()[:, 0].tolist()
    assert seen == list(range(5 - reach, 5 + reach + 1))


def test_states_keep_their_size_from_layer_to_layer() -> None:
    """Drawn as they are, twelve layers neither blow up nor die."""
    torch.manual_seed(2)
    chosen = ConvolutionalEncoder.Settings(width=64, layers=12, dropout=0.0)
    deep = ConvolutionalEncoder(chosen, embedding=None, frames=64).eval()
    values = torch.randn(4, 20, 64)
    size = float(deep(Frames(values, torch.ones(4, 20, dtype=torch.bool))).states.detach().std())
    assert 0.2 < size < 5


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"kernel": 4}, "kernel: a window needs a middle, use 3 or 5"),
        ({"positions": "rotary"}, "positions: rotary ones turn queries and keys"),
        ({"kernel": 0}, "kernel"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(raw: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ConvolutionalEncoder.Settings.model_validate(raw)


def test_a_convolutional_encoder_learns_to_say_its_source_again() -> None:
    torch.manual_seed(0)
    sides = {"source_embedding": {"width": 32}, "target_embedding": {"width": 32}}
    both = {"encoder": {"kind": "convolution", "width": 32, "layers": 2, "dropout": 0.0}, "decoder": {"width": 32}}
    chosen = EncoderDecoder.Settings.model_validate({**sides, **both})
    model = EncoderDecoder(chosen, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert share_right(trained(model)) > 0.9

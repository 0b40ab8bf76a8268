"""Packed weights: the same numbers up to rounding, gradients from the weights themselves, nothing on other types."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.batch import Tokens
from seqloom.errors import SeqloomError
from seqloom.models.model import MODELS
from seqloom.nn import packed
from seqloom.nn.packed import PACKED, Packed, Rounded, linear, pack
from seqloom.nn.recurrent import CELLS

ROWS = [(1, 7), (5, 7), (3, 4, 7), (0, 7)]


@pytest.mark.parametrize("shape", ROWS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_gives_the_same_product(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(7, 9, bias=bias)
    x = torch.randn(shape)
    expected = F.linear(x, layer.weight, layer.bias)
    pack(layer)
    assert hasattr(layer.weight, PACKED) == packed._possible()
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_weights() -> None:
    layer = nn.Linear(4, 3)
    pack(layer)
    x = torch.randn(5, 4, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(5, 4))


def test_other_types_are_left_alone() -> None:
    layer = nn.Linear(4, 3).double()
    pack(layer)
    assert not hasattr(layer.weight, PACKED)
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(layer(x), linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("kind", ["luong", "transformer"])
@torch.inference_mode()
def test_a_packed_model_steps_like_the_plain_one(kind: str) -> None:
    """A tied output matrix is packed as a matrix and still read as a table."""
    part = {"kind": kind, "width": 16}
    raw = {"source_embedding": {"width": 16}, "target_embedding": {"width": 16}, "tied": True, "decoder": part}
    settings = MODELS.settings({"kind": "encoder_decoder", **raw, "encoder": {"kind": "transformer", "width": 16}})

    def made() -> nn.Module:
        torch.manual_seed(1)
        return MODELS.build(settings, source_vocabulary=20, target_vocabulary=20).eval()

    plain, fast = made(), made()
    pack(fast)
    sources = {"source": Tokens.pad([[7, 8, 9], [10, 11, 12, 13]])}
    ours, theirs = plain.start(sources, 3), fast.start(sources, 3)  # type: ignore[operator]
    for token in (2, 7, 9):
        last = torch.full((6,), token)
        (expected, ours), (found, theirs) = plain.step(last, ours), fast.step(last, theirs)  # type: ignore[operator]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


# --- 8 bits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_in_8_bits_a_product_is_nearly_the_same(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(7, 9)
    x = torch.randn(shape)
    expected = F.linear(x, layer.weight, layer.bias)
    pack(layer, int8=True)
    with torch.inference_mode():
        found = layer(x)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.05)
    if x.numel():
        assert not torch.equal(found, expected), "it was not rounded at all"


@torch.inference_mode()
def test_in_8_bits_a_row_does_not_depend_on_others_and_zeros_stay_zeros() -> None:
    layer = nn.Linear(16, 8, bias=False)
    pack(layer, int8=True)
    x = torch.randn(4, 16)
    together = layer(torch.cat([x, 1000 * torch.randn(1, 16), torch.zeros(1, 16)]))
    assert torch.equal(together[:4], layer(x))
    assert not together[-1].any()


@pytest.mark.parametrize("kind", ["lstm", "gru", "elman"])
@pytest.mark.parametrize("int8", [False, True])
@torch.inference_mode()
def test_single_steps_of_a_recurrence_use_the_packed_weights(kind: str, int8: bool) -> None:
    torch.manual_seed(1)
    cell = CELLS.build(CELLS.settings(kind), inputs=12, size=10)
    x, state = torch.randn(5, 12), tuple(torch.randn(5, 10) for _ in cell.parts)
    expected = cell.step(x, state)
    pack(cell, int8)
    assert isinstance(getattr(cell.weights()[0], PACKED), Rounded if int8 else Packed)  # type: ignore[attr-defined]
    tolerance = 0.05 if int8 else 1e-5
    for found, wanted in zip(cell.step(x, state), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


def test_a_torch_without_products_in_8_bits_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never silently in float32: who asked for 8 bits would measure something else."""
    monkeypatch.delattr(torch, "_int_mm")
    with pytest.raises(SeqloomError, match="8 bits"):
        pack(nn.Linear(3, 2), int8=True)

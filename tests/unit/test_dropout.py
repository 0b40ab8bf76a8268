"""Dropout with cheap masks: the right share, the right scale, nothing in evaluation, the same from the same seed."""

from __future__ import annotations

import pytest
import torch

from seqloom.nn.dropout import CheapDropout, dropped


@pytest.mark.parametrize("share", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_the_share_that_is_dropped_and_the_mean_that_is_kept(share: float) -> None:
    torch.manual_seed(1)
    found = dropped(torch.ones(997, 1001), share)
    zeros = (found == 0).double()
    count = found.numel()
    assert zeros.mean().item() == pytest.approx(share, abs=5 * (share * (1 - share) / count) ** 0.5 + 2**-17)
    assert found.mean().item() == pytest.approx(1.0, abs=0.01)
    assert len(found.unique()) == 2
    for step in (1, 2, 4, 64):  # neighbours, the four of a word, rows of a power of two: none knows of another
        flat = zeros.flatten()
        together = (flat[step:] * flat[:-step]).mean().item()
        assert together == pytest.approx(share**2, abs=6 * share / count**0.5)


def test_the_gradient_is_that_of_a_product_with_the_mask() -> None:
    torch.manual_seed(1)
    values = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    found = dropped(values, 0.4)
    found.sum().backward()
    mask = (found != 0).double()
    assert values.grad is not None
    torch.testing.assert_close(values.grad, mask * (found / values).max().detach())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 1, 4)])
def test_shapes_and_types_stay(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    found = dropped(torch.ones(shape, dtype=dtype), 0.5)
    assert (found.shape, found.dtype) == (torch.Size(shape), dtype)


def test_a_seed_decides_and_evaluation_drops_nothing() -> None:
    module, values = CheapDropout(0.5), torch.randn(50, 3)
    torch.manual_seed(4)
    one, other = module(values), module(values)
    torch.manual_seed(4)
    assert torch.equal(module(values), one)
    assert not torch.equal(one, other)
    assert module.eval()(values) is values
    assert CheapDropout(0.0).train()(values) is values


def test_almost_everything_can_be_dropped() -> None:
    assert torch.isfinite(dropped(torch.ones(1000), 0.9999999)).all()

"""The cross-entropy of few passes is torch's, and so are its gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqloom.nn.crossentropy import smoothed_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("used", ["minimised", "nll", "both"])
def test_values_and_gradients_are_those_of_torch(smoothing: float, used: str) -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, 9, dtype=torch.float64)
    gold, weights = torch.randint(0, 9, (6,)), torch.randn(2, 6, dtype=torch.float64)
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found = smoothed_cross_entropy(ours, gold, smoothing)
    expected = (
        F.cross_entropy(theirs, gold, reduction="none", label_smoothing=smoothing),
        F.cross_entropy(theirs, gold, reduction="none"),
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    chosen = {"minimised": [0], "nll": [1], "both": [0, 1]}[used]
    for parts in (found, expected):
        torch.stack([(weights[i] * parts[i]).sum() for i in chosen]).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_no_rows_are_no_problem() -> None:
    logits = torch.randn(0, 5, requires_grad=True)
    minimised, nll = smoothed_cross_entropy(logits, torch.zeros(0, dtype=torch.long), 0.1)
    (minimised.sum() + nll.sum()).backward()
    assert logits.grad is not None
    assert logits.grad.shape == (0, 5)

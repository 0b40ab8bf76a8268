"""Cross-entropy with label smoothing in few passes over the logits, the largest tensor of a training step.

    nll = -log p_gold,   minimised = (1 - e) nll + e mean_v (-log p_v)
    d minimised / dz_v = p_v - e / V - (1 - e) [v = gold]

torch's own functions compute the same, with tensors as large as the logits for every part of the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from seqloom.shapes import Float, Int, Tensor


def smoothed_cross_entropy(
    logits: Float[Tensor, "M V"], gold: Int[Tensor, "M"], smoothing: float
) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
    """(minimised, nll) of every row."""
    minimised, nll = _CrossEntropy.apply(logits, gold, smoothing)  # type: ignore[no-untyped-call]
    return minimised, nll


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        log_probs = torch.log_softmax(logits, dim=1)
        nll = -log_probs.gather(1, gold[:, None]).squeeze(1)
        ctx.smoothing = smoothing
        ctx.save_for_backward(log_probs, gold)
        return (1 - smoothing) * nll - smoothing * log_probs.mean(1) if smoothing else nll.clone(), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, minimised: Tensor, nll: Tensor) -> tuple[Tensor, None, None]:
        log_probs, gold = ctx.saved_tensors
        flows = log_probs.exp().mul_((minimised + nll)[:, None])
        if ctx.smoothing:
            flows.sub_((ctx.smoothing / log_probs.shape[1] * minimised)[:, None])
        said = gold[:, None]  # one place in each row: set, not added to, which every device repeats bit for bit
        flows.scatter_(1, said, flows.gather(1, said) + ((ctx.smoothing - 1) * minimised - nll)[:, None])
        return flows, None, None

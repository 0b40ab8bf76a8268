"""Dropout whose masks are cheap to draw: torch draws one number per value, on a CPU a sixth of a small model's step.

Here a random number of 64 bits decides about four values, 16 bits each, so that shares are exact to 1 / 65,536; what is
kept is scaled by the share that really is kept. On a GPU it is torch's own kernel.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.shapes import Float, Tensor

STEPS = 1 << 16  # different shares


class CheapDropout(nn.Dropout):
    """Zeroes a share of the values in training and scales up the others; else it does nothing."""

    def forward(self, input: Float[Tensor, "*r"]) -> Float[Tensor, "*r"]:
        return dropped(input, self.p) if self.training and self.p else input


def dropped(values: Float[Tensor, "*r"], share: float) -> Float[Tensor, "*r"]:
    """The values without a share of them. Randomness comes from torch's default generator."""
    if values.device.type != "cpu":
        return F.dropout(values, share)
    cut = min(round(share * STEPS), STEPS - 1)
    draws = torch.empty((values.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = draws.view(torch.int16)[: values.numel()].view(values.shape) >= cut - STEPS // 2
    return values * kept.to(values.dtype).mul_(STEPS / (STEPS - cut))

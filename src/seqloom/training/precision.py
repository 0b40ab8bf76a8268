"""Dynamic loss scaling (Micikevicius et al. 2018), for fp16: small gradients must not vanish on their way back.

The loss is multiplied by `scale` before the backward pass and the gradients are divided by it right after, before
anything measures or clips them. A step whose gradients overflow is skipped and halves the scale; many good steps in a
row double it. The scale is a power of two, so scaling rounds nothing. Both numbers are part of a snapshot (law 10).
Losses here are sums over a batch's tokens, not means, hence a scale that starts, and may end, lower than elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from seqloom.shapes import Tensor

FIRST, LEAST, MOST = 2.0**12, 2.0**-14, 2.0**24
PATIENCE = 2_000  # good steps in a row before the scale is doubled


@dataclass
class Scaler:
    """The scale of the loss, and how many steps in a row went well with it."""

    scale: Annotated[float, Field(gt=0)] = FIRST
    good: int = 0

    def unscale(self, gradients: list[Tensor]) -> None:
        if self.scale != 1.0:
            torch._foreach_mul_(gradients, 1.0 / self.scale)

    def went_well(self) -> None:
        self.good += 1
        if self.good >= PATIENCE:
            self.scale, self.good = min(MOST, 2 * self.scale), 0

    def overflowed(self) -> bool:
        """Halve the scale. Whether to go on: one so small that scaling cannot be what is wrong is divergence."""
        self.scale, self.good = self.scale / 2, 0
        return self.scale >= LEAST

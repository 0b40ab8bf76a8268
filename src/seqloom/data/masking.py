"""Frames as training may hear them another time: with stretches of time and bands of features missing (SpecAugment).

Park et al. 2019: what is masked becomes 0, which is the mean of normalised features. Everything is drawn from one rng,
which depends on seed, epoch and example alone.
"""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
from pydantic import Field

from seqloom import config

Values = npt.NDArray[np.float32]  # S F


class Masks(config.Settings):
    """How many masks, and how wide each may be at most: in frames, and in features."""

    time_masks: int = Field(0, ge=0, le=100)
    time_width: int = Field(20, ge=1)
    time_share: float = Field(0.2, gt=0.0, le=1.0)  # of a source, that one mask may cover at most
    feature_masks: int = Field(0, ge=0, le=100)
    feature_width: int = Field(10, ge=1)

    @property
    def silent(self) -> bool:
        return not (self.time_masks or self.feature_masks)

    def masked(self, values: Values, rng: Random) -> Values:
        """A copy with parts of it zero; where each begins and how wide it is, is drawn evenly."""
        values = values.copy()
        frames, features = values.shape
        for _ in range(self.time_masks):
            first, last = _part(frames, min(self.time_width, int(self.time_share * frames)), rng)
            values[first:last] = 0.0
        for _ in range(self.feature_masks):
            first, last = _part(features, min(self.feature_width, features), rng)
            values[:, first:last] = 0.0
        return values


def _part(size: int, most: int, rng: Random) -> tuple[int, int]:
    width = rng.randint(0, most)
    first = rng.randint(0, size - width)
    return first, first + width

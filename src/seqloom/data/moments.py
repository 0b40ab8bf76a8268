"""Mean and deviation of numbers that come in parts: what frames and pixels are normalised by.

In one pass over files of any number and size (Chan et al. 1979), without the loss of digits that sums of squares have.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_json

Column = npt.NDArray[np.float64]  # F
FIX = "copy the bundle again, or train again"


class Moments:
    """What is known of F features so far: how many numbers of each there were, their mean, their squares around it."""

    def __init__(self, features: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(features), np.zeros(features)

    def add(self, values: npt.NDArray[np.floating]) -> None:
        """Some more numbers, n F."""
        values = values.astype(np.float64)
        own, total = values.mean(0), self.count + len(values)
        self.squares += ((values - own) ** 2).sum(0) + (own - self.mean) ** 2 * (self.count * len(values) / total)
        self.mean += (own - self.mean) * (len(values) / total)
        self.count = total

    def deviation(self, least: float) -> Column:
        return divisors(np.sqrt(self.squares / self.count), self.mean, least)


def divisors(deviation: Column, mean: Column, least: float) -> Column:
    """What to divide by: a deviation under `least` of the mean is that of a constant, which is left as it is."""
    return np.where(deviation > least * np.maximum(1.0, np.abs(mean)), deviation, 1.0)


def plain(mean: Column, deviation: Column) -> dict[str, list[float]]:
    return {"mean": mean.tolist(), "deviation": deviation.tolist()}


def save(path: Path, mean: Column, deviation: Column) -> None:
    atomic_write(path, json.dumps(plain(mean, deviation)).encode())


def load(path: Path, of: str, most: int, features: int | None = None) -> tuple[Column, Column]:
    """What `save` wrote, of so many features where that is known and of at most `most`; E_BUNDLE where it is not."""
    raw = read_json(path, 100 * most, f"means and deviations of {of}", FIX)
    try:
        mean, deviation = (np.array(raw[key], dtype=np.float64) for key in ("mean", "deviation"))
        if not (mean.ndim == deviation.ndim == 1 and 0 < len(mean) == len(deviation) and (deviation > 0).all()):
            raise ValueError("wrong shapes")
        if features is not None and len(mean) != features:
            raise ValueError("another number of features")
    except (KeyError, TypeError, ValueError):
        raise SeqloomError("E_BUNDLE", f"not the means and deviations of {of}", where=str(path), fix=FIX) from None
    return mean, deviation

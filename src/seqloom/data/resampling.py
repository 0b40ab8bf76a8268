"""A sound at another sample rate, by windowed sinc interpolation (Smith and Gossett 1984); numpy alone.

    y_n = sum_k x_k c w(c (n M/L - k)) sinc(c (n M/L - k)),    c = min(1, L/M),    w a Hann window of `ZEROS` zeros

with L/M the ratio of the rates: every output sample is a weighted sum of its neighbours, and below the new limit
nothing of the sound is lost. There are only L different sets of weights, which are computed once.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

ZEROS = 16  # zeros of the sinc on either side: more is sharper and slower
MOST_PHASES = 1000  # a ratio of rates is taken for the nearest one of so small numbers
AT_ONCE = 1 << 16  # output samples that are computed together

Samples = npt.NDArray[np.float32]


def resampled(samples: Samples, given: float, wanted: float) -> Samples:
    """The same sound, `wanted` samples a second where there were `given`."""
    ratio = Fraction(wanted / given).limit_denominator(MOST_PHASES)
    if ratio == 1 or not len(samples):
        return samples
    weights, reach = _weights(ratio)
    padded = np.pad(samples, (reach - 1, reach))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    count = length_of(len(samples), given, wanted)
    made = np.empty(count, dtype=np.float32)
    for start in range(0, count, AT_ONCE):
        steps = np.arange(start, min(count, start + AT_ONCE), dtype=np.int64) * ratio.denominator
        first, phase = np.divmod(steps, ratio.numerator)
        made[start : start + len(steps)] = np.einsum("nk,nk->n", windows[first], weights[phase])
    return made


def length_of(samples: int, given: float, wanted: float) -> int:
    """How many samples `resampled` makes of so many."""
    ratio = Fraction(wanted / given).limit_denominator(MOST_PHASES)
    return -(-samples * ratio.numerator // ratio.denominator)


@lru_cache(maxsize=32)
def _weights(ratio: Fraction) -> tuple[npt.NDArray[np.float32], int]:
    """L 2R: the weights of the R neighbours on either side, for every place between two samples."""
    cut = min(1.0, float(ratio))
    reach = int(np.ceil(ZEROS / cut))
    offsets = np.arange(1 - reach, reach + 1)
    between = np.arange(ratio.numerator)[:, None] / ratio.numerator
    distance = cut * (between - offsets)
    window = np.where(np.abs(distance) < ZEROS, 0.5 + 0.5 * np.cos(np.pi * distance / ZEROS), 0.0)
    weights = cut * np.sinc(distance) * window
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32), reach

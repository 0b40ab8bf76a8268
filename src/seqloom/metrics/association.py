"""How far two rows of numbers go together: Pearson's r, Spearman's rho, Kendall's tau-b. From -1 to 1.

Where one side has no spread, or fewer than two numbers, nothing goes together with anything: None.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqloom.metrics.base import Values
from seqloom.metrics.numbers import CONSTANT, ranks


def pearson(one: Sequence[float], other: Sequence[float]) -> float | None:
    """r = cov(x, y) / (sd x  sd y)."""
    return _r(np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64))


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's r of the ranks, equal numbers sharing theirs."""
    if not one:
        return None
    return _r(ranks(np.asarray(one, dtype=np.float64)), ranks(np.asarray(other, dtype=np.float64)))


def _r(x: Values, y: Values) -> float | None:
    if len(x) < 2:
        return None
    dx, dy = x - x.mean(), y - y.mean()
    spread_x, spread_y = float(dx @ dx), float(dy @ dy)
    if spread_x <= CONSTANT * float(x @ x) or spread_y <= CONSTANT * float(y @ y):
        return None
    return min(1.0, max(-1.0, float(dx @ dy) / float(np.sqrt(spread_x * spread_y))))


def kendall(one: Sequence[float], other: Sequence[float]) -> float | None:
    """tau-b = (concordant - discordant) / sqrt(pairs untied in x * pairs untied in y)."""
    x, y = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    agree, untied_x, untied_y = 0, 0, 0
    for place in range(len(x) - 1):  # row by row: memory stays that of one row
        sx, sy = np.sign(x[place + 1 :] - x[place]), np.sign(y[place + 1 :] - y[place])
        agree += int((sx * sy).sum())
        untied_x += int(np.count_nonzero(sx))
        untied_y += int(np.count_nonzero(sy))
    return agree / float(np.sqrt(untied_x * untied_y)) if untied_x and untied_y else None

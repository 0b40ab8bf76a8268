"""How far raters agree, beyond chance: Krippendorff's alpha for any number of them, Cohen's kappa for two.

    alpha = 1 - observed / expected disagreement             (Krippendorff 2011; judgments may be missing)
    kappa = 1 - observed / expected (weighted) disagreement  (Cohen 1960, 1968; what both rated)

What counts as disagreement is the level of the scale: names differ or not (nominal), places differ by how much lies
between them (ordinal), numbers by the square of their difference (interval). `data/judgments.py` sums alpha up over
the judgments in a file, without the ordinal level; where both can be asked they say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float64

Level = Literal["nominal", "ordinal", "interval"]
Square = Float64[np.ndarray, "v v"]  # one row and one column for every value that occurs


def krippendorff(units: Iterable[Sequence[float]], level: Level) -> float | None:
    """Alpha of the judgments on some units; None where no unit has two, or all judgments are the same.

    Each unit adds its pairs of judgments, weighted by 1 / (judgments - 1), to the coincidences o; n_c are the sums of
    its rows, and chance pairs c and k in n_c n_k / (n - 1) of the cases.
    """
    judged = [list(unit) for unit in units if len(unit) > 1]
    values = np.unique([value for unit in judged for value in unit])
    if len(values) < 2:
        return None
    coincidences = np.zeros((len(values), len(values)))
    for unit in judged:
        counts = np.bincount(np.searchsorted(values, unit), minlength=len(values)).astype(np.float64)
        coincidences += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    totals = coincidences.sum(axis=0)
    apart = _apart(values, totals, level)
    observed = float((coincidences * apart).sum())
    expected = float((np.outer(totals, totals) * apart).sum() / (totals.sum() - 1))
    return 1 - observed / expected


def _apart(values: Float64[np.ndarray, "v"], totals: Float64[np.ndarray, "v"], level: Level) -> Square:
    """How much each value disagrees with each other one."""
    if level == "nominal":
        return 1.0 - np.eye(len(values))
    below = np.cumsum(totals) - totals / 2  # what lies below a value, and half of what is equal to it
    places = values if level == "interval" else below
    squares: Square = np.subtract.outer(places, places) ** 2
    return squares


def cohen(pairs: Sequence[tuple[float, float]], level: Level = "nominal") -> float | None:
    """Kappa of what two raters said of the same units; None where chance alone could not disagree.

    On an ordinal or interval scale disagreement is weighted by the square of the difference.
    """
    values = np.unique([value for pair in pairs for value in pair])
    if len(values) < 2:
        return None
    table = np.zeros((len(values), len(values)))
    for one, other in pairs:
        table[np.searchsorted(values, one), np.searchsorted(values, other)] += 1
    apart = _apart(values, table.sum(axis=0), "nominal" if level == "nominal" else "interval")
    expected = float((np.outer(table.sum(axis=1), table.sum(axis=0)) * apart).sum()) / len(pairs)
    return 1 - float((table * apart).sum()) / expected if expected > 0 else None

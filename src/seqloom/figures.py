"""Numbers as people write them: the one place that says which texts are numbers.

Data and metrics both read them, and neither knows the other. Nothing here is about tensors.
"""

from __future__ import annotations

import math

LARGEST = 1e100  # of either sign: squares and their sums must be finite as well
MARGIN = 0.25  # of a range of numbers: how far a grid of levels goes on beyond each of its ends
FIX = "write numbers like 3 or -0.25"


def number_in(text: str) -> float | None:
    """The finite number that a text writes; None where it writes none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) <= LARGEST and not math.isnan(number) else None


def no_number(text: str) -> str:
    """What is wrong with a text that is none."""
    return f"{text[:40]!r} is no finite number (up to {LARGEST:g})"

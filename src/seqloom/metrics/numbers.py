"""Numbers against numbers, both as text: Pearson's and Spearman's correlation in %, and the mean squared error.

Several references are several judgments of one item: their mean is what is wanted. A text that is no finite number is
refused with its sentence; nothing is guessed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from seqloom.errors import SeqloomError
from seqloom.figures import FIX, no_number, number_in
from seqloom.metrics.base import Counted, Metric, Statistics, Total, Values

CONSTANT = 1e-12  # a variance below this share of the mean square is rounding


def number_of(text: str, side: str, row: int) -> float:
    """The number that a text writes; E_DATA names the sentence where it writes none."""
    number = number_in(text)
    if number is None:
        raise SeqloomError("E_DATA", f"the {side} {no_number(text)}", where=f"sentence {row + 1}", fix=FIX)
    return number


def _sides(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Values, Values]:
    """Outputs, and the mean of the judgments on each."""
    said = [number_of(text, "output", row) for row, text in enumerate(predictions)]
    wanted = [
        math.fsum(number_of(text, "reference", row) for text in texts) / len(texts)
        for row, texts in enumerate(references)
    ]
    return np.array(said, dtype=np.float64), np.array(wanted, dtype=np.float64)


class Correlation(Counted):
    """Pearson's r of two sides in %: rows are (1, x, y, xx, yy, xy). A side without any spread correlates with nothing.

    A lone sentence has no correlation: its value is 0. Two systems are compared on one scale: approximate randomisation
    mixes their outputs, and of outputs that are shifted against each other the mixture correlates with nothing.
    """

    columns = 6
    of_numbers = True

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        x, y = self._compared(*_sides(predictions, references))
        return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)

    @abstractmethod
    def _compared(self, said: Values, wanted: Values) -> tuple[Values, Values]:
        """What is correlated: the numbers, or something made of them."""

    def value(self, total: Total) -> float:
        """r = (n Sxy - Sx Sy) / (sqrt(n Sxx - Sx^2) sqrt(n Syy - Sy^2))."""
        n, x, y, xx, yy, xy = total.tolist()
        spread_x, spread_y = n * xx - x * x, n * yy - y * y
        if spread_x <= CONSTANT * n * xx or spread_y <= CONSTANT * n * yy:
            return 0.0
        r = float(n * xy - x * y) / (math.sqrt(spread_x) * math.sqrt(spread_y))
        return 100.0 * min(1.0, max(-1.0, r))


class Pearson(Correlation):
    """Pearson's correlation of outputs and references, in %."""

    rule = "correlation:pearson|judgments:mean"

    class Settings(Metric.Settings):
        kind: Literal["pearson"] = "pearson"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "Pearson"

    def _compared(self, said: Values, wanted: Values) -> tuple[Values, Values]:
        return said, wanted


class Spearman(Correlation):
    """Spearman's rank correlation, in %: Pearson's of the ranks, equal numbers sharing their mean rank.

    A rank is a place among all, so these rows add up only within the one call that made them: rows of several calls
    must not be stacked. Intervals and breakdowns take parts of the whole with the ranks they had there.
    """

    rule = "correlation:spearman|ranks:of-the-whole-set,also-in-resamples|ties:mean-rank|judgments:mean"

    class Settings(Metric.Settings):
        kind: Literal["spearman"] = "spearman"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "Spearman"

    def _compared(self, said: Values, wanted: Values) -> tuple[Values, Values]:
        return ranks(said), ranks(wanted)


def ranks(numbers: Values) -> Float64[np.ndarray, "m"]:
    """Places from 1 up; equal numbers share the mean of theirs."""
    _, groups, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)  # of each group of equal numbers
    shared: Values = (last - (counts - 1) / 2)[groups]
    return shared


class MeanSquaredError(Counted):
    """Mean of the squared differences, on the scale of the numbers: rows are (square, 1)."""

    columns = 2
    of_numbers = True
    rule = "error:squared|scale:of-the-numbers|judgments:mean"
    higher_is_better: ClassVar[bool] = False

    class Settings(Metric.Settings):
        kind: Literal["mse"] = "mse"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "MSE"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        said, wanted = _sides(predictions, references)
        return np.stack([(said - wanted) ** 2, np.ones_like(said)], axis=1)

    def value(self, total: Total) -> float:
        squares, count = total.tolist()
        return float(squares / count) if count else 0.0

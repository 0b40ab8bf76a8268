"""What the data report remembers of numbers beside the rest (`survey.py`), and what it finds wrong with them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqloom.data.examples import Example
from seqloom.data.label_survey import Found
from seqloom.data.survey import SHOWN, Survey
from seqloom.figures import number_in

OUTER, FAR = 1.0, 20.0  # percentiles at both ends are left out; so many times the width of the rest is far away


@dataclass(frozen=True)
class NumberSummary:
    """The numbers of one set."""

    count: int
    low: float
    high: float
    mean: float
    deviation: float
    different: int

    def told(self) -> str:
        spread = f"mean {self.mean:.4g}, deviation {self.deviation:.4g}"
        return f"    target: numbers from {self.low:g} to {self.high:g}, {spread}; {self.different:,} different ones"


class NumberSurvey:
    """The numbers of one set, and the rows that have none."""

    def __init__(self) -> None:
        self._numbers = array("d")
        self._rows = array("q")
        self.odd: list[tuple[int, str]] = []  # row, what stands there

    def add(self, row: int, example: Example) -> None:
        for text in example.references:
            number = number_in(text)
            if number is not None:
                self._numbers.append(number)
                self._rows.append(row)
            elif text.strip():
                self.odd.append((row, text))

    def summary(self) -> NumberSummary | None:
        """None where there is no number at all."""
        numbers = np.array(self._numbers)
        if not len(numbers):
            return None
        low, high, mean = float(numbers.min()), float(numbers.max()), float(numbers.mean())
        return NumberSummary(len(numbers), low, high, mean, float(numbers.std()), len(np.unique(numbers)))

    def within(self, survey: Survey, *, learned: bool) -> Iterator[Found]:
        """What is wrong with the numbers of one set; `learned`: it is what training sees."""
        if self.odd:
            places = [f"{survey.where(row)} ({text[:40]})" for row, text in self.odd[:SHOWN]]
            yield "no_number", len(self.odd), places
        numbers = np.array(self._numbers)
        if not learned or not len(numbers):
            return
        if numbers.min() == numbers.max():
            yield "one_number", len(numbers), [survey.where(self._rows[0])]
            return
        low, high = np.percentile(numbers, [OUTER, 100 - OUTER])
        far = np.flatnonzero((numbers < low - FAR * (high - low)) | (numbers > high + FAR * (high - low)))
        if len(far):
            places = [f"{survey.where(self._rows[place])} ({numbers[place]:g})" for place in far[:SHOWN].tolist()]
            yield "far_number", len(far), places

    def beyond(self, survey: Survey, learned: NumberSurvey) -> Iterator[Found]:
        """Numbers of a held-out set outside of what training has."""
        known = learned.summary()
        if known is None:
            return
        numbers = np.array(self._numbers)
        out = np.flatnonzero((numbers < known.low) | (numbers > known.high))
        if len(out):
            places = [f"{survey.where(self._rows[place])} ({numbers[place]:g})" for place in out[:SHOWN].tolist()]
            yield "unseen_number", len(out), places

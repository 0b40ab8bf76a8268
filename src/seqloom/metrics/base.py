"""What a metric is: rows of statistics that add up over sentences, and one value of their sum.

Because rows add, one pass over the outputs serves the corpus score, its bootstrap interval, paired tests and every
breakdown. All values are on a scale of 0 to 100, except that error rates and CIDEr-D may exceed 100, correlations may
be negative, squared errors have the scale of their numbers and NIST counts bits. This file knows no particular metric,
and nothing in this package imports torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from seqloom import __version__, config
from seqloom.errors import SeqloomError

Statistics = Float64[np.ndarray, "n k"]  # one row per sentence
Total = Float64[np.ndarray, "k"]  # their sum
Values = Float64[np.ndarray, "m"]  # one value per row


class Metric(ABC):
    """One way to judge outputs. `references[i]` lists every right answer to sentence i; there is at least one."""

    class Settings(config.Settings):
        """What a recipe may choose; each metric adds `kind` and its own keys."""

    name: str
    depth: int = 0  # of ranked lists, how many places it must see at least
    higher_is_better: ClassVar[bool] = True
    compares: ClassVar[bool] = True  # False: it looks at outputs alone, and says nothing of how right they are
    of_labels: ClassVar[bool] = False  # it reads texts as labels between white space
    of_numbers: ClassVar[bool] = False  # it reads texts as numbers
    separator: str | None = None  # between labels, where it reads texts as sets of them
    of_lists: ClassVar[bool] = False  # it reads texts as ranked candidates between tabs

    @abstractmethod
    def statistics(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        """One row per sentence; rows of several calls may be stacked and summed."""

    @abstractmethod
    def value(self, total: Total) -> float:
        """The score of summed rows, finite also for nothing at all."""

    @abstractmethod
    def signature(self) -> str:
        """Everything needed to reproduce the number, as `key:value|key:value`."""

    def score(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
        return self.value(self.statistics(predictions, references).sum(axis=0))

    def values(self, totals: Statistics) -> Values:
        """`value` of each row of totals."""
        return np.array([self.value(total) for total in totals], dtype=np.float64)

    def sentence_values(self, statistics: Statistics) -> Values:
        """A value per sentence, for wins, losses and confidences; a metric may judge a lone sentence more mildly."""
        return self.values(statistics)


def check_parallel(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse what no metric can score: sides of different length, or a sentence without any reference."""
    if len(predictions) != len(references):
        raise SeqloomError(
            "E_ALIGN",
            f"{len(predictions):,} predictions but references for {len(references):,} sentences",
            fix="give one prediction and at least one reference per sentence",
        )
    for row, wanted in enumerate(references):
        if isinstance(wanted, str) or not wanted:
            raise SeqloomError(
                "E_DATA",
                "a list of at least one reference is needed",
                where=f"sentence {row + 1}",
                fix="add a reference",
            )


def count_references(references: Sequence[Sequence[str]]) -> str:
    """The number of references per sentence as signatures write it: a number, or `var`."""
    counts = {len(wanted) for wanted in references}
    return str(counts.pop()) if len(counts) == 1 else "var"


UNSEEN_REFERENCES = "?"  # what a signature says before any statistics were computed


class Counted(Metric):
    """A metric whose rows are counted here and not by a library: what is refused and signed is the same for all."""

    rule: str  # what is counted, for the signature
    columns: int  # the width of its rows

    def __init__(self) -> None:
        self._references_seen = UNSEEN_REFERENCES

    def statistics(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_parallel(predictions, references)
        if not predictions:
            return np.zeros((0, self.columns))
        self._references_seen = count_references(references)
        return np.array(self._rows(predictions, references), dtype=np.float64)

    @abstractmethod
    def _rows(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Sequence[Sequence[float]] | Statistics: ...

    def signature(self) -> str:
        return f"nrefs:{self._references_seen}|{self.rule}|version:seqloom-{__version__}"

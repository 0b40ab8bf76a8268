"""What the data report remembers of labels and tags beside the rest (`survey.py`), and what it finds wrong with them.

How often each stands and where first, the label of every row, and the sentences that have not as many tags as words.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.data.examples import Example
from seqloom.data.survey import SHOWN, Numbers, Survey

ROWS = 20  # of the table
MOST_TOLD = 1_000  # labels whose counts the report holds; where there are more, they are none
Found = tuple[str, int, Sequence[str]]  # kind, how often, where first


Cut = Callable[[str], list[str]]


def set_of(separator: str) -> Cut:
    """A target as a set of labels."""
    return lambda text: sorted({" ".join(label.split()) for label in text.split(separator)} - {""})


class LabelSurvey:
    """The labels of one set: one of every row, or one of every word; `cut` says what a target holds."""

    def __init__(self, per_word: bool, cut: Cut | None = None) -> None:
        self.per_word = per_word
        self.cut: Cut = cut or ((lambda text: text.split(" ")) if per_word else (lambda text: [text]))
        self.counts = Counter[str]()
        self.first: dict[str, int] = {}  # label -> the first row that has it
        self._ids: dict[str, int] = {}
        self._of_row = array("q")
        self.uneven: list[tuple[int, int, int]] = []  # row, words, tags

    def add(self, row: int, example: Example) -> None:
        cut = self.cut(example.target)
        labels = [label for label in cut if label.strip()]
        self.counts.update(labels)
        for label in labels:
            self.first.setdefault(label, row)
        if not self.per_word:
            self._of_row.append(self._ids.setdefault("; ".join(cut), len(self._ids)))
            return
        words = len(example.source.split())
        if words and labels and words != len(labels):
            self.uneven.append((row, words, len(labels)))

    @property
    def of_row(self) -> Numbers:
        """The number of each row's label."""
        return np.array(self._of_row, dtype=np.int64)

    def named(self, number: int) -> str:
        return list(self._ids)[number]


@dataclass(frozen=True)
class LabelCounts:
    """How often each label stands in each set: those of train first, the most frequent before others."""

    word: str  # label, or tag
    sets: Mapping[str, Mapping[str, int]]

    @staticmethod
    def of(word: str, surveys: Mapping[str, LabelSurvey]) -> LabelCounts:
        return LabelCounts(word, {name: dict(one.counts.most_common(MOST_TOLD)) for name, one in surveys.items()})

    def lines(self) -> Iterator[str]:
        """A table, a column of counts and one of shares for each set."""
        totals = {name: max(1, sum(counts.values())) for name, counts in self.sets.items()}
        every = list(dict.fromkeys(label for counts in self.sets.values() for label in counts))
        rows = [[f"{len(every):,} different {self.word}s", *(cell for name in self.sets for cell in (name, "share"))]]
        for label in every[:ROWS]:
            counts = {name: self.sets[name].get(label, 0) for name in self.sets}
            shares = {name: f"{100 * count / totals[name]:.1f} %" for name, count in counts.items()}
            rows.append([_shown(label), *(cell for name in self.sets for cell in (f"{counts[name]:,}", shares[name]))])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *cells in rows:
            right = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            yield f"    {first.ljust(widths[0])}  {right}"
        if len(every) > ROWS:
            yield f"    ... and {len(every) - ROWS:,} more"


def _shown(label: str, most: int = 40) -> str:
    return label if len(label) <= most else label[: most - 3] + "..."


def within(survey: Survey, labels: LabelSurvey, *, learned: bool) -> Iterator[Found]:
    """What is wrong with the labels of one set; `learned`: it is what training sees."""
    word = "tag" if labels.per_word else "label"
    if learned and len(labels.counts) == 1:
        label = next(iter(labels.counts))
        yield f"one_{word}", labels.counts[label], [_at(survey, labels, label)]
    elif learned:
        once = [label for label, count in labels.counts.items() if count == 1]
        if once:
            yield f"{word}_once", len(once), [_at(survey, labels, label) for label in once[:SHOWN]]
    alike: dict[str, list[str]] = {}
    for label in labels.counts:
        alike.setdefault(" ".join(label.casefold().split()), []).append(label)
    twins = [names for names in alike.values() if len(names) > 1]
    if twins:
        places = [" = ".join(_at(survey, labels, one) for one in names) for names in twins[:SHOWN]]
        yield f"similar_{word}s", len(twins), places
    if labels.uneven:
        first = labels.uneven[:SHOWN]
        places = [f"{survey.where(row)} ({words:,} words, {tags:,} tags)" for row, words, tags in first]
        yield "uneven_tags", len(labels.uneven), places
    if not labels.per_word:
        yield from _contradictions(survey, labels)


def _at(survey: Survey, labels: LabelSurvey, label: str) -> str:
    return f"{survey.where(labels.first[label])} ({_shown(label)})"


def _contradictions(survey: Survey, labels: LabelSurvey) -> Iterator[Found]:
    """Rows whose source stands on an earlier row with another label; both are named."""
    _, first, inverse = np.unique(survey.source_hashes, return_index=True, return_inverse=True)
    earliest, label = first[inverse], labels.of_row
    rows = np.flatnonzero(label != label[earliest])
    if len(rows):

        def named(row: int) -> str:
            return f"{survey.where(row)} ({_shown(labels.named(int(label[row])))})"

        places = [f"{named(int(row))} = {named(int(earliest[row]))}" for row in rows[:SHOWN]]
        yield "several_labels", len(rows), places


def unseen(survey: Survey, labels: LabelSurvey, learned: LabelSurvey) -> Iterator[Found]:
    """Labels of a held-out set that training has not."""
    new = [label for label in labels.counts if label not in learned.counts]
    if new:
        places = [_at(survey, labels, label) for label in new[:SHOWN]]
        yield "unseen_label", sum(labels.counts[label] for label in new), places

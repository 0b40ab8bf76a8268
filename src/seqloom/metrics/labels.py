"""Labels against labels: accuracy, F1 per label, and F1 of sets of labels.

A text is a row of labels between white space: one label of a sentence, or a tag for every word. Labels answer each
other by their place; where an output is too short or too long, every missing or needless label is a mistake. Several
references are several judgments of one item, not several right answers: the most frequent one counts, of equally
frequent ones the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, Field

from seqloom.errors import SeqloomError
from seqloom.metrics.base import Counted, Metric, Statistics, Total, check_parallel
from seqloom.metrics.rates import Rate

MAX_LABELS = 1_000  # columns are held for every sentence; more kinds of label than that are words
SEPARATOR = ";"  # between the labels of a set
H = TypeVar("H", bound=Hashable)


def majority(judgments: Sequence[H]) -> H:
    """The most frequent judgment; of equally frequent ones the first."""
    return Counter(judgments).most_common(1)[0][0]


def gold_labels(references: Sequence[str], whole: bool = False) -> tuple[str, ...]:
    """What most judges said, label by label; blanks around and between labels do not make another judgment.

    `whole`: a text is one label, which may have blanks inside.
    """
    return majority([labels_in(text, whole) for text in references])


def labels_in(text: str, whole: bool = False) -> tuple[str, ...]:
    """The labels of a text; none of an empty one."""
    labels = tuple(text.split())
    return (" ".join(labels),) if whole and labels else labels


def f1_of(right: float, produced: float, wanted: float) -> float:
    """The harmonic mean of precision and recall in %; 0 where nothing was produced and nothing wanted."""
    together = produced + wanted
    return 200.0 * right / together if together else 0.0


class Accuracy(Rate):
    """Share of labels that are right, each at its place.

    Where output and reference differ in length it is a share of the longer one. For single labels it is the share of
    right outputs.
    """

    of_labels = True

    class Settings(Metric.Settings):
        kind: Literal["accuracy"] = "accuracy"
        judgments: Literal["majority", "any"] = "majority"  # which of several references is right

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name, self.judgments = "accuracy", settings.judgments
        self.rule = f"count:labels|of:longer-side|judgments:{settings.judgments}"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        return [self._row(output.split(), wanted) for output, wanted in zip(predictions, references, strict=True)]

    def _row(self, said: Sequence[str], wanted: Sequence[str]) -> tuple[int, int]:
        if self.judgments == "majority":
            return _right(said, gold_labels(wanted))
        rows = [_right(said, text.split()) for text in wanted]
        return max(rows, key=lambda row: (row[0] / row[1] if row[1] else 0.0, row[1]))  # in whatever order they stand


def _right(said: Sequence[str], gold: Sequence[str]) -> tuple[int, int]:
    """How many labels are right, of how many."""
    return sum(one == other for one, other in zip(said, gold, strict=False)), max(len(said), len(gold))


def _one_label(text: str) -> str:
    if len(text.split()) != 1 or text != text.strip():
        raise ValueError(f"{text!r}: a label has no white space")
    return text


Label = Annotated[str, AfterValidator(_one_label)]


class LabelF1(Counted):
    """F1 of every label, averaged over labels (macro) or counted together (micro).

    Rows hold (right, needless, missed) for each label. Which labels have columns is settled by the first references
    that are judged, so that the rows of later calls add up with them; labels that turn up later share one more column
    and count as one label. Where `labels` names them, these alone count, as in tables that leave "no relation" out.
    """

    of_labels = True

    class Settings(Metric.Settings):
        kind: Literal["f1"] = "f1"
        average: Literal["macro", "micro"] = "macro"  # labels count alike, or as often as they stand there
        labels: tuple[Label, ...] = Field((), max_length=MAX_LABELS)  # these alone count; none named: all

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.average, self.named = settings.average, tuple(dict.fromkeys(settings.labels))
        self.name = f"{settings.average} F1"
        self._places: Mapping[str, int] | None = None
        self.columns, self.rule = 3, self._rule("?")
        if self.named:
            self._settle(self.named)

    def _rule(self, labels: str) -> str:
        return f"average:{self.average}|labels:{labels}|judgments:majority"

    def _settle(self, labels: Sequence[str]) -> Mapping[str, int]:
        """From here on these labels have columns, and all others one more; where they were named, none."""
        if len(labels) > MAX_LABELS:
            what = f"{len(labels):,} different labels in the references, at most {MAX_LABELS:,} can be told apart"
            raise SeqloomError("E_DATA", what, fix="judge texts by another metric, or name the labels that count")
        self._places = {label: place for place, label in enumerate(labels)}
        self.columns = 3 * (len(labels) + (not self.named))
        self.rule = self._rule(",".join(self.named) or str(len(labels)))
        return self._places

    def _gold(self, wanted: Sequence[str]) -> Collection[str]:
        return gold_labels(wanted)

    def _pairs(self, output: str, gold: Collection[str]) -> Iterable[tuple[str | None, str | None]]:
        """What was said beside what was wanted in its place."""
        return zip_longest(output.split(), gold)

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        golds = [self._gold(wanted) for wanted in references]
        places = self._places
        if places is None:
            places = self._settle(sorted({label for gold in golds for label in gold}))
        other = len(places)
        counts = np.zeros((len(golds), other + 1, 3))
        for row, (output, gold) in enumerate(zip(predictions, golds, strict=True)):
            for said, wanted in self._pairs(output, gold):
                if said is not None and said == wanted:
                    counts[row, places.get(said, other), 0] += 1
                    continue
                if said is not None:
                    counts[row, places.get(said, other), 1] += 1
                if wanted is not None:
                    counts[row, places.get(wanted, other), 2] += 1
        kept = counts[:, :other] if self.named else counts
        return kept.reshape(len(golds), self.columns)

    def value(self, total: Total) -> float:
        counts = total.reshape(-1, 3)
        if self.average == "micro":
            counts = counts.sum(axis=0, keepdims=True)
        seen = counts[counts.any(axis=1)]  # a label that nobody said and nobody wanted has no F1
        right, needless, missed = seen.T
        return float(np.mean(200.0 * right / (2 * right + needless + missed))) if len(seen) else 0.0


class MultiLabelF1(LabelF1):
    """F1 of the labels of sets, counted together (micro) or averaged over labels (macro): order is of no matter."""

    of_labels = False

    class Settings(LabelF1.Settings):
        kind: Literal["multilabel_f1"] = "multilabel_f1"  # type: ignore[assignment]
        average: Literal["macro", "micro"] = "micro"
        labels: tuple[str, ...] = Field((), max_length=MAX_LABELS)
        separator: str = Field(SEPARATOR, min_length=1)  # between the labels of a set

    separator: str

    def __init__(self, settings: Settings) -> None:
        self.separator = settings.separator
        super().__init__(settings)
        self.name = "multi-label F1" if self.average == "micro" else "macro multi-label F1"

    def _rule(self, labels: str) -> str:
        counted = f"|labels:{labels}" if self.average == "macro" or self.named else ""
        return f"average:{self.average}|count:labels-of-sets{counted}|judgments:majority"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        if self.average == "macro" or self.named:
            return super()._rows(predictions, references)
        pairs = [
            (labels_of_set(output, self.separator), frozenset(self._gold(wanted)))
            for output, wanted in zip(predictions, references, strict=True)
        ]
        return np.array([(len(said & gold), len(said - gold), len(gold - said)) for said, gold in pairs])

    def _gold(self, wanted: Sequence[str]) -> Collection[str]:
        return majority([labels_of_set(text, self.separator) for text in wanted])

    def _pairs(self, output: str, gold: Collection[str]) -> Iterable[tuple[str | None, str | None]]:
        said = labels_of_set(output, self.separator)
        for label in said.union(gold):
            yield label if label in said else None, label if label in gold else None


class SetAccuracy(Rate):
    """Share of outputs whose labels are exactly those wanted, in whatever order; none where none is wanted."""

    separator: str

    class Settings(Metric.Settings):
        kind: Literal["set_accuracy"] = "set_accuracy"
        separator: str = Field(SEPARATOR, min_length=1)  # between the labels of a set

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name, self.separator, self.rule = "set accuracy", settings.separator, "count:sets|judgments:majority"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        def labels(text: str) -> frozenset[str]:
            return labels_of_set(text, self.separator)

        pairs = zip(predictions, references, strict=True)
        return [(int(labels(output) == majority([labels(text) for text in wanted])), 1) for output, wanted in pairs]


def labels_of_set(text: str, separator: str = SEPARATOR) -> frozenset[str]:
    """`a; b c;` are the labels a and "b c"; blanks around labels and empty ones do not count."""
    return frozenset(" ".join(label.split()) for label in text.split(separator) if label.strip())


# --- tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelRow:
    """How well one label is found: `wanted` times in references, `produced` times in outputs; shares in %."""

    label: str
    precision: float
    recall: float
    f1: float
    wanted: int
    produced: int


@dataclass(frozen=True)
class Cut:
    """How texts are read as labels: one each, between blanks, or as a set between separators."""

    whole: bool = False  # a text is one label
    separator: str | None = None  # a text is a set

    def labels(self, text: str) -> tuple[str, ...]:
        if self.separator is not None:
            return tuple(sorted(labels_of_set(text, self.separator)))
        return labels_in(text, self.whole)

    def gold(self, judged: Sequence[str]) -> tuple[str, ...]:
        """What most judges said."""
        return majority([self.labels(text) for text in judged])

    def right(self, said: Sequence[str], gold: Sequence[str]) -> Iterable[str]:
        """The labels that are right: each at its place, those of a set anywhere."""
        if self.separator is not None:
            return set(said).intersection(gold)
        return [one for one, other in zip(said, gold, strict=False) if one == other]


def per_label(outputs: Sequence[str], references: Sequence[Sequence[str]], cut: Cut = Cut()) -> list[LabelRow]:
    """A row for every label of outputs or references, the most wanted first."""
    check_parallel(outputs, references)
    right, produced, wanted = Counter[str](), Counter[str](), Counter[str]()
    for output, judged in zip(outputs, references, strict=True):
        said, gold = cut.labels(output), cut.gold(judged)
        produced.update(said)
        wanted.update(gold)
        right.update(cut.right(said, gold))
    return label_rows(right, produced, wanted)


def label_rows(right: Counter[str], produced: Counter[str], wanted: Counter[str]) -> list[LabelRow]:
    """The table of three counts; equally wanted labels by their names."""
    labels = sorted(produced | wanted, key=lambda label: (-wanted[label], label))
    return [
        LabelRow(
            label,
            100.0 * right[label] / produced[label] if produced[label] else 0.0,
            100.0 * right[label] / wanted[label] if wanted[label] else 0.0,
            f1_of(right[label], produced[label], wanted[label]),
            wanted[label],
            produced[label],
        )
        for label in labels
    ]

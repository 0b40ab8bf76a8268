"""Spans that are written as tags (BIO and its kin) and the F1 of those found.

A span counts as found where its first word, its last word and its type are right. Tags that are not well-formed are
read as conlleval (Tjong Kim Sang and Buchholz 2000) reads them: a span begins at B-, and also at I- or E- after another
type, after nothing, or after a span that has ended. So BIO, IOB1, BIOES and BILOU need not be told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from seqloom.errors import SeqloomError
from seqloom.metrics.base import Counted, Metric, Total, check_parallel
from seqloom.metrics.labels import LabelRow, f1_of, gold_labels, label_rows

OUTSIDE = ("O", "_")  # tags of words in no span; of outputs every tag of another form as well
FIRST, LAST = "BSU", "ESLU"  # what begins a span whatever comes before, what ends it whatever follows
PLACES = "BIESLU"
Span = tuple[int, int, str]  # first word, the one after the last, type


def spans_of(tags: Sequence[str]) -> set[Span]:
    """The spans that tags write, words counted from 0."""
    found: set[Span] = set()
    start, before, type_before = -1, "O", ""
    for word, tag in enumerate((*tags, OUTSIDE[0])):
        place, kind = _parts(tag)
        follows = before != "O" and before not in LAST and kind == type_before
        begins = place != "O" and (place in FIRST or not follows)
        if before != "O" and (begins or place == "O"):
            found.add((start, word, type_before))
        start = word if begins else start
        before, type_before = place, kind
    return found


def _parts(tag: str) -> tuple[str, str]:
    """B-PER -> B, PER. A bare B has an empty type."""
    place, _, kind = tag.partition("-")
    return (place, kind) if _is_place(place) else ("O", "")


def _is_place(text: str) -> bool:
    return len(text) == 1 and text in PLACES


class SpanF1(Counted):
    """F1 of spans in BIO tags, as conlleval counts them: rows are (right, produced, wanted)."""

    of_labels = True
    columns = 3
    rule = "count:spans|tags:bio,iob1,bioes|reading:conlleval|judgments:majority"

    class Settings(Metric.Settings):
        kind: Literal["span_f1"] = "span_f1"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "span F1"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[int, int, int]]:
        pairs = _pairs(predictions, references)
        return [(len(said & gold), len(said), len(gold)) for said, gold in pairs]

    def value(self, total: Total) -> float:
        return f1_of(*total.tolist())


def per_span_type(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[LabelRow]:
    """A row for every type of span in outputs or references, the most wanted first."""
    check_parallel(outputs, references)
    right, produced, wanted = Counter[str](), Counter[str](), Counter[str]()
    for said, gold in _pairs(outputs, references):
        for count, spans in ((right, said & gold), (produced, said), (wanted, gold)):
            count.update(kind for _, _, kind in spans)
    return label_rows(right, produced, wanted)


def _pairs(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[set[Span], set[Span]]]:
    golds = [gold_labels(wanted) for wanted in references]
    for row, gold in enumerate(golds):
        _refuse_other_tags(gold, row)
    return [(spans_of(output.split()), spans_of(gold)) for output, gold in zip(predictions, golds, strict=True)]


def write_spans(references: Sequence[Sequence[str]]) -> bool:
    """Whether these are tags of spans: each has the form of one, and not all lie outside."""
    tags = {tag for wanted in references for tag in gold_labels(wanted)}
    return all(map(_writes_span, tags)) and not tags <= set(OUTSIDE)


def _writes_span(tag: str) -> bool:
    return tag in OUTSIDE or _is_place(tag.partition("-")[0])


def _refuse_other_tags(gold: Sequence[str], row: int) -> None:
    """A model may say what it likes; references of another form are no spans at all, and 0 would hide it."""
    for word, tag in enumerate(gold):
        if not _writes_span(tag):
            what = f"reference tag {tag[:40]!r} writes no span: O, or B-, I-, E- or S- with a type is expected"
            fix = "judge tags of words by accuracy or f1"
            raise SeqloomError("E_DATA", what, where=f"sentence {row + 1}, word {word + 1}", fix=fix)

"""A bare file name says little: whether one word stands on every line, with its tag, is seen by opening the file.

Only what would be an error otherwise, or prose, is looked at: blank lines stand in no file of pairs. What a person says
of a dataset is never changed, and neither stdin nor a pipe is touched: it could be read once only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, islice

from seqloom.config import Plain
from seqloom.data.annotated import CONLLU_COLUMNS
from seqloom.data.files import STDIN, is_regular, raw_lines
from seqloom.data.kinds import MOST_LABELS, Task

LINES = 2_000  # that are looked at
FEWEST_SENTENCES, LONGEST = 3, 200  # sentences, and words of one on average: a stray blank line makes no sentence
REPEATED = 2  # times that a tag stands there on average
_BLANKS = re.compile(r"[ \t]+")
_NUMBER = re.compile(r"[0-9]+([-.][0-9]+)?")


def meant(dataset: Plain, task: Task | None) -> Plain:
    """The dataset as a person means it who gives no more than its name, and perhaps says what it is for."""
    if task == "language" and isinstance(dataset, str):
        return _named("text", dataset)
    return recognised(dataset) if task in (None, "tags") else dataset


def recognised(dataset: Plain) -> Plain:
    """The dataset, with its kind where it is a bare name of a file that has words and tags in columns."""
    if not isinstance(dataset, str) or dataset == STDIN or not is_regular(dataset):
        return dataset
    lines = [line.data or b"" for line in islice(raw_lines(dataset), LINES)]
    texts = [line.decode("utf-8", errors="replace") for line in lines]
    if _is_conllu(texts):
        return dataset if dataset.lower().removesuffix(".gz").endswith(".conllu") else _named("conllu", dataset)
    for separator, pattern in (("tab", "\t"), ("blank", _BLANKS)):
        columns = _columns(texts, pattern)
        if columns > 1:
            named = _named("columns", dataset)
            named |= {"separator": separator} if separator == "tab" else {}
            return named | ({"tag": 1} if columns > 2 else {})  # to be changed by whoever means another one
    return dataset


def _named(kind: str, path: str) -> dict[str, Plain]:
    return {"kind": kind, "path": path}


def _is_conllu(texts: Sequence[str]) -> bool:
    rows = [text.split("\t") for text in texts if text.strip() and not text.startswith("#")]
    return bool(rows) and all(len(row) == len(CONLLU_COLUMNS) and _NUMBER.fullmatch(row[0]) for row in rows)


def _columns(texts: Sequence[str], separator: str | re.Pattern[str]) -> int:
    """How many columns a file of words and tags has; 0 where it is none."""

    def cells(text: str) -> list[str]:
        return text.split(separator) if isinstance(separator, str) else separator.split(text.strip(" \t"))

    sentences = [[cells(text) for text in group] for blank, group in groupby(texts, key=_is_blank) if not blank]
    rows = [row for sentence in sentences for row in sentence]
    if len(sentences) < FEWEST_SENTENCES or not len(sentences) < len(rows) <= LONGEST * len(sentences):
        return 0
    columns = len(rows[0])
    if columns < 2 or any(len(row) != columns or len(row[0].split()) > 1 for row in rows):
        return 0
    tags = {row[1] for row in rows}
    return columns if len(tags) <= MOST_LABELS and REPEATED * len(tags) <= len(rows) else 0


def _is_blank(text: str) -> bool:
    return not text.strip() or text.startswith("-DOCSTART-")

"""Texts in the form that a metric reads, so that one law can be put to every metric of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

# Of several references one is gold, or their mean is: a copy of the last need not be right.
JUDGED = ("accuracy", "f1", "span_f1", "multilabel_f1", "set_accuracy", "pearson", "spearman", "mse")


def _number(text: str) -> str:
    """Every word is worth a number between -10 and 10, so that texts with many words in common get similar ones."""
    return str(sum(crc32(word.encode()) % 2001 - 1000 for word in text.split()) / 100)


_FORMS: dict[str, Callable[[str], str]] = {
    "span_f1": lambda text: " ".join(f"B-{word}" for word in text.split()),
    **dict.fromkeys(["pearson", "spearman", "mse"], _number),
}


def fitted(
    kind: str, predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Equal texts stay equal; others become other spans and, nearly always, other numbers."""
    form = _FORMS.get(kind, str)
    return [form(text) for text in predictions], [[form(text) for text in wanted] for wanted in references]

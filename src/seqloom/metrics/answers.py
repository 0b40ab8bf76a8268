"""Answers to questions about a text, judged as SQuAD judges them (Rajpurkar et al. 2016, section 6.1).

Both sides are lower-cased, freed of punctuation and of the articles a, an, the, and cut at white space. Exact match is
the share of answers that then equal a reference; F1 is of the words that answer and reference have in common, each as
often as it stands there. With several references the best counts; over a test set both are means of their questions.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from seqloom.metrics.base import Metric
from seqloom.metrics.rates import Rate

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
RULE = "case:lower|punctuation:none|articles:none|best-reference"


def answer_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def overlap(answer: Sequence[str], wanted: Sequence[str]) -> float:
    """2 P R / (P + R) = 2 |both| / (|answer| + |wanted|); two that hold nothing agree."""
    if not answer or not wanted:
        return float(answer == wanted)
    return 2 * sum((Counter(answer) & Counter(wanted)).values()) / (len(answer) + len(wanted))


class AnswerExact(Rate):
    """Share of answers that are a reference, but for case, punctuation and articles."""

    rule = f"count:answers|{RULE}"

    class Settings(Metric.Settings):
        kind: Literal["answer_exact"] = "answer_exact"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "answer exact match"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        pairs = zip(predictions, references, strict=True)
        return [(any(answer_words(said) == answer_words(one) for one in wanted), 1) for said, wanted in pairs]


class AnswerF1(Rate):
    """F1 of the words of an answer and of its nearest reference, averaged over questions."""

    rule = f"count:words|mean:questions|{RULE}"

    class Settings(Metric.Settings):
        kind: Literal["answer_f1"] = "answer_f1"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "answer F1"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        pairs = zip(predictions, references, strict=True)
        return [(max(overlap(answer_words(said), answer_words(one)) for one in wanted), 1) for said, wanted in pairs]

"""ROUGE (Lin 2004): what a text has in common with the best of its references.

    ROUGE-N   c = n-grams in common, as often as both have them; P = c / n-grams of the output, R = c / of the reference
    ROUGE-L   c = longest common subsequence, P = c / words of the output, R = c / of the reference
              F = (1 + b^2) P R / (R + b^2 P), averaged over outputs

Texts are in lower case. `rouge_1`, `rouge_2` and `rouge_l` are those of summarisation: of plain English they equal the
package rouge-score. A text of one word has no pairs of words and is worth 0 by ROUGE-2, as there; two empty ones agree.
`reference: parts` takes the best precision and the best recall, be they of different references: with `beta: 1.2` and
`tokenize: captions` this is the ROUGE-L of COCO and of the E2E challenge. `rouge` is ROUGE-L of words between blanks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from seqloom.metrics.base import Metric
from seqloom.metrics.cutting import Cut, cutter, grams, stemming
from seqloom.metrics.rates import Rate

Shares = tuple[float, float]  # precision, recall


class Options(Metric.Settings):
    """What all of them may be told."""

    beta: float = Field(1.0, gt=0.0)  # above 1 recall counts for more; captions are often judged with 1.2
    tokenize: Cut = "words"
    stem: bool = False  # Porter's stems; needs nltk
    reference: Literal["best", "parts"] = "best"


class Rouge(Rate):
    """The F measure of what output and reference share."""

    def __init__(self, settings: Options) -> None:
        super().__init__()
        self.beta, self.apart = settings.beta, settings.reference == "parts"
        cut = cutter(settings.tokenize)
        self.cut = stemming(cut) if settings.stem else cut
        stems = "+porter" if settings.stem else ""
        self.rule = f"beta:{self.beta:g}|tok:{settings.tokenize}{stems}|case:lc|reference:{settings.reference}"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[float, float]]:
        return [(self._agreement(*pair), 1.0) for pair in zip(predictions, references, strict=True)]

    def _agreement(self, output: str, references: Sequence[str]) -> float:
        said = self.cut(output.lower())
        found = [self._either(said, self.cut(one.lower())) for one in references]
        if self.apart:
            found = [(max(precision for precision, _ in found), max(recall for _, recall in found))]
        return max(self._f(*shares) for shares in found)

    def _either(self, said: Sequence[str], wanted: Sequence[str]) -> Shares:
        if not said or not wanted:
            agree = float(len(said) == len(wanted))
            return agree, agree
        return self._shares(said, wanted)

    @abstractmethod
    def _shares(self, said: Sequence[str], wanted: Sequence[str]) -> Shares:
        """Precision and recall of words that are there."""

    def _f(self, precision: float, recall: float) -> float:
        weight = self.beta**2
        return (1 + weight) * precision * recall / (recall + weight * precision) if precision and recall else 0.0


class RougeN(Rouge):
    """By n-grams."""

    order: int

    def __init__(self, settings: Options) -> None:
        super().__init__(settings)
        self.name = f"ROUGE-{self.order}"

    def _shares(self, said: Sequence[str], wanted: Sequence[str]) -> Shares:
        ours, theirs = Counter(grams(said, self.order)), Counter(grams(wanted, self.order))
        common = (ours & theirs).total()
        return (common / ours.total(), common / theirs.total()) if common else (0.0, 0.0)


class Rouge1(RougeN):
    """Words in common."""

    order = 1

    class Settings(Options):
        kind: Literal["rouge_1"] = "rouge_1"


class Rouge2(RougeN):
    """Pairs of neighbouring words in common."""

    order = 2

    class Settings(Options):
        kind: Literal["rouge_2"] = "rouge_2"


class RougeL(Rouge):
    """By the longest common subsequence."""

    class Settings(Options):
        kind: Literal["rouge_l"] = "rouge_l"

    def __init__(self, settings: Options) -> None:
        super().__init__(settings)
        self.name = "ROUGE-L"

    def _shares(self, said: Sequence[str], wanted: Sequence[str]) -> Shares:
        common = longest_common(said, wanted)
        return common / len(said), common / len(wanted)


class RougeBlank(RougeL):
    """ROUGE-L of words between blanks."""

    class Settings(Options):
        kind: Literal["rouge"] = "rouge"
        tokenize: Cut = "blank"


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest subsequence of both."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for place, theirs in enumerate(other, start=1):
            kept = row[place]
            row[place] = before + 1 if word == theirs else max(kept, row[place - 1])
            before = kept
    return row[-1]

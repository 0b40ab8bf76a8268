"""Shares and error rates: exact match, string error, and the edit rates of words, characters and phonemes.

Edits are counted by jiwer. With several references the nearest one counts: the fewest edits, and among equals the
longest, so that the order of the references never matters. Nothing is lower-cased or normalised here; white space
around an output, and how much of it stands between words, does not count.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from importlib.metadata import version
from typing import ClassVar, Literal

from seqloom.metrics.base import Counted, Metric, Total


class Rate(Counted):
    """A quotient in %: rows are (numerator, denominator). 0 / 0 is 0 and x / 0 is 100, as in sacrebleu's TER."""

    columns = 2

    @abstractmethod
    def _rows(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Sequence[tuple[float, float]]: ...

    def value(self, total: Total) -> float:
        numerator, denominator = total.tolist()
        if denominator == 0:
            return 100.0 if numerator > 0 else 0.0
        return 100.0 * float(numerator) / float(denominator)


class Exact(Rate):
    """Share of outputs that equal one of their references."""

    rule = "count:outputs|equal:any-reference|space:collapsed"

    class Settings(Metric.Settings):
        kind: Literal["exact"] = "exact"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "exact match"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        return [(int(matches_any(output, wanted)), 1) for output, wanted in zip(predictions, references, strict=True)]


class StringError(Rate):
    """SER, string error rate: share of outputs that equal none of their references, the "WER" of pronunciation papers.

    WER here is always edits per word; where an output is one word, papers mean this share by it.
    """

    rule = "count:outputs|equal:no-reference|space:collapsed"
    higher_is_better: ClassVar[bool] = False

    class Settings(Metric.Settings):
        kind: Literal["string_error"] = "string_error"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "SER"

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        pairs = zip(predictions, references, strict=True)
        return [(int(not matches_any(output, wanted)), 1) for output, wanted in pairs]


def matches_any(output: str, wanted: Sequence[str]) -> bool:
    """Whether an output is right to the letter, by any of its references."""
    return collapse(output) in {collapse(reference) for reference in wanted}


def collapse(text: str) -> str:
    """One space between words, none around them."""
    return " ".join(text.split())


class EditRate(Rate):
    """Levenshtein edits per token of the nearest reference, in %."""

    higher_is_better: ClassVar[bool] = False
    of_characters: ClassVar[bool] = False

    def _rows(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        """(edits, length) to the nearest reference, all pairs aligned in one call of jiwer."""
        outputs = [collapse(output) for output, wanted in zip(predictions, references, strict=True) for _ in wanted]
        wanteds = [collapse(reference) for wanted in references for reference in wanted]
        pairs = iter(self._edits(outputs, wanteds))
        nearest = []
        for wanted in references:
            candidates = [next(pairs) for _ in wanted]
            nearest.append(min(candidates, key=lambda pair: (pair[0], -pair[1])))
        return nearest

    def _edits(self, outputs: Sequence[str], references: Sequence[str]) -> list[tuple[int, int]]:
        """(edits, reference length) of each pair. An empty reference costs one edit per token put out."""
        real = [row for row, reference in enumerate(references) if reference]
        counted = dict(zip(real, self._aligned([outputs[i] for i in real], [references[i] for i in real]), strict=True))
        return [counted.get(row) or (self._length(output), 0) for row, output in enumerate(outputs)]

    def _aligned(self, outputs: list[str], references: list[str]) -> list[tuple[int, int]]:
        import jiwer

        if not references:
            return []
        process = jiwer.process_characters if self.of_characters else jiwer.process_words
        result = process(references, outputs)
        edits = [
            sum(
                max(part.ref_end_idx - part.ref_start_idx, part.hyp_end_idx - part.hyp_start_idx)
                for part in alignment
                if part.type != "equal"
            )
            for alignment in result.alignments
        ]
        return list(zip(edits, map(len, result.references), strict=True))

    def _length(self, text: str) -> int:
        return len(text) if self.of_characters else len(text.split())

    def signature(self) -> str:
        return f"{super().signature()}|jiwer:{version('jiwer')}"


class WordErrorRate(EditRate):
    """WER: words are what white space separates."""

    rule = "unit:word|edits:levenshtein|reference:nearest|case:mixed"

    class Settings(Metric.Settings):
        kind: Literal["wer"] = "wer"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "WER"


class PhonemeErrorRate(EditRate):
    """PER: the same count as WER, over phonemes separated by white space; a name of its own keeps reports honest."""

    rule = "unit:phoneme|edits:levenshtein|reference:nearest|case:mixed"

    class Settings(Metric.Settings):
        kind: Literal["per"] = "per"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "PER"


class CharacterErrorRate(EditRate):
    """CER: characters, spaces between words included."""

    rule = "unit:character|edits:levenshtein|reference:nearest|case:mixed"
    of_characters: ClassVar[bool] = True

    class Settings(Metric.Settings):
        kind: Literal["cer"] = "cer"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name = "CER"

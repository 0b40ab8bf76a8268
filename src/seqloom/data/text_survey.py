"""What the data report remembers of plain text beside the rest (`survey.py`): lines, documents, what stands twice."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from seqloom.data.examples import Example
from seqloom.data.survey import hashed


@dataclass(frozen=True)
class TextSummary:
    """The texts of one set. Blank lines are not counted; documents are what stands between them."""

    lines: int
    documents: int
    characters: int
    longest_line: int  # in characters
    longest_at: str
    repeated: float  # share of the lines that stand there before

    def lines_told(self) -> list[str]:
        counts = f"{self.lines:,} lines in {self.documents:,} document(s), {self.characters:,} characters"
        longest = f"; the longest line has {self.longest_line:,} ({self.longest_at})" if self.lines else ""
        return [f"    {counts}{longest}", f"    {100 * self.repeated:.1f} % of the lines stand there before"]


class TextSurvey:
    """The lines of one set, whatever its texts are: lines, documents, or lines of one text."""

    def __init__(self) -> None:
        self.documents = self.characters = 0
        self._hashes = array("Q")
        self._longest = (0, "")
        self._end = ("", 0)  # file and number of the last line

    def add(self, row: int, example: Example) -> None:
        lines = [line for line in example.target.split("\n") if line.strip()]
        file, last = self._end
        self.documents += file != example.file or example.line > last + 1
        self._end = example.file, example.line + len(lines) - 1
        self.characters += len(example.target)
        for offset, line in enumerate(lines):
            self._hashes.append(hashed(line))
            if len(line) > self._longest[0]:
                self._longest = len(line), f"{example.file}:{example.line + offset}"

    def summary(self) -> TextSummary:
        lines = len(self._hashes)
        repeated = (lines - len(set(self._hashes))) / lines if lines else 0.0
        return TextSummary(lines, self.documents, self.characters, *self._longest, repeated)

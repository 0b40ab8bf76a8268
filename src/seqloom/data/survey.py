"""One pass over one set: what the data report needs to remember of every pair, in flat arrays.

A pair costs its line number, two lengths, two scripts and a few 8-byte hashes: five million pairs fit a laptop.
This file gathers; `report.py` judges.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from seqloom.data.characters import dominant_script, is_composed, trouble
from seqloom.data.readers import Example

SHOWN = 5  # places named per finding
Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class SideSurvey:
    """The sources, or the targets, of one set."""

    def __init__(self) -> None:
        self._lengths = array("q")
        self._scripts = array("q")
        self._script_ids: dict[str, int] = {"": 0}  # no script: too few letters
        self.alphabet: set[str] = set()

    def add(self, text: str) -> None:
        self._lengths.append(len(text))
        self._scripts.append(self._script_ids.setdefault(dominant_script(text), len(self._script_ids)))
        self.alphabet.update(text)

    @property
    def lengths(self) -> Numbers:
        """Characters of every text."""
        return np.array(self._lengths, dtype=np.int64)

    def main_script(self) -> str:
        """The script of most texts; empty where none has four fifths of those that have any."""
        counts = Counter(self._scripts)
        del counts[0]
        names = {number: name for name, number in self._script_ids.items()}
        best = max(counts, key=lambda number: (counts[number], names[number]), default=0)
        return names[best] if counts[best] >= 0.8 * counts.total() else ""

    def odd_rows(self) -> Numbers:
        """Texts that have a script, but not the main one."""
        main = self._script_ids[self.main_script()]
        scripts = np.array(self._scripts, dtype=np.int64)
        return np.flatnonzero((scripts != 0) & (scripts != main)) if main else np.zeros(0, np.int64)


class Survey:
    """One set after one pass. Rows are examples in the order they were read; all of `also` are shown each."""

    def __init__(
        self, name: str, examples: Iterable[Example], also: Sequence[Callable[[int, Example], None]] = ()
    ) -> None:
        self.name = name
        self.source, self.target = SideSurvey(), SideSurvey()
        self._files: dict[str, int] = {}
        self._file_of = array("q")
        self._lines = array("q")
        self._source_hashes = array("Q")
        self._pair_hashes = array("Q")
        self._pair_rows = array("q")
        self.suspects: dict[str, array[int]] = {}  # kind of trouble -> rows, as far as one line can tell
        for row, example in enumerate(examples):
            self._add(row, example)
            for look in also:
                look(row, example)

    def _add(self, row: int, example: Example) -> None:
        self._file_of.append(self._files.setdefault(example.file, len(self._files)))
        self._lines.append(example.line)
        self.source.add(example.source)
        self.target.add(example.target)
        self._source_hashes.append(hashed(*example.key))
        for reference in example.references:
            self._pair_hashes.append(hashed(*example.key, reference))
            self._pair_rows.append(row)
        for kind in _line_kinds(example):
            self.suspects.setdefault(kind, array("q")).append(row)

    def __len__(self) -> int:
        return len(self._lines)

    def where(self, row: int) -> str:
        return f"{list(self._files)[self._file_of[row]]}:{self._lines[row]}"

    @property
    def source_hashes(self) -> Hashes:
        """One per row."""
        return np.array(self._source_hashes, dtype=np.uint64)

    @property
    def pair_hashes(self) -> Hashes:
        """One per reference; `pair_rows` says whose."""
        return np.array(self._pair_hashes, dtype=np.uint64)

    @property
    def pair_rows(self) -> Numbers:
        return np.array(self._pair_rows, dtype=np.int64)


def hashed(*texts: str) -> int:
    """64 bits of a text or pair; among five million pairs two differ in vain with a chance below one in a million."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        data = text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little") + data)
    return int.from_bytes(digest.digest(), "little")


def _line_kinds(example: Example) -> Iterator[str]:
    """The kinds of trouble that a pair shows by itself."""
    has_source, has_target = bool(example.source.strip()), bool(example.target.strip())
    if not has_source:
        yield "empty_source"
    if not has_target:
        yield "empty_target"
    if has_source and example.source == example.target:
        yield "copies"
    yield from dict.fromkeys(trouble(example.source) + trouble(example.target))
    if not (is_composed(example.source) and is_composed(example.target)):
        yield "not_composed"

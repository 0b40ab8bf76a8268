"""The list of pieces a model knows, and their ids.

Ids 0 to 5 are the special tokens of `seqloom.batch`; they are ids, never strings, so a text that spells "<eos>" is an
ordinary piece. The file is one piece per line (a tab and its training count may follow), with the few characters that
a line cannot hold written as backslash escapes. This file knows nothing of how texts become pieces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from seqloom.data.files import RawLine, Tally, decoded, raw_lines
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write
from seqloom.specials import SPECIALS, UNK

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", " ": "\\s", "\ufeff": "\\b"}
_UNESCAPES = {escape: char for char, escape in _ESCAPES.items()}
_ESCAPED = re.compile(r"\\.?")
_TO_ESCAPE = str.maketrans(_ESCAPES)


class Vocabulary:
    """Ordinary pieces in order; the piece at position i has id `len(SPECIALS) + i`.

    Behind them may stand `symbols`: ids that are shown under a name but that no text spells (the tags in front of a
    source). They belong to a run, not to the list, and are not saved with it.
    """

    def __init__(self, pieces: Sequence[str], counts: Sequence[int] | None = None, symbols: Sequence[str] = ()) -> None:
        first = len(SPECIALS)
        self._pieces = list(pieces)
        self.symbols = tuple(symbols)
        self._shown = [*SPECIALS, *self._pieces, *self.symbols]
        self._ids = {piece: first + i for i, piece in enumerate(self._pieces)}
        self.counts: dict[str, int] | None = None if counts is None else dict(zip(self._pieces, counts, strict=True))
        assert len(self._ids) == len(self._pieces), "pieces must differ"
        assert "" not in self._ids, "a piece must not be empty"

    @classmethod
    def count(cls, texts: Iterable[Sequence[str]], max_size: int | None = None, min_count: int = 1) -> Vocabulary:
        """The most frequent pieces of many texts, at most `max_size`; ties are broken by the piece itself."""
        counter: Counter[str] = Counter()
        for pieces in texts:
            counter.update(pieces)
        ranked = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
        kept = [(piece, count) for piece, count in ranked[:max_size] if count >= min_count]
        return cls([piece for piece, _ in kept], [count for _, count in kept])

    def in_order(self) -> Vocabulary:
        """The same pieces by their names."""
        pieces = sorted(self._pieces)
        return Vocabulary(pieces, None if self.counts is None else [self.counts[piece] for piece in pieces])

    def with_symbols(self, symbols: Sequence[str]) -> Vocabulary:
        """The same pieces with these symbols behind them (instead of those it has)."""
        counts = None if self.counts is None else list(self.counts.values())
        return Vocabulary(self._pieces, counts, symbols)

    def __len__(self) -> int:
        """Every id a model may see, special tokens and symbols included."""
        return len(self._shown)

    @property
    def spelled(self) -> int:
        """The ids that texts can hold: all but the symbols, which stand last."""
        return len(SPECIALS) + len(self._pieces)

    def __contains__(self, piece: str) -> bool:
        return piece in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and (self._shown, self.counts) == (other._shown, other.counts)

    __hash__ = None  # type: ignore[assignment]

    @property
    def ordinary(self) -> Sequence[str]:
        """The pieces without special tokens and symbols, in the order of their ids, the first after the specials."""
        return self._pieces

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """An id for every piece; UNK for those not in the list."""
        known = self._ids
        return [known.get(piece, UNK) for piece in pieces]

    def piece(self, token: int) -> str:
        """The piece of an id; special tokens and symbols as they are shown (which is not how they are read)."""
        return self._shown[token]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self.piece(int(token)) for token in ids]

    def unknown(self, pieces: Iterable[str]) -> int:
        """How many of these pieces are not in the list."""
        return sum(piece not in self._ids for piece in pieces)

    def save(self, path: Path) -> None:
        lines = [piece.translate(_TO_ESCAPE) for piece in self._pieces]
        if self.counts is not None:
            lines = [f"{line}\t{self.counts[piece]}" for line, piece in zip(lines, self._pieces, strict=True)]
        atomic_write(path, "".join(line + "\n" for line in lines).encode("utf-8"))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a vocabulary, ours or one that a person wrote; every problem is named with its line."""
        pieces: list[str] = []
        counts: list[int] = []
        lines: dict[str, int] = {}
        problems: list[str] = []
        for line in raw_lines(str(path)):
            try:
                piece, count = _entry(line, str(path))
            except ValueError as error:
                problems.append(f"line {line.number}: {error}")
                continue
            if piece in lines:
                problems.append(f"line {line.number}: {piece!r} stands already on line {lines[piece]}")
                continue
            lines[piece] = line.number
            pieces.append(piece)
            counts.extend(() if count is None else (count,))
        if counts and len(counts) != len(pieces):
            problems.append("counts must stand on every line or on none")
        if problems:
            raise _refused(path, problems)
        return cls(pieces, counts or None)


def _entry(line: RawLine, path: str) -> tuple[str, int | None]:
    """The piece and the count of one line; ValueError says what is wrong with it."""
    text = decoded(line, path, "error", Tally())
    if text is None:
        raise ValueError("the line is too long")
    written, tab, count = text.partition("\t")
    if not written:
        raise ValueError("an empty entry")
    if tab and not (count.isascii() and count.isdigit() and len(count) < 19):
        raise ValueError(f"after the tab a count is expected, got {count[:40]!r}")

    def unescape(match: re.Match[str]) -> str:
        if match.group() not in _UNESCAPES:
            raise ValueError(f"unknown escape {match.group()!r}; write a backslash as \\\\")
        return _UNESCAPES[match.group()]

    return _ESCAPED.sub(unescape, written), int(count) if tab else None


def _refused(path: Path, problems: Sequence[str]) -> SeqloomError:
    more = f"; and {len(problems) - 10:,} more" if len(problems) > 10 else ""
    return SeqloomError(
        "E_VOCABULARY",
        f"{len(problems):,} bad entries: " + "; ".join(problems[:10]) + more,
        where=str(path),
        fix="one piece per line, each once, no empty lines",
    )

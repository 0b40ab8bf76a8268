"""Phrases of a list, found in a text: words in a row, whatever their case and accents.

`word*` takes any ending, `*` alone any word, `(a|b c)` one of several, `(a|)` may be left out, `...` stands for up to
four words of one sentence, `#` for a number, `@` for letters with digits behind them. Apostrophes do not count:
"didn't" is "didnt". A list becomes one pattern, whose parts are bounded, so that a long text costs no more than its
length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

GAP = 4  # words that ... may stand for
_APOSTROPHES = re.compile(r"['’ʼ`´]")
_WORD = re.compile(r"[^\W_]+|[.!?;:\n]+")
_PART = re.compile(r"\([^()]*\)|\S+")
_CLASSES = {"#": r"\d[^ .]{0,40} ", "@": r"[^\W\d_]{1,40}\d[^ .]{1,40} "}
_PLAIN = re.compile(r"[^\W_]+")


def folded(text: str) -> str:
    """Without case and accents: "não" is "nao"."""
    apart = unicodedata.normalize("NFKD", text.lower())
    return unicodedata.normalize("NFC", "".join(char for char in apart if not unicodedata.combining(char)))


def spelled(text: str) -> str:
    """A text as words with one blank around each; the end of a sentence is a word of its own, a point."""
    words = _WORD.findall(_APOSTROPHES.sub("", folded(text)))
    return f" {' '.join(word if word[0].isalnum() else '.' for word in words)} "


class Phrases:
    """Some phrases; ValueError says what is no phrase."""

    def __init__(self, entries: Iterable[str]) -> None:
        patterns = [pattern_of(entry) for entry in entries]
        self._pattern = re.compile(rf"(?<= )(?:{'|'.join(patterns) or '(?!)'})")

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where phrases stand in a spelled text."""
        return [match.span() for match in self._pattern.finditer(text)]

    def first(self, text: str, harmless: Sequence[tuple[int, int]] = ()) -> str | None:
        """The first phrase of a spelled text that shares no word with a harmless span."""
        start = 0
        while found := self._pattern.search(text, start):
            if not any(begin < found.end() and found.start() < end for begin, end in harmless):
                return found.group().strip()
            start = found.start() + 1
        return None


def pattern_of(entry: str) -> str:
    """The pattern of one phrase, over a spelled text: every word with the blank behind it."""
    parts = _PART.findall(folded(_APOSTROPHES.sub("", entry)))
    made = [_part(part, entry) for part in parts]
    if not made or all(part in ("...", "*") for part in parts):
        raise ValueError(f"no phrase: {entry!r}")
    return "".join(made)


def _part(part: str, entry: str) -> str:
    if part == "...":
        return rf"(?:[^ .]+ ){{0,{GAP}}}?"
    if part.startswith("(") and part.endswith(")"):
        choices = ["".join(_word(word, entry) for word in choice.split()) for choice in part[1:-1].split("|")]
        return f"(?:{'|'.join(choices)})"
    return _word(part, entry)


def _word(word: str, entry: str) -> str:
    if word in _CLASSES:
        return _CLASSES[word]
    stem = word.rstrip("*")
    if stem and not _PLAIN.fullmatch(stem):
        raise ValueError(f"not a word: {word!r} in {entry!r}; a phrase is of words, (a|b), word*, ..., # and @")
    return re.escape(stem) + ("[^ .]{0,40} " if word.endswith("*") else " ")

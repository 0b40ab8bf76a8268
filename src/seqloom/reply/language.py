"""Which of some languages a message is in, and whether it is in none of them.

A short text is told apart badly, so the shorter it is, the surer one has to be to call it foreign: by a hair nobody is
refused. Languages near the configured ones (Galician, Scots) are not asked for at all. Writing that none of the
configured languages uses is foreign at any length.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property

from seqloom.data.languages import Detector, name_of

_LATIN_ONES = "en pt es fr de it nl pl sv da no fi cs sk ro hu hr sl tr et lv lt vi id"
_LATIN = tuple(_LATIN_ONES.split())
OTHERS = (*_LATIN, "bg", "ru", "uk", "el", "ar", "he", "fa", "hi", "ja", "ko", "zh")
LOOKED_AT = 2_000  # characters
SURENESS = ((20, 10.0), (12, 5.0), (8, 1.0))  # from so many letters on, foreign where ours are this likely (%) at most


class Languages:
    """Chooses among the configured languages, or says that it is another."""

    def __init__(self, configured: Sequence[str]) -> None:
        self.configured = tuple(configured)
        self._among = tuple(dict.fromkeys((*configured, *OTHERS)))

    @cached_property
    def _detector(self) -> Detector:
        return Detector()

    def check(self) -> None:
        """E_EXTRA, at the start, where languages cannot be told apart here."""
        self._detector.ranked("a", ("en",))

    def of(self, text: str) -> tuple[str, bool]:
        """(code, is it one of the configured)."""
        text = text[:LOOKED_AT]
        letters = [char for char in text if char.isalpha()]
        if not letters:
            return self.configured[0], True
        latin = sum("LATIN" in unicodedata.name(char, "LATIN") for char in letters)
        ranked = self._detector.ranked(text, self._among)
        if 2 * latin < len(letters) and set(_LATIN).issuperset(self.configured):
            return next((code for code, _ in ranked if code not in _LATIN), ranked[0][0]), False
        ours = [(code, share) for code, share in ranked if code in self.configured]
        likely = sum(share for _, share in ours)
        limit = next((limit for least, limit in SURENESS if len(letters) >= least), -1.0)
        if ranked[0][0] not in self.configured and likely <= limit:
            return ranked[0][0], False
        return (ours[0][0] if ours else self.configured[0]), True


def told(code: str) -> str:
    """`German (de)`."""
    name = name_of(code)
    return name if name == code else f"{name} ({code})"

"""What characters tell about a text: its script, and signs that its encoding went wrong. Judges texts, changes none."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

# One writing system under several Unicode names.
_SAME = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK", "BOPOMOFO": "CJK", "FULLWIDTH": "LATIN"}
SPACELESS_SCRIPTS = frozenset({"CJK", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"})  # no spaces between words

# UTF-8 that was read as Latin-1 or Windows-1252: a lead byte's letter, then a continuation byte's character. Quotes and
# dashes are left out of the latter: «Ä» is good German.
_CONTINUATIONS = (
    "\u0080-\u009f\u00a1-\u00aa\u00ac-\u00ba\u00bc-\u00bf"
    "\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u20ac\u2122"
)
_MOJIBAKE = re.compile(f"[ÂÃÄÅÐÑ][{_CONTINUATIONS}]|Â\u00a0|â[\u0080\u20ac]")
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@lru_cache(maxsize=1 << 16)
def script(character: str) -> str:
    """The script of a letter as Unicode names it (LATIN, CYRILLIC, CJK ...); empty for anything but letters."""
    if not character.isalpha():
        return ""
    first = unicodedata.name(character, "").split(" ")[0]
    return _SAME.get(first, first)


def dominant_script(text: str, least: int = 3) -> str:
    """The script of most letters of a text; empty when there are fewer than `least` letters."""
    if text.isascii():
        return "LATIN" if sum(map(str.isalpha, text)) >= least else ""
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        counts[script(character)] += count
    del counts[""]
    if counts.total() < least:
        return ""
    return max(counts, key=lambda name: (counts[name], name))


def trouble(text: str) -> list[str]:
    """The names of what looks wrong: replacement_character, control_character, mojibake."""
    if text.isascii() and text.isprintable():
        return []
    found = ["replacement_character"] if "\ufffd" in text else []
    found += ["control_character"] if _CONTROL.search(text) else []
    found += ["mojibake"] if _MOJIBAKE.search(text) else []
    return found


def is_composed(text: str) -> bool:
    """Whether the text is in Unicode's composed form, NFC."""
    return text.isascii() or unicodedata.is_normalized("NFC", text)

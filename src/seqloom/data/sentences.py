"""Paragraphs to sentences and back, by rules: where a sentence ends, and the white space that follows it.

Models that learned single sentences are fed single sentences. Nothing is lost: sentences and gaps joined give the
text again. It refuses to be clever: a missed boundary costs little, a wrong one breaks a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_STOP = re.compile(
    r"""(?P<latin>[.!?…]+["'”’»)\]]*)(?=\s+["'“‘«(\[¿¡]*(?P<next>[^\W_]))"""  # a stop, a blank, and a word
    r"""|(?P<cjk>[。！？]+[」』”’）]*)"""  # Chinese and Japanese need no blank
)
_BLANK = re.compile(r"\s*")
_SHORT = """
    mr mrs ms dr prof st jr sr vs etc no nr vol fig al inc ltd co corp dept approx est gen col lt sgt capt rev hon
    e.g i.e z.b d.h u.a bzw usw ca evtl ggf inkl bspw hr fr m mm mme mlle p pp cf av sra srta ud
"""
_ABBREVIATIONS = frozenset(_SHORT.split())


def split_sentences(text: str) -> list[tuple[str, str]]:
    """(sentence, the white space after it), in order; their concatenation is `text`."""
    parts: list[tuple[str, str]] = []
    start = 0
    for stop in _stops(text):
        sentence = text[start:stop]
        if not sentence.strip() or _is_abbreviation(sentence):
            continue
        blank = _BLANK.match(text, stop)
        assert blank is not None
        parts.append((sentence, blank.group()))
        start = blank.end()
    rest = text[start:]
    if rest or not parts:
        body = rest.rstrip()
        parts.append((body, rest[len(body) :]))
    return parts


def _stops(text: str) -> Iterator[int]:
    """Where sentences may end: after a stop that a word follows which is not in lower case."""
    for match in _STOP.finditer(text):
        if match["cjk"] is not None:
            yield match.end("cjk")
        elif not match["next"].islower():
            yield match.end("latin")


def _is_abbreviation(sentence: str) -> bool:
    """Does it end in "Dr." or an initial, rather than in the end of a sentence?"""
    if not sentence.endswith(".") or sentence.endswith(".."):
        return False
    words = sentence[:-1].split()
    word = words[-1].lstrip("\"'“‘«([") if words else ""
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")

"""Paragraphs to sentences and back, by rules: where a sentence ends, and the white space that follows it.

Models that learned single sentences are fed single sentences. Nothing is lost: sentences and gaps joined give the
text again. It refuses to be clever: a missed boundary costs little, a wrong one breaks a sentence.
"""

from __future__ import annotations

import re

_END = re.compile(
    r"""(?P<stop>[.!?…]+["'”’»)\]]*)(?P<gap>\s+)(?=["'“‘«(\[¿¡]*[^\W_a-zß-öø-ÿ])"""  # Latin and the like: a blank and a capital
    r"""|(?P<cjk>[。！？]+[」』”’）]*)(?P<none>\s*)""",  # CJK: no blank needed
    re.VERBOSE,
)
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr vs etc no nr vol fig al inc ltd co corp dept approx est gen col lt sgt capt rev hon "
    "e.g i.e z.b d.h u.a bzw usw ca evtl ggf inkl bspw hr fr m mm mme mlle p pp cf av sra srta ud".split()
)


def split_sentences(text: str) -> list[tuple[str, str]]:
    """(sentence, the white space after it), in order; their concatenation is `text`."""
    parts: list[tuple[str, str]] = []
    start = 0
    for match in _END.finditer(text):
        stop = match.end("stop") if match["stop"] is not None else match.end("cjk")
        if stop == start or (match["stop"] is not None and _is_abbreviation(text[start:stop])):
            continue
        parts.append((text[start:stop], text[stop : match.end()]))
        start = match.end()
    if start < len(text) or not parts:
        rest = text[start:]
        body = rest.rstrip()
        parts.append((body, rest[len(body) :]))
    return parts


def _is_abbreviation(sentence: str) -> bool:
    """Does it end in "Dr." or an initial, rather than in the end of a sentence?"""
    if not sentence.endswith(".") or sentence.endswith(".."):
        return False
    word = sentence[:-1].rsplit(None, 1)[-1].lstrip("\"'“‘«([") if sentence[:-1].strip() else ""
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word != "I")

"""Text to sentences and tokens, as the reply models read them: lower case, punctuation apart, marks as they are.

Not reversible, unlike the tokenizers of `data`: "!!!" and "!" are the same to a model that chooses a reply.
"""

from __future__ import annotations

import re

from seqloom.data.sentences import split_sentences
from seqloom.reply.entities import TOKENS

_MARK = "".join(TOKENS)
_TOKEN = re.compile(
    rf"[{_MARK}]"
    r"|[:;=]['-]?[)(DPp/|*](?!\w)|<3"  # :) ;-( <3
    r"|\w+(?:['’-]\w+)*"
    r"|['’](?:s|ll|re|ve|d|m)\b"
    r"|\.{2,}|…"
    r"|[^\w\s]"
)
_BULLET = re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s")
_BEFORE_MARK = re.compile(rf"(?<=[.!?])\s+(?=[{_MARK}])")
_MOST_WORD = 40  # characters; a longer one is no word


def sentences(text: str) -> list[str]:
    """Sentences in order. A paragraph ends one, and so does a point of a list; other line breaks are blanks."""
    found: list[str] = []
    for block in _blocks(text):
        for sentence, _ in split_sentences(block):
            found += [part for part in _BEFORE_MARK.split(sentence) if part.strip()]
    return found


def _blocks(text: str) -> list[str]:
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        if not line.strip() or _BULLET.match(line):
            blocks.append([])
        if line.strip():
            blocks[-1].append(_BULLET.sub("", line).strip())
    return [" ".join(block) for block in blocks if block]


def tokens(sentence: str) -> list[str]:
    """Lower-cased tokens: marks as `<name>` and so on, a run of one sign as the sign."""
    found: list[str] = []
    for token in _TOKEN.findall(sentence):
        if token in TOKENS:
            found.append(TOKENS[token])
            continue
        token = token.replace("’", "'").replace("…", "...").lower()[:_MOST_WORD]
        if token.startswith(".."):
            token = "..."
        if not (found and found[-1] == token and not token[0].isalnum()):
            found.append(token)
    return found

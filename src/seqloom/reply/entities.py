"""Entities of a text as single marks: addresses, numbers of all kinds, and names that a greeting gave away.

A mark is one character of Unicode's private area, which no cleaned message holds; `TOKENS` says how each is shown.
Patterns are bounded in every part, so that no text makes them slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from seqloom.reply.lists import Lists

TOKENS = {
    "\ue000": "<name>",
    "\ue001": "<url>",
    "\ue002": "<mail>",
    "\ue003": "<phone>",
    "\ue004": "<date>",
    "\ue005": "<time>",
    "\ue006": "<amount>",
    "\ue007": "<number>",
}
MARKS = {token: mark for mark, token in TOKENS.items()}

_N = r"\d{1,12}(?:[.,\u202f' ]\d{3}(?!\d)){0,5}(?:[.,]\d{1,3})?"
_MONEY = r"euros?|eur|dollars?|usd|bucks|pounds?|gbp|quid|reais|brl|pesos?|mxn|chf|francs?|cents?|cêntimos?|centavos?"
_TOP = "com|org|net|edu|gov|io|eu|uk|de|fr|es|pt|br|it|nl|pl|se|ch|at|us|ca|mx|ar|co|info|app|dev|me"
_DOMAIN = r"[a-z0-9-]{2,63}(?:\.[a-z0-9-]{1,63}){0,4}"
_LONE = r"(?<![\w.,/:])"  # no part of another number
_FIXED: tuple[tuple[str, str], ...] = (
    ("<url>", r"(?:https?://|ftp://|www\.)[^\s<>\"]{1,2000}[^\s<>\".,;:!?)\]']"),
    ("<mail>", r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"),
    ("<url>", rf"(?<![\w@.-]){_DOMAIN}\.(?:{_TOP})(?:/[^\s<>\"]{{0,2000}})?(?![\w@.-])"),
    ("<amount>", rf"(?:R\$|US\$|[$€£¥₹])\s?{_N}(?:\s?(?:k|m|bn|mio|mil|million|billion)\b)?"),
    ("<amount>", rf"\b(?:EUR|USD|GBP|BRL|CHF)\s?{_N}"),
    ("<amount>", rf"(?<![\w.]){_N}\s?(?:(?:{_MONEY})\b|[$€£¥₹])"),
)
_AFTER: tuple[tuple[str, str], ...] = (
    ("<time>", rf"{_LONE}\d{{1,2}}[:.h]\d{{2}}(?::\d{{2}})?\s?(?:[ap]\.m\.|[ap]m\b|h\b|hrs?\b)?(?![\w:/]|[.,]\d)"),
    ("<time>", rf"{_LONE}\d{{1,2}}\s?(?:[ap]\.m\.|[ap]m\b|h\b|hs\b|hrs\b|o['’]clock\b|uhr\b)"),
    ("<phone>", rf"{_LONE}(?:\+|00)\d{{1,3}}(?:[ ./()-]{{0,3}}\d{{1,5}}){{2,6}}(?!\w)"),
    ("<phone>", rf"{_LONE}\(?0\d{{1,4}}\)?(?:[ ./-]{{0,2}}\d{{2,5}}){{2,5}}(?!\w)"),
    ("<phone>", rf"{_LONE}\(?\d{{3}}\)?[ .-]\d{{3}}[ .-]\d{{4}}(?!\w)"),
    ("<number>", rf"#?(?<!\w){_N}\s?(?:%|(?:st|nd|rd|th)\b|[ºª°])?(?![^\W\d_])"),
)


class Entities:
    """Marks what a text names: dates by the months of some languages, names as they are given."""

    def __init__(self, lists: Lists, languages: Sequence[str]) -> None:
        months = {month for language in languages for month in lists.entries(language, "months")}
        self._rules = [(MARKS[token], re.compile(pattern, re.IGNORECASE)) for token, pattern in _FIXED]
        self._rules += [(MARKS["<date>"], re.compile(pattern, re.IGNORECASE)) for pattern in _dates(months)]
        self._rules += [(MARKS[token], re.compile(pattern, re.IGNORECASE)) for token, pattern in _AFTER]

    def marked(self, text: str, names: Iterable[str]) -> tuple[str, dict[str, int]]:
        """The text with marks in the place of entities, and how many of each there are."""
        counts: dict[str, int] = {}
        rules = list(self._rules)
        if known := sorted({re.escape(name) for name in names}, key=len, reverse=True):
            rules.append((MARKS["<name>"], re.compile(rf"(?<!\w)(?:{'|'.join(known)})(?:(?=['’]s\b)|(?!\w))")))
        for mark, pattern in rules:
            text, count = pattern.subn(f" {mark} ", text)
            if count:
                counts[TOKENS[mark]] = counts.get(TOKENS[mark], 0) + count
        return re.sub(r" {2,}", " ", text), counts


def _dates(months: Iterable[str]) -> tuple[str, ...]:
    name = "(?:" + ("|".join(sorted(months, key=lambda month: (-len(month), month))) or "(?!)") + r")\b\.?"
    day, year = r"\d{1,2}(?:st|nd|rd|th|º|\.)?", r"(?:,? (?:de |of )?(?:19|20)\d{2}\b)?"
    return (
        r"(?<![\w/.-])(?:19|20)\d{2}[-/.]\d{1,2}[-/.]\d{1,2}(?![\w/-])",
        r"(?<![\w/.-])\d{1,2}[/.-]\d{1,2}[/.-](?:\d{4}|\d{2})(?![\w/-])",
        r"(?<![\w/.-])\d{1,2}/\d{1,2}(?![\w/-])",
        rf"(?<!\w){day} (?:de |of )?{name}{year}",
        rf"(?<!\w){name} (?:de |of )?(?:19|20)\d{{2}}\b",
        rf"(?<!\w){name} {day}(?![\d:])(?!\s?[ap]\.?m\b){year}",
    )

"""Greetings and closings: taken off a message, with the names that stand in them.

A message that is nothing but a greeting or a thank-you keeps it: that is what it says. Names are remembered, because
they may stand in the text as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

TAIL = 8  # lines that may follow a closing
SHORT = 80  # characters that each of them may have
NAMES = 4  # words that a name may have

_CAPITAL = r"[^\W\d_a-zß-öø-ÿ][\w'’.-]*"
_NAME = rf"(?:{_CAPITAL}(?: (?:{_CAPITAL}|da|de|do|dos|das|del|la|von|van|der|and|e|y|&)){{0,{NAMES}}})"
_ENDS = r" ?[,;:!.…–—-]+"
_ANSWERS = "yes|no|ok|okay|sure|well|sorry|right|great|sim|não|claro|bem|sí|vale|bueno"
_ALONE = re.compile(
    rf"^(?!(?i:{_ANSWERS})\b)(?P<name>{_CAPITAL}(?:(?: ?[/&,] ?| and | e | y | ){_CAPITAL}){{0,2}}) ?[,:]\s*\n\s*"
)
_PARTICLES = frozenset(("da", "de", "do", "dos", "das", "del", "la", "von", "van", "der", "and", "e", "y"))
_ADDRESSED = "mr mrs ms dr prof sir madam sr sra srta dra senhor senhora señor señora all team everyone"
_TITLES = frozenset(_ADDRESSED.split())
_LAST = re.compile(r"^.*[.!?] (?P<tail>[^.!?]+[.!?]?)$")
_POSTSCRIPT = re.compile(r"^p\. ?s\.?\b|^ps\b", re.IGNORECASE)


@dataclass(frozen=True)
class Taken:
    """What is left, what was taken off, and the names in it."""

    text: str
    off: str = ""
    names: tuple[str, ...] = ()


class Greetings:
    """Greetings at the beginning and closings at the end, from lists of phrases."""

    def __init__(self, greetings: Iterable[str], hellos: Iterable[str], closings: Iterable[str]) -> None:
        phrases = _any_of(greetings)
        self._greeting = re.compile(
            rf"^\W{{0,2}}(?i:{phrases})(?:,? (?P<name>{_NAME}))?(?:{_ENDS}|(?=\n)|$)\s*"  # Hi Anna, | Hi! | Hi
        )
        self._bare = re.compile(rf"^(?i:{_any_of(hellos)}) (?=[a-zà-ÿ])")  # hi can you come
        phrases = _any_of(closings)
        self._closing = re.compile(rf"^\W{{0,3}}(?i:{phrases})(?:[,!. –—-]+(?P<name>{_NAME}))?[,!.…:) –—-]*$")

    def without_greeting(self, text: str) -> Taken:
        """Without the greeting, where something stands after it; several in a row ("Hi Anna, good morning!") go."""
        rest = text
        names: list[str] = []
        for _ in range(3):
            found = self._greeting.match(rest[:200])
            if found is None:
                found = self._bare.match(rest[:50]) or self._addressed(rest)
            if found is not None and found.groupdict().get("name"):
                names += _names(found["name"])
            if found is None or not rest[found.end() :].strip():
                break
            rest = rest[found.end() :].lstrip()
        return Taken(rest, text[: len(text) - len(rest)].strip(), tuple(names))

    def _addressed(self, text: str) -> re.Match[str] | None:
        """A line that is nothing but a name and a comma: "Anna,"."""
        found = _ALONE.match(text[:SHORT])
        return None if found is None or self._closing.match(found.group().strip()) else found

    def without_closing(self, text: str) -> Taken:
        """Without the closing and the short lines after it; a postscript stays."""
        lines = self._apart(text.split("\n"))
        for place in range(max(1, len(lines) - TAIL - 1), len(lines)):
            found = self._closing.match(lines[place].strip()[:SHORT])
            if found and len(lines[place].strip()) <= SHORT and any(line.strip() for line in lines[:place]):
                return self._cut(lines, place, found["name"] or "")
        place = len(lines) - 1  # a name alone, after an empty line
        if place > 1 and not lines[place - 1].strip():
            found = re.fullmatch(rf"[-–— ]{{0,3}}(?P<name>{_NAME})[. ]*", lines[place][:SHORT])
            if found and len(found["name"].split()) <= 3 and len(lines[place]) <= SHORT:
                return self._cut(lines, place, found["name"])
        return Taken(text)

    def _apart(self, lines: list[str]) -> list[str]:
        """A closing that ends the last line or the one before ("Can you come? Thanks, Anna") as a line of its own."""
        for place in range(max(0, len(lines) - 2), len(lines)):
            found = _LAST.match(lines[place][-400:])
            if found and len(found["tail"]) <= SHORT and self._closing.match(found["tail"]):
                head = lines[place][: len(lines[place]) - len(found["tail"])].rstrip()
                return [*lines[:place], head, found["tail"], *lines[place + 1 :]]
        return lines

    @staticmethod
    def _cut(lines: list[str], place: int, name: str) -> Taken:
        after = [line.strip() for line in lines[place + 1 :]]
        kept = next((index for index, line in enumerate(after) if _POSTSCRIPT.match(line)), len(after))
        if any(len(line) > SHORT or line.endswith("?") for line in after[:kept]):
            return Taken("\n".join(lines))
        signed = name or next((line for line in after[:kept] if line), "")
        names = _names(signed) if re.fullmatch(rf"{_NAME}[,. ]*", signed) else []
        rest = "\n".join([*lines[:place], *after[kept:]]).strip()
        return Taken(rest, "\n".join([lines[place].strip(), *after[:kept]]).strip(), tuple(names))


def _any_of(phrases: Iterable[str]) -> str:
    """The longest first, so that "hi there" is not "hi" and a name."""
    longest = sorted(set(phrases), key=lambda phrase: (-len(phrase), phrase))
    return "(?:" + ("|".join(re.escape(phrase) for phrase in longest) or "(?!)") + r")(?!\w)"


def _names(text: str) -> list[str]:
    words = [word.strip(".,") for word in re.split(r"[\s&/,]+", text)]
    return [word for word in words if len(word) > 1 and word.lower() not in _PARTICLES | _TITLES]

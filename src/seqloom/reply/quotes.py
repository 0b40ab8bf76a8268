"""What of a message is its author's own: without what is quoted, forwarded, or a signature.

Mail programs announce these in the language of their user, not of the mail, so the markers of all languages hold at
once (`lists/LANGUAGE/quotes.txt`, `forwards.txt`, `headers.txt`, `signatures.txt`). Answers between or below quoted
lines are kept. The rules look at lines, and their work grows with the number of lines alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from seqloom.reply.lists import Lists

WIDE = 300  # characters that an announcement may have
WRAPPED = 3  # lines that one may be broken into
AHEAD = 8  # lines below a "From:" that are looked at

_QUOTED = re.compile(r"^ {0,3}>(?![:;.]?[()<]|\.<)")  # but not >:( and the like
_DELIMITER = re.compile(r"^(?:--|—|_{5,}|-{5,}|={5,}|\*{5,}) ?$")
_NUMBERED = re.compile(r"[\d@]")


@dataclass(frozen=True)
class Parts:
    """A body taken apart; what is quoted and forwarded as it stood there."""

    own: str
    quoted: str
    forwarded: str


class Quotes:
    """Takes bodies apart, by the markers of all languages."""

    def __init__(self, lists: Lists) -> None:
        self._quote = _markers(lists.everywhere("quotes"))
        self._forward = _markers(lists.everywhere("forwards"))
        firsts = {entries[0] for language in lists.languages if (entries := lists.entries(language, "headers"))}
        self._from, self._headers = _headers(firsts), _headers(lists.everywhere("headers"))
        starts = sorted(lists.everywhere("signatures"), key=len, reverse=True)
        self._signature = re.compile("|".join(map(re.escape, starts)) or r"(?!)", re.IGNORECASE)

    def split(self, body: str) -> Parts:
        """Own, quoted and forwarded lines."""
        lines = body.split("\n")
        own: list[str] = []
        quoted: list[str] = []
        place = 0
        while place < len(lines):
            line = lines[place]
            if _QUOTED.match(line):
                quoted.append(line)
            elif self._announced(self._forward, lines, place):
                return _parts(own, quoted, lines[place:])
            elif count := self._announced(self._quote, lines, place):
                if not _goes_on_quoted(lines, place + count):
                    return _parts(own, quoted + lines[place:], [])
                quoted += lines[place : place + count]
                place += count - 1
            elif self._is_header(lines, place):
                return _parts(own, quoted + lines[place:], [])
            else:
                own.append(line)
            place += 1
        return _parts(own, quoted, [])

    def without_signature(self, text: str) -> tuple[str, str]:
        """The text, and the signature that ends it: after `--`, or after a line that only programs write."""
        lines = text.split("\n")
        for place, line in enumerate(lines):
            begins = _DELIMITER.match(line) and (line.startswith(("--", "—")) and len(line) < 5)
            if begins or self._signature.match(line.lstrip(" *_")):
                return "\n".join(lines[:place]).strip(), "\n".join(lines[place:]).strip()
        return text, ""

    @staticmethod
    def _announced(marker: re.Pattern[str], lines: list[str], place: int) -> int:
        """How many lines, from this one on, are an announcement: 0 where none is."""
        joined = ""
        for count, line in enumerate(lines[place : place + WRAPPED], start=1):
            if not line.strip() or len(line) > WIDE:
                return 0
            joined = f"{joined} {line.strip()}".strip()
            if len(joined) > WIDE:
                return 0
            found = marker.fullmatch(joined)
            if found and (found.lastgroup != "open" or _NUMBERED.search(joined)):
                return count
        return 0

    def _is_header(self, lines: list[str], place: int) -> bool:
        """Does a block of headers begin here: a sender, and two others not far below?"""
        if not self._from.match(lines[place][:WIDE]):
            return False
        below = [line[:WIDE] for line in lines[place + 1 : place + AHEAD]]
        return sum(bool(self._headers.match(line)) for line in below) >= 2


def _goes_on_quoted(lines: list[str], place: int) -> bool:
    """Is the next line that says something marked as quoted?"""
    following = next((line for line in lines[place:] if line.strip()), "")
    return bool(_QUOTED.match(following))


def _parts(own: Iterable[str], quoted: Iterable[str], forwarded: Iterable[str]) -> Parts:
    kept = [line for line in own if not (_DELIMITER.match(line) and len(line) >= 5)]  # rules above what was quoted
    return Parts(*("\n".join(lines).strip() for lines in (kept, quoted, forwarded)))


def _markers(entries: Iterable[str]) -> re.Pattern[str]:
    """One pattern of all announcements; group `open` matched where one has room for anything."""
    fixed: list[str] = []
    opened: list[str] = []
    for entry in entries:
        ruled = entry.startswith("--")
        words = " ".join(entry.strip("- ").rstrip(":").split())
        inner = r"\s+".join(".{1,200}?" if word == "..." else re.escape(word) for word in words.split(" "))
        inner = inner.replace(r"\.\.\.,", r".{1,200}?,")
        end = r"\s*:" if entry.rstrip().endswith(":") else ""
        pattern = rf"[-_*]{{2,}}\s*{inner}\s*[-_*:]*" if ruled else rf"\W{{0,3}}{inner}{end}\W{{0,2}}"
        (opened if "..." in entry and not ruled else fixed).append(pattern)
    groups = [rf"(?P<{name}>{'|'.join(part)})" for name, part in (("fixed", fixed), ("open", opened)) if part]
    return re.compile("|".join(groups) or r"(?!)", re.IGNORECASE)


def _headers(names: Iterable[str]) -> re.Pattern[str]:
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"^\W{{0,3}}(?:{words})\*?\s?:", re.IGNORECASE)

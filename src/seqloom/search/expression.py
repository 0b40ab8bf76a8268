"""A small, safe subset of regular expressions as an automaton over UTF-8 bytes.

Literals, `.`, classes `[a-z]` and `[^,]`, `\\d \\w \\s` (and `\\D \\W \\S`), escapes, groups, `|`, `*`, `+`, `?`,
`{m}`, `{m,}`, `{m,n}`; they mean what Python's `re.fullmatch` means. No back-references, no looking around, no
anchors (the whole output always matches), nothing that is evaluated. Every stage has a limit, so a hostile expression
is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from seqloom.errors import SeqloomError
from seqloom.search.machine import LAST, Machine, Places, Ranges, determined, refusal, utf8

MAX_CHARACTERS = 1_000  # of the expression
MAX_DEPTH = 40  # of groups in groups
MAX_REPEATS = 1_000


@lru_cache(maxsize=64)
def compiled(expression: str) -> Machine:
    """The automaton of an expression; E_USAGE with the place of what it cannot be."""
    if len(expression) > MAX_CHARACTERS:
        raise refusal(expression, f"{len(expression):,} characters, at most {MAX_CHARACTERS:,}")
    tree = _Parser(expression).whole()
    places = Places(expression)
    return determined(places, tree.put(places, places.new()))


# --- the tree ----------------------------------------------------------------------------------------------------


class _Tree(ABC):
    @abstractmethod
    def put(self, places: Places, before: int) -> int:
        """Add what reads this from `before` on; the place after it."""


@dataclass(frozen=True)
class _Class(_Tree):
    ranges: Ranges

    def put(self, places: Places, before: int) -> int:
        end = places.new()
        known: dict[tuple[tuple[int, int], ...], int] = {(): end}  # by the bytes that are still to come: shared ends

        def towards(rest: tuple[tuple[int, int], ...]) -> int:
            if rest not in known:
                known[rest] = places.new()
                places.edges[known[rest]].append((*rest[0], towards(rest[1:])))
            return known[rest]

        for sequence in utf8(self.ranges):
            places.edges[before].append((*sequence[0], towards(sequence[1:])))
        return end


@dataclass(frozen=True)
class _Sequence(_Tree):
    parts: tuple[_Tree, ...]

    def put(self, places: Places, before: int) -> int:
        for part in self.parts:
            before = part.put(places, before)
        return before


@dataclass(frozen=True)
class _Choice(_Tree):
    parts: tuple[_Tree, ...]

    def put(self, places: Places, before: int) -> int:
        end = places.new()
        for part in self.parts:
            first = places.new()
            places.free[before].append(first)
            places.free[part.put(places, first)].append(end)
        return end


@dataclass(frozen=True)
class _Repeat(_Tree):
    part: _Tree
    least: int
    most: int | None

    def put(self, places: Places, before: int) -> int:
        first = before
        for _ in range(self.least):
            first = places.new()
            places.free[before].append(first)
            before = self.part.put(places, first)
        if self.most is None:
            return self._endless(places, first, before)
        end = places.new()
        for _ in range(self.most - self.least):
            places.free[before].append(end)
            first = places.new()
            places.free[before].append(first)
            before = self.part.put(places, first)
        places.free[before].append(end)
        return end

    def _endless(self, places: Places, first: int, before: int) -> int:
        """Back to where the last repetition began; where none is needed, one that may be left out."""
        if self.least:
            places.free[before].append(first)
            return before
        loop = places.new()
        places.free[before].append(loop)
        places.free[self.part.put(places, loop)].append(loop)
        return loop


# --- reading -----------------------------------------------------------------------------------------------------


class _Parser:
    """Recursive descent over the expression's characters."""

    def __init__(self, expression: str) -> None:
        self.expression, self.at, self.depth = expression, 0, 0

    def whole(self) -> _Tree:
        tree = self._choice()
        if self.at < len(self.expression):
            raise self._refused("')' without '('")
        return tree

    def _refused(self, problem: str, fix: str = "") -> SeqloomError:
        return refusal(self.expression, f"character {self.at + 1}: {problem}", fix)

    def _peek(self) -> str:
        return self.expression[self.at : self.at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise self._refused("the pattern ends too early")
        self.at += 1
        return character

    def _choice(self) -> _Tree:
        parts = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _sequence(self) -> _Tree:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _repeated(self, tree: _Tree) -> _Tree:
        repeats = 0
        while (sign := self._peek()) in ("*", "+", "?", "{") and sign:
            repeats += 1
            if repeats > 1:
                raise self._refused(f"{sign!r} after a repetition", "put what is repeated in a group: (?:a+)?")
            self.at += 1
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign) or self._counts()
            tree = _Repeat(tree, least, most)
        return tree

    def _counts(self) -> tuple[int, int | None]:
        body, closed, _ = self.expression[self.at :].partition("}")
        low, comma, high = body.partition(",")
        numbers = [number for number in (low, high) if number]
        if not closed or not low or not all(number.isascii() and number.isdigit() for number in numbers):
            raise self._refused("'{' is not followed by m}, m,} or m,n}", "write a literal brace as \\{")
        self.at += len(body) + 1
        least = int(low[:9])
        most = (int(high[:9]) if high else None) if comma else least
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            raise self._refused(f"{{{body}}}: counts go up, and up to {MAX_REPEATS:,}")
        return least, most

    def _atom(self) -> _Tree:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return self._set()
        if character == ".":
            return _Class(_without(((10, 10),)))
        if character == "\\":
            return _Class(self._escape())
        if character in "^$":
            raise self._refused(f"{character!r} has no place", "leave it out: the whole output always matches")
        if character in "*+?{":
            raise self._refused(f"{character!r} repeats nothing", f"write it as \\{character}")
        return _Class(((ord(character), ord(character)),))

    def _group(self) -> _Tree:
        if self._peek() == "?":
            if not self.expression.startswith("?:", self.at):
                raise self._refused("groups of the form (?...) are not supported", "only (...) and (?:...)")
            self.at += 2
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._refused(f"groups nested deeper than {MAX_DEPTH}")
        tree = self._choice()
        if self._peek() != ")":
            raise self._refused("a group is not closed")
        self.at += 1
        self.depth -= 1
        return tree

    def _set(self) -> _Tree:
        negated = self._peek() == "^"
        self.at += negated
        found: list[tuple[int, int]] = []
        start = self.at
        while self._peek() != "]" or self.at == start:
            first = self._member()
            if self._peek() == "-" and self.expression[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self._member()
                if _single(first) is None or _single(last) is None or first[0][0] > last[0][0]:
                    raise self._refused("a range in [...] goes from a character to a later one")
                found.append((first[0][0], last[0][0]))
            else:
                found += first
        self.at += 1
        ranges = _joined(found)
        return _Class(_without(ranges) if negated else ranges)

    def _member(self) -> Ranges:
        character = self._take()
        return self._escape() if character == "\\" else ((ord(character), ord(character)),)

    def _escape(self) -> Ranges:
        letter = self._take()
        if letter in _KINDS:
            return _kind(letter)
        if letter in _CONTROLS:
            code = ord(_CONTROLS[letter])
            return ((code, code),)
        if letter in _CODES:
            digits = self.expression[self.at : self.at + _CODES[letter]]
            if len(digits) < _CODES[letter] or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise self._refused(f"\\{letter} needs {_CODES[letter]} hexadecimal digits")
            self.at += len(digits)
            code = min(int(digits, 16), LAST)  # there is nothing behind the last character
            return ((code, code),)
        if letter.isalnum():
            raise self._refused(
                f"\\{letter} is not supported", "known: \\d \\w \\s \\D \\W \\S \\t \\n \\r \\xhh \\uhhhh"
            )
        return ((ord(letter), ord(letter)),)


_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_CODES = {"x": 2, "u": 4, "U": 8}
_KINDS: dict[str, Callable[[str], bool]] = {
    "d": lambda character: character.isdecimal(),
    "w": lambda character: character.isalnum() or character == "_",
    "s": lambda character: character.isspace(),
}
_KINDS |= {letter.upper(): kind for letter, kind in list(_KINDS.items())}


@cache
def _kind(letter: str) -> Ranges:
    """All characters of `\\d`, `\\w` or `\\s`; in upper case, all others."""
    wanted = _KINDS[letter]
    ranges = _joined((code, code) for code in range(LAST + 1) if wanted(chr(code)))
    return _without(ranges) if letter.isupper() else ranges


def _single(ranges: Ranges) -> int | None:
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """In order, and what touches or overlaps as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def _without(ranges: Ranges) -> Ranges:
    """Every character that is in none of the ranges."""
    firsts = [0, *(last + 1 for _, last in ranges)]
    lasts = [*(first - 1 for first, _ in ranges), LAST]
    return tuple((first, last) for first, last in zip(firsts, lasts, strict=True) if first <= last)

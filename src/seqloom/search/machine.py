"""Automata over bytes: ranges of characters as UTF-8, places and edges, and the deterministic machine they become.

Every stage has a limit, so that nothing a person writes can take all memory or time. What is read is not known here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int32

from seqloom.errors import SeqloomError

MAX_PLACES = 150_000  # states before, and
MAX_STATES = 10_000  # after the automaton is made deterministic,
MAX_WORK = 5_000_000  # and the places in all sets that are looked at on the way

Ranges = tuple[tuple[int, int], ...]  # of code points, first and last, in order, apart from each other
LAST = sys.maxunicode
DEAD = 0  # the state that nothing leaves


@dataclass(frozen=True)
class Machine:
    """A deterministic automaton: `after[state, byte]`; state 0 is dead, state 1 the beginning."""

    after: Int32[np.ndarray, "states 256"]
    accepts: Bool[np.ndarray, "states"]


def refusal(expression: str, problem: str, fix: str = "") -> SeqloomError:
    shown = expression if len(expression) <= 60 else expression[:57] + "..."
    return SeqloomError("E_USAGE", f"the pattern {shown!r}: {problem}", fix=fix)


@dataclass
class Places:
    """A non-deterministic automaton in the making: edges by bytes, and edges that cost nothing."""

    expression: str
    free: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[int, int, int]]] = field(default_factory=list)  # (first byte, last byte, to)

    def new(self) -> int:
        if len(self.free) >= MAX_PLACES:
            fix = "repeat less, or use smaller classes: [a-z] instead of \\w"
            raise refusal(self.expression, "too large", fix)
        self.free.append([])
        self.edges.append([])
        return len(self.free) - 1


# --- to bytes ----------------------------------------------------------------------------------------------------

_SURROGATES = (0xD800, 0xDFFF)  # half characters, which UTF-8 does not know
_LONGEST = (0x7F, 0x7FF, 0xFFFF)  # the last code points of one, two and three bytes


def utf8(ranges: Ranges) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ranges of code points as sequences of byte ranges, each a product: every choice of bytes is a character."""
    waiting = list(reversed(ranges))
    while waiting:
        first, last = waiting.pop()
        if first > last:
            continue
        if first <= _SURROGATES[1] and last >= _SURROGATES[0]:
            waiting += [(_SURROGATES[1] + 1, last), (first, _SURROGATES[0] - 1)]
            continue
        cut = _cut(first, last)
        if cut is not None:
            waiting += [(cut, last), (first, cut - 1)]
            continue
        yield tuple(zip(chr(first).encode(), chr(last).encode(), strict=True))


def _cut(first: int, last: int) -> int | None:
    """Where a range must be cut so that its parts are products of byte ranges; None where it is one."""
    for longest in _LONGEST:
        if first <= longest < last:
            return longest + 1
    if last <= _LONGEST[0]:
        return None
    for low in (0x3F, 0xFFF, 0x3FFFF):  # what the last one, two or three bytes hold
        if first & ~low != last & ~low:
            if first & low:
                return (first | low) + 1
            if last & low != low:
                return last & ~low
    return None


# --- deterministic -----------------------------------------------------------------------------------------------


def determined(places: Places, end: int) -> Machine:
    """Sets of places become states (Rabin and Scott 1959); those from which no end can be reached become one."""
    classes = _byte_classes(places)
    first = _reached(places, [0])
    numbers: dict[frozenset[int], int] = {frozenset(): DEAD, first: 1}
    waiting, rows, work = [first], [[DEAD] * (int(classes[-1]) + 1)], 0
    for state in waiting:  # grows while it is read
        rows.append([])
        for targets in _targets(places, state, classes.tolist()):
            after = _reached(places, targets)
            work += len(after)
            if after not in numbers:
                if len(numbers) >= MAX_STATES or work > MAX_WORK:
                    raise refusal(places.expression, "too large", "repeat less")
                numbers[after] = len(numbers)
                waiting.append(after)
            rows[-1].append(numbers[after])
    accepts = np.array([end in state for state in numbers], dtype=bool)
    table = np.array(rows, dtype=np.int32)
    alive = _alive(table, accepts)
    if not alive[1]:
        raise refusal(places.expression, "matches nothing")
    return Machine(np.where(alive[table], table, DEAD)[:, classes].astype(np.int32), accepts)


def _byte_classes(places: Places) -> Int32[np.ndarray, "256"]:
    """The class of each byte, in order: bytes that no edge tells apart are one class."""
    borders = {0, *(low for edges in places.edges for low, _, _ in edges)}
    borders |= {high + 1 for edges in places.edges for _, high, _ in edges}
    return (np.searchsorted(sorted(borders), np.arange(256), side="right") - 1).astype(np.int32)


def _targets(places: Places, state: Iterable[int], classes: Sequence[int]) -> list[set[int]]:
    """For each class of bytes, the places that a set of places is left to."""
    found: list[set[int]] = [set() for _ in range(classes[-1] + 1)]
    for place in state:
        for low, high, to in places.edges[place]:
            for number in range(classes[low], classes[high] + 1):
                found[number].add(to)
    return found


def _reached(places: Places, states: Iterable[int]) -> frozenset[int]:
    """These places and all that costs nothing to reach from them."""
    seen = set(states)
    waiting = list(seen)
    while waiting:
        for place in places.free[waiting.pop()]:
            if place not in seen:
                seen.add(place)
                waiting.append(place)
    return frozenset(seen)


def _alive(table: Int32[np.ndarray, "states c"], accepts: Bool[np.ndarray, "states"]) -> Bool[np.ndarray, "states"]:
    """States from which an end can be reached."""
    alive = accepts.copy()
    while True:
        more = alive | alive[table].any(1)
        if (more == alive).all():
            return alive
        alive = more

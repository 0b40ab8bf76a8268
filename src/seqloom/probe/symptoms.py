"""What is wrong with an output, beside its reference: copies, repetition, what was left out, said twice or cut off.

Units are words where a side is natural text, and tokens elsewhere. Each symptom is a comparison with the reference:
what the reference does as well is none. Coverage of a source unit is the attention that it got from all steps
together,

    c_i = sum over t of a_ti        (Tu et al. 2016)

so that about 1 is expected of a word that one word answers. The bounds below are rules of thumb, not learned ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64

from seqloom.config import Plain
from seqloom.specials import SPECIALS, UNK

Kind = Literal["unknown", "copied", "repeated", "under-translated", "over-translated", "ended too early", "did not end"]
KINDS: tuple[Kind, ...] = get_args(Kind)

COPIED_WORDS, COPIED_TOKENS, COPIED_SHARE = 3, 5, 0.5  # a copy is so long, and so much of the output
LOOP_WORDS, LOOP_TOKENS = 2, 4  # units in a row that repeat themselves: "the the", but "anan"
AGAIN_WORDS, AGAIN_TOKENS = 3, 6  # length of what counts as said again, anywhere in the output
LONGEST_LOOP = 20  # units that are looked at as one turn of a loop
HARDLY, WELL = 0.2, 0.5  # coverage: what the output left out has less, and has at least so much in the reference
TWICE, MORE = 2.0, 1.0  # coverage: what was said twice has so many times the reference's, and so much more of it
SHORT, LONG, APART = 0.6, 1.6, 2  # lengths: times the reference's, and at least so many units apart
NAMED = 3  # units of one symptom that are named

Units = Sequence[str]
Coverage = Float64[np.ndarray, "s"]


@dataclass(frozen=True)
class Symptom:
    """One thing that is wrong, and in words what it is about."""

    kind: Kind
    words: str

    def as_dict(self) -> dict[str, Plain]:
        return {"kind": self.kind, "words": self.words}


@dataclass(frozen=True)
class Compared:
    """An output beside its source and its reference; `covered` are the source units' coverages by both, if known."""

    source: Units
    output: Units
    reference: Units
    words: bool  # are the target's units words?
    unknown: Units = ()  # pieces of the source that the vocabulary lacks
    covered: tuple[Coverage, Coverage] | None = None
    ended: bool = True  # False: the limit, or a constraint, cut the output off


def symptoms(case: Compared) -> Iterator[Symptom]:
    """All that are found, in the order of `KINDS`."""
    if case.unknown:
        yield Symptom("unknown", f"unknown in the source: {named(case.unknown)}")
    if copied := _copied(case):
        yield Symptom("copied", f"it copies {quoted(' '.join(copied))} from the source")
    yield from _repeated(case)
    yield from _under(case)
    yield from _over(case)
    if case.ended and _begins(case.reference, case.output):
        yield Symptom("ended too early", f"it ends {_units(len(case.reference) - len(case.output), case)} too early")
    if not case.ended:
        yield Symptom("did not end", f"it did not end within {_units(len(case.output), case)}")


# --- copies and repetition -----------------------------------------------------------------------------------------


def _copied(case: Compared) -> Units:
    """The longest part of the source that stands in the output, where it is long, and longer than the reference's."""
    found = _shared(case.source, case.output)
    least = COPIED_WORDS if case.words else COPIED_TOKENS
    if len(found) < max(least, COPIED_SHARE * len(case.output)):
        return ()
    return found if len(found) > len(_shared(case.source, case.reference)) else ()


def _shared(one: Units, other: Units) -> Units:
    match = SequenceMatcher(None, one, other, autojunk=False).find_longest_match()
    return one[match.a : match.a + match.size]


def _repeated(case: Compared) -> Iterator[Symptom]:
    """The longest loop that the reference has not got; where there is none, what is said again further on."""
    least = LOOP_WORDS if case.words else LOOP_TOKENS
    known = _loops(case.reference)
    loops = [
        (turn, times)
        for turn, times in _loops(case.output).items()
        if len(turn) * times >= least and times > known.get(turn, 1) and _is_known(turn)
    ]
    if loops:
        turn, times = max(loops, key=lambda loop: (len(loop[0]) * loop[1], -len(loop[0])))
        yield Symptom("repeated", f"it says {quoted(' '.join(turn))} {times} times in a row")
        return
    length = AGAIN_WORDS if case.words else AGAIN_TOKENS
    wanted = Counter(_grams(case.reference, length))
    again = {
        gram: times
        for gram, times in Counter(_grams(case.output, length)).items()
        if times > max(1, wanted[gram]) and _is_known(gram)
    }
    if again:
        gram = max(again, key=lambda one: again[one])
        yield Symptom("repeated", f"it says {quoted(' '.join(gram))} {again[gram]} times")


def _is_known(units: Units) -> bool:
    """Two unknown words are rarely the same one."""
    return not any(SPECIALS[UNK] in unit for unit in units)


def _loops(units: Units) -> dict[tuple[str, ...], int]:
    """Whatever is said at least twice in a row, and how often at most."""
    found: dict[tuple[str, ...], int] = {}
    for length in range(1, min(LONGEST_LOOP, len(units) // 2) + 1):
        for start in range(len(units) - 2 * length + 1):
            turn, times = tuple(units[start : start + length]), 1
            while tuple(units[start + times * length : start + (times + 1) * length]) == turn:
                times += 1
            if times > 1:
                found[turn] = max(times, found.get(turn, 0))
    return found


def _grams(units: Units, length: int) -> Iterable[tuple[str, ...]]:
    return zip(*(units[start:] for start in range(length)), strict=False)


# --- too little and too much ---------------------------------------------------------------------------------------


def _under(case: Compared) -> Iterator[Symptom]:
    """Source units that the output hardly looked at though the reference does; else an output that is much shorter."""
    left_out = _units_where(case, lambda said, wanted: (said < HARDLY) & (wanted >= WELL))
    if left_out:
        yield Symptom("under-translated", f"it leaves out {named(left_out)}")
    elif len(case.output) <= min(SHORT * len(case.reference), len(case.reference) - APART):
        yield Symptom("under-translated", f"it is much shorter than the reference ({_lengths(case)})")


def _over(case: Compared) -> Iterator[Symptom]:
    """An output that is much longer than the reference; or source units that it came back to."""
    if len(case.output) >= max(LONG * len(case.reference), len(case.reference) + APART):
        yield Symptom("over-translated", f"it is much longer than the reference ({_lengths(case)})")
        return
    twice = _units_where(case, lambda said, wanted: (said >= TWICE * wanted) & (said - wanted >= MORE))
    if twice and len(case.output) >= len(case.reference):
        yield Symptom("over-translated", f"it comes back to {named(twice)}")


def _units_where(case: Compared, holds: Callable[[Coverage, Coverage], np.ndarray]) -> list[str]:
    """Source units whose coverages, by the output and by the reference, are such; marks and blanks are none."""
    if case.covered is None:
        return []
    found = np.flatnonzero(holds(*case.covered)).tolist()
    return [case.source[place] for place in found if any(character.isalnum() for character in case.source[place])]


def _begins(whole: Units, part: Units) -> bool:
    return len(part) < len(whole) and tuple(whole[: len(part)]) == tuple(part)


# --- words ---------------------------------------------------------------------------------------------------------


def _units(count: int, case: Compared) -> str:
    return f"{count:,} {'word' if case.words else 'token'}{'' if count == 1 else 's'}"


def _lengths(case: Compared) -> str:
    return f"{_units(len(case.output), case)} for {len(case.reference):,}"


MOST_SHOWN = 60  # characters of a text inside of a line


def named(units: Units) -> str:
    """`"a", "b" and 3 more`; what is there twice is named once."""
    different = list(dict.fromkeys(units))
    more = f" and {len(different) - NAMED:,} more" if len(different) > NAMED else ""
    return ", ".join(map(quoted, different[:NAMED])) + more


def quoted(text: str, tail: bool = False) -> str:
    """Data of the user inside of a line, cut where it is long; with `tail` its end is kept."""
    return f'"{visible(text, MOST_SHOWN, tail)}"'


def visible(text: str, most: int, tail: bool = False) -> str:
    """At most about so many characters; what would move a cursor or turn a line round is written as its code."""
    near = text[-most - 1 :] if tail else text[: most + 1]
    shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in near)
    if len(shown) <= most:
        return shown
    return "..." + shown[-most:] if tail else shown[:most] + "..."

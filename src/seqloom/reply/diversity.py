"""Three suggestions that do not say the same thing (Kannan et al. 2016, section 4).

Suggestions are taken in order of score, each of another intent. Then the rule for a choice: where one of the first two
says yes and none of the three says no, the third is replaced by the best that says no; and the mirror of it. Nothing
here scores a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from seqloom.reply.responses import Polarity, Response

SHOWN = 3
OPPOSITES: dict[Polarity, Polarity] = {"positive": "negative", "negative": "positive"}


class Scored(Protocol):
    """A response with whatever its score rests on."""

    @property
    def response(self) -> Response: ...


T = TypeVar("T", bound=Scored)


def chosen(ranked: Sequence[T], others: Callable[[Polarity], Sequence[T]] | None = None, count: int = SHOWN) -> list[T]:
    """At most `count` of those that are ranked, the best first, no two of one intent.

    `others` ranks the replies of one polarity, for where those given hold none of it.
    """
    first = apart(ranked, count)
    for polarity, opposite in OPPOSITES.items():
        if len(first) < count or not _lacks(first, polarity, opposite):
            continue
        kept = first[:-1]
        intents = {one.response.intent for one in kept}
        given = [one for one in ranked if one.response.polarity == opposite]
        if not _fit(given, intents) and others is not None:
            given = [one for one in others(opposite) if one.response.polarity == opposite]
        if best := _fit(given, intents):
            return [*kept, best[0]]
    return first


def apart(ranked: Sequence[T], count: int) -> list[T]:
    """The first of every intent, in order."""
    found: dict[str, T] = {}
    for one in ranked:
        if len(found) == count:
            break
        found.setdefault(one.response.intent, one)
    return list(found.values())


def _lacks(first: Sequence[T], polarity: Polarity, opposite: Polarity) -> bool:
    signs = [one.response.polarity for one in first]
    return polarity in signs[:2] and opposite not in signs


def _fit(given: Sequence[T], taken: set[str]) -> list[T]:
    return [one for one in given if one.response.intent not in taken]

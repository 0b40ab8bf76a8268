"""Which sentences tell most about a model: where search failed it, where it did worst and best, where it was in doubt.

The four take turns, so that each has its share however many there are; a sentence that several would take counts once,
with all the reasons found on the way. Nothing here looks inside of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Judged:
    """What is known of one sentence; more quality is better, whatever the metric."""

    quality: float
    sureness: float | None  # the mean log-probability of its tokens; None: it was passed over
    length: int
    missed: float = 0.0  # how much better the reference scores that search did not find


def telling(judged: Sequence[Judged], count: int) -> dict[int, tuple[str, ...]]:
    """At most `count` places, each with why it was chosen; all that were answered, where these are no more."""
    queues = {why: iter(order) for why, order in _orders(judged).items()}
    found: dict[int, list[str]] = {}
    while queues and len(found) < count:
        for why in list(queues):
            place = _next(queues[why], found, why)
            if place is None:
                del queues[why]
            elif len(found) < count:
                found[place] = [why]
    for place, one in enumerate(judged):
        if one.sureness is not None and len(found) < count:
            found.setdefault(place, ["one of few"])
    return {place: tuple(found[place]) for place in sorted(found)}


def _next(queue: Iterator[int], found: Mapping[int, list[str]], why: str) -> int | None:
    """The next that nobody has chosen; whoever is met on the way gets one more reason."""
    for place in queue:
        if place not in found:
            return place
        found[place].append(why)
    return None


def _orders(judged: Sequence[Judged]) -> dict[str, list[int]]:
    """By each reason the places it could choose, the most telling first: of equally bad ones those it was surest of.

    The worst, the best and the least sure are so among half of all at most.
    """
    places = [place for place, one in enumerate(judged) if one.sureness is not None]
    half = (len(places) + 1) // 2
    sure = {place: judged[place].sureness or 0.0 for place in places}
    return {
        "search error": sorted((p for p in places if judged[p].missed > 0), key=lambda p: -judged[p].missed),
        "among the worst": sorted(places, key=lambda p: (judged[p].quality, -sure[p]))[:half],
        "among the best": sorted(places, key=lambda p: (-judged[p].quality, -judged[p].length))[:half],
        "among the least sure": sorted(places, key=lambda p: sure[p])[:half],
    }

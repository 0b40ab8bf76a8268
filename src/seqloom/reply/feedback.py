"""What people did with suggestions: a log of plain JSON lines, and what it says.

A line is written when a message was dealt with: what was shown, what of it was chosen, and what was sent in the end, if
anything. The message itself is not in it. Writing a line never sends anything. The measures are those of the lectures:
how often a suggestion is selected, how often it is sent unchanged, its share of all replies, and precision against
coverage.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from seqloom import config, wording
from seqloom.config import Plain
from seqloom.data.files import Tally, decoded, raw_lines
from seqloom.data.records import json_object
from seqloom.errors import SeqloomError
from seqloom.files import file_error

Outcome = Literal["unchanged", "edited", "ignored", "not shown"]
MOST_TEXT = 10_000
T = TypeVar("T")


class Event(config.Settings):
    """One message that was dealt with."""

    at: str = ""  # when, ISO 8601
    shown: tuple[str, ...] = Field((), max_length=10)  # the suggestions; none where there were none
    chosen: str | None = Field(None, max_length=MOST_TEXT)  # the one that was selected
    sent: str | None = Field(None, max_length=MOST_TEXT)  # what the person sent, whoever wrote it; null: nothing
    probability: float | None = Field(None, ge=0.0, le=1.0)  # what the trigger said

    @model_validator(mode="after")
    def _chosen_was_shown(self) -> Event:
        if self.chosen is not None and self.chosen not in self.shown:
            raise ValueError(f"chosen: {self.chosen!r} was not shown")
        return self

    @property
    def outcome(self) -> Outcome:
        """`edited` where a chosen suggestion was changed before it was sent; `ignored` where none was chosen."""
        if not self.shown:
            return "not shown"
        if self.chosen is None:
            return "ignored"
        return "unchanged" if self.sent is None or self.sent.strip() == self.chosen.strip() else "edited"


def append(path: Path, event: Event) -> None:
    """Add a line to the log; one write, so that several programs may share a log."""
    stamped = event if event.at else event.with_(at=datetime.now(UTC).isoformat(timespec="seconds"))
    line = json.dumps({**stamped.model_dump(mode="json"), "outcome": stamped.outcome}, ensure_ascii=False) + "\n"
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(number, line.encode("utf-8"))
        finally:
            os.close(number)
    except OSError as error:
        raise file_error(error, path) from None


def read(path: Path) -> list[Event]:
    """The events of a log; E_DATA names the first line that is none."""
    events = []
    tally: Tally = Tally()
    for line in raw_lines(str(path)):
        where = f"{path}:{line.number}"
        text = decoded(line, str(path), "error", tally)
        if text is None or not text.strip():
            continue
        record = {key: value for key, value in json_object(text, where).items() if key != "outcome"}  # it follows
        try:
            events.append(Event.model_validate(record))
        except ValidationError as error:
            what = f"not a line of a feedback log: {wording.first_problem(error)}"
            raise SeqloomError("E_DATA", what, where=where) from None
    if not events:
        raise SeqloomError("E_EMPTY", "the log is empty", where=str(path))
    return events


# --- what it says ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """What would be if suggestions were made from this probability on."""

    threshold: float
    coverage: float  # share of messages with suggestions
    precision: float  # share of these where one was selected (or, in an evaluation, right)

    def as_dict(self) -> dict[str, Plain]:
        return {"threshold": self.threshold, "coverage": self.coverage, "precision": self.precision}


@dataclass(frozen=True)
class Usage:
    """The lectures' measures, as shares from 0 to 1."""

    messages: int
    replies: int  # messages that were answered, by whatever text
    counts: Mapping[Outcome, int]
    curve: tuple[Point, ...]

    @property
    def shown(self) -> int:
        return self.messages - self.counts["not shown"]

    @property
    def selected(self) -> float:
        """Of messages with suggestions, those where one was taken, edited or not."""
        return _share(self.counts["unchanged"] + self.counts["edited"], self.shown)

    @property
    def unchanged(self) -> float:
        return _share(self.counts["unchanged"], self.shown)

    @property
    def edited(self) -> float:
        return _share(self.counts["edited"], self.shown)

    @property
    def ignored(self) -> float:
        return _share(self.counts["ignored"], self.shown)

    @property
    def share_of_replies(self) -> float:
        """Of all replies that were sent, those that began as a suggestion."""
        return _share(self.counts["unchanged"] + self.counts["edited"], self.replies)

    @property
    def coverage(self) -> float:
        return _share(self.shown, self.messages)

    def as_dict(self) -> dict[str, Plain]:
        shares = ("coverage", "selected", "unchanged", "edited", "ignored", "share_of_replies")
        return {
            "messages": self.messages,
            "replies": self.replies,
            "counts": dict(self.counts),
            **{name: getattr(self, name) for name in shares},
            "curve": [point.as_dict() for point in self.curve],
        }


def usage(events: Sequence[Event]) -> Usage:
    counts: dict[Outcome, int] = {"unchanged": 0, "edited": 0, "ignored": 0, "not shown": 0}
    for event in events:
        counts[event.outcome] += 1
    taken = counts["unchanged"] + counts["edited"]
    replies = sum(event.sent is not None or event.chosen is not None for event in events)
    rated = [(one.probability, one.chosen is not None) for one in events if one.probability is not None and one.shown]
    return Usage(len(events), max(replies, taken), counts, curve(rated, len(events)))


def curve(rated: Iterable[tuple[float, bool]], messages: int, most: int = 50) -> tuple[Point, ...]:
    """Precision against coverage, from the highest threshold to the lowest; at most so many points.

    `rated` are (probability, was it of use) of the messages that had suggestions, among so many messages in all.
    """
    ordered = sorted(rated, key=lambda pair: -pair[0])
    points, good = [], 0
    for place, (probability, well) in enumerate(ordered, start=1):
        good += well
        last = place == len(ordered) or ordered[place][0] < probability
        if last:
            points.append(Point(probability, place / messages, good / place))
    return thinned(points, most)


def thinned(points: Sequence[T], most: int = 50) -> tuple[T, ...]:
    """At most so many points of a curve, evenly, its end among them."""
    step = max(1, -(-len(points) // most))
    return tuple(point for place, point in enumerate(points, start=1) if place % step == 0 or place == len(points))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

"""What raters said, as numbers: for every question a number per rater, item and system, higher being better.

Planted candidates and second showings do not count here; `careless.py` looks at them. A candidate that several
systems share counts for each. Ranks become the share of the other systems that a system beats, ties being half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import pairwise

import numpy as np

from seqloom.rate.plan import Plan, Task
from seqloom.rate.questions import QUESTIONS, Answer, Question
from seqloom.rate.store import Click, Store

PAUSE = 300.0  # seconds: who needed longer for an answer was away
Key = tuple[str, int, int]  # rater, item, system


@dataclass(frozen=True)
class Rater:
    """One rater's answers as they count now, and how quick they were."""

    name: str
    answers: Mapping[tuple[int, int, str], Click]  # by task, candidate, question
    seconds: float | None  # median between two clicks

    @cached_property
    def _said(self) -> dict[tuple[int, str], dict[int, Answer]]:
        found: dict[tuple[int, str], dict[int, Answer]] = {}
        for (task, candidate, question), click in self.answers.items():
            assert click.answer is not None, "what was taken back does not count"
            found.setdefault((task, question), {})[candidate] = click.answer
        return found

    def places(self, task: int, question: str) -> dict[int, Answer]:
        """What they said of the candidates of a task."""
        return self._said.get((task, question), {})


@dataclass(frozen=True)
class Counted:
    """The numbers of one question, raw and in standard deviations from each rater's mean."""

    question: Question
    raw: Mapping[Key, float]
    standard: Mapping[Key, float] = field(default_factory=dict)


def raters_of(store: Store) -> list[Rater]:
    """Everybody who may rate, also who did not yet."""
    return [_rater(store, name) for name in store.raters()]


def _rater(store: Store, name: str) -> Rater:
    times = [datetime.fromisoformat(click.clicked_at) for click in store.clicks(name)]
    gaps = [(later - before).total_seconds() for before, later in pairwise(times)]
    worked = [gap for gap in gaps if 0 <= gap <= PAUSE]
    return Rater(name, store.answers(name), float(np.median(worked)) if worked else None)


def done_by(rater: Rater, plan: Plan) -> int:
    """How many tasks are answered in full."""
    answered: dict[int, int] = {}
    for task, _, _ in rater.answers:
        answered[task] = answered.get(task, 0) + 1
    wanted = [len(task.candidates) * len(plan.questions) for task in plan.tasks]
    return sum(answered.get(place, 0) >= count for place, count in enumerate(wanted))


def counted(plan: Plan, raters: Sequence[Rater], name: str) -> Counted:
    """One question's numbers."""
    question = QUESTIONS[name]
    raw: dict[Key, float] = {}
    for rater in raters:
        for place, task in enumerate(plan.tasks):
            if task.repeats is None:
                for system, number in _of_task(task, rater.places(place, name), question).items():
                    raw[rater.name, task.item, system] = number
    return Counted(question, raw, _standardised(raw))


def _of_task(task: Task, said: Mapping[int, Answer], question: Question) -> dict[int, float]:
    """System -> its number."""
    numbers = {
        system: question.form.number(said[place])
        for place in task.outputs
        if place in said
        for system in task.candidates[place].systems
    }
    return won(numbers) if question.form.kind == "rank" else numbers


def won(places: Mapping[int, float]) -> dict[int, float]:
    """Places among several -> the share of the others that each beats, in %; of one alone nothing can be said."""
    found = {}
    for system, place in places.items():
        others = [other for number, other in places.items() if number != system]
        if others:
            beaten = sum(1.0 if place < other else 0.5 if place == other else 0.0 for other in others)
            found[system] = 100.0 * beaten / len(others)
    return found


def _standardised(raw: Mapping[Key, float]) -> dict[Key, float]:
    """z = (number - the rater's mean) / the rater's deviation: the severe and the mild are on one scale."""
    found: dict[Key, float] = {}
    for rater in {key[0] for key in raw}:
        mine = {key: number for key, number in raw.items() if key[0] == rater}
        numbers = np.array(list(mine.values()))
        mean, deviation = float(numbers.mean()), float(numbers.std())
        found |= {key: (number - mean) / deviation if deviation > 0 else 0.0 for key, number in mine.items()}
    return found

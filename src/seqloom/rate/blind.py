"""What one rater sees: tasks in an order of their own, outputs under letters, and no word about who said what.

Both orders follow from the study's seed and the rater's name, so that a page that is loaded again shows the same.
"""

from __future__ import annotations

from random import Random
from string import ascii_uppercase

from seqloom.rate.plan import Candidate, Plan, Task

APART = 5  # tasks at least between an item and its repetition, where there are so many


class View:
    """A plan through the eyes of one rater. Tasks are numbered from 1, outputs are A, B, C."""

    def __init__(self, plan: Plan, rater: str) -> None:
        self.plan, self.rater = plan, rater
        self._order = _order(plan, rater)
        self._places = {task: number for number, task in enumerate(self._order, start=1)}

    def __len__(self) -> int:
        return len(self._order)

    def task(self, number: int) -> tuple[int, Task] | None:
        """The task of this number, with its place in the plan; None where there is none."""
        if not 1 <= number <= len(self._order):
            return None
        place = self._order[number - 1]
        return place, self.plan.tasks[place]

    def number(self, task: int) -> int:
        return self._places[task]

    def letters(self, task: int) -> dict[str, int]:
        """Letter -> candidate, in the order in which they are shown."""
        places = list(range(len(self.plan.tasks[task].candidates)))
        Random(f"{self.plan.seed} {self.rater} {task}").shuffle(places)
        return dict(zip(ascii_uppercase, places, strict=False))

    def shown(self, task: int) -> dict[str, Candidate]:
        candidates = self.plan.tasks[task].candidates
        return {letter: candidates[place] for letter, place in self.letters(task).items()}


def _order(plan: Plan, rater: str) -> list[int]:
    rng = Random(f"{plan.seed} {rater}")
    order = [place for place, task in enumerate(plan.tasks) if task.repeats is None]
    rng.shuffle(order)
    for place, task in enumerate(plan.tasks):
        if task.repeats is not None:
            first = min(order.index(task.repeats) + 1 + APART, len(order))
            order.insert(rng.randint(first, len(order)), place)
    return order

"""Who rates without reading? Each planted check is a trial for every question, and a careful person slips sometimes.

- damaged: the spoilt copy of an output is rated no worse than the output itself (of a bad output nothing is learned)
- reference: a reference is rated in the lower half of the scale
- repeated: the same item is rated quite otherwise the second time

A rater is careless whose failures are more than slips explain: exact binomial test against a chance of 20 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seqloom.metrics.significance import at_least
from seqloom.rate.counted import Rater
from seqloom.rate.plan import Plan, Task
from seqloom.rate.questions import QUESTIONS, Question

SLIPS = 0.2  # of the checks that a careful person fails
LEVEL = 0.05
POOR = 0.25  # an output worth no more than this can hardly be made worse
FAIR = 0.5


@dataclass(frozen=True)
class Trial:
    """One check, by one question."""

    kind: str
    passed: bool


@dataclass(frozen=True)
class Care:
    """How a rater did on the checks that they came across."""

    checks: int
    failed: int
    by_kind: dict[str, tuple[int, int]]  # failed, all
    p: float  # of so many failures or more, if they were slips

    @property
    def is_careless(self) -> bool:
        return self.p < LEVEL


def care_of(rater: Rater, plan: Plan) -> Care:
    trials = [trial for name in plan.questions for trial in _trials(rater, plan, QUESTIONS[name])]
    failed = sum(not trial.passed for trial in trials)
    kinds = {
        kind: (sum(not one.passed for one in trials if one.kind == kind), sum(one.kind == kind for one in trials))
        for kind in dict.fromkeys(trial.kind for trial in trials)
    }
    return Care(len(trials), failed, kinds, at_least(failed, len(trials), SLIPS))


def _trials(rater: Rater, plan: Plan, question: Question) -> Iterator[Trial]:
    for place, task in enumerate(plan.tasks):
        worth = _worth(rater, place, task, question)
        if task.repeats is not None:
            first = _worth(rater, task.repeats, plan.tasks[task.repeats], question)
            apart = [abs(worth[candidate] - first[candidate]) for candidate in worth if candidate in first]
            if len(apart) == len(task.candidates):
                yield Trial("repeated", sum(apart) / len(apart) < question.form.drift)
            continue
        for candidate, shown in enumerate(task.candidates):
            if candidate not in worth:
                continue
            if shown.role == "reference":
                yield Trial("reference", worth[candidate] >= FAIR)
            elif shown.original is not None and worth.get(shown.original, 0.0) > POOR:
                yield Trial("damaged", worth[candidate] < worth[shown.original])


def _worth(rater: Rater, place: int, task: Task, question: Question) -> dict[int, float]:
    """Candidate -> what they think it worth, from 0 to 1."""
    said = rater.places(place, question.name)
    return {candidate: question.form.worth(answer, len(task.candidates)) for candidate, answer in said.items()}

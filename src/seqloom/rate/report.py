"""A whole study as one result, and its ratings as rows for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from seqloom.api.testset import MetricSpec, metric_settings, metrics_of
from seqloom.config import Plain, validated
from seqloom.errors import SeqloomError, nearest
from seqloom.metrics import METRICS
from seqloom.rate.beside import Beside, beside
from seqloom.rate.blind import View
from seqloom.rate.counted import Rater, raters_of
from seqloom.rate.plan import Plan
from seqloom.rate.questions import QUESTIONS
from seqloom.rate.results import QuestionResult, RaterResult, raters_told, result_of
from seqloom.rate.store import Store

COLUMNS = ("rater", "number", "letter", "item", "where", "systems", "role", "again", "question", "answer", "clicked_at")


@dataclass(frozen=True)
class Marked:
    """An error that somebody marked."""

    rater: str
    systems: tuple[str, ...]
    where: str
    severity: str
    text: str  # empty: something is missing
    output: str


@dataclass(frozen=True)
class StudyResult:
    """Everything that came out of a study so far."""

    name: str
    systems: tuple[str, ...]
    items: int
    tasks: int
    raters: tuple[RaterResult, ...]
    questions: tuple[QuestionResult, ...]
    metrics: tuple[Beside, ...]
    errors: tuple[Marked, ...]

    def __getitem__(self, question: str) -> QuestionResult:
        return next(one for one in self.questions if one.name == question)

    def as_dict(self) -> dict[str, Plain]:
        return {
            "study": self.name,
            "systems": list(self.systems),
            "items": self.items,
            "tasks": self.tasks,
            "raters": [one.as_dict() for one in self.raters],
            "questions": [one.as_dict() for one in self.questions],
            "metrics": [one.as_dict() for one in self.metrics],
            "errors": [asdict(one) for one in self.errors],
        }


def study_result(
    store: Store, without: Sequence[str] = (), careful: bool = False, metrics: Sequence[MetricSpec] | None = None
) -> StudyResult:
    """What is known now. `without` leaves raters out by name, `careful` those who failed the checks."""
    plan, raters = store.plan, raters_of(store)
    names = [rater.name for rater in raters]
    for name in without:
        if name not in names:
            what = f"no such rater: {name!r}{nearest(name, names)}"
            raise SeqloomError("E_USAGE", what, where="--without", fix=f"there are {', '.join(names)}")
    told = raters_told(plan, raters, without, careful)
    counting = [rater for rater, one in zip(raters, told, strict=True) if one.counts]
    questions = tuple(result_of(plan, counting, name) for name in plan.questions)
    known = [METRICS.settings_class(str(one.get("kind"))) for one in plan.metrics]
    usual = [validated(cls, raw, "metric") for cls, raw in zip(known, plan.metrics, strict=True)]
    judging = metrics_of([metric_settings(spec) for spec in metrics or ()] or usual or None, None)
    compared = [beside(plan, result, metric) for metric in judging.values() for result in questions]
    return StudyResult(
        name=store.path.name,
        systems=plan.systems,
        items=len(plan.items),
        tasks=len(plan.tasks),
        raters=tuple(told),
        questions=questions,
        metrics=tuple(one for one in compared if one is not None),
        errors=tuple(_marked(plan, counting)),
    )


def _marked(plan: Plan, raters: Sequence[Rater]) -> Iterator[Marked]:
    """Every error that was marked on what systems said."""
    for rater in raters:
        for (place, number, name), click in rater.answers.items():
            task = plan.tasks[place]
            candidate = task.candidates[number]
            if QUESTIONS[name].form.kind != "spans" or task.repeats is not None or not candidate.systems:
                continue
            assert isinstance(click.answer, list)
            systems = tuple(plan.systems[system] for system in candidate.systems)
            for span in click.answer:
                part = candidate.text[span["start"] : span["end"]]
                where = plan.items[task.item].where
                yield Marked(rater.name, systems, where, span["severity"], part, candidate.text)


def as_csv(store: Store) -> str:
    """Every answer that counts now as a row, planted ones too; texts stay in the study and in its data."""
    plan, out = store.plan, io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for rater in store.raters():
        view = View(plan, rater)
        for (place, number, question), click in sorted(store.answers(rater).items()):
            task = plan.tasks[place]
            candidate = task.candidates[number]
            letters = {which: letter for letter, which in view.letters(place).items()}
            said = ";".join(plan.systems[system] for system in candidate.systems)
            shown = (rater, view.number(place), letters[number], task.item + 1, plan.items[task.item].where, said)
            again = int(task.repeats is not None)
            rows.writerow((*shown, candidate.role, again, question, json.dumps(click.answer), click.clicked_at))
    return out.getvalue()

"""A new study from what was gathered: sampled, planted with checks, and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqloom.errors import SeqloomError
from seqloom.rate import store
from seqloom.rate.material import MOST_ITEMS, Material
from seqloom.rate.plan import Plan, checks_for, tasks_of
from seqloom.rate.questions import Question

RATER = "rater"  # who rates where nobody is named


@dataclass(frozen=True)
class Wishes:
    """How a study is asked for."""

    questions: tuple[Question, ...]
    items: int = 100
    checks: int | None = None  # None: one for every few items
    seed: int = 1
    shows_reference: bool = True


def made(path: Path, material: Material, wishes: Wishes, raters: Sequence[str] = ()) -> Plan:
    """Write the study and tell its plan."""
    if wishes.items > MOST_ITEMS:
        raise SeqloomError("E_USAGE", f"at most {MOST_ITEMS:,} items", where="--items", fix="ask for fewer")
    some = material.sampled(wishes.items, wishes.seed).looked_at()
    checks = checks_for(wishes.checks, len(some.items))
    plan = Plan(
        systems=some.systems,
        questions=tuple(question.name for question in wishes.questions),
        items=some.items,
        tasks=tasks_of(some.items, some.outputs, checks, wishes.seed),
        seed=wishes.seed,
        shows_reference=wishes.shows_reference,
        metrics=some.metrics,
    )
    store.create(path, plan, raters or [RATER])
    return plan

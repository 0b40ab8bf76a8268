"""Do the automatic metrics say what people say? Correlations of both, over systems and over single outputs.

Metrics for which lower is better are turned round: a positive correlation always means that both agree. Two systems
are too few: two points always lie on a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from seqloom.config import Plain
from seqloom.metrics.association import kendall, pearson, spearman
from seqloom.metrics.base import Metric
from seqloom.rate.plan import Plan
from seqloom.rate.results import QuestionResult

FEWEST = 3  # systems


@dataclass(frozen=True)
class Correlation:
    """How far two rows of numbers go together; None where one of them has no spread, or they are too few."""

    count: int
    pearson: float | None
    spearman: float | None
    kendall: float | None

    @classmethod
    def of(cls, one: Sequence[float], other: Sequence[float], fewest: int = 2) -> Correlation:
        if len(one) < fewest:
            return cls(len(one), None, None, None)
        return cls(len(one), pearson(one, other), spearman(one, other), kendall(one, other))


@dataclass(frozen=True)
class Beside:
    """One metric beside one question."""

    metric: str
    question: str
    signature: str
    values: Mapping[str, float]  # system -> the metric's value on the items that were rated
    systems: Correlation
    segments: Correlation

    def as_dict(self) -> dict[str, Plain]:
        return {**asdict(self), "values": dict(self.values)}


def beside(plan: Plan, result: QuestionResult, metric: Metric) -> Beside | None:
    """None where no item that was rated has a reference."""
    texts = _texts(plan)
    rated = result.counted.standard
    values: dict[str, float] = {}
    people: dict[tuple[int, str], list[float]] = {}  # by item and text: what several systems said is one segment
    machine: dict[tuple[int, str], float] = {}
    means: list[float] = []
    sign = 1 if metric.higher_is_better else -1
    for system, name in enumerate(plan.systems):
        mine = {item for _, item, number in rated if number == system}
        items = sorted(item for item in mine if any(text.strip() for text in plan.items[item].references))
        if not items:
            continue
        said = [texts[item][system] for item in items]
        statistics = metric.statistics(said, [plan.items[item].references for item in items])
        values[name] = metric.value(statistics.sum(axis=0))
        chosen = set(items)
        z = {key[:2]: number for key, number in rated.items() if key[2] == system and key[1] in chosen}
        means.append(sum(z.values()) / len(z))
        for (_, item), number in z.items():
            people.setdefault((item, texts[item][system]), []).append(number)
        for item, text, value in zip(items, said, metric.sentence_values(statistics), strict=True):
            machine[item, text] = sign * float(value)
    if not values:
        return None
    human = [sum(people[key]) / len(people[key]) for key in machine]
    return Beside(
        metric=metric.name,
        question=result.name,
        signature=metric.signature(),
        values=values,
        systems=Correlation.of(means, [sign * value for value in values.values()], FEWEST),
        segments=Correlation.of(human, list(machine.values())),
    )


def _texts(plan: Plan) -> dict[int, dict[int, str]]:
    """Item -> system -> what it said."""
    return {
        task.item: {system: candidate.text for candidate in task.candidates for system in candidate.systems}
        for task in plan.tasks
        if task.repeats is None
    }

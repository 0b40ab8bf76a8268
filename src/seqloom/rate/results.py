"""What came out: how good each system is, which is better and how sure that is, and how far the raters agree.

Means have bootstrap intervals over items. Of two systems an item is won by the one that its raters put higher on
average; wins against losses are tested by the exact sign test (Holm's correction over all pairs of a question), the
size of the difference by approximate randomisation. Nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, permutations

import numpy as np

from seqloom.config import Plain
from seqloom.metrics.agreement import cohen, krippendorff
from seqloom.metrics.association import pearson
from seqloom.metrics.base import Statistics, Total, Values
from seqloom.metrics.significance import TIE, approximate_randomisation, bootstrap, holm, sign_test
from seqloom.rate.careless import Care, care_of
from seqloom.rate.counted import Counted, Key, Rater, counted, done_by
from seqloom.rate.plan import Plan
from seqloom.rate.questions import Question

FEWEST = 3  # items that an interval is told of


@dataclass(frozen=True)
class RaterResult:
    """One rater. `counts` is False for those who were left out."""

    name: str
    done: int
    answers: int
    seconds: float | None
    with_others: float | None  # Pearson's r of their z-scores with the mean of the others', over all questions
    care: Care
    counts: bool

    def as_dict(self) -> dict[str, Plain]:
        return {**asdict(self), "careless": self.care.is_careless}


@dataclass(frozen=True)
class Estimate:
    """A mean and the ends of its 95 % interval; None where there are too few items to tell them."""

    value: float
    low: float | None
    high: float | None
    samples: int  # how often items were drawn anew
    seed: int


@dataclass(frozen=True)
class SystemResult:
    """One system by one question: the mean of its ratings and of their z-scores."""

    system: str
    ratings: int
    mean: Estimate | None  # None: nobody has rated it
    z: Estimate | None


@dataclass(frozen=True)
class PairResult:
    """Two systems by one question. `wins` are the items that A won; `difference` is A - B."""

    a: str
    b: str
    items: int
    wins: int
    ties: int
    losses: int
    sign_p: float
    sign_p_holm: float
    difference: float
    low: float | None  # None: too few items to tell an interval
    high: float | None
    randomisation_p: float

    @property
    def better(self) -> str | None:
        """Who is, at the 5 % level by the corrected sign test."""
        if self.sign_p_holm >= 0.05:
            return None
        return self.a if self.wins > self.losses else self.b


@dataclass(frozen=True)
class KappaResult:
    """Two raters by one question, on what both rated."""

    a: str
    b: str
    units: int
    kappa: float | None


@dataclass(frozen=True)
class QuestionResult:
    """Everything about one question."""

    name: str
    unit: str
    level: str
    systems: tuple[SystemResult, ...]
    pairs: tuple[PairResult, ...]
    alpha: float | None
    units: int  # rated by two raters or more
    kappas: tuple[KappaResult, ...]
    counted: Counted = field(repr=False)

    def as_dict(self) -> dict[str, Plain]:
        return {
            "name": self.name,
            "unit": self.unit,
            "systems": [asdict(one) for one in self.systems],
            "pairs": [{**asdict(one), "better": one.better} for one in self.pairs],
            "agreement": {
                "level": self.level,
                "alpha": self.alpha,
                "units": self.units,
                "kappa": [asdict(one) for one in self.kappas],
            },
        }


class Mean:
    """Rows of (sum, count) as a mean, for intervals and tests."""

    higher_is_better = True

    def value(self, total: Total) -> float:
        return float(total[0] / total[1]) if total[1] else 0.0

    def values(self, totals: Statistics) -> Values:
        found: Values = totals[:, 0] / np.maximum(totals[:, 1], 1)
        return found


def raters_told(plan: Plan, raters: Sequence[Rater], without: Sequence[str], careful: bool) -> list[RaterResult]:
    """How each rater did, and whether they count: not who is left out by name, nor the careless where asked."""
    numbers = [counted(plan, raters, name) for name in plan.questions]
    found = []
    for rater in raters:
        care = care_of(rater, plan)
        counts = rater.name not in without and not (careful and care.is_careless)
        speed, alike = rater.seconds, _with_others(rater.name, numbers)
        found.append(RaterResult(rater.name, done_by(rater, plan), len(rater.answers), speed, alike, care, counts))
    return found


def _with_others(rater: str, numbers: Sequence[Counted]) -> float | None:
    mine: list[float] = []
    theirs: list[float] = []
    for one in numbers:
        others: dict[tuple[int, int], list[float]] = {}
        for (name, item, system), z in one.standard.items():
            if name != rater:
                others.setdefault((item, system), []).append(z)
        for (name, item, system), z in one.standard.items():
            if name == rater and (item, system) in others:
                mine.append(z)
                theirs.append(float(np.mean(others[item, system])))
    return pearson(mine, theirs)


def result_of(plan: Plan, raters: Sequence[Rater], name: str) -> QuestionResult:
    """One question, by the raters that count."""
    numbers = counted(plan, raters, name)
    systems = tuple(_system(plan, numbers, system) for system in range(len(plan.systems)))
    units = _units(plan, raters, numbers.question)
    judged = [list(unit.values()) for unit in units]
    return QuestionResult(
        name=name,
        unit=numbers.question.form.unit,
        level=numbers.question.form.level,
        systems=systems,
        pairs=_pairs(plan, numbers),
        alpha=krippendorff(judged, numbers.question.form.level),
        units=sum(len(unit) > 1 for unit in judged) // _ways(numbers.question),
        kappas=tuple(_kappas(units, raters, numbers.question)),
        counted=numbers,
    )


def _system(plan: Plan, numbers: Counted, system: int) -> SystemResult:
    mine = [key for key in numbers.raw if key[2] == system]
    if not mine:
        return SystemResult(plan.systems[system], 0, None, None)
    raw, z = _by_item(mine, numbers.raw), _by_item(mine, numbers.standard)
    return SystemResult(plan.systems[system], len(mine), _estimate(raw), _estimate(z))


def _estimate(rows: Statistics) -> Estimate:
    """Of one or two items the same would be drawn again and again: an interval of no width, which tells nothing."""
    found = bootstrap(Mean(), rows)
    few = len(rows) < FEWEST
    low, high = (None, None) if few else (found.low, found.high)
    return Estimate(found.value, low, high, found.samples, found.seed)


def _by_item(keys: Sequence[Key], numbers: Mapping[Key, float]) -> Statistics:
    """A row of (sum, count) for every item that is rated."""
    sums: dict[int, list[float]] = {}
    for key in keys:
        row = sums.setdefault(key[1], [0.0, 0.0])
        row[0] += numbers[key]
        row[1] += 1
    return np.array([sums[item] for item in sorted(sums)], dtype=np.float64)


def _pairs(plan: Plan, numbers: Counted) -> tuple[PairResult, ...]:
    """Every two systems, with Holm's correction over all of them."""
    found = []
    for a, b in combinations(range(len(plan.systems)), 2):
        both = [key for key in numbers.raw if key[2] == a and (key[0], key[1], b) in numbers.raw]
        if both:
            rows_a = _by_item(both, numbers.raw)
            rows_b = _by_item([(rater, item, b) for rater, item, _ in both], numbers.raw)
            found.append(_pair((plan.systems[a], plan.systems[b]), rows_a, rows_b))
    adjusted = holm([pair.sign_p for pair in found])
    return tuple(replace(pair, sign_p_holm=p) for pair, p in zip(found, adjusted, strict=True))


def _pair(names: tuple[str, str], rows_a: Statistics, rows_b: Statistics) -> PairResult:
    gaps = (rows_a[:, 0] - rows_b[:, 0]) / rows_a[:, 1]  # of each item, over its raters
    wins, losses = int((gaps > TIE).sum()), int((gaps < -TIE).sum())
    p = sign_test(wins, losses)
    few = len(gaps) < FEWEST
    chance = approximate_randomisation(Mean(), rows_b, rows_a)  # its difference is the second minus the first
    return PairResult(
        a=names[0],
        b=names[1],
        items=len(gaps),
        wins=wins,
        ties=len(gaps) - wins - losses,
        losses=losses,
        sign_p=p,
        sign_p_holm=p,
        difference=chance.difference,
        low=None if few else chance.low,
        high=None if few else chance.high,
        randomisation_p=chance.p,
    )


def _units(plan: Plan, raters: Sequence[Rater], question: Question) -> list[dict[str, float]]:
    """What raters can agree about: each output, or, of places, which of two outputs is the better one."""
    units: list[dict[str, float]] = []
    for place, task in enumerate(plan.tasks):
        if task.repeats is not None:
            continue
        said = {rater.name: rater.places(place, question.name) for rater in raters}
        numbers = {
            rater: {
                candidate: question.form.number(answers[candidate])
                for candidate in task.outputs
                if candidate in answers
            }
            for rater, answers in said.items()
        }
        if question.form.kind == "rank":
            for a, b in permutations(task.outputs, 2):  # both ways: by chance either is as likely the better one
                both = {rater: told for rater, told in numbers.items() if a in told and b in told}
                units.append({rater: float(np.sign(told[b] - told[a])) for rater, told in both.items()})
        else:
            for candidate in task.outputs:
                units.append({rater: told[candidate] for rater, told in numbers.items() if candidate in told})
    return units


def _ways(question: Question) -> int:
    """How many units stand for one: a preference is told from both sides."""
    return 2 if question.form.kind == "rank" else 1


def _kappas(units: Sequence[dict[str, float]], raters: Sequence[Rater], question: Question) -> Iterator[KappaResult]:
    """Of every two raters with something in common; numbers on a fine scale have none."""
    if question.form.level == "interval":
        return
    for a, b in combinations([rater.name for rater in raters], 2):
        pairs = [(unit[a], unit[b]) for unit in units if a in unit and b in unit]
        if pairs:
            yield KappaResult(a, b, len(pairs) // _ways(question), cohen(pairs, question.form.level))

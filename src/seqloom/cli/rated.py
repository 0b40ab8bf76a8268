"""The results of a study as plain tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqloom.cli import say

if TYPE_CHECKING:
    from seqloom.rate.beside import Beside
    from seqloom.rate.report import StudyResult
    from seqloom.rate.results import Estimate, QuestionResult, RaterResult


def print_results(result: StudyResult) -> None:
    """Systems by question, raters, and the automatic metrics beside them."""
    for question in result.questions:
        _print_question(question)
    _print_raters(result)
    if result.metrics:
        _print_metrics(result.metrics)


def _print_question(question: QuestionResult) -> None:
    rows = [
        (one.system, _estimate(one.mean, 1), _estimate(one.z, 2), f"{one.ratings:,}")
        for one in sorted(question.systems, key=lambda one: -(one.z.value if one.z is not None else -99.0))
    ]
    columns = ("system", f"mean ({question.unit})", "z", "ratings")
    say.table(f"{question.name}: means with 95 % intervals", columns, rows)
    pairs = [
        (
            f"{one.a} : {one.b}",
            f"{one.wins:,} / {one.ties:,} / {one.losses:,}",
            say.percent(one.wins / one.items),
            _chance(one.sign_p_holm),
            f"{one.difference:+.1f} ({_ends(one.low, one.high, '+.1f')})",
            _chance(one.randomisation_p),
            one.better or "not proven",
        )
        for one in question.pairs
    ]
    if pairs:
        headings = ("A : B", "won / tied / lost by A", "won", "p (sign)", "A - B", "p (random.)", "better")
        say.table(f"{question.name}: pairs, counted by items", headings, pairs)
    say.data(_agreement(question) + "\n")


def _agreement(question: QuestionResult) -> str:
    if not question.units:
        return f"{question.name}: nothing is rated by two raters, so agreement is not known"
    alpha = "all answers are the same" if question.alpha is None else f"Krippendorff's alpha {question.alpha:.3f}"
    told = f"{question.name}: {alpha} ({question.level}, {question.units:,} units)"
    kappas = [
        f"{one.a} and {one.b} {'none' if one.kappa is None else f'{one.kappa:.3f}'}" for one in question.kappas[:10]
    ]
    return told + (f"; Cohen's kappa: {', '.join(kappas)}" if kappas else "")


def _print_raters(result: StudyResult) -> None:
    rows = [
        (
            one.name,
            f"{one.done:,} of {result.tasks:,}",
            f"{one.answers:,}",
            "" if one.seconds is None else f"{one.seconds:.1f} s",
            _figure(one.with_others),
            f"{one.care.failed} of {one.care.checks}",
            _verdict(one),
        )
        for one in result.raters
    ]
    note = "careless: more failed checks than the slips of a careful person (20 %) explain; --careful leaves them out"
    columns = ("rater", "items done", "answers", "per answer", "with others", "checks failed", "")
    notes = [note] if any(one.care.is_careless for one in result.raters) else []
    if any(one.with_others is not None for one in result.raters):
        notes.append("with others: Pearson's r of a rater's z-scores with the mean of the others'")
    say.table("raters", columns, rows, notes)


def _verdict(rater: RaterResult) -> str:
    words = [f"careless (p {_chance(rater.care.p, '= ')})"] if rater.care.is_careless else []
    return ", ".join([*words, *([] if rater.counts else ["left out"])])


def _print_metrics(metrics: tuple[Beside, ...]) -> None:
    say.data("")
    rows = [
        (
            f"{one.metric}, {one.question}",
            _figure(one.segments.pearson),
            _figure(one.segments.spearman),
            _figure(one.segments.kendall),
            _figure(one.systems.pearson),
            " ".join(f"{name} {value:.1f}" for name, value in one.values.items()),
        )
        for one in metrics
    ]
    columns = ("metric, question", "Pearson", "Spearman", "Kendall", "of systems", "metric's values")
    count = max(one.segments.count for one in metrics)
    notes = [f"{count:,} outputs; positive: the metric says what people say. Of systems: Pearson, for three or more"]
    say.table("automatic metrics beside people (z)", columns, rows, notes)


def _estimate(estimate: Estimate | None, digits: int) -> str:
    if estimate is None:
        return "not rated"
    return f"{estimate.value:.{digits}f} ({_ends(estimate.low, estimate.high, f'.{digits}f')})"


def _ends(low: float | None, high: float | None, form: str) -> str:
    return "too few for an interval" if low is None or high is None else f"{low:{form}} to {high:{form}}"


def _chance(p: float, equals: str = "") -> str:
    return "< 0.0001" if p < 0.0001 else f"{equals}{p:.4f}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"

"""`seqloom.compare("runs/a", "runs/b")`: is B better than A, how sure is that, and where do they differ?

Each of A and B is a run, a loaded model, or an output file of any tool. Significance is decided by approximate
randomisation; the paired bootstrap stands beside it because papers report it (see `metrics.significance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.testset import (
    ELSEWHERE,
    OTHER_DATA,
    MetricSpec,
    aligned,
    held_out,
    metrics_of,
    prepared,
    read_outputs,
    same_data,
)
from seqloom.config import Plain
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.metrics.base import Metric
from seqloom.metrics.breakdown import Wins, largest_differences, wins_and_losses
from seqloom.metrics.significance import Comparison, approximate_randomisation, paired_bootstrap
from seqloom.recipe import Recipe

System = Model | str | Path  # a loaded model, a run folder, or an output file
LEVEL = 0.05


@dataclass(frozen=True)
class MetricComparison:
    """Two systems by one metric. `better` is decided by approximate randomisation at the 5 % level."""

    metric: str
    name: str
    signature: str
    bootstrap: Comparison
    randomisation: Comparison
    wins: Wins

    @property
    def better(self) -> Literal["a", "b"] | None:
        return self.randomisation.better(LEVEL)

    def as_dict(self) -> dict[str, Plain]:
        return {**asdict(self), "better": self.better}


@dataclass(frozen=True)
class Contrast:
    """A sentence on which the systems differ, and what each output is worth by the first metric."""

    source: str
    references: tuple[str, ...]
    a: str
    b: str
    value_a: float
    value_b: float
    where: str


@dataclass(frozen=True)
class SystemComparison:
    """A against B on the same sentences."""

    a: str
    b: str
    sentences: int
    metrics: tuple[MetricComparison, ...]
    contrasts: tuple[Contrast, ...]  # by the first metric, largest difference first
    notes: tuple[str, ...] = ()

    def __getitem__(self, metric: str) -> MetricComparison:
        return next(row for row in self.metrics if metric in (row.metric, row.name))

    def as_dict(self) -> dict[str, Plain]:
        return {
            "a": self.a,
            "b": self.b,
            "sentences": self.sentences,
            "metrics": [row.as_dict() for row in self.metrics],
            "contrasts": [asdict(contrast) for contrast in self.contrasts],
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        told = {"a": f"{self.a} is better", "b": f"{self.b} is better", None: "no difference is proven"}
        rows = ", ".join(f"{row.name}: {told[row.better]} (p = {row.randomisation.p:.3g})" for row in self.metrics)
        return f"SystemComparison({self.a!r}, {self.b!r}, {self.sentences:,} sentences; {rows})"


def compare(
    a: System,
    b: System,
    examples: Iterable[Example] | None = None,
    options: Options | None = None,
    *,
    metrics: Sequence[MetricSpec] | None = None,
    show: int = 10,
) -> SystemComparison:
    """A against B on the examples (default: the test set of the first that is a run), by that run's metrics."""
    models = [opened(a), opened(b)]
    recipes = [model.recipe for model in models if model is not None]
    recipe = recipes[0] if recipes else None
    if examples is None and recipe is None:
        raise SeqloomError("E_USAGE", "two output files need references", fix=ELSEWHERE)
    chosen = held_out(recipe) if examples is None and recipe is not None else list(examples or ())
    judging = metrics_of(metrics, recipe)
    names = _names(a, b)
    options = options or Options(on_long="skip")
    answers: list[list[str]] = []
    items: list[list[Example]] = []
    for system, model, name in zip((a, b), models, names, strict=True):
        if model is None:
            lines, judged = aligned(read_outputs(str(system)), chosen, recipe, name)
        else:
            judged = prepared(chosen, recipe)
            lines = [prediction.text for prediction in model.predict([item.inputs for item in judged], options)]
        answers.append(lines)
        items.append(judged)
    if len(items[0]) != len(items[1]):
        counts = f"{names[0]} has {len(items[0]):,} outputs, {names[1]} has {len(items[1]):,}"
        raise SeqloomError("E_ALIGN", counts, fix="compare outputs for the same lines")
    compared = compare_outputs(answers[0], answers[1], items[0], judging, show=show)
    return replace(compared, a=names[0], b=names[1], notes=_cautions(recipes, names))


def compare_outputs(
    a: Sequence[str], b: Sequence[str], examples: Sequence[Example], metrics: Mapping[str, Metric], *, show: int = 10
) -> SystemComparison:
    """The same for outputs that are already there."""
    references = [example.references for example in examples]
    rows = []
    for word, metric in metrics.items():
        stats_a, stats_b = metric.statistics(a, references), metric.statistics(b, references)
        rows.append(
            MetricComparison(
                metric=word,
                name=metric.name,
                signature=metric.signature(),
                bootstrap=paired_bootstrap(metric, stats_a, stats_b),
                randomisation=approximate_randomisation(metric, stats_a, stats_b),
                wins=wins_and_losses(metric, stats_a, stats_b),
            )
        )
    first = next(iter(metrics.values()))
    return SystemComparison("a", "b", len(examples), tuple(rows), _contrasts(first, a, b, examples, show))


def _contrasts(
    metric: Metric, a: Sequence[str], b: Sequence[str], examples: Sequence[Example], show: int
) -> tuple[Contrast, ...]:
    references = [example.references for example in examples]
    found = largest_differences(metric, metric.statistics(a, references), metric.statistics(b, references), show)
    return tuple(
        Contrast(
            source=examples[row.index].shown,
            references=tuple(examples[row.index].references),
            a=a[row.index],
            b=b[row.index],
            value_a=row.a,
            value_b=row.b,
            where=examples[row.index].where,
        )
        for row in found
    )


def opened(system: System) -> Model | None:
    """The model of a run folder; None for an output file."""
    if isinstance(system, (str, Path)):
        if not Path(system).is_dir():
            return None
        system = load(system)
    if system.codecs.continues:
        what = "a language model has no outputs that could be right or wrong"
        raise SeqloomError("E_USAGE", what, where=system.name, fix="seqloom evaluate says what texts cost each")
    return system


def _names(a: System, b: System) -> tuple[str, str]:
    """Short names, unless they are the same."""
    given = [system if isinstance(system, (str, Path)) else system.name for system in (a, b)]
    short = [Path(name).name for name in given]
    first, second = short if short[0] != short[1] else map(str, given)
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")


def _cautions(recipes: Sequence[Recipe], names: Sequence[str]) -> tuple[str, ...]:
    """What a reader of the numbers must know."""
    if len(recipes) < 2 or same_data(*recipes):
        return ()
    return (f"{names[1]} {OTHER_DATA}",)

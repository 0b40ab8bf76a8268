"""A demonstration, step by step: write its files, describe the data, train, judge, look inside.

Each step is a function that returns what there is to tell; `seqloom demo` calls them one after the other and prints.
The files are for the person: what already stands in the folder is kept, theirs before ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shlex import quote

from seqloom.api.check import check_data
from seqloom.api.datasets import Datasets, settled
from seqloom.api.demos import DEMOS, Demo
from seqloom.api.demos.base import PAIRS
from seqloom.api.evaluate import RunEvaluation, evaluate, right_outputs
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.api.testset import held_out, prepared
from seqloom.config import Plain
from seqloom.data.report import Severity
from seqloom.errors import SeqloomError, nearest
from seqloom.files import atomic_write, file_error
from seqloom.probe.explain import AttentionMap
from seqloom.recipe import load_recipe

SHOWN = 10  # test examples that are shown with their outputs
SEED = 7  # which ones: drawn, not picked


@dataclass(frozen=True)
class Place:
    """Where a demonstration lives, and which of its files were there before (and are kept)."""

    folder: Path
    kept: tuple[Path, ...]

    @property
    def pairs(self) -> Path:
        return self.folder / "pairs.tsv"

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.yaml"

    @property
    def run(self) -> Path:
        return self.folder / "run"


@dataclass(frozen=True)
class Facts:
    """What the data is: counts by their names, and how much `check` finds in it."""

    counts: dict[str, int]
    findings: dict[Severity, int]

    def as_dict(self) -> dict[str, Plain]:
        return {**self.counts, "findings": {str(name): count for name, count in self.findings.items()}}


@dataclass(frozen=True)
class Shown:
    """One test example: what came out, what would be right, and whether it is."""

    prediction: Prediction
    references: tuple[str, ...]
    right: bool
    asked: str = ""  # as the data write it

    def as_dict(self) -> dict[str, Plain]:
        return {
            "source": self.prediction.source,
            "output": self.prediction.text,
            "references": list(self.references),
            "right": self.right,
            "confidence": self.prediction.confidence,
        }


def find_demo(name: str) -> Demo:
    if name not in DEMOS:
        raise SeqloomError("E_USAGE", f"no demo {name!r}{nearest(name, DEMOS)}; there are: {', '.join(DEMOS)}")
    return DEMOS[name]


def prepare(demo: Demo, folder: Path) -> Place:
    """Write pairs and recipe where they are not there yet."""
    place = Place(folder, tuple(path for path in (folder / "pairs.tsv", folder / "recipe.yaml") if path.exists()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(error, folder, "make the folder") from None
    recipe = demo.recipe.replace(PAIRS, quoted(place.pairs))
    if place.pairs not in place.kept:
        if demo.beside is not None:
            demo.beside(folder)
        _write_lines(place.pairs, demo.pairs())
    for name, lines in demo.held_out.items():
        path = folder / f"{name}.tsv"
        recipe = recipe.replace(f"{{{name}}}", quoted(path))
        if not path.exists():
            _write_lines(path, lines())
    if place.recipe not in place.kept:
        atomic_write(place.recipe, recipe.encode())
    return place


def _write_lines(path: Path, lines: Iterable[tuple[str, ...]]) -> None:
    atomic_write(path, "".join("\t".join(cells) + "\n" for cells in lines).encode())


def quoted(path: Path) -> str:
    """A path as a YAML value: in single quotes, inside which nothing but themselves is special."""
    return "'" + str(path).replace("'", "''") + "'"


def describe(demo: Demo, place: Place) -> Facts:
    """Counts of pairs, sources and units, sizes of the sets, and the number of findings of each severity."""
    recipe = load_recipe(place.recipe)
    data = settled(recipe.data, place.folder)
    datasets = Datasets(data)
    sets = {"train": list(datasets.train()), "dev": list(datasets.dev()), "test": list(datasets.test())}
    everything = [example for examples in sets.values() for example in examples]
    (read, cut_source), (written, cut_target) = demo.units
    counts = {
        "pairs": len(everything),
        demo.sources: len({example.source for example in everything}),
        **({read: len({unit for one in everything for unit in cut_source(one.source)})} if read else {}),
        written: len({unit for example in everything for text in example.references for unit in cut_target(text)}),
        **{f"{name} pairs": len(examples) for name, examples in sets.items()},
    }
    findings: dict[Severity, int] = {"error": 0, "warning": 0, "note": 0}
    for finding in check_data(data, recipe.model).report.findings:
        findings[finding.severity] += 1
    return Facts(counts, findings)


def show(model: Model, count: int = SHOWN) -> list[Shown]:
    """A few test examples with their outputs, drawn by a fixed seed."""
    items = prepared(held_out(model.recipe), model.recipe)
    drawn = Random(SEED).sample(items, min(count, len(items)))
    predictions = list(model.predict([item.inputs for item in drawn], Options(split=False, on_long="skip")))
    right = right_outputs(model.recipe, [prediction.text for prediction in predictions], drawn)
    return [
        Shown(prediction, item.references, well, item.shown)
        for prediction, item, well in zip(predictions, drawn, right, strict=True)
    ]


def look_inside(model: Model, shown: list[Shown]) -> AttentionMap | None:
    """The map of the longest right answer among those shown (of the longest, where none is right).

    None for a model without attention: the recipe is the person's to change.
    """
    if not model.recipe.model.attends:
        return None
    chosen = max(shown, key=lambda one: (one.right, len(one.prediction.tokens)))
    return model.explain(chosen.prediction.source).map()


def next_commands(demo: Demo, place: Place) -> list[tuple[str, str]]:
    """Commands to type, and why."""
    run, recipe, other = quote(str(place.run)), quote(str(place.recipe)), quote(str(place.folder / demo.change[0]))
    of_file = demo.beside is not None
    asked = quote(str(place.folder / demo.question) if of_file else demo.question)
    return [
        (f"seqloom predict {run} {'' if of_file else '--text '}{asked}", "ask it something of your own"),
        (f"seqloom explain {run} {asked} --html answer.html", "see why it says that, on a page"),
        (f"seqloom evaluate {run}", "the full report: by length, by frequency, how honest its confidences are"),
        (f"seqloom train {recipe} --run {other} --set {demo.change[1]}", "change one line of the recipe and compare"),
    ]


@dataclass(frozen=True)
class Report:
    """Everything a demonstration has to tell when it is over."""

    demo: Demo
    place: Place
    facts: Facts
    evaluation: RunEvaluation
    examples: list[Shown]
    map: AttentionMap | None  # None: the model has no attention

    def scores(self) -> list[tuple[str, str, str]]:
        """(name, value, 95 % interval) of each score, in the words of the demo's trade."""
        return [
            (
                self.demo.called.get(kind, score.name),
                f"{score.value:.2f} %",
                f"{score.interval.low:.2f} to {score.interval.high:.2f}",
            )
            for kind, score in self.evaluation.scores.items()
        ]

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON."""
        return {
            "demo": self.demo.name,
            "folder": str(self.place.folder),
            "data": self.facts.as_dict(),
            "evaluation": self.evaluation.as_dict(),
            "examples": [one.as_dict() for one in self.examples],
            "attention": None if self.map is None else self.map.as_dict(),
            "next": [line for line, _ in next_commands(self.demo, self.place)],
        }


def report(demo: Demo, place: Place, facts: Facts, model: Model) -> Report:
    """Judge a trained model on the test set, show some outputs, look inside."""
    evaluation = evaluate(model)
    examples = show(model)
    return Report(demo, place, facts, evaluation, examples, look_inside(model, examples))

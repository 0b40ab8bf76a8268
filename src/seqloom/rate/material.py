"""What a study is made of: the sources of a test set and what each system says of them.

A system is a run, which is asked, or an output file of any tool. Sources come from a data file, from parallel files
(references are welcome, not needed), or from the test set of the first run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from seqloom.api.compare import opened
from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.testset import aligned, chosen_examples, prepared, read_outputs
from seqloom.config import kind_of
from seqloom.data.named import file_kind
from seqloom.data.readers import Example, read_sources
from seqloom.data.source import in_folder
from seqloom.errors import SeqloomError
from seqloom.rate.media import Kind, kind_by, located, media_of
from seqloom.rate.plan import Item
from seqloom.recipe import Recipe

MOST_SYSTEMS = 20
MOST_ITEMS = 10_000


@dataclass(frozen=True)
class System:
    """Who said something: a name that results use and raters never see, and a run or a file."""

    name: str
    path: str


@dataclass(frozen=True)
class Sources:
    """Where sources and references come from, as a command line names it."""

    data: str | None = None
    source: str | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Material:
    """Items, `outputs[system][item]`, and the settings of the first run's metrics."""

    systems: tuple[str, ...]
    items: tuple[Item, ...]
    outputs: tuple[tuple[str, ...], ...]
    metrics: tuple[dict[str, object], ...] = ()
    examples: tuple[Example, ...] = ()  # of every item, where raters are shown the file that is its source
    kind: Kind | None = None  # of these files

    def looked_at(self) -> Material:
        """The same with the files of its items; E_FILE or E_DATA names the first that cannot be shown."""
        if self.kind is None:
            return self
        files = [media_of(one, self.kind) if one.source.strip() else None for one in self.examples]
        pairs = zip(self.items, files, strict=True)
        return replace(self, items=tuple(item.model_copy(update={"media": file}) for item, file in pairs))

    def sampled(self, count: int, seed: int) -> Material:
        """So many items, drawn by the seed, in their old order; all where there are no more."""
        if count >= len(self.items):
            return self
        kept = sorted(Random(f"{seed} items").sample(range(len(self.items)), count))
        outputs = tuple(tuple(texts[i] for i in kept) for texts in self.outputs)
        examples = tuple(self.examples[i] for i in kept) if self.examples else ()
        return replace(self, items=tuple(self.items[i] for i in kept), outputs=outputs, examples=examples)


def named_systems(given: Sequence[str]) -> list[System]:
    """`NAME=PATH`, or a path that is called by its last part; E_USAGE where two have one name."""
    if not given:
        fix = "name runs or output files: NAME=PATH ..."
        raise SeqloomError("E_USAGE", "nothing to rate: no outputs are named", fix=fix)
    if len(given) > MOST_SYSTEMS:
        raise SeqloomError("E_USAGE", f"{len(given)} systems, at most {MOST_SYSTEMS} can be rated", fix="name fewer")
    systems = [_system(text) for text in given]
    short = [system.name for system in systems]
    by_path = [
        replace(one, name=one.path) if one.path == text else one for one, text in zip(systems, given, strict=True)
    ]
    systems = [long if short.count(one.name) > 1 else one for one, long in zip(systems, by_path, strict=True)]
    names = [system.name for system in systems]
    for name in names:
        if not name or names.count(name) > 1:
            what = "a system has no name" if not name else f"two systems are called {name!r}"
            raise SeqloomError("E_USAGE", what, fix="give each a name of its own: NAME=PATH")
    return systems


def _system(text: str) -> System:
    name, sign, path = text.partition("=")
    unnamed = not sign or "/" in name or Path(text).exists()
    return System(Path(text).name, text) if unnamed else System(name.strip(), path)


def gathered(systems: Sequence[System], given: Sources, device: str = "auto", threads: int | None = None) -> Material:
    """Ask or read every system. E_ALIGN where a file has not one output for every source."""
    models = {system.path: _model(system, device, threads) for system in systems}
    recipes = [model.recipe for model in models.values() if model is not None]
    recipe = recipes[0] if recipes else None
    bare = given.source is not None and not given.references and given.data is None
    if recipe is None and given == Sources():
        fix = "--source FILE [--reference FILE], or --data FILE"
        raise SeqloomError("E_USAGE", "output files need sources", fix=fix)
    if bare:
        assert given.source is not None
        examples = _sources(given.source)
    else:
        examples = chosen_examples(recipe, given.data, given.source, given.references, "test", True)
    items, kind = _seen(examples if bare else prepared(examples, recipe), recipe, bare)
    outputs = []
    for system in systems:
        model = models[system.path]
        if model is not None:
            outputs.append(tuple(_predicted(model, items)))
            continue
        lines = read_outputs(system.path)
        if not bare and len(lines) != len(items):
            lines, items_read = aligned(lines, examples, recipe, system.path)
            lines = lines if len(items_read) == len(items) else []
        if len(lines) != len(items):
            what = f"{len(lines):,} outputs for {len(items):,} sources"
            raise SeqloomError("E_ALIGN", what, where=system.path, fix="give one output per line of the sources")
        outputs.append(tuple(lines))
    judging = () if recipe is None else tuple(one.model_dump(mode="json") for one in recipe.evaluation.metrics)
    shown = tuple(Item(source=one.shown, references=tuple(one.references), where=one.where) for one in items)
    names, files = tuple(system.name for system in systems), () if kind is None else tuple(items)
    return Material(names, shown, tuple(outputs), judging, files, kind)


def _seen(items: list[Example], recipe: Recipe | None, bare: bool) -> tuple[list[Example], Kind | None]:
    """The items with the places of the files that their sources name, and what raters are shown of these."""
    if recipe is not None:
        reads = kind_of(recipe.source) if recipe.data.in_files else None
        placed = reads is None or not bare  # whoever reads data for such a run knows where its files lie
    else:
        reads, placed = file_kind(items), False
    if reads is not None and not placed:
        items = [located(one, in_folder(one.source, one.file)) for one in items]
    return items, kind_by(reads)


def _model(system: System, device: str, threads: int | None) -> Model | None:
    """The model of a run folder; None for a file."""
    if not Path(system.path).is_dir():
        return None
    return opened(load(system.path, device=device, threads=threads))


def _sources(path: str) -> list[Example]:
    examples = [Example(text, (), path, number) for number, text in enumerate(read_sources(path), start=1)]
    if not examples:
        raise SeqloomError("E_EMPTY", "nothing to rate: the file holds no sources", where=path)
    return examples


def _predicted(model: Model, items: Sequence[Example]) -> list[str]:
    """One output for every item; sources that are too long for the run have an empty one."""
    return [one.text for one in model.predict([item.inputs for item in items], Options(on_long="skip"))]

"""Sequence-level knowledge distillation (Kim and Rush 2016): a student learns what its teacher would say.

The teacher, a run or an ensemble, answers all of its training sources. The answers become the targets of a new
training file, and the student's recipe is the same one with that file in it. What was held out of the teacher's data
is written beside it, so that nobody is measured on what a teacher made up. Answers are noted down as they come: a job
that was cut off goes on where it stopped, and the file itself is whole or absent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeVar

from seqloom.api.datasets import Datasets, fingerprints, settled
from seqloom.api.folder import read_recipe
from seqloom.api.journal import Journal
from seqloom.api.load import find_bundle, load, load_ensemble
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.bundle import CARD
from seqloom.config import Plain, render_yaml
from seqloom.data.examples import Example
from seqloom.data.readers import read_sources
from seqloom.data.sets import Data
from seqloom.errors import SeqloomError
from seqloom.files import atomic_file, sha256_file
from seqloom.recipe import Recipe

T = TypeVar("T")
FORMS = (".tsv", ".jsonl")
EXTRAS, WEIGHT = 2, "weight"  # the first column of a TSV that holds an extra; the key of a weight


@dataclass(frozen=True)
class Distillation:
    """How to distil. `predictions` is a file of answers that were made elsewhere, one line per training source."""

    output: Path
    recipe: Path | None = None  # whose data, and whose model for the student; null: the teacher's own
    beam: int = 5
    keep_gold: float = 0.0  # share of the sources (by a hash) that keep their gold target
    predictions: str | None = None
    device: str = "auto"
    threads: int | None = None
    tell: Callable[[str], None] = field(default=lambda line: None)
    watch: Callable[[Iterable[str | None], int], Iterable[str | None]] = field(default=lambda answers, total: answers)


@dataclass(frozen=True)
class Distilled:
    """What was written, and the student's recipe as YAML."""

    output: Path
    taught: int  # pairs with the teacher's target
    gold: int  # pairs that kept theirs
    left_out: int  # sources without an answer: empty, or over the recipe's maximum
    recipe: str
    held_out: dict[str, Path]  # dev and test, where they were shares of the training file

    def as_dict(self) -> dict[str, Plain]:
        return {
            "output": str(self.output),
            "taught": self.taught,
            "gold": self.gold,
            "left_out": self.left_out,
            "held_out": {name: str(path) for name, path in self.held_out.items()},
            "recipe": self.recipe,
        }


def distill(teachers: Sequence[str | Path], wishes: Distillation) -> Distilled:
    """Write the student's training file and recipe; E_ALIGN where answers and sources do not pair up."""
    if wishes.output.suffix not in FORMS:
        what = f"{wishes.output.name}: a training file ends in {' or '.join(FORMS)}"
        raise SeqloomError("E_USAGE", what, where="--output")
    if not 0 <= wishes.keep_gold < 1:
        raise SeqloomError("E_USAGE", f"--keep-gold {wishes.keep_gold:g} is no share: from 0 up, below 1")
    how = {"device": wishes.device, "threads": wishes.threads, "workers": 0}
    model = load(teachers[0], **how) if len(teachers) == 1 else load_ensemble(teachers, **how)  # type: ignore[arg-type]
    base = _as_trained(model.recipe) if wishes.recipe is None else read_recipe(wishes.recipe, ())
    data = settled(base.data, wishes.output.parent)
    _spare_the_data(wishes.output, data)
    if len(data.sets["train"]) > 1:
        wishes.tell("several corpora become one file: their shares are not carried over")
    if wishes.predictions is not None:
        counts = _written(wishes, Datasets(data), list(base.extras), read_sources(wishes.predictions))
    else:
        journal = _answered(model, teachers, data, wishes)
        counts = _written(wishes, Datasets(data), list(base.extras), journal.answers())
        journal.remove()
    held_out = _held_out(wishes.output, data)
    recipe = render_yaml(_student(base, data, wishes.output, held_out))
    return Distilled(wishes.output, *counts, recipe, held_out)


def _spare_the_data(output: Path, data: Data) -> None:
    for paths in data.files().values():
        if any(output.exists() and Path(path).exists() and output.samefile(path) for path in paths):
            raise SeqloomError("E_USAGE", "the output would replace the teacher's own data", where=str(output))


# --- answers -----------------------------------------------------------------------------------------------------


def _answered(model: Model, teachers: Sequence[str | Path], data: Data, wishes: Distillation) -> Journal:
    """Ask the teacher every training source, but for those that an earlier sitting has asked."""
    options = Options(beam=wishes.beam, split=False, on_long="skip")
    cards = [sha256_file(find_bundle(run) / CARD) for run in teachers]
    stamp = json.dumps([cards, options.model_dump(mode="json"), fingerprints(data), data.split.model_dump()])
    journal = Journal(wishes.output.with_name(f".{wishes.output.name}.part"), stamp)
    total = sum(1 for _ in Datasets(data).train())
    if journal.done:
        wishes.tell(f"{journal.done:,} of {total:,} sources were answered before; going on")
    rest = islice(Datasets(data).train(), journal.done, None)
    predictions = model.predict((example.inputs for example in rest), options)
    found = (None if prediction.skipped else prediction.text for prediction in predictions)
    with journal:
        for answer in wishes.watch(found, total - journal.done):
            journal.add(answer)
    return journal


# --- files -------------------------------------------------------------------------------------------------------


def _written(
    wishes: Distillation, datasets: Datasets, extras: Sequence[str], answers: Iterator[str | None]
) -> tuple[int, int, int]:
    """The training file, example by example: (taught, gold, left out)."""
    taught = gold = left_out = 0
    weighted = is_weighted(datasets.data)
    pairs = zip_longest(datasets.train(), _some(answers))
    with atomic_file(wishes.output) as file:
        for number, (example, answer) in enumerate(pairs, start=1):
            if example is None or answer is None:
                raise _misaligned(number - 1, example, answer, pairs, wishes)
            keeps = _place(example) < wishes.keep_gold
            target = example.target if keeps else answer[0]
            if not target or not target.strip():
                left_out += 1
                continue
            taught, gold = taught + (not keeps), gold + keeps
            weight = {WEIGHT: example.weight} if weighted else {}
            record = {"source": example.source, "target": target, **{n: example.extras[n] for n in extras}, **weight}
            file.write(_line(record, wishes.output, example).encode())
        if not taught + gold:
            raise SeqloomError("E_EMPTY", "no source has an answer", where=str(wishes.output))
    return taught, gold, left_out


def _some(answers: Iterator[str | None]) -> Iterator[tuple[str | None]]:
    """Each in a box: no answer (an empty or over-long source) is not the end of the answers."""
    return ((answer,) for answer in answers)


def _misaligned(
    both: int, example: Example | None, answer: tuple[str | None] | None, rest: Iterator[object], wishes: Distillation
) -> SeqloomError:
    """Read on to the end, so that the message can give both counts."""
    more = both + 1 + sum(1 for _ in rest)
    sources, found = (both, more) if example is None else (more, both)
    what = f"{found:,} predictions for {sources:,} training sources"
    place = wishes.predictions or "the teacher's answers"
    fix = "one line for every source of the training set, in its order ('seqloom predict' keeps lines)"
    return SeqloomError("E_ALIGN", what, where=place, fix=fix)


def _place(example: Example) -> float:
    """A number in [0, 1) that the source alone decides."""
    key = "\0".join(example.key).encode("utf-8", errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8, person=b"distill").digest(), "big") / 2**64


def is_weighted(data: Data) -> bool:
    """Do the training pairs count differently?"""
    return any(one.importance != 1 or one.model_dump().get(WEIGHT) is not None for one in data.sets["train"])


def _line(record: dict[str, str | float], output: Path, example: Example) -> str:
    if output.suffix == ".jsonl":
        return json.dumps(record, ensure_ascii=False) + "\n"
    cells = [str(value) for value in record.values()]
    if any(mark in cell for cell in cells for mark in "\t\n\r"):
        what = "a text holds a tab or a line break, which a TSV cannot"
        raise SeqloomError("E_DATA", what, where=example.where, fix=f"--output {output.with_suffix('.jsonl')}")
    return "\t".join(cells) + "\n"


def _held_out(output: Path, data: Data) -> dict[str, Path]:
    """What the teacher's split held out of its training file, with gold targets, as JSON lines."""
    written: dict[str, Path] = {}
    for part, examples in (("dev", Datasets(data).dev), ("test", Datasets(data).test)):
        if part in data.sets or next(examples(), None) is None:
            continue
        written[part] = output.with_name(f"{output.stem}.{part}.jsonl")
        with atomic_file(written[part]) as file:
            for example in examples():
                record = {"source": example.source, "target": list(example.references), **example.extras}
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
    return written


# --- the student -------------------------------------------------------------------------------------------------


def _as_trained(recipe: Recipe) -> Recipe:
    """A loaded model's recipe says float32, because it predicts so; a training may choose again."""
    return recipe.with_(runtime=recipe.runtime.with_(precision="auto"))


def _student(base: Recipe, data: Data, output: Path, held_out: dict[str, Path]) -> Recipe:
    """The same recipe, on the new data and on whatever machine it will meet."""
    names = list(base.extras)
    json_extras = {"extras": {name: name for name in names}} if names else {}
    train: dict[str, object] = {"path": str(output), **json_extras}
    if output.suffix == ".tsv" and names:
        train["extras"] = {name: EXTRAS + place for place, name in enumerate(names)}
    if is_weighted(data):
        train[WEIGHT] = WEIGHT if output.suffix == ".jsonl" else EXTRAS + len(names)
    sets = {part: {"path": str(path), **json_extras} for part, path in held_out.items()}
    new = {"train": train, "dev": data.dev, "test": data.test, **sets, "limits": data.limits}
    machine = base.runtime.with_(device="auto", threads=None)
    return base.with_(data=new, runtime=machine)

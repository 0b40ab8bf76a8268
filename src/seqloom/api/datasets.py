"""The three sets of a recipe as streams of examples: files, or shares held out of the training file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from seqloom import wording
from seqloom.data.files import BadUtf8, Tally, mending
from seqloom.data.judgments import Judgments, decided, learned
from seqloom.data.readers import Example, ReaderSettings, files_of, read, renamed, spooled
from seqloom.data.sets import Data
from seqloom.data.source import check_file
from seqloom.data.split import Part, assign, within
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_json, sha256_file
from seqloom.recipe import Recipe

HELD_OUT = 0.05  # of the pairs, but between the next two numbers, and never over a fifth
FEWEST, MOST, LARGEST_SHARE = 100, 2_000, 0.2
INPUT = "input"  # the part of a run folder where copies of pipes lie
_RECORD = TypeAdapter(dict[str, dict[str, str | int]])
MENDING = "set data.on_bad_utf8 in the recipe to skip or replace"


class Datasets:
    """`train()`, `dev()`, `test()`: a fresh pass at every call."""

    def __init__(self, data: Data, tally: Tally | None = None) -> None:
        self.data = data
        self.tally = Tally() if tally is None else tally

    def train(self) -> Iterator[Example]:
        seed, portion = self.data.split.seed, self.data.portion
        kept = (example for example in self._part("train") if within(example, seed, portion))
        return learned(kept, self.data.judgments)

    def dev(self) -> Iterator[Example]:
        """One example for every item, whatever training makes of its judgments."""
        how = self.data.judgments
        return (decided(example, "majority" if how == "each" else how) for example in self._part("dev"))

    def test(self) -> Iterator[Example]:
        """With all judgments: metrics know what to make of them."""
        how: Judgments = "first" if self.data.judgments in ("first", "mean") else "majority"
        return (decided(example, how) for example in self._part("test"))

    def given(self) -> Iterator[Example]:
        """All of the training files, what is held out of them as well."""
        return self._read("train")

    def refuse_empty(self, part: str, examples: Callable[[], Iterator[Example]]) -> None:
        """E_EMPTY where there is nothing in a set."""
        if next(examples(), None) is not None:
            return
        what = f"the {part} set is empty: too few different sources to hold some out"
        fix = f"give data.{part} a file, or more pairs"
        if part == "train":
            what, fix = "all pairs are held out", "give more pairs, or files as data.dev and data.test"
        elif part in self.data.sets:
            what, fix = "the file holds no pairs", f"name another file, or leave data.{part} out"
        raise SeqloomError("E_EMPTY", what, where=self.named(part), fix=fix)

    def named(self, part: str) -> str:
        """Where a set comes from: its key, and its files where it has some of its own."""
        files = self.data.files().get(part, [])
        return f"data.{part}" + (f": {', '.join(files)}" if files else "")

    def _part(self, part: Part) -> Iterator[Example]:
        sets = self.data.sets
        if part != "train" and part in sets:
            return self._read(part)
        dev = 0.0 if "dev" in sets else self.data.split.dev or 0.0
        test = 0.0 if "test" in sets else self.data.split.test or 0.0
        if not dev and not test:
            return self._read("train") if part == "train" else iter(())
        seed = self.data.split.seed
        return (example for example in self._read("train") if assign(example, seed, dev, test) == part)

    def _read(self, part: Part) -> Iterator[Example]:
        """Several corpora one after the other, each example knowing which one it is from."""
        with mending(MENDING):
            for number, settings in enumerate(self.data.sets[part]):
                examples = read(
                    settings, on_bad_utf8=self.data.on_bad_utf8, tally=self.tally, in_files=self.data.in_files
                )
                yield from examples if not number else (replace(example, corpus=number) for example in examples)


def settled(data: Data, folder: Path, *, spare: bool = False) -> Data:
    """The same data made definite: pipes copied into `folder` (earlier copies spared, or replaced), paths absolute,
    shares of the split chosen."""

    def definite(settings: ReaderSettings, name: str, number: int) -> ReaderSettings:
        place = folder / INPUT / name
        return spooled(settings, place if number == 0 else place / str(number), Path.cwd(), spare=spare)

    data = data.with_sets(definite)
    wanted = {"dev": data.dev is None and data.split.dev is None, "test": data.test is None and data.split.test is None}
    if not any(wanted.values()):
        return data
    pairs = sum(1 for _ in Datasets(data).given())
    share = round(held_out_share(pairs), 6)
    return data.with_(split=data.split.with_(**{name: share for name, missing in wanted.items() if missing}))


def found_again(data: Data, folder: Path) -> Data:
    """The same data where a run folder that holds copies of pipes was moved with them."""
    return data.with_sets(lambda settings, *_: renamed(settings, lambda path, _: _here(path, folder)))


def _here(path: str, folder: Path) -> str:
    """Where a copy in the `input` of a run lies now, if this folder is that run and was elsewhere then."""
    _, inside, name = path.rpartition(f"/{INPUT}/")
    moved = folder.absolute() / INPUT / name
    return str(moved) if inside and not os.path.lexists(path) and moved.exists() else path


def held_out_share(pairs: int) -> float:
    """The share of so many pairs to hold out for dev, and the same for test."""
    return min(LARGEST_SHARE, max(FEWEST, min(MOST, HELD_OUT * pairs)) / max(1, pairs))


def portable(recipe: Recipe) -> Recipe:
    """The same recipe, its data and teachers by name alone: what a bundle tells of them, and nobody's folders."""
    data = recipe.data.with_sets(lambda settings, *_: renamed(settings, lambda path, _: Path(path).name))
    return recipe.with_(data=data).with_teachers(lambda run: Path(run).name)


def fingerprints(data: Data) -> dict[str, dict[str, str | int]]:
    """Size and sha256 of every data file, by name."""
    found: dict[str, dict[str, str | int]] = {}
    for path in sorted(set(chain.from_iterable(data.files().values()))):
        found[path] = {"size": Path(path).stat().st_size, "sha256": sha256_file(Path(path))}
    if data.in_files:
        for settings in chain.from_iterable(data.sets.values()):
            found[f"{files_of(settings)[0]} (files it names)"] = _of_named(settings, data.on_bad_utf8)
    return found


def _of_named(settings: ReaderSettings, on_bad_utf8: BadUtf8) -> dict[str, str | int]:
    """Size and checksum of all files that the lines of a dataset name, taken together."""
    size, digest = 0, hashlib.sha256()
    for example in read(settings, on_bad_utf8=on_bad_utf8, in_files=True):
        if example.name.strip():
            with example.told():
                size += check_file(example.source).st_size
                digest.update(bytes.fromhex(sha256_file(Path(example.source))))
    return {"size": size, "sha256": digest.hexdigest()}


def recorded(record: Path) -> dict[str, dict[str, str | int]]:
    """The fingerprints that a run wrote down when it began."""
    what, fix = "what seqloom wrote here", "delete it: it is written anew from the data as they are now"
    try:
        marks = _RECORD.validate_python(read_json(record, 10_000_000, what, fix))
    except ValidationError as error:
        problem = wording.first_problem(error)
        raise SeqloomError("E_BUNDLE", f"not {what}: {problem}", where=str(record), fix=fix) from None
    return {_here(path, record.parent): mark for path, mark in marks.items()}


def write_record(data: Data, record: Path) -> None:
    """Write down what a run begins with."""
    atomic_write(record, json.dumps(fingerprints(data), indent=1).encode())


def is_unchanged(data: Data, record: Path) -> bool:
    """Whether the data are what was written down; not where that cannot be known."""
    try:
        return recorded(record) == fingerprints(data)
    except SeqloomError:
        return False


def check_unchanged(data: Data, record: Path, allow_change: bool) -> None:
    """Compare the data with what the run began with."""
    if not record.exists() or allow_change:
        write_record(data, record)
        return
    now, before = fingerprints(data), recorded(record)
    changed = [path for path in now if before.get(path) != now[path]]
    if changed:
        sizes = "; ".join(
            f"{path}: {before.get(path, {}).get('size')} -> {now[path]['size']} bytes" for path in changed
        )
        fix = "restore the files, or --allow-data-change to go on all the same"
        raise SeqloomError("E_CHANGED", "the data changed since the run began", where=sizes, fix=fix)


def merged(examples: Iterable[Example]) -> list[Example]:
    """Lines that ask the same (source and extras) become one example with several references, in order of sight."""
    references: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], Example] = {}
    for example in examples:
        first.setdefault(example.key, example)
        known = references.setdefault(example.key, [])
        known.extend(text for text in example.references if text not in known)
    return [replace(example, references=tuple(references[key])) for key, example in first.items()]

"""The three sets of a recipe as streams of examples: files, or shares held out of the training file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from seqloom import config
from seqloom.data.files import Tally
from seqloom.data.readers import Example, read, renamed, spooled
from seqloom.data.split import Part, assign
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_bounded, sha256_file
from seqloom.recipe import Data

HELD_OUT = 0.05  # of the pairs, but between the next two numbers, and never over a fifth
FEWEST, MOST, LARGEST_SHARE = 100, 2_000, 0.2


class Datasets:
    """`train()`, `dev()`, `test()`: a fresh pass at every call."""

    def __init__(self, data: Data, tally: Tally | None = None) -> None:
        self.data = data
        self.tally = Tally() if tally is None else tally

    def train(self) -> Iterator[Example]:
        return self._part("train")

    def dev(self) -> Iterator[Example]:
        return self._part("dev")

    def test(self) -> Iterator[Example]:
        return self._part("test")

    def _part(self, part: Part) -> Iterator[Example]:
        given = {"dev": self.data.dev, "test": self.data.test}.get(part)
        if given is not None:
            return self._read(given)
        dev = 0.0 if self.data.dev is not None else self.data.split.dev or 0.0
        test = 0.0 if self.data.test is not None else self.data.split.test or 0.0
        if not dev and not test:
            return self._read(self.data.train) if part == "train" else iter(())
        seed = self.data.split.seed
        return (example for example in self._read(self.data.train) if assign(example, seed, dev, test) == part)

    def _read(self, settings: config.Settings) -> Iterator[Example]:
        return read(settings, on_bad_utf8=self.data.on_bad_utf8, tally=self.tally)


def settled(data: Data, folder: Path) -> Data:
    """The same data made definite: pipes copied into `folder`, paths absolute, shares of the split chosen."""
    sets: dict[str, config.Settings | None] = {}
    for name, settings in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        sets[name] = None if settings is None else spooled(settings, folder / "input" / name, Path.cwd())
    data = data.with_(**sets)
    wanted = {"dev": data.dev is None and data.split.dev is None, "test": data.test is None and data.split.test is None}
    if not any(wanted.values()):
        return data
    pairs = sum(1 for _ in read(data.train, on_bad_utf8=data.on_bad_utf8))
    share = round(held_out_share(pairs), 6)
    return data.with_(split=data.split.with_(**{name: share for name, missing in wanted.items() if missing}))


def held_out_share(pairs: int) -> float:
    """The share of so many pairs to hold out for dev, and the same for test."""
    return min(LARGEST_SHARE, max(FEWEST, min(MOST, HELD_OUT * pairs)) / max(1, pairs))


def portable(data: Data) -> Data:
    """The same data by file names alone: what a bundle tells of it, and nobody's folders."""
    sets = {"train": data.train, "dev": data.dev, "test": data.test}
    given = {name: settings for name, settings in sets.items() if settings is not None}
    return data.with_(**{name: renamed(settings, lambda path, _: Path(path).name) for name, settings in given.items()})


def fingerprints(data: Data) -> dict[str, dict[str, str | int]]:
    """Size and sha256 of every data file, by name."""
    found: dict[str, dict[str, str | int]] = {}
    for path in sorted(set(chain.from_iterable(data.files().values()))):
        found[path] = {"size": Path(path).stat().st_size, "sha256": sha256_file(Path(path))}
    return found


def recorded(record: Path) -> dict[str, dict[str, str | int]]:
    """The fingerprints that a run wrote down when it began."""
    found: dict[str, dict[str, str | int]] = json.loads(read_bounded(record, 10_000_000))
    return found


def check_unchanged(data: Data, record: Path, allow_change: bool) -> None:
    """Compare the data with what the run began with; the first time, write it down."""
    now = fingerprints(data)
    if not record.exists() or allow_change:
        atomic_write(record, json.dumps(now, indent=1).encode())
        return
    before = recorded(record)
    changed = [path for path in now if before.get(path) != now[path]]
    if changed:
        sizes = "; ".join(
            f"{path}: {before.get(path, {}).get('size')} -> {now[path]['size']} bytes" for path in changed
        )
        fix = "restore the files, or --allow-data-change to go on all the same"
        raise SeqloomError("E_CHANGED", "the data changed since the run began", where=sizes, fix=fix)


def merged(examples: Iterator[Example]) -> list[Example]:
    """Lines with the same source become one example with several references, in the order of first sight."""
    references: dict[str, list[str]] = {}
    first: dict[str, Example] = {}
    for example in examples:
        first.setdefault(example.source, example)
        known = references.setdefault(example.source, [])
        known.extend(text for text in example.references if text not in known)
    return [Example(source, tuple(references[source]), example.file, example.line) for source, example in first.items()]

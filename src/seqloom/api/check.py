"""`seqloom check`: what is wrong with a dataset, or with all the sets of a recipe, before training finds out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import cast

from seqloom.config import Plain
from seqloom.data.examples import ITEMS
from seqloom.data.files import BadUtf8, Tally
from seqloom.data.kinds import Guess, Task, guessed, separator_of, task_of
from seqloom.data.named import LOOKED_AT, FileKind, Opening, file_kind
from seqloom.data.readers import Example, ReaderSettings, read
from seqloom.data.report import NOTHING, DataReport, Finding, examine
from seqloom.data.sets import Data
from seqloom.errors import SeqloomError
from seqloom.models.generator import GeneratorSettings

SAMPLE = 20_000  # examples by which is guessed what they are for
SHOWN = 5  # malformed lines of each set
READING = {
    "bad_utf8": "lines are not UTF-8: training stops at the first unless data.on_bad_utf8 says skip or replace",
    "malformed": "lines have not the promised form: training stops at the first",
    "line_too_long": "lines of more than 64 MB are left out",
    "no_file": "sources name files that cannot be read: training stops at the first",
}


@dataclass(frozen=True)
class Checked:
    """The report on the pairs, and what went wrong while reading them, by set."""

    report: DataReport
    reading: dict[str, dict[str, int]]
    malformed: dict[str, list[str]]  # by set: the first lines that have not the promised form, with what is wrong
    guess: Guess | None = None  # what the data are for, where nobody said so
    opened: Mapping[str, Opening] = field(default_factory=dict)  # by set: what was looked at of files that sources name

    @property
    def grave(self) -> list[Finding]:
        """Errors and warnings; notes are for reading only."""
        return [finding for finding in self.report.findings if finding.severity != "note"]

    @property
    def problems(self) -> int:
        return len(self.grave) + sum(len(tally) for tally in self.reading.values())

    def as_dict(self) -> dict[str, Plain]:
        told = {**self.report.as_dict(), "reading": self.reading, "malformed": self.malformed}
        if self.guess is not None:
            told = {"guess": asdict(self.guess), **told}
        if self.opened:
            told["files"] = {name: {"opened": one.seen, "decoded": one.decoded} for name, one in self.opened.items()}
        return cast("dict[str, Plain]", told)

    def lines(self) -> list[str]:
        out = [
            f"error: {name}: {kind} ({count:,} times): {READING[kind]}"
            for name, tally in self.reading.items()
            for kind, count in tally.items()
        ]
        out += [f"    {line}" for lines in self.malformed.values() for line in lines]
        files = [f"{name}: {one.told()}" for name, one in self.opened.items()]
        return self._guessed() + [line for line in self.report.lines() if not out or line != NOTHING] + files + out

    def _guessed(self) -> list[str]:
        """What was guessed, where it is not what most data are."""
        if self.guess is None or (self.guess.task == "transduce" and not self.guess.doubt):
            return []
        return [f"{self.guess.told}; --task says otherwise", *([self.guess.doubt] if self.guess.doubt else [])]


def check_data(
    data: Data, model: GeneratorSettings, separator: str = ITEMS, max_seconds: float | None = None
) -> Checked:
    """Examine every set that a recipe names, also for pairs of dev and test that stand in train.

    `max_seconds`: how long the sounds may be that it reads.
    """
    return _checked(data.sets, data.on_bad_utf8, task_of(model), separator, max_seconds)


def check_dataset(dataset: ReaderSettings, task: Task | None = None) -> Checked:
    """Examine one dataset; what it is for is guessed, unless it is said."""
    return _checked({"train": (dataset,)}, "error", task)


def _checked(
    sets: Mapping[str, tuple[ReaderSettings, ...]],
    on_bad_utf8: BadUtf8,
    task: Task | None = None,
    separator: str | None = None,
    max_seconds: float | None = None,
) -> Checked:
    openings: dict[str, Opening] = {}
    tallies = {name: Tally() for name in sets}
    malformed: dict[str, list[str]] = {}
    policy: BadUtf8 = "replace" if on_bad_utf8 == "error" else on_bad_utf8  # all of the trouble, not the first of it

    def examples(name: str) -> Iterator[Example] | None:
        if name not in sets:
            return None

        def refuse(error: SeqloomError) -> None:
            tallies[name]["malformed"] += 1
            if tallies[name]["malformed"] <= SHOWN:
                malformed.setdefault(name, []).append(f"{error.where}: {error.what}")

        found = (
            example
            for one in sets[name]
            for example in read(one, on_bad_utf8=policy, tally=tallies[name], refuse=refuse)
        )
        first = list(islice(found, LOOKED_AT))
        kind = file_kind(first)
        return chain(first, found) if kind is None else there(name, kind, chain(first, found))

    def there(name: str, kind: FileKind, found: Iterator[Example]) -> Iterator[Example]:
        """The same examples; of those whose source names a file that cannot be read it is noted down."""
        openings[name] = Opening(kind, max_seconds if kind == "sound" else None)
        for example in found:
            if why := openings[name].unreadable(example):
                tallies[name]["no_file"] += 1
                if tallies[name]["no_file"] <= SHOWN:
                    malformed.setdefault(name, []).append(f"{example.where}: {why}")
            yield example

    train = examples("train")
    assert train is not None
    guess = None
    if task is None or (task == "labels" and separator is None):
        sample = list(islice(train, SAMPLE))
        separator = separator_of([example.target for example in sample])
        if task is None:
            guess = guessed(sets["train"][0].kind, sample)
            task = guess.task
        train = chain(sample, train)
    report = examine(train, examples("dev"), examples("test"), task, separator or ITEMS)
    return Checked(report, {name: dict(tally) for name, tally in tallies.items() if tally}, malformed, guess, openings)

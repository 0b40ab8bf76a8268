"""From files to examples: one TSV, two (or more) parallel files, JSON lines; each also gzipped, or from stdin.

A reader is one class and one line in `READERS`. Readers keep texts exactly as they are (normalisation belongs to the
codec) and never drop a line silently: what is skipped is counted in a `Tally`, what is
wrong is an error with file:line.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PlainSerializer, PlainValidator

from seqloom import config
from seqloom.config import Table
from seqloom.data.files import (
    MAX_LINE_BYTES,
    STDIN,
    BadUtf8,
    RawLine,
    Tally,
    decoded,
    is_regular,
    opened,
    raw_lines,
    resolved,
    shown,
)
from seqloom.errors import SeqloomError
from seqloom.files import file_error

FilePath = Annotated[str, Field(min_length=1)]
Column = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Example:
    """One pair as a person wrote it, with every accepted reference and the place it stands in."""

    source: str
    references: tuple[str, ...]
    file: str
    line: int

    @property
    def target(self) -> str:
        return self.references[0]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


class Reader(ABC):
    """Opens the files its settings name and yields examples in file order, in constant memory."""

    Settings: type[config.Settings]
    path_keys: ClassVar[tuple[str, ...]] = ("path",)  # the settings that name files

    def __init__(self, settings: config.Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        self.base, self.on_bad_utf8, self.tally = base, on_bad_utf8, tally

    @abstractmethod
    def examples(self) -> Iterator[Example]: ...

    def _texts(self, path: str) -> Iterator[tuple[int, str]]:
        """Line numbers and texts of one file, skipped lines left out."""
        for line in raw_lines(path):
            text = decoded(line, path, self.on_bad_utf8, self.tally)
            if text is not None:
                yield line.number, text


class TsvReader(Reader):
    """Tab-separated columns, no quoting: a tab cannot stand inside a text."""

    class Settings(config.Settings):
        kind: Literal["tsv"] = "tsv"
        path: FilePath
        columns: tuple[Column, Column] = (0, 1)  # source, target
        references: tuple[Column, ...] = ()  # further columns with other right answers; they may be empty or missing

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.settings = settings

    def examples(self) -> Iterator[Example]:
        path = resolved(self.settings.path, self.base)
        source, target = self.settings.columns
        for number, text in self._texts(path):
            cells = text.split("\t")
            if len(cells) <= max(source, target):
                raise SeqloomError(
                    "E_DATA",
                    f"{len(cells)} column(s), but columns {source} and {target} (counted from 0) are asked for",
                    where=f"{shown(path)}:{number}",
                    fix="separate source and target by one tab, or set 'columns'",
                )
            others = [cells[i] for i in self.settings.references if i < len(cells) and cells[i]]
            yield Example(cells[source], (cells[target], *others), shown(path), number)


class ParallelReader(Reader):
    """One file per side, line by line; several target files are several references."""

    path_keys = ("source", "target")

    class Settings(config.Settings):
        kind: Literal["parallel"] = "parallel"
        source: FilePath
        target: FilePath | Annotated[tuple[FilePath, ...], Field(min_length=1)]

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        targets = (settings.target,) if isinstance(settings.target, str) else settings.target
        self.paths = [resolved(path, base) for path in (settings.source, *targets)]
        if self.paths.count(STDIN) > 1:
            raise SeqloomError("E_USAGE", "stdin ('-') can be only one side of parallel files")

    def examples(self) -> Iterator[Example]:
        files = [raw_lines(path) for path in self.paths]
        for number, row in enumerate(zip_longest(*files), start=1):
            if None in row:
                raise self._misaligned(number, row, files)
            texts = [
                decoded(line, path, self.on_bad_utf8, self.tally) for line, path in zip(row, self.paths, strict=True)
            ]
            whole = [text for text in texts if text is not None]
            if len(whole) == len(texts):
                yield Example(whole[0], tuple(whole[1:]), shown(self.paths[0]), number)

    def _misaligned(
        self, number: int, row: Sequence[RawLine | None], files: Sequence[Iterator[RawLine]]
    ) -> SeqloomError:
        """Read on to the end of every file, so that the message can give all the counts."""
        counts = [
            number - 1 if line is None else number + sum(1 for _ in rest) for line, rest in zip(row, files, strict=True)
        ]
        sizes = [f"{shown(path)} has {count:,} lines" for path, count in zip(self.paths, counts, strict=True)]
        return SeqloomError(
            "E_ALIGN", "parallel files of different length", where=", ".join(sizes), fix="align them line by line"
        )


class JsonLinesReader(Reader):
    """One JSON object per line; the target may be a string or a list of strings (several references)."""

    class Settings(config.Settings):
        kind: Literal["jsonl"] = "jsonl"
        path: FilePath
        source: str = "source"
        target: str = "target"

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.settings = settings

    def examples(self) -> Iterator[Example]:
        path = resolved(self.settings.path, self.base)
        for number, text in self._texts(path):
            where = f"{shown(path)}:{number}"
            record = _json_object(text, where)
            source = _strings(record, self.settings.source, where)
            target = _strings(record, self.settings.target, where)
            if len(source) != 1:
                raise SeqloomError("E_DATA", f"{self.settings.source!r} must be one string", where=where)
            yield Example(source[0], target, shown(path), number)


def _json_object(text: str, where: str) -> Mapping[str, object]:
    try:
        record = json.loads(text)
    except RecursionError:
        raise SeqloomError("E_DATA", "JSON nested too deeply", where=where) from None
    except ValueError as error:
        raise SeqloomError("E_DATA", f"not valid JSON: {error}", where=where, fix="one object per line") from None
    if not isinstance(record, dict):
        raise SeqloomError("E_DATA", f"a JSON object is expected, got {type(record).__name__}", where=where)
    return record


def _strings(record: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    """One string or a list of strings; a lone surrogate (`\\ud800`) is no text and is refused here."""
    if key not in record:
        raise SeqloomError(
            "E_DATA",
            f"no key {key!r}",
            where=where,
            fix=f"keys here: {', '.join(map(repr, list(record)[:10])) or 'none'}",
        )
    value = record[key]
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    if not texts or (isinstance(value, list) and len(texts) != len(value)):
        raise SeqloomError("E_DATA", f"{key!r} must be a string or a list of strings", where=where)
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise SeqloomError(
                "E_UTF8", f"{key!r} holds half a surrogate pair", where=f"{where}, character {error.start}"
            ) from None
    return tuple(texts)


READERS: Table[Reader] = Table("readers", {"tsv": TsvReader, "parallel": ParallelReader, "jsonl": JsonLinesReader})


def dataset_settings(raw: object) -> config.Settings:
    """Settings of a reader from what people write: a file name, `-`, `{source: a.de, target: a.en}`, or all keys."""
    if isinstance(raw, config.Settings):
        return raw
    if isinstance(raw, str):
        raw = {"path": raw}
    if not isinstance(raw, Mapping):
        raise ValueError("a dataset is a file name, '-', {source: FILE, target: FILE}, or a mapping with 'kind'")
    if "kind" in raw:
        return READERS.settings(raw)
    if "path" not in raw:
        return READERS.settings({"kind": "parallel", **raw})
    name = str(raw["path"]).lower().removesuffix(".gz")
    is_json = name.endswith((".jsonl", ".json", ".ndjson")) or not {"source", "target"}.isdisjoint(raw)
    return READERS.settings({"kind": "jsonl" if is_json else "tsv", **raw})


def _plain(settings: config.Settings) -> dict[str, object]:
    return settings.model_dump(mode="json")


# A recipe's field: `train: Dataset` accepts what `dataset_settings` accepts.
Dataset = Annotated[config.Settings, PlainValidator(dataset_settings), PlainSerializer(_plain)]


def read(
    settings: config.Settings, *, on_bad_utf8: BadUtf8 = "error", base: Path | None = None, tally: Tally | None = None
) -> Iterator[Example]:
    """Examples in file order. What `on_bad_utf8` skips or mends, and lines over 64 MB, are counted in `tally`."""
    counted = Tally() if tally is None else tally
    reader = READERS.build(settings, base=base, on_bad_utf8=on_bad_utf8, tally=counted)
    return reader.examples()


def read_sources(
    path: str, *, on_bad_utf8: BadUtf8 = "error", base: Path | None = None, tally: Tally | None = None
) -> Iterator[str]:
    """Plain lines to predict from. A skipped line comes as an empty one: lines in are lines out."""
    path = resolved(path, base)
    counted = Tally() if tally is None else tally
    for line in raw_lines(path):
        if line.data is None:
            where = f"{shown(path)}:{line.number}"
            raise SeqloomError("E_DATA", f"a line of more than {MAX_LINE_BYTES:,} bytes", where=where, fix="split it")
        yield decoded(line, path, on_bad_utf8, counted) or ""


def files_of(settings: config.Settings, base: Path | None = None) -> list[str]:
    """Every file that a dataset reads, resolved: what a run fingerprints."""
    named = [_plain(settings).get(key) for key in READERS[config.kind_of(settings)].path_keys]
    flat = [path for value in named for path in (value if isinstance(value, list) else [value])]
    return [resolved(path, base) for path in flat if isinstance(path, str)]


def renamed(settings: config.Settings, rename: Callable[[str, str], str]) -> config.Settings:
    """The same dataset with every path put through `rename(path, a name of its own)`."""
    changes: dict[str, object] = {}
    for key in READERS[config.kind_of(settings)].path_keys:
        value = _plain(settings)[key]
        paths = [value] if isinstance(value, str) else value
        assert isinstance(paths, list)
        new = [rename(path, f"{key}-{i}") for i, path in enumerate(paths)]
        changes[key] = new[0] if isinstance(value, str) else new
    return settings.with_(**changes)


def spooled(settings: config.Settings, folder: Path, base: Path | None = None) -> config.Settings:
    """The same dataset with stdin and pipes copied into `folder`: training reads its data more than once."""
    return renamed(settings, lambda path, name: _spooled_file(resolved(path, base), folder / name))


def _spooled_file(path: str, copy: Path) -> str:
    if path != STDIN and is_regular(path):
        return path
    with opened(path) as stream:
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with open(copy, "wb") as out:
                shutil.copyfileobj(stream, out)
        except OSError as error:
            raise file_error(error, copy) from None
    return str(copy)

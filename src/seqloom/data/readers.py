"""From files to examples: the formats of pairs, the table of all formats, and what people may write for a dataset.

Pairs stand in one TSV, in two (or more) parallel files or in JSON lines; each also gzipped, or from stdin. A reader is
one class and one line in `READERS`; what it promises stands in `reader.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter

from seqloom import config
from seqloom.config import Table
from seqloom.data.annotated import ColumnsReader, ConlluReader
from seqloom.data.examples import Example, ExtraName, joined_items
from seqloom.data.files import (
    MAX_LINE_BYTES,
    STDIN,
    BadUtf8,
    RawLine,
    Tally,
    decoded,
    is_regular,
    opened,
    pieces,
    raw_lines,
    resolved,
    shown,
)
from seqloom.data.reader import FilePath, PairSettings, Reader, ReaderSettings, Refuse, raised
from seqloom.data.records import encodable, json_object, one_string, strings, value_of
from seqloom.data.source import in_folder
from seqloom.data.texts import TextReader
from seqloom.errors import SeqloomError
from seqloom.files import atomic_file, file_error

__all__ = [
    "READERS",
    "Dataset",
    "Datasets",
    "Example",
    "PairSettings",
    "Reader",
    "ReaderSettings",
    "dataset_settings",
    "files_of",
    "read",
    "read_sources",
    "renamed",
    "spooled",
]

Column = Annotated[int, Field(ge=0)]
JSON_LINES, CONLLU, TEXT = (".jsonl", ".json", ".ndjson"), ".conllu", ".txt"  # how the names of such files end
TSV_KEYS = {
    "columns",
    "references",
    "extras",
    "weight",
    "alignment",
    "header",
}  # whoever says these means a TSV of any name


class TsvReader(Reader):
    """Tab-separated columns, no quoting: a tab cannot stand inside a text."""

    class Settings(PairSettings):
        kind: Literal["tsv"] = "tsv"
        path: FilePath
        columns: tuple[Column, Column] = (0, 1)  # source, target
        references: tuple[Column, ...] = ()  # further columns with other right answers; they may be empty or missing
        extras: Mapping[ExtraName, Column] = {}  # further sources by name
        weight: Column | None = None  # a number from 0 up
        alignment: Column | None = None  # 0-0 1-2: words of source and target
        header: bool = False  # the first line names the columns and is no example

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.settings = settings

        marks = [i for i in (settings.weight, settings.alignment) if i is not None]
        self.path, self.needed = resolved(settings.path, base), [*settings.columns, *settings.extras.values(), *marks]

    def examples(self) -> Iterator[Example]:
        return self._made(self.path, self._row)

    def _texts(self, path: str) -> Iterator[tuple[int, str]]:
        return ((number, text) for number, text in super()._texts(path) if number > self.settings.header)

    def _row(self, text: str, number: int) -> Example:
        settings, cells = self.settings, text.split("\t")
        if len(cells) <= max(self.needed):
            raise _missing_columns(text, self.needed, f"{shown(self.path)}:{number}")
        source, target = settings.columns
        others = [cells[i] for i in settings.references if i < len(cells) and cells[i]]
        found = {name: cells[i] for name, i in settings.extras.items()}
        example = Example(cells[source], (cells[target], *others), shown(self.path), number, found)
        weight, alignment = settings.weight, settings.alignment
        return self._example(
            example, None if weight is None else cells[weight], None if alignment is None else cells[alignment]
        )


def _missing_columns(text: str, needed: Sequence[int], where: str) -> SeqloomError:
    *most, last = needed
    asked = f"{', '.join(map(str, most))} and {last}"
    fix = "separate source and target by one tab, or set 'columns'"
    if len(needed) > 2:
        fix = "separate them by tabs, or set 'columns', 'extras', 'weight' and 'alignment'"
    if text.lstrip().startswith("{"):
        fix = "this looks like JSON lines: name the file .jsonl, or write {kind: jsonl, path: ...}"
    what = f"{text.count(chr(9)) + 1} column(s), but columns {asked} (counted from 0) are asked for"
    return SeqloomError("E_DATA", what, where=where, fix=fix)


class ParallelReader(Reader):
    """One file per side, line by line; several target files are several references."""

    path_keys = ("source", "target", "extras", "weight", "alignment")

    class Settings(PairSettings):
        kind: Literal["parallel"] = "parallel"
        source: FilePath
        target: FilePath | Annotated[tuple[FilePath, ...], Field(min_length=1)]
        extras: Mapping[ExtraName, FilePath] = {}  # further sources by name
        weight: FilePath | None = None  # a number from 0 up on every line
        alignment: FilePath | None = None  # 0-0 1-2 on every line: words of source and target

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.settings = settings
        targets = (settings.target,) if isinstance(settings.target, str) else settings.target
        self.targets = len(targets)
        marks = [path for path in (settings.weight, settings.alignment) if path is not None]
        every = (settings.source, *targets, *settings.extras.values(), *marks)
        self.paths = [resolved(path, base) for path in every]
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
                yield self._assembled(whole, number)

    def _assembled(self, texts: Sequence[str], number: int) -> Example:
        """Texts in the order of `paths`: source, references, extras, weight, alignment."""
        rest = iter(texts[1 + self.targets :])
        extras = {name: next(rest) for name in self.settings.extras}
        example = Example(texts[0], tuple(texts[1 : 1 + self.targets]), shown(self.paths[0]), number, extras)
        weight = None if self.settings.weight is None else next(rest)
        return self._example(example, weight, None if self.settings.alignment is None else next(rest))

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
    """One JSON object per line; the target may be a string or a list of strings: several references, or one set.

    An extra may be a string, a list of strings, or a record, which becomes `k=v` items in the order of its keys.
    """

    class Settings(PairSettings):
        kind: Literal["jsonl"] = "jsonl"
        path: FilePath
        source: str = "source"
        target: str = "target"
        list_of: Literal["references", "labels"] = "references"  # what a target is that is a list: or a set of labels
        extras: Mapping[ExtraName, str] = {}  # further sources: name -> key
        weight: str | None = None  # the key of a number from 0 up
        alignment: str | None = None  # the key of 0-0 1-2: words of source and target

    def __init__(self, settings: Settings, *, base: Path | None, on_bad_utf8: BadUtf8, tally: Tally) -> None:
        super().__init__(settings, base=base, on_bad_utf8=on_bad_utf8, tally=tally)
        self.settings = settings

        self.path = resolved(settings.path, base)

    def examples(self) -> Iterator[Example]:
        return self._made(self.path, self._record)

    def _record(self, text: str, number: int) -> Example:
        settings, where = self.settings, f"{shown(self.path)}:{number}"
        record = json_object(text, where)
        target: tuple[str, ...]
        if settings.list_of == "labels":
            target = (self._joined(record, settings.target, where),)
        else:
            target = strings(record, settings.target, where)
        extras = {name: self._joined(record, key, where) for name, key in settings.extras.items()}
        example = Example(one_string(record, settings.source, where), target, shown(self.path), number, extras)
        weight = None if settings.weight is None else value_of(record, settings.weight, where)
        alignment = None if settings.alignment is None else one_string(record, settings.alignment, where)
        return self._example(example, weight, alignment)

    @staticmethod
    def _joined(record: Mapping[str, object], key: str, where: str) -> str:
        return encodable(joined_items(value_of(record, key, where), key, where), key, where)


READERS: Table[Reader] = Table(
    "readers",
    {
        "tsv": TsvReader,
        "parallel": ParallelReader,
        "jsonl": JsonLinesReader,
        "conllu": ConlluReader,
        "columns": ColumnsReader,
        "text": TextReader,
    },
)


def dataset_settings(raw: object) -> ReaderSettings:
    """Settings of a reader from what people write: a file name, `-`, `{source: a.de, target: a.en}`, or all keys."""
    if isinstance(raw, ReaderSettings):
        return raw
    if isinstance(raw, str):
        raw = {"path": raw}
    if not isinstance(raw, Mapping):
        raise ValueError("a dataset is a file name, '-', {source: FILE, target: FILE}, or a mapping with 'kind'")
    if "kind" not in raw:
        raw = {"kind": _guessed_kind(raw), **raw}
    return cast(ReaderSettings, READERS.settings(raw))


def _guessed_kind(raw: Mapping[object, object]) -> str:
    if "path" not in raw:
        return "parallel"
    name = str(raw["path"]).lower().removesuffix(".gz")
    if name.endswith(JSON_LINES) or not {"source", "target"}.isdisjoint(raw):
        return "jsonl"
    if name.endswith(CONLLU):
        return "conllu"
    return "text" if name.endswith(TEXT) and TSV_KEYS.isdisjoint(raw) else "tsv"


def _plain(settings: config.Settings) -> dict[str, object]:
    return settings.model_dump(mode="json")


# A recipe's field: `dev: Dataset` accepts what `dataset_settings` accepts, `train: Datasets` also a list of them.
Dataset = Annotated[ReaderSettings, PlainValidator(dataset_settings), PlainSerializer(_plain)]


def _one_or_several(raw: object) -> ReaderSettings | tuple[ReaderSettings, ...]:
    if not isinstance(raw, (list, tuple)):
        return dataset_settings(raw)
    if not raw:
        raise ValueError("an empty list: name one dataset at least")
    return TypeAdapter(tuple[Dataset, ...]).validate_python(raw)


def _plain_ones(settings: ReaderSettings | tuple[ReaderSettings, ...]) -> object:
    return [_plain(one) for one in settings] if isinstance(settings, tuple) else _plain(settings)


Datasets = Annotated[
    ReaderSettings | tuple[ReaderSettings, ...], PlainValidator(_one_or_several), PlainSerializer(_plain_ones)
]


def read(
    settings: config.Settings,
    *,
    on_bad_utf8: BadUtf8 = "error",
    base: Path | None = None,
    tally: Tally | None = None,
    refuse: Refuse = raised,
    in_files: bool = False,
) -> Iterator[Example]:
    """Examples in file order. What `on_bad_utf8` skips or mends, and lines over 64 MB, are counted in `tally`.

    Where sources are `in_files`, lines name them, relative to the folder of their own file.
    `refuse` hears of every line that has not the promised form; by default the first one is an error.
    """
    counted = Tally() if tally is None else tally
    reader = READERS.build(settings, base=base, on_bad_utf8=on_bad_utf8, tally=counted)
    reader.refuse = refuse
    examples = reader.examples()
    if not in_files:
        return examples
    return (replace(one, source=in_folder(one.source, one.file), name=one.source) for one in examples)


def read_sources(
    path: str, *, on_bad_utf8: BadUtf8 = "error", base: Path | None = None, tally: Tally | None = None
) -> Iterator[str]:
    """Plain lines to predict from. A skipped line comes as an empty one: lines in are lines out."""
    path = resolved(path, base)
    counted = Tally() if tally is None else tally
    for line in raw_lines(path):
        yield source_of(line, path, on_bad_utf8, counted)


def source_of(line: RawLine, path: str, on_bad_utf8: BadUtf8, tally: Tally) -> str:
    """One line to predict from; an empty one in the place of one that is skipped."""
    if line.data is None:
        where = f"{shown(path)}:{line.number}"
        raise SeqloomError("E_DATA", f"a line of more than {MAX_LINE_BYTES:,} bytes", where=where, fix="split it")
    return decoded(line, path, on_bad_utf8, tally) or ""


def files_of(settings: config.Settings, base: Path | None = None) -> list[str]:
    """Every file that a dataset reads, resolved: what a run fingerprints."""
    found: list[str] = []

    def noted(path: str, name: str) -> str:
        found.append(resolved(path, base))
        return path

    renamed(settings, noted)
    return found


def renamed(settings: config.Settings, rename: Callable[[str, str], str]) -> ReaderSettings:
    """The same dataset with every path put through `rename(path, a name of its own)`."""

    def walked(value: object, name: str) -> object:
        if isinstance(value, list):
            return [rename(path, f"{name}-{i}") for i, path in enumerate(value)]
        if isinstance(value, dict):
            return {key: rename(path, f"{name}-{key}") for key, path in value.items()}
        return rename(value, f"{name}-0") if isinstance(value, str) else value

    plain = _plain(settings)
    keys = READERS[config.kind_of(settings)].path_keys
    return dataset_settings({**plain, **{key: walked(plain[key], key) for key in keys}})


def spooled(
    settings: config.Settings, folder: Path, base: Path | None = None, *, spare: bool = False
) -> ReaderSettings:
    """The same dataset with stdin and pipes copied into `folder`: training reads its data more than once.

    A copy replaces an earlier one of its name, unless that is to be spared: then it gets another name.
    """
    return renamed(settings, lambda path, name: _spooled_file(resolved(path, base), folder / name, spare))


def _spooled_file(path: str, copy: Path, spare: bool) -> str:
    if path != STDIN and is_regular(path):
        return path
    if spare:
        names = (copy.with_name(f"{copy.name}.{number}") for number in count(2))
        copy = next(name for name in chain([copy], names) if not name.exists())
    with opened(path) as stream:
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise file_error(error, copy) from None
        with atomic_file(copy) as out:  # whole or not at all: a pipe may be cut off, and so may we
            out.writelines(pieces(stream, path))
    return str(copy)

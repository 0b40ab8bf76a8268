"""What to predict from: plain lines, or lines with further sources, as tab-separated columns or JSON objects.

Lines in are lines out: a blank line, and one that is skipped, comes as an empty input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqloom.config import kind_of
from seqloom.data.examples import Inputs, joined_items
from seqloom.data.files import STDIN, BadUtf8, Tally, is_regular, resolved, shown
from seqloom.data.named import refuse_other_kind
from seqloom.data.readers import JSON_LINES, read_sources
from seqloom.data.records import encodable, json_object, one_string, value_of
from seqloom.data.source import SourceCodec
from seqloom.errors import SeqloomError


@dataclass(frozen=True)
class InputForm:
    """How a line says what is asked: `extras` are the names the model knows, `constants` those given for all lines."""

    extras: Sequence[str] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    json_lines: bool = False
    codec: SourceCodec | None = None  # of the source; None: it is text

    @property
    def columns(self) -> list[str]:
        """What stands on a line: the source, then the extras that are not the same for all, in their order."""
        return ["source", *(name for name in self.extras if name not in self.constants)]

    def inputs(self, line: str, where: str, file: str = "") -> Inputs:
        """One line (of a `file`) as a model is asked."""
        found = self._read(line, where)
        if self.codec is None:
            return found
        if isinstance(found, str):
            return self.codec.located(found, file)
        return {**found, "source": self.codec.located(found["source"], file)}

    def _read(self, line: str, where: str) -> Inputs:
        if not self.extras and not self.json_lines:
            return line
        if not line.strip():
            return {"source": line, **dict.fromkeys(self.extras, ""), **self.constants}
        found = self._record(line, where) if self.json_lines else self._cells(line, where)
        return {**found, **self.constants}

    def _cells(self, line: str, where: str) -> dict[str, str]:
        columns = self.columns
        cells = line.split("\t") if len(columns) > 1 else [line]
        if len(cells) != len(columns):
            what = f"{len(cells)} column(s), but {len(columns)} are expected: {', '.join(columns)}"
            fix = f"separate them by tabs, or give what is the same on all lines: --extra {columns[-1]}=TEXT"
            raise SeqloomError("E_DATA", what, where=where, fix=fix)
        return dict(zip(columns, cells, strict=True))

    def _record(self, line: str, where: str) -> dict[str, str]:
        record = json_object(line, where)
        found = {"source": one_string(record, "source", where)}
        for name in self.columns[1:]:
            found[name] = encodable(joined_items(value_of(record, name, where), name, where), name, where)
        return found


def holds_records(path: str) -> bool:
    """Whether a file is named as JSON lines and begins with an object that has a source."""
    if path == STDIN or not path.lower().removesuffix(".gz").endswith(JSON_LINES) or not is_regular(path):
        return False
    try:
        return "source" in json_object(next(read_sources(path, on_bad_utf8="replace"), ""), path)
    except SeqloomError:
        return False


def read_inputs(
    path: str,
    form: InputForm,
    *,
    on_bad_utf8: BadUtf8 = "error",
    base: Path | None = None,
    tally: Tally | None = None,
) -> Iterator[Inputs]:
    """The inputs of a file, a pipe or stdin, line by line; of a file or folder of sources, these themselves."""
    place = shown(resolved(path, base))
    themselves = None if form.codec is None else form.codec.inputs(place)
    if themselves is not None:
        yield from (form.inputs(source, source) for source in themselves)
        return
    if form.codec is not None and is_regular(path):
        refuse_other_kind(place, kind_of(form.codec.settings))
    lines = read_sources(path, on_bad_utf8=on_bad_utf8, base=base, tally=tally)
    for number, line in enumerate(lines, start=1):
        yield form.inputs(line, f"{place}:{number}", place)

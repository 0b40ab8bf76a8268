"""How commands speak: talk to stderr, data to stdout, JSON on demand, a table where a person reads it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from seqloom.config import Plain

ENDLESS = 10_000  # columns: wider than any line


def talk(line: str) -> None:
    """One line for the person, never mixed with data; where nobody listens any more, it is dropped."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        unheard(2)


def unheard(stream: int) -> None:
    """Send what is still written to a stream (1: stdout, 2: stderr) nowhere: whoever read it is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def data(text: str) -> None:
    print(text)


def as_json(value: Mapping[str, Plain] | Sequence[Plain]) -> None:
    """A report as one JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=str))


def percent(share: float) -> str:
    """A share from 0 to 1 as every command writes it: `97.3 %`."""
    return f"{100 * share:.1f} %"


def width() -> int | None:
    """How wide lines may be: as COLUMNS says, else as the terminal is; in a pipe or a file as long as they are."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> None:
    """A table on stdout; where it is wider than the terminal, each row as a list of its own: cells are never broken."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    room = width()
    console = Console(file=sys.stdout, highlight=False, width=room or ENDLESS)
    console.print(title, style="italic", markup=False, soft_wrap=True)
    drawn = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        drawn.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*[escape(str(cell)) for cell in row])
    if room is None or Console(width=ENDLESS).measure(drawn).maximum <= room:
        console.print(drawn)
    else:
        _print_lists(console, columns, rows)
    for note in notes:
        console.print(note, markup=False, soft_wrap=room is None)


def _print_lists(console: Console, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    left = max(map(len, columns[1:]))
    for row in rows:
        console.print(str(row[0]), style="bold", markup=False, soft_wrap=True)
        for column, cell in zip(columns[1:], row[1:], strict=True):
            console.print(f"  {column.ljust(left)}  {cell}".rstrip(), markup=False, soft_wrap=True)


def to_type(line: str) -> str:
    """`seqloom ...` as it can be typed here: by its path where a virtual environment is not active."""
    called = Path(sys.argv[0])
    if not line.startswith("seqloom ") or shutil.which("seqloom") or called.name != "seqloom":
        return line
    return shown(called.absolute()) + line.removeprefix("seqloom")


def shown(path: Path) -> str:
    """A path as a person would type it: relative where it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)

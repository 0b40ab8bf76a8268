"""How commands speak: talk to stderr, data to stdout, JSON on demand, a table where a person reads it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.config import Plain


def talk(line: str) -> None:
    """One line for the person, never mixed with data."""
    print(line, file=sys.stderr, flush=True)


def data(text: str) -> None:
    print(text)


def as_json(value: Mapping[str, Plain] | Sequence[Plain]) -> None:
    """A report as one JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=str))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> None:
    """A table on stdout: drawn by rich on a terminal, plain columns in a pipe."""
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(title, style="italic", markup=False, soft_wrap=True)
    drawn = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        drawn.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        drawn.add_row(*[str(cell) for cell in row])
    console.print(drawn)
    for note in notes:
        console.print(note, markup=False, soft_wrap=not sys.stdout.isatty())


def to_type(line: str) -> str:
    """`seqloom ...` as it can be typed here: by its path where a virtual environment is not active."""
    import shutil

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

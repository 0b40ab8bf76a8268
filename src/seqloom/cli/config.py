"""`seqloom config`: the effective recipe of a file or run; without one, every word a recipe may use."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.keys import Key


def command(
    recipe: Path | None = typer.Argument(
        None, metavar="[RECIPE|RUN]", help="A recipe (- is stdin), a run or a bundle folder."
    ),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change a key of the recipe."),
    as_json: bool = typer.Option(False, "--json", help="As JSON."),
) -> None:
    """Show a recipe with all its defaults, or every key there is."""
    if recipe is None:
        if settings:
            raise SeqloomError("E_USAGE", "--set needs a recipe to change", fix="seqloom config recipe.yaml --set ...")
        _show_words(as_json)
        return
    from seqloom.config import read_yaml, render_yaml

    path = recipe_file(recipe)
    if path.is_file():
        read_yaml(path)  # its limits hold before anything heavy is imported

    from seqloom.api.folder import read_recipe

    effective = read_recipe(path, settings)
    if as_json:
        say.as_json(effective.model_dump(mode="json"))
    else:
        say.data(render_yaml(effective).rstrip("\n"))


def recipe_file(path: Path) -> Path:
    """The recipe of a run or bundle folder, or the file itself; `-` is stdin."""
    if str(path) == "-":
        return Path("/dev/stdin")
    if not path.is_dir():
        return path
    for name in ("recipe.yaml", "bundle/recipe.yaml"):
        if (path / name).exists():
            return path / name
    raise SeqloomError("E_FILE", "no recipe.yaml in this folder", where=str(path), fix="give a recipe or a run folder")


def _show_words(as_json: bool) -> None:
    from seqloom.api.keys import vocabulary

    words = vocabulary()
    if as_json:
        say.as_json(
            {
                "keys": [asdict(key) for key in words.keys],
                "tables": {name: [asdict(entry) for entry in entries] for name, entries in words.tables.items()},
            }
        )
        return
    say.data("# every key of a recipe: type, default and meaning; --set takes the same names\n")
    _show_keys(words.keys, "")
    for name, entries in words.tables.items():
        say.data(f"\n# {name}\n")
        for entry in entries:
            line = f"kind: {entry.kind}" + (f"  # {entry.meaning}" if entry.meaning else "")
            room = say.width()
            say.data(line if room is None else textwrap.fill(line, room, subsequent_indent="      # "))
            _show_keys(entry.keys, "    ")


def _show_keys(keys: tuple[Key, ...], indent: str) -> None:
    """A line for every key; where one would be too wide for the terminal, each has its meaning below."""
    widths = [
        max((len(text) for text in column), default=0)
        for column in zip(*((k.path, k.type, k.default) for k in keys), strict=True)
    ]
    lines = []
    for key in keys:
        cells = [
            text.ljust(min(width, 44)) for text, width in zip((key.path, key.type, key.default), widths, strict=True)
        ]
        lines.append((indent + "  ".join([*cells, key.meaning])).rstrip())
    room = say.width()
    if room is not None and any(len(line) > room for line in lines):
        lines = [line for key in keys for line in _narrow(key, indent, room)]
    for line in lines:
        say.data(line)


def _narrow(key: Key, indent: str, room: int) -> list[str]:
    """`key: default  # type`, and what it means below."""
    first = f"{key.path}:{' ' * bool(key.default)}{key.default}  # {key.type}"
    deeper = indent + "    "
    return [
        *textwrap.wrap(first, room, initial_indent=indent, subsequent_indent=deeper),
        *textwrap.wrap(key.meaning, room, initial_indent=deeper, subsequent_indent=deeper),
    ]

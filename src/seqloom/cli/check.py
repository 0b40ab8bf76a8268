"""`seqloom check DATA` or `seqloom check RECIPE`: what looks wrong with the pairs, with line numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.cli.config import recipe_file
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.check import Checked


def command(
    data: Path = typer.Argument(
        ..., metavar="DATA|RECIPE|RUN", help="Pairs (TSV, JSON lines, {path: ..., extras: ...}), a recipe, or a run."
    ),
    target: Path | None = typer.Argument(
        None, metavar="[TARGET]", help="The target file, where DATA is the source file."
    ),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change a key of the recipe."),
    fail: bool = typer.Option(False, "--fail", help="Exit with 3 when there are errors or warnings."),
    as_json: bool = typer.Option(False, "--json", help="The report as JSON."),
) -> None:
    """Look for empty, doubled, odd or leaked pairs in the data."""
    checked = _checked(data, target, settings)
    if as_json:
        say.as_json(checked.as_dict())
    else:
        say.data("\n".join(checked.lines()))
    if fail and checked.problems:
        kinds = ", ".join(f"{finding.set}: {finding.kind}" for finding in checked.grave)
        what = f"{checked.problems} kind(s) of trouble found" + (f" ({kinds})" if kinds else "")
        raise SeqloomError("E_DATA", what, where=str(data), fix="see the report above")


def _checked(data: Path, target: Path | None, settings: list[str]) -> Checked:
    if data.is_dir() or data.suffix in (".yaml", ".yml"):
        if target is not None:
            raise SeqloomError("E_USAGE", "a recipe names its own targets", where=str(target))
        from seqloom.config import read_yaml

        path = recipe_file(data)
        read_yaml(path)  # its limits hold before anything heavy is imported

        from seqloom.api.check import check_data
        from seqloom.api.folder import read_recipe

        return check_data(read_recipe(path, settings).data)
    if settings:
        raise SeqloomError("E_USAGE", "--set changes a recipe, and this is data", where=str(data))

    from seqloom.api.check import check_pairs
    from seqloom.api.testset import named_dataset

    return check_pairs(
        named_dataset(str(data) if target is None else {"source": str(data), "target": str(target)}, "DATA")
    )

"""`seqloom check DATA` or `seqloom check RECIPE`: what looks wrong with the data, with line numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from seqloom.cli import say
from seqloom.cli.config import recipe_file
from seqloom.cli.predict import one_of
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seqloom.api.check import Checked
    from seqloom.config import Plain
    from seqloom.data.kinds import Task


def command(
    data: Path = typer.Argument(
        ..., metavar="DATA|RECIPE|RUN", help="Pairs (TSV, JSON lines, {path: ..., extras: ...}), a recipe, or a run."
    ),
    target: Path | None = typer.Argument(
        None, metavar="[TARGET]", help="The target file, where DATA is the source file."
    ),
    task: str | None = typer.Option(
        None,
        "--task",
        metavar="TASK",
        help="What DATA is for, if not as it looks (see init).",
    ),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change a key of the recipe."),
    fail: bool = typer.Option(False, "--fail", help="Exit with 3 when there are errors or warnings."),
    as_json: bool = typer.Option(False, "--json", help="The report as JSON."),
) -> None:
    """Look for what is empty, doubled, odd or leaked in the data."""
    checked = _checked(data, target, settings, task)
    if as_json:
        say.as_json(checked.as_dict())
    else:
        say.data("\n".join(checked.lines()))
    if fail and checked.problems:
        kinds = ", ".join(f"{finding.set}: {finding.kind}" for finding in checked.grave)
        what = f"{checked.problems} kind(s) of trouble found" + (f" ({kinds})" if kinds else "")
        raise SeqloomError("E_DATA", what, where=str(data), fix="see the report above")


def _checked(data: Path, target: Path | None, settings: list[str], task: str | None) -> Checked:
    if data.is_dir() or data.suffix in (".yaml", ".yml"):
        if target is not None:
            raise SeqloomError("E_USAGE", "a recipe names its own targets", where=str(target))
        if task is not None:
            raise SeqloomError("E_USAGE", "a recipe says by its model what it is for", where=f"--task {task}")
        from seqloom.config import read_yaml

        path = recipe_file(data)
        read_yaml(path)  # its limits hold before anything heavy is imported

        from seqloom.api.check import check_data
        from seqloom.api.folder import read_recipe

        recipe = read_recipe(path, settings)
        separator = str(recipe.target.tokenizer.model_dump().get("separator", ";"))
        longest = recipe.source.model_dump().get("max_seconds")
        return check_data(recipe.data, recipe.model, separator, longest)
    if settings:
        raise SeqloomError("E_USAGE", "--set changes a recipe, and this is data", where=str(data))

    from seqloom.api.check import check_dataset
    from seqloom.api.testset import named_dataset
    from seqloom.data.kinds import TASKS
    from seqloom.data.sniffing import meant

    if task is not None:
        one_of("--task", task, TASKS)
    known = cast("Task | None", task)
    given: Plain = str(data) if target is None else {"source": str(data), "target": str(target)}
    if isinstance(given, str) and not given.lstrip().startswith("{"):
        given = meant(given, known)
    return check_dataset(named_dataset(cast("str | Mapping[str, object]", given), "DATA"), known)

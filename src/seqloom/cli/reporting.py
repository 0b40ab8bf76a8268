"""Where `train`, `evaluate` and `explain` put a page, that it overwrites no input, and is never in the way."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.cli import say
from seqloom.cli.sink import same_file
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.recipe import Recipe

NAME = "report.html"  # as `api/staging.py` has it, which is not imported for a name


def report_path(runs: list[str], wanted: Path | None, refused: bool, obstacle: str) -> Path | None:
    """The file to write: as named, else in the run folder; None where nobody can be asked, or nobody wants it.

    `obstacle` is why there can be no report at all, empty where there can.
    """
    if wanted is not None and refused:
        raise SeqloomError("E_USAGE", "--report and --no-report", fix="give one of them")
    if wanted is not None:
        if obstacle:
            raise SeqloomError("E_USAGE", f"no report: {obstacle}", where=str(wanted), fix="leave --report out")
        if str(wanted) == "-":
            raise SeqloomError("E_USAGE", "stdout holds the tables", where="--report -", fix="name a file")
        if not wanted.absolute().parent.is_dir():
            raise SeqloomError("E_FILE", "no such folder", where=str(wanted.absolute().parent), fix="make it first")
        return wanted
    one = len(runs) == 1 and (Path(runs[0]) / "bundle").is_dir()
    return Path(runs[0]) / NAME if one and not refused and not obstacle else None


def refuse_page(path: Path, run: Path, data: Sequence[str], recipe: Recipe) -> None:
    """Before any work: a page that cannot be written, or that would take the place of an input or of a run's file."""
    from seqloom.api.testset import named_dataset
    from seqloom.data.readers import files_of

    if str(path) == "-":
        return
    if path.is_dir():
        raise SeqloomError("E_FILE", "cannot write: it is a folder", where=str(path), fix="name a file in it")
    if not path.absolute().parent.is_dir():
        raise SeqloomError("E_FILE", "no such folder", where=str(path.absolute().parent), fix="make it first")
    given = [file for name in data for file in files_of(named_dataset(name, "--data"))]
    trained = [file for files in recipe.data.files().values() for file in files]
    inside = path.is_file() and path.resolve().is_relative_to(run.resolve()) and path.suffix.lower() != ".html"
    if inside or any(same_file(path, name) for name in (*given, *trained)):
        raise SeqloomError("E_USAGE", "--html would overwrite an input", where=str(path), fix="name another file")


def written(path: Path, write: Callable[[], object], quiet: bool = False) -> None:
    """Write it, and say where; whatever goes wrong is one line, and what was trained or judged stands."""
    if not quiet and sys.stderr.isatty():  # somebody waits
        say.talk("writing the report; Ctrl-C leaves it out")
    try:
        write()
        line = f"report: {say.shown(path)}"
    except (KeyboardInterrupt, SystemExit):
        line = "no report: stopped"
    except SeqloomError as error:
        line = f"no report: {error.line.removeprefix('seqloom: ')}"
    except Exception as error:  # a fault of the report's own
        line = f"no report: {type(error).__name__}: {error}".splitlines()[0] + f" ({_place(error)})"
    if not quiet:
        say.talk(line)


def _place(error: Exception) -> str:
    """Where in seqloom it went wrong, for whoever is told of it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "seqloom" in Path(frame.filename).parts]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside seqloom"

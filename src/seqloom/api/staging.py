"""How a new run takes its place: made beside what the folder holds, and moved there when it is whole.

Until data are read and the model is built, an earlier run of the folder stays as it is; whatever fails or is cut off,
it can be gone on with. A folder with a recipe is therefore always one whose run could begin.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqloom.api.datasets import INPUT
from seqloom.data.sets import Data
from seqloom.files import file_error, sweep, sync_folder

RECIPE, DATA, START, FINISHED, METRICS = "recipe.yaml", "data.json", "start.json", "finished.json", "metrics.jsonl"
PAIRS = "pairs.json"  # what became of the lines that were read
REPORT = "report.html"
NEW = ".new"
_FOLDERS = ("codec", "cache", "checkpoints", "bundle", "board")
_FILES = (METRICS, DATA, PAIRS, START, FINISHED)
_MOVED = ("codec", "cache", START, PAIRS, DATA, RECIPE)  # the first is always there, the last says that all arrived


def written_by_runs(folder: Path) -> list[str]:
    """What a folder holds under the names that runs use, besides the recipe and the copies of pipes, which are data."""
    return [name for name in (*_FOLDERS, *_FILES) if (folder / name).exists()]


@contextmanager
def undone_on_failure(folder: Path) -> Iterator[None]:
    """Take back what is begun in the block (`NEW`, copies of pipes) when it fails or is interrupted."""
    before = _copies(folder)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder / NEW, ignore_errors=True)
        for copy in _copies(folder) - before:
            copy.unlink(missing_ok=True)
        raise


def new_folder(folder: Path) -> Path:
    """An empty place for the parts of a new run."""
    new = folder / NEW
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
    except OSError as error:
        raise file_error(error, new) from None
    return new


def is_half_adopted(folder: Path) -> bool:
    """Whether a power cut fell while a whole new run took its place."""
    return (folder / NEW / RECIPE).exists()


def recover(folder: Path) -> None:
    """Bring to an end what a power cut interrupted: a run that was whole takes its place, others are dropped, and so
    is what was half written. Others may be writing what is not a run's own (an index, an export)."""
    if is_half_adopted(folder):
        adopt(folder)
    shutil.rmtree(folder / NEW, ignore_errors=True)
    sweep(folder, (*_FOLDERS, *_FILES, RECIPE))
    for name in ("checkpoints", "cache", INPUT):
        sweep(folder / name)


def adopt(folder: Path) -> None:
    """Put the whole new run in the place of what the folder holds. May be called again where it was cut off."""
    new = folder / NEW
    try:
        if (new / _MOVED[0]).exists():  # nothing has moved yet
            _clear(folder)
        for name in _MOVED:
            if (new / name).exists():
                os.replace(new / name, folder / name)
        sync_folder(folder)
    except OSError as error:
        raise file_error(error, folder) from None
    shutil.rmtree(new, ignore_errors=True)


def _clear(folder: Path) -> None:
    """Drop what a run has learned, its recipe first: what is left of it is never taken for a run."""
    for name in (RECIPE, REPORT, *_FILES):
        (folder / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        if (folder / name).is_symlink():  # what it leads to was put there by somebody, and stays
            (folder / name).unlink()
        elif (folder / name).exists():
            shutil.rmtree(folder / name)


# --- copies of pipes ---------------------------------------------------------------------------------------------


def drop_old_copies(folder: Path, data: Data) -> None:
    """Remove copies whose place a newer copy of the same pipe has taken."""
    used = {Path(path) for paths in data.files().values() for path in paths}
    for copy in _copies(folder.absolute()) - used:
        if any(copy.parent == newer.parent and _slot(copy) == _slot(newer) for newer in used):
            copy.unlink(missing_ok=True)


def _copies(folder: Path) -> set[Path]:
    return {path for path in (folder / INPUT).rglob("*") if path.is_file()}


def _slot(copy: Path) -> str:
    """`path-0` of `path-0` and of `path-0.2`, which stands for it where the first name was taken."""
    return re.sub(r"\.\d+$", "", copy.name)

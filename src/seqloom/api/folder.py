"""A run folder before training: which recipe it is for, whether it may go on, and what it began from.

A run folder holds one recipe. What was chosen at its start (device, threads, shares of the split, copies of pipes) is
chosen once and read back; another recipe is refused with the differences, never mixed in.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from seqloom import runtime
from seqloom.api.assignments import full_keys
from seqloom.api.datasets import settled
from seqloom.config import override, read_yaml, render_yaml
from seqloom.data.files import STDIN, is_regular
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_bounded
from seqloom.recipe import Data, Recipe, recipe_from, same_recipe
from seqloom.runtime import Runtime
from seqloom.training import checkpoints

RECIPE, DATA, START, FINISHED, METRICS = "recipe.yaml", "data.json", "start.json", "finished.json", "metrics.jsonl"
_MACHINE = ("runtime.device:", "runtime.threads:")  # may change between sittings, and is told
_MOST_BYTES = 1_000_000


def located(recipe: str | Path | Recipe, run: str | Path | None, settings: Sequence[str]) -> tuple[Recipe, Path]:
    """The recipe that is asked for, and the run folder it belongs in."""
    if isinstance(recipe, Recipe):
        if run is None:
            raise SeqloomError("E_USAGE", "a recipe without a file needs a run folder", fix="train(recipe, run=...)")
        return recipe, Path(run)
    path = Path(recipe)
    folder = Path(run) if run is not None else Path("runs") / path.stem
    if path.is_dir():  # a run folder: resume it
        if run is not None and Path(run).resolve() != path.resolve():
            fix = f"to begin another run from its weights: --from {path} --run {run}"
            raise SeqloomError("E_USAGE", "a run is resumed in its own folder", where=str(path), fix=fix)
        path, folder = path / RECIPE, path
        if not path.exists():
            raise SeqloomError("E_FILE", "no recipe.yaml here", where=str(folder), fix="give a recipe or a run folder")
    if folder.exists() and not folder.is_dir():
        what = "the run folder's name is taken by a file"
        raise SeqloomError("E_FILE", what, where=str(folder), fix="choose another --run")
    return read_recipe(path, settings), folder


def read_recipe(path: Path, settings: Sequence[str]) -> Recipe:
    """The recipe of a file with `--set` applied, whose keys may be short where they are plain."""
    raw = read_yaml(path)
    return recipe_from(override(raw, full_keys(raw, settings, str(path))), str(path))


def check_readable(data: Data) -> None:
    """E_FILE for a missing file before anything is made. Pipes are not touched."""
    for paths in data.files().values():
        for path in paths:
            if path != STDIN:
                is_regular(path)


def effective(wanted: Recipe, folder: Path, replace: bool) -> tuple[Recipe, list[str]]:
    """The recipe with every choice made that is made at the start, the stored one's choices where the run goes on;
    and what to tell the person about them."""
    stored_at = folder / RECIPE
    stored = recipe_from(read_yaml(stored_at), str(stored_at)) if stored_at.exists() else None
    recipe = _settled(wanted, None if replace else stored, folder)
    told: list[str] = []
    if stored is not None:
        differences = same_recipe(stored, recipe)
        told = [line for line in differences if line.startswith(_MACHINE)]
        others = [line for line in differences if line not in told]
        if others and not replace:
            shown = "; ".join(others[:5]) + (f"; and {len(others) - 5} more" if len(others) > 5 else "")
            fix = "choose another --run (with --from to begin from these weights), or --replace to begin anew"
            raise SeqloomError("E_RUN", f"the run folder holds another recipe: {shown}", where=str(folder), fix=fix)
        if replace:
            clear(folder)
    if not is_finished(folder):
        atomic_write(stored_at, render_yaml(recipe).encode())
    return recipe, [f"{line} (from here on, results may differ in the last digits)" for line in told]


def _settled(wanted: Recipe, stored: Recipe | None, folder: Path) -> Recipe:
    data, batching = wanted.data, wanted.batching
    if stored is not None:
        if batching.tokens == "auto":
            batching = batching.with_(tokens=stored.batching.tokens)
        known = stored.data.split
        split = data.split.with_(dev=data.split.dev or known.dev, test=data.split.test or known.test)
        data = data.with_(split=split, **_copied(stored.data, folder))
    machine = _machine(wanted.runtime, None if stored is None else stored.runtime)
    settled_data = settled(data, folder)
    return wanted.with_(data=settled_data, batching=batching, training=wanted.watched(), runtime=machine)


def _copied(stored: Data, folder: Path) -> dict[str, object]:
    """The sets that came through a pipe when the run began: a pipe is read once, so its copy is the data."""
    sets: dict[str, object] = {"train": stored.train, "dev": stored.dev, "test": stored.test}
    return {name: settings for name, settings in sets.items() if (folder / "input" / name).is_dir()}


def _machine(wanted: Runtime, stored: Runtime | None) -> Runtime:
    """Device and threads: as asked, else as before, else as found."""
    device, threads = wanted.device, wanted.threads or (stored.threads if stored else None)
    if device == "auto" and stored is not None and _is_there(stored.device):
        device = stored.device
    if device == "auto":
        device = runtime.find_device(device).type
    runtime.check_precision(wanted.precision, runtime.find_device(device))  # before anything is written
    if threads is None:
        runtime.apply(wanted)
        threads = torch.get_num_threads()
    return wanted.with_(device=device, threads=threads)


def _is_there(device: str) -> bool:
    try:
        runtime.find_device(device)
    except SeqloomError:
        return False
    return True


def clear(folder: Path) -> None:
    """Drop what a run has learned; copies of pipes stay, they are data."""
    for name in ("codec", "cache", "checkpoints", "bundle", "board"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (METRICS, DATA, START, FINISHED):
        (folder / name).unlink(missing_ok=True)


def started_from(folder: Path, wanted: Path | None) -> Path | None:
    """The run whose weights this one begins with: written down at the start, read back by every later sitting."""
    record = folder / START
    wanted = None if wanted is None else wanted.resolve()
    if record.exists():
        known = Path(str(_record(record)["from"]))
        if wanted is not None and wanted != known:
            what = f"this run began from {known}, not from {wanted}"
            raise SeqloomError("E_RUN", what, where=str(folder), fix="choose another --run, or --replace")
        return known
    if wanted is None:
        return None
    if checkpoints.last(folder) is not None:
        what = "this run did not begin from another one"
        raise SeqloomError("E_RUN", what, where=str(folder), fix="leave --from out, choose another --run, or --replace")
    for name in ("codec", "cache"):  # tokens will be those of the run to begin from
        shutil.rmtree(folder / name, ignore_errors=True)
    atomic_write(record, json.dumps({"from": str(wanted)}).encode())
    return wanted


def is_finished(folder: Path) -> bool:
    return (folder / FINISHED).exists()


def finished_reason(folder: Path) -> str:
    return str(_record(folder / FINISHED)["reason"])


def _record(path: Path) -> Mapping[str, object]:
    """A small file of ours; E_BUNDLE where somebody changed it."""
    try:
        raw = json.loads(read_bounded(path, _MOST_BYTES))
    except (ValueError, RecursionError):
        raw = None
    if not isinstance(raw, dict) or not raw:
        raise SeqloomError("E_BUNDLE", "not what seqloom wrote here", where=str(path), fix="--replace begins anew")
    return raw

"""A run folder before training: which recipe it is for, whether it may go on, and what it began from.

A run folder holds one recipe. What was chosen at its start (device, threads, shares of the split, copies of pipes) is
chosen once and read back; another recipe is refused with the differences, never mixed in, unless nothing was trained
yet. Nothing is written here; how a new run takes its place is `staging.py`'s.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from seqloom import runtime
from seqloom.api.assignments import full_keys
from seqloom.api.datasets import found_again, is_unchanged, settled
from seqloom.api.staging import DATA, FINISHED, METRICS, RECIPE, START, is_half_adopted, written_by_runs
from seqloom.config import override, read_yaml
from seqloom.data.files import STDIN, is_regular
from seqloom.data.sets import Data
from seqloom.errors import SeqloomError
from seqloom.files import read_json
from seqloom.recipe import Recipe, recipe_from, same_recipe
from seqloom.runtime import Runtime
from seqloom.training import checkpoints

__all__ = ["DATA", "FINISHED", "METRICS", "RECIPE", "START"]

CARD = "card.json"  # of a bundle
_MACHINE = ("runtime.device:", "runtime.threads:", "runtime.timeout:")  # may change between sittings, and is told
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
        _refuse_bundle(path)
        if run is not None and Path(run).resolve() != path.resolve():
            fix = f"to begin another run from its weights: --from {path} --run {run}"
            raise SeqloomError("E_USAGE", "a run is resumed in its own folder", where=str(path), fix=fix)
        path, folder = path / RECIPE, path
        if not path.exists():
            raise SeqloomError("E_FILE", "no recipe.yaml here", where=str(folder), fix="give a recipe or a run folder")
        own = read_recipe(path, settings)
        return own.with_(data=found_again(own.data, folder)), folder
    if folder.exists() and not folder.is_dir():
        what = "the run folder's name is taken by a file"
        raise SeqloomError("E_FILE", what, where=str(folder), fix="choose another --run")
    return read_recipe(path, settings), folder


def check_folder(folder: Path) -> None:
    """E_RUN where a run would mix with, or write over, what no run of this folder wrote."""
    _refuse_bundle(folder)
    if is_half_adopted(folder):
        return
    found, fix = written_by_runs(folder), "choose another --run"
    if (folder / RECIPE).exists():
        if not found:
            fix = f"choose another --run; to train that recipe: seqloom train {shlex.quote(str(folder / RECIPE))}"
            raise SeqloomError("E_RUN", f"the {RECIPE} in this folder is not of a run", where=str(folder), fix=fix)
        return
    if several := members_in(folder):
        what = f"this folder holds several runs ({several[0].relative_to(folder)}, ...), not a single one"
        raise SeqloomError("E_RUN", what, where=str(folder), fix=f"{fix}, or train {several[0]}")
    if found:
        what = f"this folder holds {', '.join(found)}, but no {RECIPE} to say of which run"
        raise SeqloomError("E_RUN", what, where=str(folder), fix=f"put {RECIPE} back, or {fix}")


def members_in(folder: Path, places: Sequence[str] = ("seed-*", "*=*", "*=*/seed-*")) -> list[Path]:
    """The runs of seeds and sweeps below a folder, seed 2 before seed 10."""
    found = [recipe.parent for place in places for recipe in folder.glob(f"{place}/{RECIPE}")]
    return sorted(found, key=lambda run: [part.zfill(20) for part in re.split(r"(\d+)", str(run))])


def _refuse_bundle(folder: Path) -> None:
    if (folder / CARD).exists() and not (folder / "checkpoints").exists():
        name = shlex.quote(str(folder))
        fix = f"seqloom predict {name}; to train on from its weights: seqloom train RECIPE --from {name} --run NEW"
        raise SeqloomError("E_USAGE", "this is a bundle, a trained model, and not a run", where=str(folder), fix=fix)


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


@dataclass(frozen=True)
class Sitting:
    """What one call to train is about: the effective recipe, and whether the run begins or goes on."""

    recipe: Recipe
    start: Path | None  # the run whose weights it begins with
    begins: bool
    told: tuple[str, ...] = ()  # what to tell the person about choices


def sitting(wanted: Recipe, folder: Path, start: Path | None, replace: bool) -> Sitting:
    """The recipe with every choice made that is made at the start, the stored one's choices where the run goes on."""
    start = None if start is None else start.resolve()
    trained = is_trained(folder)
    known = None if replace or (not trained and _has_pipes(wanted.data)) else stored(folder)
    if known is None:
        return Sitting(_settled(wanted, None, folder), start, begins=True)
    recipe = _settled(wanted, known, folder)
    differences = same_recipe(known, recipe)
    machine = _MACHINE if wanted.runtime.precision != "auto" else (*_MACHINE, "runtime.precision:")
    told = [line for line in differences if line.startswith(machine)]
    others = [line for line in differences if line not in told]
    began_from = _started_from(folder)
    if not trained and (others or start not in (None, began_from) or not is_unchanged(recipe.data, folder / DATA)):
        return Sitting(_settled(wanted, None, folder), start or began_from, begins=True)
    if others:
        shown = "; ".join(others[:5]) + (f"; and {len(others) - 5} more" if len(others) > 5 else "")
        fix = "choose another --run (with --from to begin from these weights), or --replace to begin anew"
        raise SeqloomError("E_RUN", f"the run folder holds another recipe: {shown}", where=str(folder), fix=fix)
    if start not in (None, began_from):
        what = f"this run began from {began_from}, not from {start}"
        what = "this run did not begin from another one" if began_from is None else what
        fix = "leave --from out, choose another --run, or --replace"
        raise SeqloomError("E_RUN", what, where=str(folder), fix=fix)
    lines = tuple(f"{line} (from here on, results may differ in the last digits)" for line in told)
    return Sitting(recipe, began_from, begins=False, told=lines)


def stored(folder: Path) -> Recipe | None:
    """The effective recipe of a run, with every choice that was made at its start."""
    path = folder / RECIPE
    if not path.exists():
        return None
    recipe = recipe_from(read_yaml(path), str(path))
    return recipe.with_(data=found_again(recipe.data, folder))


def is_trained(folder: Path) -> bool:
    """Whether anything was learned here that could be lost."""
    return is_finished(folder) or bool(checkpoints.every(folder)) or (folder / "bundle").exists()


def _has_pipes(data: Data) -> bool:
    return any(_is_pipe(path) for paths in data.files().values() for path in paths)


def _is_pipe(path: str) -> bool:
    return path == STDIN or not is_regular(path)


def _settled(wanted: Recipe, stored: Recipe | None, folder: Path) -> Recipe:
    data, batching = wanted.data, wanted.batching
    if stored is not None:
        if batching.tokens == "auto":
            batching = batching.with_(tokens=stored.batching.tokens)
        known = stored.data.split
        split = data.split.with_(dev=data.split.dev or known.dev, test=data.split.test or known.test)
        data = data.with_(split=split, **_copied(data, stored.data))
    machine = _machine(wanted.runtime, None if stored is None else stored.runtime)
    settled_data = settled(data, folder.absolute(), spare=True)
    wanted = wanted.with_teachers(lambda run: str(Path(run).absolute()))
    return wanted.with_(data=settled_data, batching=batching, training=wanted.watched(), runtime=machine)


def _copied(wanted: Data, stored: Data) -> dict[str, object]:
    """The sets that come through a pipe: it was read when the run began, and its copy is the data."""
    sets: dict[str, object] = {"train": stored.train, "dev": stored.dev, "test": stored.test}
    return {name: sets[name] for name, paths in wanted.files().items() if any(map(_is_pipe, paths))}


def _machine(wanted: Runtime, stored: Runtime | None) -> Runtime:
    """Device and threads: as asked, else as before, else as found. A precision is found once the model is there."""
    device, threads = wanted.device, wanted.threads or (stored.threads if stored else None)
    if device == "auto" and stored is not None and _is_there(stored.device):
        device = stored.device
    if device == "auto":
        device = runtime.find_device(device).type
    runtime.check_threads(threads)  # before anything is written
    runtime.check_precision(wanted.precision, runtime.find_device(device))
    if threads is None:
        runtime.apply(wanted)
        threads = torch.get_num_threads()
    precision = wanted.precision
    if stored is not None and precision == "auto":
        precision = stored.precision
        if precision == "bf16" and not runtime.has_bf16(runtime.find_device(device)):
            precision = "float32"
    return wanted.with_(device=device, threads=threads, precision=precision)


def _is_there(device: str) -> bool:
    try:
        runtime.find_device(device)
    except SeqloomError:
        return False
    return True


def _started_from(folder: Path) -> Path | None:
    """The run whose weights this one began with, as it wrote down."""
    record = folder / START
    return Path(str(_record(record, "from"))) if record.exists() else None


def is_finished(folder: Path) -> bool:
    return (folder / FINISHED).exists()


def finished_reason(folder: Path) -> str:
    return str(_record(folder / FINISHED, "reason"))


def _record(path: Path, key: str) -> object:
    """A value of a small file of ours; E_BUNDLE where somebody changed it."""
    what, fix = "what seqloom wrote here", "--replace begins anew"
    raw = read_json(path, _MOST_BYTES, what, fix)
    if key not in raw:
        raise SeqloomError("E_BUNDLE", f"not {what}: {key} is missing", where=str(path), fix=fix)
    return raw[key]

"""Snapshots on disk: `run/checkpoints/step-00001234/`, whole or absent, and checked on the way in.

A folder holds `weights.safetensors` (what validation saw, ready to use, average or export), `training.safetensors`
(what only resuming needs) and `checkpoint.json` (the numbers, and size and sha256 of both). The files `last` and
`best` name a folder; they are written after the folder is complete. Nothing here decides when to save.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from seqloom import cards, weights, wording
from seqloom.cards import Card
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, atomic_write, read_bounded, recover_folder, sha256, sweep
from seqloom.shapes import Tensor
from seqloom.training.state import EMA, MODEL, Snapshot, counters_of

WEIGHTS, TRAINING, CARD = "weights.safetensors", "training.safetensors", "checkpoint.json"
_NAME = re.compile(r"step-(\d{8,})")
_MAX_POINTER_BYTES = 200


class CheckpointCard(Card):
    """What `checkpoint.json` must hold."""

    NAME = "a checkpoint"
    step: int
    numbers: dict[str, object]


def folder_of(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def save(snapshot: Snapshot, run: Path, *, best: bool = False) -> Path:
    """Write a checkpoint and point `last` (and `best`) at it. E_DISK when space ends: then nothing changed."""
    path = folder_of(run, snapshot.step)
    contents = {name: weights.to_bytes(tensors) for name, tensors in _split(snapshot).items()}
    card = {
        "format": CheckpointCard.FORMAT,
        "step": snapshot.step,
        "files": {name: {"size": len(data), "sha256": sha256(data)} for name, data in contents.items()},
        "numbers": snapshot.numbers,
    }
    contents[CARD] = json.dumps(card, allow_nan=False, indent=1).encode()
    with atomic_folder(path) as folder:
        for name, data in contents.items():
            (folder / name).write_bytes(data)
    if best:  # first: were we cut off in between, the run would go on before this step and come here again
        atomic_write(path.parent / "best", path.name.encode())
    atomic_write(path.parent / "last", path.name.encode())
    return path


def _split(snapshot: Snapshot) -> dict[str, dict[str, Tensor]]:
    """The weights to use apart from the rest: where there is an EMA, it is used and the raw weights are the rest."""
    used = {MODEL + name for name in snapshot.part(MODEL) if EMA + name not in snapshot.tensors}
    used |= {EMA + name for name in snapshot.part(EMA)}
    return {
        WEIGHTS: snapshot.weights(),
        TRAINING: {name: tensor for name, tensor in snapshot.tensors.items() if name not in used},
    }


def load(path: Path, *, allow_nonfinite: bool = False) -> Snapshot:
    """Read a checkpoint folder for resuming; E_BUNDLE names the file and what is wrong with it."""
    card, parts = _open(path, (WEIGHTS, TRAINING), allow_nonfinite)
    rest = parts[TRAINING]
    used = {EMA + name if MODEL + name in rest else MODEL + name: tensor for name, tensor in parts[WEIGHTS].items()}
    snapshot = Snapshot({**used, **rest}, card.numbers)
    if snapshot.step != card.step:
        what = f"step {wording.shown(card.step)}, but its counters say {wording.shown(snapshot.step)}"
        raise SeqloomError("E_BUNDLE", what, where=str(path / CARD), fix="use another checkpoint")
    return snapshot


def load_weights(path: Path, *, allow_nonfinite: bool = False) -> dict[str, Tensor]:
    """Only the weights of a checkpoint folder, checked in the same way."""
    return _open(path, (WEIGHTS,), allow_nonfinite)[1][WEIGHTS]


def _open(
    path: Path, names: tuple[str, ...], allow_nonfinite: bool
) -> tuple[CheckpointCard, dict[str, dict[str, Tensor]]]:
    recover_folder(path)
    card = cards.read(path / CARD, CheckpointCard, "use another checkpoint")
    missing = [name for name in names if name not in card.files]
    if missing:
        raise SeqloomError("E_BUNDLE", f"lists no {', '.join(missing)}", where=str(path / CARD))
    parts: dict[str, dict[str, Tensor]] = {}
    for name in names:
        file = card.files[name]
        parts[name] = weights.read(
            path / name, size=file.size, checksum=file.sha256, allow_nonfinite=allow_nonfinite or name != WEIGHTS
        )
    return card, parts


def last(run: Path) -> Path | None:
    """The checkpoint to resume from, or None in a fresh run."""
    return _pointed(run, "last")


def best(run: Path) -> Path | None:
    """The checkpoint whose validation was the best so far."""
    return _pointed(run, "best")


def _pointed(run: Path, pointer: str) -> Path | None:
    file = run / "checkpoints" / pointer
    if not file.exists():
        return None
    name = read_bounded(file, _MAX_POINTER_BYTES).decode("ascii", errors="replace").strip()
    if not _NAME.fullmatch(name):  # never a path out of the run
        known = ", ".join(found.name for found in every(run)) or "none"
        fix = f"write the name of a checkpoint into it; there are: {known}"
        raise SeqloomError("E_BUNDLE", f"does not name a checkpoint: {name!r}", where=str(file), fix=fix)
    path = file.parent / name
    recover_folder(path)
    if not path.is_dir():
        known = ", ".join(found.name for found in every(run)) or "none"
        fix = f"put it back, or write the name of another one into {file}; there are: {known}"
        raise SeqloomError("E_BUNDLE", "the checkpoint folder is missing", where=str(path), fix=fix)
    return path


def mend(run: Path) -> list[str]:
    """Write the pointers anew where they are missing, and say so: `last` to the newest whole checkpoint, `best` to
    the step that `last` knows as the best."""
    told: list[str] = []
    pointers = run / "checkpoints"
    if every(run) and not (pointers / "last").exists():
        newest = _newest_whole(run)
        atomic_write(pointers / "last", newest.name.encode())
        told.append(f"checkpoints/last is missing: going on from the newest whole checkpoint, {newest.name}")
    newest_known = last(run)
    if newest_known is not None and not (pointers / "best").exists():
        step = counters_of(load(newest_known)).best_step
        if step and folder_of(run, step).is_dir():
            atomic_write(pointers / "best", folder_of(run, step).name.encode())
            told.append(f"checkpoints/best is missing: it was {folder_of(run, step).name}")
    return told


def _newest_whole(run: Path) -> Path:
    found = every(run)
    for path in reversed(found):
        try:
            load(path)
        except SeqloomError:
            continue
        return path
    what = f"none of the {len(found)} checkpoints is whole, and `last` is missing"
    raise SeqloomError("E_BUNDLE", what, where=str(run / "checkpoints"), fix="put them back, or --replace begins anew")


def step_of(path: Path) -> int:
    """The step a checkpoint folder is of."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


def every(run: Path) -> list[Path]:
    """All checkpoints of a run, oldest first."""
    return sorted((path for path in (run / "checkpoints").glob("step-*") if _NAME.fullmatch(path.name)), key=step_of)


def prune(run: Path, keep: int) -> None:
    """Remove all but the `keep` newest up to `last`, and the best; also what an interrupted save left behind."""
    newest = last(run)
    if newest is None:
        return
    past = [path for path in every(run) if step_of(path) <= step_of(newest)]
    kept = {*past[-keep:], newest, best(run)}
    for path in every(run):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)
    sweep(run / "checkpoints")

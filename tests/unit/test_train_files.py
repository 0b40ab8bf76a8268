"""Checkpoints are whole or absent, and nothing damaged is believed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom import files, weights
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.training import checkpoints
from seqloom.training.averaging import average
from seqloom.training.events import Checkpoint
from seqloom.training.lock import RunLock
from seqloom.training.loop import Training, fit
from seqloom.training.state import Snapshot
from toy_training import ToyBatches, ToyTask, toy_model, toy_validation


def snapshots(steps: int = 3, **changes: object) -> list[Snapshot]:
    training = validated(Training, {"steps": steps, "checkpoint_every": 1, **changes}, "test")
    events = fit(ToyTask(), toy_model(), ToyBatches(), training, validate=toy_validation(), seed=1)
    return [event.snapshot() for event in events if isinstance(event, Checkpoint)]


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_snapshot_survives_the_disk(tmp_path: Path, ema: float | None) -> None:
    snapshot = snapshots(ema=ema)[-1]
    path = checkpoints.save(snapshot, tmp_path / "a run ü")
    loaded = checkpoints.load(path)
    assert loaded.numbers == snapshot.numbers
    assert loaded.tensors.keys() == snapshot.tensors.keys()
    for name, tensor in snapshot.tensors.items():
        assert torch.equal(tensor, loaded.tensors[name]), name
        assert tensor.dtype == loaded.tensors[name].dtype
    used = checkpoints.load_weights(path)
    assert used.keys() == snapshot.weights().keys()
    assert all(torch.equal(tensor, used[name]) for name, tensor in snapshot.weights().items())
    weights.restore(toy_model(), used, "here")


@given(
    numbers=st.dictionaries(
        st.text(), st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False) | st.integers() | st.text()
    ),
    shapes=st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=4),
)
@settings(max_examples=15, deadline=None)
def test_any_snapshot_survives_the_disk(
    tmp_path_factory: pytest.TempPathFactory, numbers: dict[str, object], shapes: list[list[int]]
) -> None:
    tensors = {f"model/{number}": torch.randn(shape) for number, shape in enumerate(shapes)}
    snapshot = Snapshot(tensors, {"counters": {"step": 3}, "more": numbers})
    loaded = checkpoints.load(checkpoints.save(snapshot, tmp_path_factory.mktemp("run")))
    assert loaded.numbers == snapshot.numbers
    assert loaded.tensors.keys() == tensors.keys()
    assert all(torch.equal(loaded.tensors[name], tensor) for name, tensor in tensors.items())


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    for number, snapshot in enumerate(snapshots(5)):
        checkpoints.save(snapshot, tmp_path, best=number == 1)
        checkpoints.prune(tmp_path, keep=2)
    assert [path.name for path in checkpoints.every(tmp_path)] == ["step-00000002", "step-00000004", "step-00000005"]
    assert checkpoints.last(tmp_path) == checkpoints.folder_of(tmp_path, 5)
    assert checkpoints.best(tmp_path) == checkpoints.folder_of(tmp_path, 2)


@pytest.mark.parametrize("name", [checkpoints.WEIGHTS, checkpoints.TRAINING, checkpoints.CARD])
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "flipped"])
def test_damage_is_found_and_named(tmp_path: Path, name: str, damage: str) -> None:
    path = checkpoints.save(snapshots(1)[0], tmp_path)
    file = path / name
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        middle = len(data) // 2
        new = {"truncated": data[:-7], "empty": b"", "flipped": data[:middle] + b"\x00" + data[middle + 1 :]}
        file.write_bytes(new[damage])
    with pytest.raises(SeqloomError) as refusal:
        checkpoints.load(path)
    assert (refusal.value.code, refusal.value.exit_code) == ("E_BUNDLE", 4)
    assert refusal.value.where == str(file)
    if name != checkpoints.CARD and damage in ("truncated", "empty"):
        found = len(data) - 7 if damage == "truncated" else 0
        assert f"expected {len(data):,} bytes, found {found:,}" in refusal.value.what
    if name != checkpoints.CARD and damage == "missing":
        assert f"expected {len(data):,} bytes" in refusal.value.what


def test_a_newer_format_is_not_guessed_at(tmp_path: Path) -> None:
    path = checkpoints.save(snapshots(1)[0], tmp_path)
    card = json.loads((path / checkpoints.CARD).read_text())
    (path / checkpoints.CARD).write_text(json.dumps({**card, "format": 99}))
    with pytest.raises(SeqloomError) as refusal:
        checkpoints.load(path)
    assert refusal.value.code == "E_FORMAT"


@pytest.mark.parametrize("text", ["", "../../etc", "step-1", "step-00000099"])
def test_a_pointer_to_nowhere_is_refused(tmp_path: Path, text: str) -> None:
    checkpoints.save(snapshots(1)[0], tmp_path)
    (tmp_path / "checkpoints" / "last").write_text(text)
    with pytest.raises(SeqloomError) as refusal:
        checkpoints.last(tmp_path)
    assert refusal.value.code == "E_BUNDLE"


def test_weights_that_are_not_finite_are_refused_unless_allowed(tmp_path: Path) -> None:
    snapshot = snapshots(1)[0]
    snapshot.tensors["model/norm.weight"][0] = float("nan")
    path = checkpoints.save(snapshot, tmp_path)
    with pytest.raises(SeqloomError, match=r"norm\.weight") as refusal:
        checkpoints.load(path)
    assert refusal.value.code == "E_BUNDLE"
    checkpoints.load(path, allow_nonfinite=True)


def test_another_architecture_is_refused_with_all_names() -> None:
    snapshot = snapshots(1)[0]
    tensors = snapshot.weights()
    tensors["novel"] = torch.zeros(1)
    tensors["norm.bias"] = torch.zeros(3)
    del tensors["temperature"]
    model = toy_model()
    before = {name: tensor.clone() for name, tensor in weights.of_model(model).items()}
    with pytest.raises(
        SeqloomError, match=r"missing: temperature; extra: novel; wrong shape: norm.bias \(3,\)"
    ) as refusal:
        weights.restore(model, tensors, "here")
    assert refusal.value.code == "E_BUNDLE"
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights.of_model(model).items())


@pytest.mark.parametrize("change", [{"optimiser": "sgd"}, {"schedule": {"kind": "step", "every": 3}}, {"ema": 0.5}])
def test_a_snapshot_of_other_settings_is_refused(change: dict[str, object]) -> None:
    training = validated(Training, {"steps": 9, **change}, "test")
    events = fit(
        ToyTask(), toy_model(), ToyBatches(), training, validate=toy_validation(), seed=1, resume=snapshots(1)[0]
    )
    with pytest.raises(SeqloomError) as refusal:
        next(events)
    assert refusal.value.code == "E_BUNDLE"


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_full_disk_leaves_the_last_checkpoint_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    first, second = snapshots(2)
    checkpoints.save(first, tmp_path, best=True)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    real = Path.write_bytes
    calls: list[Path] = []

    def full(self: Path, data: bytes) -> int:
        calls.append(self)
        if len(calls) > written:
            real(self, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SeqloomError) as refusal:
        checkpoints.save(second, tmp_path)
    assert (refusal.value.code, refusal.value.exit_code) == ("E_DISK", 6)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    path = checkpoints.last(tmp_path)
    assert path is not None
    assert checkpoints.load(path).step == 1


def test_a_read_only_folder_is_an_error_of_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SeqloomError) as refusal:
        checkpoints.save(snapshots(1)[0], tmp_path / "file")
    assert refusal.value.code == "E_FILE"


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    goal = tmp_path / "goal"
    with files.atomic_folder(goal) as folder:
        (folder / "a").write_text("old")

    def fail() -> None:
        with files.atomic_folder(goal) as folder:
            (folder / "a").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (goal / "a").read_text() == "old"
    with files.atomic_folder(goal) as folder:
        (folder / "b").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["goal", "b"]
    goal.rename(tmp_path / ".goal.old")  # cut off between the two renames
    files.recover_folder(goal)
    assert (goal / "b").read_text() == "new"


def test_an_atomic_write_replaces_or_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goal = tmp_path / "goal"
    files.atomic_write(goal, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SeqloomError) as refusal:
        files.atomic_write(goal, b"new")
    assert refusal.value.code == "E_DISK"
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("goal", b"old")]


def test_averaging(tmp_path: Path) -> None:
    paths = []
    for number, value in enumerate((1e8, 1.0, -1e8)):  # a float32 sum would lose the 1
        paths.append(tmp_path / f"{number}.safetensors")
        tensors = {"a": torch.full((2,), value), "count": torch.tensor(number)}
        paths[-1].write_bytes(weights.to_bytes(tensors))
    mean = average(paths)
    assert mean["a"].dtype == torch.float32
    torch.testing.assert_close(mean["a"], torch.full((2,), 1 / 3))
    assert int(mean["count"]) == 2
    other = tmp_path / "other.safetensors"
    other.write_bytes(weights.to_bytes({"a": torch.zeros(3), "count": torch.tensor(1)}))
    with pytest.raises(SeqloomError, match="wrong shape: a") as refusal:
        average([*paths, other])
    assert refusal.value.code == "E_BUNDLE"


def test_one_process_per_run_and_a_dead_ones_lock_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib, time\nfrom seqloom.training.lock import RunLock\n"
            "with RunLock(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)",
            str(tmp_path / "run"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SeqloomError, match=f"process {holder.pid} ") as refusal, RunLock(tmp_path / "run"):
            pass
        assert (refusal.value.code, refusal.value.exit_code) == ("E_LOCKED", 6)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout and holder.stdout.close()
    with RunLock(tmp_path / "run"):
        assert (tmp_path / "run" / ".lock").read_text().strip() == str(os.getpid())

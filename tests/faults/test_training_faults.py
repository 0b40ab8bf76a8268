"""FAULTS.md, table "Training and checkpoints", through the command line. Interruptions are in stories/test_cli.py."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from pathlib import Path

import pytest
import torch

from commands import Answer, Command, binary, command_line, environment, write_pairs, write_recipe
from seqloom import weights
from seqloom.bundle import open_bundle
from seqloom.files import sha256_file
from seqloom.training import checkpoints
from seqloom.training.lock import RunLock

pytest_plugins = ["command_fixtures"]


def half_done(folder: Path, seqloom: Command) -> Path:
    """A run that was stopped in the middle, with one checkpoint."""
    recipe = write_recipe(folder)
    from seqloom.api.train import Wishes, train

    asked = iter(range(100))
    train(recipe, folder / "half", wishes=Wishes(stop=lambda: "interrupted" if next(asked) == 7 else None))
    return folder / "half"


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.endswith((".tmp", ".old"))]


# --- divergence --------------------------------------------------------------------------------------------------

EXPLODING = "{kind: sgd, lr: 1e+38}"


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(seqloom: Command, tmp_path: Path) -> None:
    training = f"{{steps: 20, checkpoint_every: 1, clip: null, optimiser: {EXPLODING}}}"
    recipe = write_recipe(tmp_path, training=training)
    line = seqloom("train", recipe, "--run", tmp_path / "run").refused("E_DIVERGED", 5)
    assert "at step 2" in line
    assert "gradient" in line, "in which parameter's gradient, or that it is in none"
    last = checkpoints.last(tmp_path / "run")
    assert last is not None
    assert checkpoints.step_of(last) == 1


def test_updates_that_are_not_finite_may_be_skipped_and_are_counted(seqloom: Command, tmp_path: Path) -> None:
    training = f"{{steps: 6, log_every: 1, clip: null, nonfinite: skip, optimiser: {EXPLODING}}}"
    recipe = write_recipe(tmp_path, training=training)
    answer = seqloom("train", recipe, "--run", tmp_path / "run")
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["skipped"] for line in logged if line["event"] == "logged"][-1] == 5
    assert "lower lr" in answer.refused("E_DIVERGED", 5), "nothing was learned: the validation says so"


# --- stopping ----------------------------------------------------------------------------------------------------


def test_sigterm_while_preparing_is_heard_too(seqloom: Command, tmp_path: Path) -> None:
    """Asked to stop long before the first step, and the same command goes on."""
    recipe = write_recipe(tmp_path)
    with subprocess.Popen(
        command_line("train", recipe, "--run", tmp_path / "run", "--grace", "20"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        while not (tmp_path / "run" / ".lock").exists():
            assert process.poll() is None
            time.sleep(0.005)
        process.terminate()
        started_at = time.monotonic()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert time.monotonic() - started_at < 10
    assert seqloom("train", recipe, "--run", tmp_path / "run").code == 0


def test_two_processes_never_train_one_run(seqloom: Command, run: Path) -> None:
    with RunLock(run):
        line = seqloom("train", run).refused("E_LOCKED", 6)
    assert "process" in line


# --- disk and data -----------------------------------------------------------------------------------------------


def test_a_full_disk_while_saving(seqloom: Command, tmp_path: Path) -> None:
    """No file may grow beyond 8 kB, which the system reports as it does a full disk: the checkpoint is larger."""
    half = half_done(tmp_path, seqloom)
    before = checkpoints.last(half)
    assert before is not None

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))

    line = binary("train", half, preexec_fn=small).refused("E_DISK", 6)
    assert "step-" in line
    assert checkpoints.last(half) == before
    checkpoints.load(before)
    assert leftovers(half) == []
    assert seqloom("train", half).code == 0, "and with space again it goes on"


def test_data_that_changed_since_the_run_began(seqloom: Command, tmp_path: Path) -> None:
    half = half_done(tmp_path, seqloom)
    with (tmp_path / "pairs.tsv").open("a") as file:
        file.write("abc\tcba\n")
    line = seqloom("train", half).refused("E_CHANGED", 4)
    assert "pairs.tsv" in line
    assert "bytes" in line
    assert seqloom("train", half, "--allow-data-change").code == 0


def test_data_through_a_pipe_is_copied_and_read_again(tmp_path: Path, seqloom: Command) -> None:
    recipe = write_recipe(tmp_path)
    pairs = write_pairs(tmp_path / "pairs.tsv").read_bytes()
    changes = ("--set", 'data.train="-"', "--run", tmp_path / "run")
    assert binary("train", recipe, *changes, input=pairs).code == 0
    assert binary("train", recipe, *changes, input=b"").code == 0, "finished; the empty pipe is not read"
    assert (tmp_path / "run/input/train/path-0").read_bytes() == pairs


# --- bundles and checkpoints that cannot be trusted --------------------------------------------------------------


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "changed":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        path.write_bytes({"zero": b"", "truncated": data[: len(data) // 2]}[how])


@pytest.mark.parametrize("how", ["zero", "truncated", "missing", "changed"])
@pytest.mark.parametrize("name", ["weights.safetensors", "source/vocabulary.txt", "recipe.yaml"])
def test_a_spoilt_bundle_is_refused(name: str, how: str, seqloom: Command, run: Path) -> None:
    path = run / "bundle" / name
    size = path.stat().st_size
    spoil(path, how)
    for command in (["predict", run, "-t", "abc"], ["info", run]):
        line = seqloom(*command).refused("E_BUNDLE", 4)
        assert str(path) in line
        if how != "changed":
            assert f"expected {size:,} bytes" in line
        if how in ("zero", "truncated"):
            assert f"found {path.stat().st_size:,}" in line


@pytest.mark.parametrize("how", ["zero", "truncated", "missing", "changed"])
@pytest.mark.parametrize("name", ["weights.safetensors", "training.safetensors"])
def test_a_spoilt_checkpoint_is_refused(name: str, how: str, seqloom: Command, tmp_path: Path) -> None:
    half = half_done(tmp_path, seqloom)
    last = checkpoints.last(half)
    assert last is not None
    spoil(last / name, how)
    line = seqloom("train", half).refused("E_BUNDLE", 4)
    assert str(last / name) in line


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"format": 1}', b"[" * 100_000, b"\xff"])
def test_a_card_that_is_none(text: bytes, seqloom: Command, run: Path) -> None:
    (run / "bundle" / "card.json").write_bytes(text)
    assert "card.json" in seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)


def changed_card(run: Path, **changes: object) -> None:
    path = run / "bundle" / "card.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_bundle_from_a_newer_seqloom(seqloom: Command, run: Path) -> None:
    changed_card(run, format=99, seqloom="9.9.9", something_new=True)
    line = seqloom("predict", run, "-t", "abc").refused("E_FORMAT", 4)
    assert "needs seqloom >= 9.9.9" in line


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd"])
def test_a_card_never_reaches_out_of_its_folder(name: str, seqloom: Command, run: Path) -> None:
    changed_card(run, files={name: {"size": 1, "sha256": ""}})
    assert "outside" in seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)


def resigned(run: Path, *names: str) -> None:
    """The card made to agree with files that a test changed."""
    files = json.loads((run / "bundle" / "card.json").read_text())["files"]
    for name in names:
        path = run / "bundle" / name
        files[name] = {"size": path.stat().st_size, "sha256": sha256_file(path)}
    changed_card(run, files=files)


def test_weights_of_another_architecture_are_listed(seqloom: Command, run: Path) -> None:
    line = seqloom("predict", run, "-t", "abc", "--set", "model.encoder.width=32").refused("E_BUNDLE", 4)
    assert "wrong shape: encoder." in line
    line = seqloom("predict", run, "-t", "abc", "--set", "model.encoder.layers=2").refused("E_BUNDLE", 4)
    assert "missing: encoder." in line


def test_a_vocabulary_of_another_size(seqloom: Command, run: Path) -> None:
    with (run / "bundle" / "source" / "vocabulary.txt").open("a") as file:
        file.write("Ω\t1\n")
    resigned(run, "source/vocabulary.txt")
    line = seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)
    assert "source_embedding" in line
    assert "wrong shape" in line


def test_weights_that_are_not_finite(seqloom: Command, run: Path) -> None:
    path = run / "bundle" / "weights.safetensors"
    tensors = open_bundle(run / "bundle").weights()
    name = sorted(tensors)[0]
    tensors[name] = torch.full_like(tensors[name], float("nan"))
    path.write_bytes(weights.to_bytes(tensors))
    resigned(run, "weights.safetensors")
    line = seqloom("predict", run, "-t", "abc").refused("E_BUNDLE", 4)
    assert name in line
    assert "--allow-nonfinite" in line
    answer: Answer = seqloom("predict", run, "-t", "abc", "--allow-nonfinite")
    assert "error[E_BUNDLE]" not in answer.err

"""FAULTS.md, table "Several machines": processes that die, stop, disagree or lose each other, and what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import several
from commands import trained, write_recipe
from seqloom.bundle import open_bundle
from seqloom.training import checkpoints
from seqloom.training.observers import CLOCK_FIELDS

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
LONG = "{steps: 100000, checkpoint_every: 10, validate_every: 100000, log_every: 5}"
QUICK = ("--no-report", "--set", "runtime.timeout=8")


def has_step(run: Path, step: int) -> bool:
    last = run / "checkpoints" / "last"
    return last.exists() and int(last.read_text().removeprefix("step-") or 0) >= step


def records(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK_FIELDS} for line in lines]


def tensors_of(run: Path) -> dict[str, torch.Tensor]:
    last = checkpoints.last(run)
    assert last is not None
    return checkpoints.load(last).tensors


def assert_same(one: Path, other: Path) -> None:
    """Two runs that ended alike: weights and moments bit for bit, and the same metrics."""
    left, right = tensors_of(one), tensors_of(other)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name
    assert records(one) == records(other)


# --- what they were given ----------------------------------------------------------------------------------------


def test_ranks_with_different_recipes_end_at_the_start(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    command = [*several.SEQLOOM, "train", recipe, "--run", tmp_path / "run"]
    with several.start([command, [*command, "--set", "runtime.seed=2"]]) as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        line = ranks.said(0).strip().splitlines()[-1]
        assert line.startswith("seqloom: error[E_RANKS]: ranks 0 and 1 have different recipes")
        assert "seed: 1" in line
        assert "seed: 2" in line
        assert ranks.said(1) == "", "one line is enough"
    assert not (tmp_path / "run").exists()


def test_ranks_that_see_different_data_end_at_the_start(tmp_path: Path) -> None:
    """The same recipe, on two machines: here, in two folders."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        recipe = write_recipe(folder)
        recipe.write_text(recipe.read_text().replace(str(folder / "pairs.tsv"), "pairs.tsv"))
    with (folders[1] / "pairs.tsv").open("a") as file:
        file.write("abc\tcba\n")
    command = [*several.SEQLOOM, "train", "tiny.yaml", "--run", tmp_path / "run"]
    with several.start([command] * 2, folders) as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        assert "error[E_RANKS]: ranks 0 and 1 have different data: pairs.tsv" in ranks.said(0)
        assert ranks.said(1) == ""


def test_what_one_rank_cannot_read_ends_all(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    spoilt = tmp_path / "spoilt.yaml"
    spoilt.write_text(recipe.read_text() + "\ntypo: 1\n")
    commands = [[*several.SEQLOOM, "train", path, "--run", tmp_path / "run"] for path in (recipe, spoilt)]
    with several.start(commands) as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        assert "error[E_RECIPE]: rank 1: " in ranks.said(0)
        assert "typo" in ranks.said(0)


# --- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_to_one_rank_stops_all_at_one_step(number: int, code: int, tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path, training=LONG), tmp_path / "run"
    with several.train(2, recipe, "--run", run, "--no-report") as ranks:
        ranks.wait_until(lambda: has_step(run, 10))
        ranks.signal(1, number)
        assert ranks.codes() == [code, code], ranks.everything()
        assert "saved; to go on" in ranks.said(0)
        assert "Traceback" not in ranks.everything()
    last = checkpoints.last(run)
    assert last is not None
    checkpoints.load(last)


# --- a rank that is lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_is_killed_ends_the_others(lost: int, tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path, training=LONG), tmp_path / "run"
    with several.train(4, recipe, "--run", run, *QUICK) as ranks:
        ranks.wait_until(lambda: has_step(run, 10))
        ranks.kill(lost)
        started_at = time.monotonic()
        assert ranks.codes(but=[lost]) == [6, 6, 6], ranks.everything()
        assert time.monotonic() - started_at < 60
        said = [line for line in ranks.everything().splitlines() if "error[" in line]
        assert len(said) == 1, said
        assert f"error[E_WORKER]: rank {lost} " in said[0]
        assert "goes on from the last checkpoint" in said[0]


def test_a_rank_that_stands_still_is_named(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path, training=LONG), tmp_path / "run"
    with several.train(2, recipe, "--run", run, *QUICK) as ranks:
        ranks.wait_until(lambda: has_step(run, 10))
        ranks.signal(1, signal.SIGSTOP)
        started_at = time.monotonic()
        assert ranks.codes(but=[1]) == [6], ranks.everything()
        assert time.monotonic() - started_at < 60
        assert "error[E_WORKER]: rank 1 " in ranks.said(0)
        assert "gave no sign of life for 8 s" in ranks.said(0)


def test_a_rank_with_a_full_disk_ends_all_with_its_code(tmp_path: Path) -> None:
    """Rank 0 fails alone, in the middle: the others take over its exit code, and only it speaks."""
    recipe, run = write_recipe(tmp_path, training=LONG), tmp_path / "run"
    limited = ["bash", "-c", 'ulimit -f 40; exec "$@"', "limited"]  # blocks of 1 kB: the checkpoint is larger
    command = [*several.SEQLOOM, "train", recipe, "--run", run, "--no-report", "--set", "model.encoder.width=64"]
    with several.start([command] * 2, prefixes={0: limited}) as ranks:
        assert ranks.codes() == [6, 6], ranks.everything()
        assert "error[E_DISK]" in ranks.said(0)
        assert ranks.said(1) == ""


# --- going on ----------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_restarted_by_torchrun_equals_uninterrupted_and_loads_anywhere(tmp_path: Path) -> None:
    """Two of four ranks are killed, one after the other; torchrun starts all anew each time, and the run ends as one
    that was left in peace. What four have saved, two and one go on with."""
    training = "{steps: 60, checkpoint_every: 7, validate_every: 20, log_every: 5, ema: 0.9, accumulate: 3}"
    recipe = write_recipe(tmp_path, training=training)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    with several.train(4, recipe, "--run", whole, "--no-report") as ranks:
        assert ranks.codes() == [0] * 4, ranks.everything()

    command = [*TORCHRUN, "--nproc-per-node", "4", "--max-restarts", "3", "-m", "seqloom", "train", recipe]
    log = tmp_path / "torchrun.txt"
    with log.open("wb") as file:
        launcher = subprocess.Popen(
            [*map(str, command), "-r", str(broken), "--no-report"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        for step, rank in ((7, 0), (28, 3)):
            kill_rank(launcher, broken, step, rank)
        assert launcher.wait(several.LONGEST) == 0, log.read_text()
    finally:
        if launcher.poll() is None:
            launcher.terminate()
            launcher.wait()
    assert_same(whole, broken)
    assert open_bundle(broken / "bundle").about["reason"] == "steps"

    for size in (2, 1):
        fewer = Path(shutil.copytree(whole, tmp_path / f"on-{size}"))
        before = tensors_of(fewer)
        recipe.write_text((fewer / "recipe.yaml").read_text().replace("steps: 60", "steps: 61"))
        (fewer / "recipe.yaml").write_text(recipe.read_text())
        (fewer / "finished.json").unlink()
        with several.train(size, fewer, "--no-report") as ranks:
            assert ranks.codes() == [0] * size, ranks.everything()
        last = checkpoints.last(fewer)
        assert last is not None
        assert checkpoints.step_of(last) == 61, "it went on where four processes had stopped"
        again = checkpoints.load(fewer / "checkpoints" / "step-00000060")
        for name, tensor in again.tensors.items():
            assert torch.equal(tensor, before[name]), name


def test_a_run_folder_of_another_recipe_is_refused_for_all(tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained(), tmp_path / "run"))
    with several.train(2, run, "--set", "training.steps=13") as ranks:
        assert ranks.codes() == [2, 2], ranks.everything()
        assert "error[E_RUN]" in ranks.said(0)
        assert ranks.said(1) == ""


def kill_rank(launcher: subprocess.Popen[bytes], run: Path, step: int, rank: int) -> None:
    """Kill one of torchrun's processes with SIGKILL, once there is a checkpoint of this step or a later one."""
    until = time.monotonic() + several.LONGEST
    while not has_step(run, step):
        assert time.monotonic() < until
        assert launcher.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for child in children:
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            os.kill(int(child), signal.SIGKILL)


# --- two machines ------------------------------------------------------------------------------------------------


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Two network namespaces with a cable between them: as near to two machines as one comes."""
    names = [f"seqloom-{os.getpid()}-{letter}" for letter in "ab"]
    ends = [f"sl{os.getpid() % 100_000}{letter}" for letter in "ab"]
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
            _ip("-n", name, "address", "add", f"10.213.7.{number}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
            _ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    yield [*names, *ends]
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True)


def test_a_link_that_goes_down_ends_both_sides(machines: list[str], tmp_path: Path) -> None:
    """Neither side gets an answer or an error, each ends after the timeout and names the other's rank."""
    *names, here, there = machines
    recipe, run = write_recipe(tmp_path, training=LONG), tmp_path / "run"
    inside = {rank: ["ip", "netns", "exec", name] for rank, name in enumerate(names)}
    for rank, end in enumerate((here, there)):
        inside[rank] += ["env", f"GLOO_SOCKET_IFNAME={end}"]
    command = [*several.SEQLOOM, "train", recipe, "--run", run, *QUICK]
    with several.start([command] * 2, prefixes=inside, address="10.213.7.1") as ranks:
        ranks.wait_until(lambda: has_step(run, 10))
        _ip("-n", names[0], "link", "set", here, "down")
        started_at = time.monotonic()
        assert ranks.codes() == [6, 6], ranks.everything()
        assert time.monotonic() - started_at < 60
        assert "error[E_WORKER]: rank 1 " in ranks.said(0)
        assert "error[E_WORKER]: rank 0 " in ranks.said(1)

"""Starting, resuming and stopping a run: what is there stays, what is lost is said, and nobody waits in vain."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import locale
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from commands import Answer, Command, command_line, environment, write_pairs, write_recipe
from seqloom.api import staging
from seqloom.api.model import Model
from seqloom.api.train import Wishes, train
from seqloom.batch import Batch
from seqloom.data import subwords
from seqloom.data.corpus import Corpus
from seqloom.errors import SeqloomError
from seqloom.tasks.transduce import Transduce
from seqloom.training import checkpoints
from seqloom.training.events import Finished, Started, Validated
from seqloom.training.observers import TensorBoard
from seqloom.training.signals import Signals

pytest_plugins = ["command_fixtures"]

CPU_IS_FULL = "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried 9 bytes."


def contents(folder: Path) -> dict[str, str]:
    """Every file with its checksum, the lock aside."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def stopped_at(recipe: Path, run: Path, step: int, *settings: str) -> Path:
    """A run that was asked to stop after so many steps."""
    asked = iter(range(1, 1000))
    train(recipe, run, settings, Wishes(stop=lambda: "interrupted" if next(asked) == step else None))
    return run


def cut_off(recipe: Path, run: Path, start: Path | None = None) -> Path:
    """A run that was cut off in its first step: all is prepared, nothing was trained."""

    def stop() -> str | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, run, wishes=Wishes(stop=stop, start=start))
    return run


def from_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


# --- beginning ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("model.decoder.attention={heads: 5}", 2),
        ("model={encoder: {kind: transformer, width: 256, heads: 3}, decoder: transformer}", 2),
        ("model.encoder.width=1000000", 6),
        ("training.extend_vocabulary=true", 2),
        ("data.train=broken.tsv", 3),
        ("data.dev=empty.tsv", 3),
    ],
)
def test_an_old_run_is_dropped_for_one_that_can_begin(
    change: str, code: int, seqloom: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = write_recipe(tmp_path)
    Path("broken.tsv").write_text("a\tb\n" * 300 + "no tab\n")
    Path("empty.tsv").write_text("")
    before = contents(run)
    assert seqloom("train", recipe, "--run", run, "--replace", "--set", change).code == code
    assert contents(run) == before
    assert seqloom("train", recipe, "--run", run, "--replace", "--set", "steps=1").code == 0
    assert contents(run) != before


def test_a_linked_folder_of_an_old_run_is_let_go_of(seqloom: Command, run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(run / "checkpoints", elsewhere)
    (run / "checkpoints").symlink_to(elsewhere)
    before = contents(elsewhere)
    answer = seqloom("train", write_recipe(tmp_path), "--run", run, "--replace", "--set", "steps=1")
    assert answer.code == 0, answer.err
    assert contents(elsewhere) == before, "what the link leads to stays"
    assert not (run / "checkpoints").is_symlink()


@pytest.mark.parametrize("change", ["model.decoder.attention={heads: 5}", "data.dev=broken.tsv"])
def test_a_failed_start_takes_a_corrected_recipe(
    change: str, seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.tsv").write_text("a\tb\nno tab\n")
    recipe = write_recipe(tmp_path)
    assert seqloom("train", recipe, "--run", "run", "--set", change).code in (2, 3)
    assert contents(tmp_path / "run") == {}
    assert seqloom("train", recipe, "--run", "run", "--set", "source.lowercase=true", "--set", "steps=1").code == 0


def test_a_run_in_which_nothing_was_trained_takes_another_recipe(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    half = cut_off(recipe, tmp_path / "run")
    vocabulary = (half / "codec" / "source" / "vocabulary.txt").read_text()
    other = write_pairs(tmp_path / "other.tsv")
    other.write_text(other.read_text().replace("a", "z"))
    assert seqloom("train", recipe, "--run", half, "--set", f"data.train={other}", "--set", "steps=2").code == 0
    assert (half / "codec" / "source" / "vocabulary.txt").read_text() != vocabulary, "nothing is left of the first"
    assert "holds another recipe" in seqloom("train", recipe, "--run", half).refused("E_RUN", 2), "now it is trained"


def test_data_may_be_corrected_as_long_as_nothing_was_trained(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    half = cut_off(recipe, tmp_path / "run")
    with (tmp_path / "pairs.tsv").open("a") as file:
        file.write("hhhhhg\tghhhhh\n" * 50)
    answer = seqloom("train", recipe, "--run", half)
    assert answer.code == 0
    assert "train: 338 pairs" in answer.err, "read anew"


def test_weights_to_begin_from_may_still_be_named(seqloom: Command, run: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    half = cut_off(recipe, tmp_path / "half")
    assert seqloom("train", recipe, "--run", half, "--from", run).code == 0
    assert json.loads((half / "start.json").read_text()) == {"from": str(run)}


def test_weights_to_begin_from_are_not_forgotten(seqloom: Command, run: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    half = cut_off(recipe, tmp_path / "half", start=run)
    assert seqloom("train", half, "--set", "steps=1").code == 0
    assert json.loads((half / "start.json").read_text()) == {"from": str(run)}


def test_the_same_recipe_goes_on_with_what_was_prepared(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    half = cut_off(recipe, tmp_path / "run")
    before = (half / "cache" / "train" / "source.ids").stat().st_mtime_ns
    assert seqloom("train", half).code == 0
    assert (half / "cache" / "train" / "source.ids").stat().st_mtime_ns == before


@pytest.mark.parametrize("moves", range(5))
def test_a_power_cut_while_a_new_run_takes_its_place(
    moves: int, seqloom: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, real, done = write_recipe(tmp_path), os.replace, iter(range(100))

    def replace(old: Path, new: Path) -> None:
        if Path(new).parent == run and next(done) == moves:
            raise KeyboardInterrupt
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(staging.os, "replace", replace)
        assert seqloom("train", recipe, "--run", run, "--replace", "--set", "steps=2").code == 130
    answer = seqloom("train", recipe, "--run", run, "--set", "steps=2")
    assert answer.code == 0, answer
    assert "resumed" not in answer.err, "no checkpoint of the old run is left"
    assert not (run / staging.NEW).exists()
    assert checkpoints.step_of(checkpoints.every(run)[-1]) == 2


@pytest.mark.parametrize("place", [".", ""])
def test_a_recipe_of_ones_own_is_never_written_over(
    place: str, seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path).rename("recipe.yaml")
    before = contents(tmp_path)
    for more in ([], ["--replace"], ["--seeds", "1-2"]):
        line = seqloom("train", "recipe.yaml", "-r", place, *more).refused("E_RUN", 2)
        assert "choose another --run" in line
    assert "seqloom train recipe.yaml" in seqloom("train", ".").refused("E_RUN", 2)
    assert contents(tmp_path) == before


def test_nothing_of_somebody_else_is_written_over(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    (tmp_path / "mine" / "cache").mkdir(parents=True)
    for more in ([], ["--replace"]):
        line = seqloom("train", recipe, "-r", tmp_path / "mine", *more).refused("E_RUN", 2)
        assert "cache" in line
    assert list((tmp_path / "mine").iterdir()) == [tmp_path / "mine" / "cache"]


def test_a_bundle_is_told_from_a_run(seqloom: Command, run: Path, tmp_path: Path) -> None:
    line = seqloom("train", run / "bundle").refused("E_USAGE", 2)
    assert "this is a bundle" in line
    assert f"--from {run / 'bundle'}" in line
    before = contents(run)
    assert "bundle" in seqloom("train", write_recipe(tmp_path), "-r", run / "bundle", "--replace").refused("E_USAGE", 2)
    assert contents(run) == before


# --- several runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sweep", ["model.decoder.attention.heads=1,5", "model.encoder.width=16,1000000"])
def test_every_model_of_a_sweep_is_built_before_the_first_trains(sweep: str, seqloom: Command, tmp_path: Path) -> None:
    answer = seqloom("train", write_recipe(tmp_path), "--run", tmp_path / "many", "--set", sweep)
    assert answer.code in (2, 6)
    assert sweep.rpartition(",")[2] in answer.err.splitlines()[-1]
    assert not (tmp_path / "many").exists()


def test_one_run_and_several_do_not_share_a_folder(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, training="{steps: 1}")
    many, swept = tmp_path / "many", ("--set", "lr=0.01,0.02")
    assert seqloom("train", recipe, "-r", many, "--seeds", "1").code == 0
    line = seqloom("train", recipe, "-r", many).refused("E_RUN", 2)
    assert "seed-1" in line
    assert "choose another --run" in line
    seqloom("train", recipe, "-r", many, "--replace").refused("E_RUN", 2)
    assert seqloom("train", recipe, "-r", tmp_path / "swept", *swept).code == 0
    seqloom("train", recipe, "-r", tmp_path / "swept").refused("E_RUN", 2)
    line = seqloom("train", recipe, "-r", tmp_path / "swept", *swept, "--seeds", "1-2").refused("E_RUN", 2)
    assert "lr=0.01" in line
    line = seqloom("train", recipe, "-r", many / "seed-1", "--seeds", "1-2").refused("E_RUN", 2)
    assert "single run" in line


# --- going on ----------------------------------------------------------------------------------------------------


def half_done(folder: Path) -> Path:
    """Two checkpoints, of steps 6 (the best) and 8."""
    return stopped_at(write_recipe(folder), folder / "half", 8)


def test_a_lost_pointer_is_no_lost_run(seqloom: Command, tmp_path: Path) -> None:
    half = half_done(tmp_path)
    whole = Path(shutil.copytree(half, tmp_path / "whole"))
    (half / "checkpoints" / "last").unlink()
    answer = seqloom("train", half)
    assert answer.code == 0
    assert "going on from the newest whole checkpoint, step-00000008" in answer.err
    assert "resumed at step 8" in answer.err
    assert seqloom("train", whole).code == 0
    one, other = (checkpoints.load_weights(checkpoints.folder_of(folder, 12)) for folder in (half, whole))
    assert all(bool((one[name] == other[name]).all()) for name in one)


def test_a_lost_pointer_and_a_spoilt_checkpoint(seqloom: Command, tmp_path: Path) -> None:
    half = half_done(tmp_path)
    (half / "checkpoints" / "last").unlink()
    (half / "checkpoints" / "step-00000008" / "weights.safetensors").write_bytes(b"")
    assert "resumed at step 6" in seqloom("train", half).err
    again = half_done(_folder(tmp_path / "b"))
    (again / "checkpoints" / "last").unlink()
    for path in checkpoints.every(again):
        (path / "checkpoint.json").unlink()
    assert "--replace" in seqloom("train", again).refused("E_BUNDLE", 4)
    assert len(checkpoints.every(again)) == 2, "nothing was pruned"


def test_lost_checkpoints_are_told_before_a_run_begins_again(seqloom: Command, tmp_path: Path) -> None:
    half = half_done(tmp_path)
    shutil.rmtree(half / "checkpoints")
    assert "no checkpoint" in seqloom("train", half).refused("E_BUNDLE", 4)
    again = half_done(_folder(tmp_path / "b"))
    shutil.rmtree(again / "checkpoints" / "step-00000008")
    assert "step-00000006" in seqloom("train", again).refused("E_BUNDLE", 4), "which ones there are"


def test_the_best_checkpoint_is_found_again(seqloom: Command, tmp_path: Path) -> None:
    half = half_done(tmp_path)
    (half / "checkpoints" / "best").unlink()
    answer = seqloom("train", half, "--set", "training.steps=12")
    assert "checkpoints/best is missing: it was step-00000006" in answer.err


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_run_on_a_pipe_goes_on_from_a_relative_folder(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = write_recipe(tmp_path)
    from_stdin(monkeypatch, (tmp_path / "pairs.tsv").read_bytes())
    stopped_at(recipe, Path("q"), 7, "data.train=-")
    from_stdin(monkeypatch, b"")
    assert "step 12" in seqloom("train", recipe, "-r", "q", "--set", "data.train=-").err
    assert seqloom("train", recipe, "-r", tmp_path / "q", "--set", "data.train=-").code == 0
    assert seqloom("train", "q").code == 0
    assert "data" in seqloom("train", recipe, "-r", "q").refused("E_RUN", 2), "a file is not that pipe"


def test_a_run_on_a_pipe_may_be_moved(seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path)
    from_stdin(monkeypatch, (tmp_path / "pairs.tsv").read_bytes())
    stopped_at(recipe, tmp_path / "first", 7, "data.train=-")
    from_stdin(monkeypatch, b"")
    for moved in ("second", "third mové"):
        shutil.move(tmp_path / "first", tmp_path / moved)
        assert seqloom("evaluate", tmp_path / moved).code == 0
        shutil.move(tmp_path / moved, tmp_path / "first")
    shutil.move(tmp_path / "first", tmp_path / "second")
    assert "step 12" in seqloom("train", tmp_path / "second").err
    assert seqloom("train", recipe, "-r", tmp_path / "second", "--set", "data.train=-").code == 0
    copy = next(path for path in (tmp_path / "second" / "input").rglob("*") if path.is_file())
    copy.write_bytes(copy.read_bytes() + b"hgf\tfgh\n")
    assert "changed" in seqloom("train", tmp_path / "second").refused("E_CHANGED", 4)


def test_a_copied_pipe_is_replaced_by_one_that_can_be_read(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, pairs = write_recipe(tmp_path), (tmp_path / "pairs.tsv").read_bytes()
    typed = ("train", recipe, "-r", tmp_path / "run", "--set", "data.train=-", "--set", "steps=1")
    from_stdin(monkeypatch, pairs)
    assert seqloom(*typed).code == 0
    before = contents(tmp_path / "run")
    from_stdin(monkeypatch, b"a\tb\n" * 100 + b"no tab\n")
    assert seqloom(*typed, "--replace").code == 3
    assert contents(tmp_path / "run") == before
    from_stdin(monkeypatch, pairs + b"hgf\tfgh\n")
    assert seqloom(*typed, "--replace").code == 0
    copies = [path for path in (tmp_path / "run" / "input").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in copies] == [pairs + b"hgf\tfgh\n"], "the new one, and no other"
    assert seqloom("train", tmp_path / "run").code == 0


# --- what is typed -----------------------------------------------------------------------------------------------


def test_a_dash_is_stdin_and_no_list(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    for typed in ("data.train=-", "data.train= - ", "data.train.path=-"):
        assert "path: '-'" in seqloom("config", recipe, "--set", typed).out


def test_a_file_name_takes_further_keys(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    shown = seqloom("config", recipe, "--set", "data.train.columns=[1,0]").out
    assert str(tmp_path / "pairs.tsv") in shown
    assert "columns:\n    - 1\n    - 0" in shown
    both = ("--set", "data.dev=dev.tsv", "--set", "data.dev.columns=[2,0]", "--set", "data.dev.references=[1]")
    shown = seqloom("config", recipe, *both).out
    assert "path: dev.tsv" in shown
    assert "- 2\n    - 0" in shown
    lists = ("--set", "data.train=[a.tsv, b.tsv]", "--set", "data.train.columns=[1,0]")
    assert "list of datasets" in seqloom("config", recipe, *lists).refused("E_USAGE", 2)
    assert seqloom("train", recipe, "-r", tmp_path / "run", "--set", "columns=[1,0]", "--set", "steps=1").code == 0


# --- stopping ----------------------------------------------------------------------------------------------------


def waiting(*arguments: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(  # type: ignore[call-overload]
        command_line(*arguments),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        text=True,
        env=environment(),
    )


def ended(process: subprocess.Popen[str], patience: float) -> Answer:
    out, err = process.communicate(timeout=patience)
    return Answer(process.returncode, out, err)


@pytest.mark.parametrize(
    ("numbers", "code"), [([signal.SIGTERM], 75), ([signal.SIGINT], 130), ([signal.SIGINT] * 4, 130)]
)
def test_whoever_waits_for_data_can_be_stopped(numbers: list[int], code: int, seqloom: Command, tmp_path: Path) -> None:
    """A pipe without a writer: it would wait for ever."""
    recipe, pipe = write_recipe(tmp_path), tmp_path / "data.tsv"
    os.mkfifo(pipe)
    typed = ("train", recipe, "--run", tmp_path / "run", "--set", f"data.train={pipe}", "--set", "steps=1")
    process = waiting(*typed)
    while not (tmp_path / "run" / ".lock").exists():
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.05)
    answer = ended(process, 10)
    assert answer.code == code, answer
    assert "Traceback" not in answer.err
    assert "the same command goes on" in answer.err
    pipe.unlink()
    write_pairs(pipe)
    assert seqloom(*typed).code == 0


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_preparing_stops_at_once_and_the_same_call_goes_on(
    number: int, ends: type[BaseException], tmp_path: Path
) -> None:
    recipe, said = write_recipe(tmp_path), []

    def tell(line: str) -> None:
        said.append(line)
        if line == "learning the vocabulary":
            os.kill(os.getpid(), number)

    with Signals() as stop, pytest.raises(ends):
        train(recipe, tmp_path / "run", wishes=Wishes(stop=stop, tell=tell))
    assert said[-1] == "learning the vocabulary", "and nothing after it"
    assert contents(tmp_path / "run") == {}
    assert train(recipe, tmp_path / "run").reason == "steps"


def test_a_signal_is_heard_while_a_library_works() -> None:
    going_on = threading.Event()
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        with Signals(), pytest.raises(KeyboardInterrupt):
            subwords._apart(going_on.wait, timeout=30)
    finally:
        going_on.set()


def test_what_a_library_refuses_is_heard_too() -> None:
    with pytest.raises(ZeroDivisionError):
        subwords._apart(lambda: 1 / 0)  # type: ignore[arg-type,return-value]


def test_a_signal_of_the_run_before_ends_the_next(tmp_path: Path) -> None:
    with Signals() as stop:
        stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop() == "preempted"
        with pytest.raises(SystemExit) as end:
            stop.begin()
    assert end.value.code == 75


def test_a_lost_terminal_is_a_request_to_stop_unless_it_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may themselves run under nohup
    try:
        with Signals() as stop:
            stop()
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop() == "preempted"
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with Signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop() is None
    finally:
        signal.signal(signal.SIGHUP, before)


# --- talk that nobody hears --------------------------------------------------------------------------------------


def test_a_training_outlives_whoever_reads_its_talk(tmp_path: Path) -> None:
    """`seqloom train ... 2>&1 | head -1`."""
    recipe = write_recipe(tmp_path, training="{steps: 60, validate_every: 5, log_every: 1}")
    process = waiting("train", recipe, "--run", tmp_path / "run", stderr=subprocess.STDOUT)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
    assert json.loads((tmp_path / "run" / "finished.json").read_text()) == {"reason": "steps"}


def test_data_still_come_out_where_talk_does_not(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    answer = binary_to(writing, "train", write_recipe(tmp_path), "--run", tmp_path / "run")
    os.close(writing)
    assert (answer.code, answer.out) == (0, f"{tmp_path / 'run'}\n")


def test_the_code_of_an_error_that_nobody_reads(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    answer = binary_to(writing, "train", tmp_path / "no.yaml", "--quiet")
    os.close(writing)
    assert answer.code == 6


def test_the_code_says_stopped_where_nobody_reads(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, training="{steps: 100000, log_every: 1}")
    process = waiting("train", recipe, "--run", tmp_path / "run", stderr=subprocess.STDOUT)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size > 2000):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert checkpoints.last(tmp_path / "run") is not None


def binary_to(stderr: int, *arguments: object) -> Answer:
    """The real binary with talk going to a descriptor."""
    done = subprocess.run(
        command_line(*arguments), stdout=subprocess.PIPE, stderr=stderr, timeout=120, env=environment()
    )
    return Answer(done.returncode, done.stdout.decode(), "")


# --- what goes wrong underway ------------------------------------------------------------------------------------


def diverging(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    real = Transduce.loss

    def loss(self: Transduce, model: object, batch: object, now: int) -> object:
        found = real(self, model, batch, now)  # type: ignore[arg-type]
        return type(found)(found.total * float("nan"), found.count, found.nll) if now == step else found

    monkeypatch.setattr(Transduce, "loss", loss)


@pytest.mark.parametrize(
    ("training", "step", "advice"),
    [
        ("{steps: 12}", 2, "nothing was saved yet; train again with a lower lr"),
        ("{steps: 12, checkpoint_every: 1, validate_every: 10}", 4, "begin anew (--replace), with a lower lr"),
        ("{steps: 12, validate_every: 2}", 4, "begin another run from the best weights (--from "),
    ],
)
def test_advice_after_divergence_can_be_followed(
    training: str, step: int, advice: str, seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, run = write_recipe(tmp_path, training=training), tmp_path / "run"
    with monkeypatch.context() as patch:
        diverging(patch, step)
        line = seqloom("train", recipe, "--run", run).refused("E_DIVERGED", 5)
    assert advice in line
    followed = {
        "nothing": ["--run", run],
        "begin anew": ["--run", run, "--replace"],
        "begin another": ["--from", run, "--run", tmp_path / "new"],
    }
    how = next(options for words, options in followed.items() if advice.startswith(words))
    assert seqloom("train", recipe, *how, "--set", "lr=0.001").code == 0


def test_an_example_that_does_not_fit_is_named_by_its_line(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_recipe(tmp_path)
    lines = (tmp_path / "pairs.tsv").read_text().splitlines()

    def loss(self: Transduce, model: object, batch: object, step: int) -> object:
        raise MemoryError

    monkeypatch.setattr(Transduce, "loss", loss)
    line = seqloom("train", recipe, "--run", tmp_path / "run").refused("E_MEMORY", 6)
    place = line.partition("pairs.tsv:")[2].partition(";")[0]
    assert 1 <= int(place) <= len(lines)


def test_the_one_example_that_does_not_fit_is_named_and_no_other(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also among those of an accumulated step: batches are cut until it stands alone."""
    recipe = write_recipe(tmp_path)
    loss, guilty = Transduce.loss, 17

    def cramped(self: Transduce, model: object, batch: Batch, step: int) -> object:
        if step and guilty in batch.examples:
            raise MemoryError
        return loss(self, model, batch, step)  # type: ignore[arg-type]

    monkeypatch.setattr(Transduce, "loss", cramped)
    line = seqloom("train", recipe, "--run", tmp_path / "run", "--set", "accumulate=3").refused("E_MEMORY", 6)
    corpus = Corpus.open(tmp_path / "run" / "cache" / "train")
    assert f"pairs.tsv:{corpus.line(guilty)};" in line
    assert "example" in line


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU_IS_FULL)]
)
def test_a_prediction_that_runs_out_of_memory_says_so(
    error: Exception, seqloom: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(self: Model, *rest: object, **others: object) -> object:
        raise error

    monkeypatch.setattr(Model, "search", search)
    line = seqloom("predict", run, "-t", "abc", "--workers", 1).refused("E_MEMORY", 6)
    assert "out of memory" in line


def test_clocks_time_zones_and_locales_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that go back and forth, the farthest time zone, locale C: the same weights, metrics and names."""
    from seqloom.training.observers import CLOCK_FIELDS

    def found(run: Path) -> tuple[list[dict[str, object]], dict[str, str]]:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        told = [{key: value for key, value in line.items() if key not in CLOCK_FIELDS} for line in lines]
        kept = {name: mark for name, mark in contents(run).items() if not name.startswith(("board", "metrics"))}
        return told, kept

    recipe, runs = write_recipe(tmp_path), [tmp_path / name / "run" for name in ("one", "other")]
    train(recipe, runs[0])
    jumps = itertools.cycle([1e9, -5e8, 3.0, 2e9])
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("LC_ALL", "C")
    time.tzset()
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "C")
        train(recipe, runs[1])
    finally:
        locale.setlocale(locale.LC_ALL, before)
        monkeypatch.undo()
        time.tzset()
    assert found(runs[0]) == found(runs[1])


def test_a_board_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    said: list[str] = []
    board = TensorBoard(tmp_path / "board", said.append)
    events = [Validated(step, 1, {"nll": 1.0 / step}, "nll", True, 1.0, step, 0) for step in range(1, 5)]
    board(Started(0, 10, None, 1))
    board(events[0])
    [file] = (tmp_path / "board").iterdir()
    kept = file.read_bytes()
    shutil.rmtree(tmp_path / "board")
    for event in (*events[1:], Finished(4, "steps")):
        board(event)
    assert len(said) == 1
    assert str(tmp_path / "board") in said[0]

    (tmp_path / "taken").write_text("")
    other = TensorBoard(tmp_path / "taken", said.append)
    other(Started(0, 10, None, 1))
    other(events[0])
    assert len(said) == 2
    assert points(tmp_path, kept) == {"validate/nll": [(1, 1.0)]}


def points(folder: Path, *files: bytes) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard reads in event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder / "read").mkdir()
    for number, data in enumerate(files):
        (folder / "read" / f"events.out.tfevents.{number:010d}.host").write_bytes(data)
    found = EventAccumulator(str(folder / "read")).Reload()
    return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_points_of_a_sitting_that_was_cut_off_are_cut_off(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for name, start, steps in (("a", 0, (1, 2, 3)), ("b", 2, (3, 4))):
        board = TensorBoard(tmp_path / name)
        board(Started(start, 10, None, 1))
        for step in steps:
            board(Validated(step, 1, {"nll": 10.0 * start + step}, "nll", True, 1.0, step, 0))
    files = [next((tmp_path / name).iterdir()).read_bytes() for name in "ab"]
    assert points(tmp_path, *files)["validate/nll"] == [(1, 1.0), (2, 2.0), (3, 23.0), (4, 24.0)]


def test_a_training_goes_on_without_its_board(seqloom: Command, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    half = half_done(tmp_path)
    shutil.rmtree(half / "board")
    (half / "board").write_text("in the way")
    answer = seqloom("train", half)
    assert answer.code == 0
    assert answer.err.count("no more points for TensorBoard") == 1


@pytest.mark.parametrize(("policy", "word"), [("skip", "skipped"), ("replace", "mended")])
def test_bytes_that_are_not_utf8_are_told_once(policy: str, word: str, seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_bytes(pairs.read_bytes() + b"ab\xff\tba\nab\tb\xfe\n")
    run = tmp_path / "run"
    answer = seqloom("train", recipe, "--run", run, "--set", f"data.on_bad_utf8={policy}", "--set", "steps=1")
    assert answer.code == 0
    assert answer.err.count("bad_utf8") == 1
    assert f"({word}: 2 bad_utf8)" in answer.err
    report = json.loads((run / "pairs.json").read_text())
    assert report["train"][word]["bad_utf8"] == 2
    assert report["dev"]["kept"] > 0


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "", '{"a": 1}', "[" * 100_000])
@pytest.mark.parametrize("name", ["data.json", "start.json"])
def test_records_that_somebody_changed(name: str, text: str, seqloom: Command, tmp_path: Path) -> None:
    half = half_done(tmp_path)
    (half / name).write_text(text)
    assert name in seqloom("train", half).refused("E_BUNDLE", 4)


def test_errors_of_a_member_name_it(tmp_path: Path) -> None:
    from seqloom.api.many import train_many

    recipe = write_recipe(tmp_path)
    never: Callable[[str], Wishes] = lambda label: pytest.fail("nothing may be trained")  # noqa: E731
    with pytest.raises(SeqloomError, match="heads=5"):
        train_many(recipe, tmp_path / "r", ["model.decoder.attention.heads=1,5"], [], never)


def test_a_pipe_that_was_read_in_vain_is_read_again(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_recipe(tmp_path)
    typed = ("train", recipe, "--run", tmp_path / "run", "--set", "data.train=-", "--set", "steps=1")
    from_stdin(monkeypatch, b"one column\n")
    assert seqloom(*typed).code == 3
    assert contents(tmp_path / "run") == {}
    from_stdin(monkeypatch, (tmp_path / "pairs.tsv").read_bytes())
    assert seqloom(*typed).code == 0

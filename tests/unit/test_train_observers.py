"""Observers, signals and the runtime: what people and other processes see of training."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console as RichConsole

from seqloom import runtime
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.training.console import COLUMNS, Console, span
from seqloom.training.events import Event, Finished, Logged, Sample, Started, Validated, Validating
from seqloom.training.loop import Training, fit
from seqloom.training.observers import JsonLines, Stopwatch, TensorBoard
from seqloom.training.signals import Signals
from toy_training import ToyBatches, ToyTask, toy_model, toy_validation


def events() -> list[Event]:
    training = validated(Training, {"steps": 12, "log_every": 2, "validate_every": 6}, "test")
    return list(
        fit(
            ToyTask(),
            toy_model(),
            ToyBatches(),
            training,
            validate=toy_validation(),
            seed=1,
            samples=lambda model: [Sample("[red]s\nt", "o", "r"), Sample("x", "y", "y")],
        )
    )


def logged(step: int, tokens: int = 100) -> Logged:
    return Logged(step, 1, 2.0, 1.0, 0.1, 0.5, 10, tokens, tokens, 0.25, 0, step / 100)


def test_metrics_are_lines_of_json_without_nan(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("of an older run\n")
    with JsonLines(path, clock=iter(count()).__next__) as metrics:
        for event in events():
            metrics(event)
        metrics(Validated(13, 3, {"bleu": float("nan")}, "bleu", False, None, 0, 1))
        records = [json.loads(line) for line in path.read_text().splitlines()]  # readable while it is being written
    names = [record["event"] for record in records]
    assert names == ["started", *["logged"] * 3, "validated", *["logged"] * 3, "validated", "finished", "validated"]
    assert records[1]["tokens_per_second"] > 0
    assert records[-1]["values"] == {"bleu": None}
    assert [record["elapsed"] for record in records] == sorted(record["elapsed"] for record in records)


def test_speed_leaves_validation_out() -> None:
    now = 0.0
    watch = Stopwatch(lambda: now)
    watch.rate(Started(0, 100, None, 1))
    now = 4.0
    watch.rate(Validating(10))
    now = 104.0
    watch.rate(Validated(10, 1, {}, "nll", True, 1.0, 10, 0))
    now = 109.0
    assert watch.rate(logged(20, tokens=90)) == pytest.approx(10.0)
    assert watch.elapsed == 109.0


def shown(terminal: bool, clock: float) -> str:
    stream = io.StringIO()
    rich = RichConsole(file=stream, force_terminal=terminal, width=120, highlight=False)
    with Console(rich, clock=iter(count(step=clock)).__next__) as console:
        for event in events():
            console(event)
    return stream.getvalue()


def test_plain_lines_where_there_is_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "seqloom")
    text = shown(terminal=False, clock=5.0)
    assert "\x1b" not in text
    assert "->" not in text, "samples are of level debug"
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert "[red]s t -> o   (wanted: r)" in caplog.text
    assert "= x -> y" in caplog.text
    assert all(name in text for name in COLUMNS)
    assert text.splitlines()[-1].startswith("all steps done at step 12")


def test_plain_lines_are_few() -> None:
    lines = shown(terminal=False, clock=1e-3).splitlines()
    assert sum(line.startswith("step ") for line in lines) == 1
    assert sum(line.startswith("validated ") for line in lines) == 2


def test_a_live_table_on_a_terminal() -> None:
    text = shown(terminal=True, clock=0.5)
    assert "tokens/s" in text
    assert "padding" in text
    assert "all steps done" in text


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert Console().console.no_color


def test_the_live_table_ends_when_training_fails() -> None:
    rich = RichConsole(file=io.StringIO(), force_terminal=True)
    console = Console(rich)

    def fail() -> None:
        with console:
            console(Started(0, 10, None, 1))
            raise SeqloomError("E_DIVERGED", "boom")

    with pytest.raises(SeqloomError):
        fail()
    assert console._live is None


def test_time_left_is_measured_from_this_sitting() -> None:
    now = 0.0
    console = Console(RichConsole(file=io.StringIO()), clock=lambda: now)
    console(Started(50, 100, None, 1))
    now = 3.0
    console(logged(60))
    assert console.rows[-1][-1] == "-"
    now = 13.0
    console(logged(70))
    assert console.rows[-1][-1] == span(30) == "0:30"
    assert (span(3725), span(59.6)) == ("1:02:05", "1:00")


@pytest.mark.skipif(not TensorBoard.available(), reason="the extra 'board' is not installed")
def test_tensorboard_writes_events(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "board")
    for event in (Started(0, 10, None, 1), logged(5), Finished(5, "steps")):
        board(event)
    assert [path for path in (tmp_path / "board").iterdir() if path.stat().st_size > 0]


def test_signals_ask_and_a_second_interrupt_insists() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as stop:
        assert stop() is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop() == "preempted"
        os.kill(os.getpid(), signal.SIGINT)
        assert stop() == "interrupted"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_grace_is_not_endless() -> None:
    def wait() -> None:
        with Signals(grace=0.05):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20)

    with pytest.raises(SystemExit) as exit_:
        wait()
    assert exit_.value.code == 75


def test_randomness_is_a_function_of_seed_step_rank_and_stream() -> None:
    def draws(*key: object) -> tuple[list[float], list[float]]:
        torch.rand(17)
        rng = runtime.seed_step(*key)  # type: ignore[arg-type]
        return torch.rand(4).tolist(), np.asarray(rng.random(4)).tolist()

    keys = [(1, 1, 0, "train"), (1, 2, 0, "train"), (2, 1, 0, "train"), (1, 1, 1, "train"), (1, 1, 0, "validate")]
    found = [draws(*key) for key in keys]
    assert [draws(*key) for key in keys] == found
    assert len({str(draw) for draw in found}) == len(keys)
    assert runtime.derived_seed(1, 11) != runtime.derived_seed(11, 1)
    assert runtime.derived_seed(1, 1) == 3780862667635842871  # another hash would break the resuming of runs under way


@pytest.mark.parametrize("name", ["cuda:99", "quantum", "meta", "cpu:7"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(SeqloomError) as refusal:
        runtime.find_device(name)
    assert (refusal.value.code, refusal.value.exit_code) == ("E_USAGE", 2)


def test_applying_a_runtime() -> None:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        assert runtime.apply(runtime.Runtime(device="cpu", threads=1)) == torch.device("cpu")
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
        found = runtime.describe()
        assert found["threads"] == 1
        assert found["torch"] == torch.__version__.split("+")[0] or str(found["torch"]).startswith(
            torch.__version__[:4]
        )
        json.dumps(found)
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_flush_denormal(False)

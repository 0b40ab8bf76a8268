"""Law 10: interrupted at any step and resumed equals uninterrupted, bit for bit on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seqloom.batch import Batch
from seqloom.config import validated
from seqloom.runtime import Precision
from seqloom.tasks.base import Loss
from seqloom.training import checkpoints
from seqloom.training.events import Checkpoint, Event, Finished, Sample, Started
from seqloom.training.loop import Training, fit
from seqloom.training.observers import CLOCK_FIELDS, CheckpointKeeper, JsonLines, Observer
from seqloom.training.optim import OPTIMISERS, SCHEDULES
from seqloom.training.state import Snapshot
from toy_training import ToyBatches, ToyModel, ToyTask, toy_model, toy_validation

EXTRA_KEYS = {"step": {"every": 5}, "inverse_sqrt": {"warmup": 4}, "plateau": {"warmup": 2}}

CASES: dict[str, dict[str, object]] = {
    "plain": {},
    **{f"optimiser {kind}": {"optimiser": {"kind": kind}} for kind in OPTIMISERS},
    "momentum": {"optimiser": {"kind": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}},
    **{f"schedule {kind}": {"schedule": {"kind": kind, **EXTRA_KEYS.get(kind, {})}} for kind in SCHEDULES},
    "accumulate": {"accumulate": 4},
    "ema": {"ema": 0.9},
    "epochs": {"epochs": 2},
    "patience": {"patience": 2, "metric": "accuracy", "validate_every": 4},
    "freeze": {"freeze": ["cell.*", "norm.bias"], "ema": 0.9},
    "everything": {
        "accumulate": 2,
        "ema": 0.99,
        "schedule": {"kind": "plateau", "warmup": 3, "factor": 0.7},
        "metric": "accuracy",
        "patience": 5,
        "validate_every": 2,
        "checkpoint_every": 3,
    },
}


def training(changes: dict[str, object]) -> Training:
    base = {"steps": 11, "log_every": 3, "optimiser": {"kind": "adamw", "lr": 0.01}, "clip": 0.5}
    return validated(Training, {**base, **changes}, "test")


def sit(
    settings: Training,
    observe: Observer,
    *,
    resume: Snapshot | None = None,
    until: int | None = None,
    precision: Precision = "float32",
    task: ToyTask | None = None,
) -> list[Event]:
    """One sitting of training, stopped after step `until`."""
    model = toy_model(seed=3 if resume is None else 99)  # a resumed model begins with other weights: all are replaced
    steps: list[int] = []

    def stop() -> str | None:
        steps.append(1)
        return "preempted" if until is not None and done + len(steps) == until else None

    done = resume.step if resume else 0
    events: list[Event] = []
    for event in fit(
        task or ToyTask(), model, ToyBatches(), settings, validate=toy_validation(), seed=5, resume=resume, stop=stop,
        samples=lambda model: [Sample("a", "b", "c")], precision=precision,
    ):  # fmt: skip
        observe(event)
        events.append(event)
    return events


class Final:
    """Keeps the last snapshot in memory."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Checkpoint):
            self.snapshot = event.snapshot()


def same(one: Snapshot | None, other: Snapshot | None) -> bool:
    assert one is not None
    assert other is not None
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, other.tensors[name]), name
    return one.numbers == other.numbers


def told(events: list[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, (Started, Checkpoint))]


@pytest.mark.parametrize("case", CASES)
def test_interrupted_and_resumed_equals_uninterrupted(case: str) -> None:
    check_every_interruption(training(CASES[case]))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_so_it_does_in_every_precision(precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale of fp16 is halved by an overflow and doubled by good steps: both on either side of interruptions."""
    monkeypatch.setattr("seqloom.training.precision.PATIENCE", 4)
    check_every_interruption(training({}), precision, Overflowing())


class Overflowing(ToyTask):
    """In step 3 the gradient is infinite where the loss is scaled: fp16 skips it, the others never see it."""

    def loss(self, model: ToyModel, batch: Batch, step: int) -> Loss:
        loss = super().loss(model, batch, step)
        return Loss(loss.total + _overflow(model.norm.bias.sum()), loss.count, loss.nll) if step == 3 else loss


class _Overflow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
        return value * 0.0

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return torch.where(gradient > 1.0, torch.inf, 0.0)


def _overflow(value: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _Overflow.apply(value)  # type: ignore[no-untyped-call]
    return result


def check_every_interruption(settings: Training, precision: Precision = "float32", task: ToyTask | None = None) -> None:
    whole = Final()
    expected = sit(settings, whole, precision=precision, task=task)
    assert whole.snapshot is not None
    ends_at = whole.snapshot.step
    assert ends_at >= 3
    for until in range(1, ends_at):
        first, second = Final(), Final()
        before = sit(settings, first, until=until, precision=precision, task=task)
        assert before[-1] == Finished(until, "preempted")
        after = sit(settings, second, resume=first.snapshot, precision=precision, task=task)
        assert told(before)[:-1] + told(after) == told(expected), until
        assert same(second.snapshot, whole.snapshot), until


def test_interrupted_after_every_step(tmp_path: Path) -> None:
    """Through files, with all observers, one step per sitting: weights, events and the metrics file are the same."""
    settings = training(CASES["everything"])

    def observed(run: Path) -> tuple[Observer, JsonLines]:
        metrics, keeper = JsonLines(run / "metrics.jsonl"), CheckpointKeeper(run, keep=2)

        def observe(event: Event) -> None:
            torch.rand(5)  # an observer that draws random numbers
            metrics(event)
            keeper(event)

        return observe, metrics

    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    for run, breaks in ((whole, False), (pieces, True)):
        run.mkdir()
        finished = False
        while not finished:
            path = checkpoints.last(run)
            resume = checkpoints.load(path) if path else None
            observe, metrics = observed(run)
            with metrics:
                events = sit(
                    settings, observe, resume=resume, until=(resume.step if resume else 0) + 1 if breaks else None
                )
            last = events[-1]
            assert isinstance(last, Finished)
            finished = last.reason != "preempted"

    def loaded(run: Path, which: Callable[[Path], Path | None]) -> Snapshot:
        path = which(run)
        assert path is not None
        return checkpoints.load(path)

    assert same(loaded(whole, checkpoints.last), loaded(pieces, checkpoints.last))
    assert same(loaded(whole, checkpoints.best), loaded(pieces, checkpoints.best))
    assert records(whole) == records(pieces)
    assert records(whole)[-1]["event"] == "finished"


def records(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK_FIELDS} for line in lines]


def test_killed_between_checkpoints_cuts_the_metrics_back(tmp_path: Path) -> None:
    """A process that dies without a word goes on from its last checkpoint, and no line stands twice."""
    settings = training({"checkpoint_every": 4, "validate_every": 4, "log_every": 1})
    for run in (tmp_path / "whole", tmp_path / "killed"):
        run.mkdir()
        with JsonLines(run / "metrics.jsonl") as metrics:
            keeper = CheckpointKeeper(run)
            events = fit(ToyTask(), toy_model(), ToyBatches(), settings, validate=toy_validation(), seed=5)
            for event in events:
                metrics(event)
                keeper(event)
                if run.name == "killed" and event.step == 7:
                    break
    run = tmp_path / "killed"
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "logged", "st')  # torn
    path = checkpoints.last(run)
    assert path is not None
    assert path.name == "step-00000004"
    with JsonLines(run / "metrics.jsonl") as metrics:
        sit(settings, metrics, resume=checkpoints.load(path))
    expected = records(tmp_path / "whole")
    found = records(run)
    for record in found:
        record.pop("samples", None)
    for record in expected:
        record.pop("samples", None)
    assert found == expected


def test_a_finished_run_says_so_and_stays_as_it_is() -> None:
    settings, final, again = training({"steps": 4}), Final(), Final()
    sit(settings, final)
    assert [type(event) for event in sit(settings, again, resume=final.snapshot)] == [Started, Finished]
    assert again.snapshot is None


def test_a_longer_run_goes_on_from_a_finished_one() -> None:
    settings, final = training({"steps": 4}), Final()
    sit(settings, final)
    longer = sit(training({"steps": 6}), Final(), resume=final.snapshot)
    assert longer[-1] == Finished(6, "steps")

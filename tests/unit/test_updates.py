"""Updates that the device decides on do what watched ones do, and refuse what those refuse; here on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from test_train_loop import Exploding, run

from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.training import loop
from seqloom.training.events import Checkpoint, Event, Finished, Logged
from seqloom.training.loop import SKIPS_IN_A_ROW, Training
from seqloom.training.state import TrainState, counters_of
from seqloom.training.updates import Trusted, Updates
from toy_training import ToyBatches, ToyModel, ToyTask, toy_model, toy_validation


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def updates(state: TrainState, clip: float | None, device: torch.device, *, ends: bool) -> Updates:
        return Trusted(state, clip, ends=ends)

    monkeypatch.setattr(loop, "updates", updates)


def same(one: ToyModel, other: ToyModel) -> None:
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


SETTINGS: dict[str, dict[str, object]] = {
    "adam": {"optimiser": {"kind": "adam", "lr": 0.01}},
    "clipped": {"optimiser": {"kind": "adam", "lr": 0.01, "epsilon": 1e-3}, "clip": 0.1},
    "not clipped": {"optimiser": {"kind": "sgd", "lr": 0.1}, "clip": None},
    "sgd": {"optimiser": {"kind": "sgd", "lr": 0.1, "momentum": 0.9}, "clip": 0.2},
    "adamw": {"optimiser": {"kind": "adamw", "lr": 0.01}, "ema": 0.9, "accumulate": 2},
    "skips": {"optimiser": {"kind": "adam", "lr": 0.01}, "nonfinite": "skip"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_they_are_the_same_updates(name: str, request: pytest.FixtureRequest) -> None:
    models, events = [toy_model(), toy_model()], list[list[Event]]()
    for number, model in enumerate(models):
        if number:
            request.getfixturevalue("trusted")
        task = Exploding(3, 4) if name == "skips" else ToyTask()
        events.append(list(run({"steps": 9, "log_every": 4, **SETTINGS[name]}, task, model)))
    same(*models)
    for one, other in zip(*events, strict=True):
        assert type(one) is type(other)
        if isinstance(one, Logged):
            assert isinstance(other, Logged)
            assert (one.step, one.steps, one.tokens, one.skipped) == (
                other.step,
                other.steps,
                other.tokens,
                other.skipped,
            )
            assert one.loss == pytest.approx(other.loss, rel=1e-5)
            assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-5)


@pytest.mark.usefixtures("trusted")
def test_after_a_step_that_is_not_finite_nothing_changes_and_the_next_look_ends_the_run() -> None:
    clean, model = toy_model(), toy_model()
    list(run({"steps": 3, "log_every": 3}, ToyTask(), clean))
    events: Iterator[Event] = run({"steps": 90, "log_every": 6, "validate_every": 90}, Exploding(4), model)
    assert [event.step for event in islice(events, 1)] == [0]
    with pytest.raises(SeqloomError, match="at step 4;") as refusal:
        next(events)
    assert refusal.value.code == "E_DIVERGED"
    same(clean, model)


@pytest.mark.usefixtures("trusted")
def test_too_many_refusals_in_a_row_are_divergence() -> None:
    with pytest.raises(SeqloomError, match=f"at step {3 + SKIPS_IN_A_ROW}"):
        list(run({"steps": 100, "nonfinite": "skip"}, Exploding(*range(3, 100))))


@pytest.mark.usefixtures("trusted")
def test_who_stops_between_two_logs_saves_everything_that_was_counted() -> None:
    asked = iter([None, None, "interrupted"])
    settings = validated(Training, {"steps": 90, "log_every": 50, "validate_every": 90}, "test")
    events = list(
        loop.fit(
            ToyTask(),
            toy_model(),
            ToyBatches(),
            settings,
            validate=toy_validation(),
            seed=1,
            stop=lambda: next(asked),
        )
    )
    assert isinstance(events[-1], Finished)
    saved = events[-2]
    assert isinstance(saved, Checkpoint)
    now = counters_of(saved.snapshot())
    assert (now.step, now.interval.updates) == (3, 3)
    assert now.tokens > 0

"""What the loop does when things go right, wrong, and not at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import torch

from seqloom.batch import Batch
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.tasks.base import Loss
from seqloom.training.events import Checkpoint, Event, Finished, Logged, Sample, Started, Validated
from seqloom.training.loop import SKIPS_IN_A_ROW, Training, fit
from seqloom.training.state import Snapshot
from toy_training import ToyBatches, ToyModel, ToyTask, toy_model, toy_validation


def run(raw: dict[str, object], task: ToyTask | None = None, model: ToyModel | None = None) -> Iterator[Event]:
    training = validated(Training, raw, "test")
    return fit(
        task or ToyTask(), model or toy_model(), ToyBatches(), training, validate=toy_validation(), seed=1,
        samples=lambda model: [Sample("a", "b", "c")],
    )  # fmt: skip


class Exploding(ToyTask):
    """A loss that is not a number at the given steps."""

    def __init__(self, *steps: int, only_loss: bool = False) -> None:
        self.steps, self.only_loss = steps, only_loss

    def loss(self, model: ToyModel, batch: Batch, step: int) -> Loss:
        loss = super().loss(model, batch, step)
        if step not in self.steps:
            return loss
        bad = loss.total.detach() * float("nan") if self.only_loss else model.norm.weight.sum() * float("nan")
        return Loss(loss.total + bad, loss.count, loss.nll)


def test_it_learns() -> None:
    model = toy_model(dropout=0.0)
    raw = {"steps": 200, "log_every": 100, "optimiser": {"kind": "adam", "lr": 0.02}}
    values = [event.values["nll"] for event in run(raw, model=model) if isinstance(event, Validated)]
    assert values[-1] < 0.6 * values[0]


def test_events_come_in_order_and_count_right() -> None:
    events = list(run({"epochs": 2, "log_every": 4, "accumulate": 2}))  # 22 examples, 6 batches, 3 steps an epoch
    kinds = [(type(event).__name__, event.step) for event in events]
    assert kinds == [
        ("Started", 0),
        ("Validating", 3),
        ("Validated", 3),
        ("Checkpoint", 3),
        ("Logged", 4),
        ("Logged", 6),
        ("Validating", 6),
        ("Validated", 6),
        ("Checkpoint", 6),
        ("Finished", 6),
    ]
    assert events[-1] == Finished(6, "epochs")
    first, second = (event for event in events if isinstance(event, Logged))
    assert (first.steps, second.steps) == (4, 2)
    assert (first.epoch, second.epoch) == (2, 2)
    tokens = sum(len(target) for _, target in ToyBatches().examples)
    assert first.tokens + second.tokens == second.tokens_seen == 2 * tokens
    assert 0 < first.padding < 1
    assert (first.progress, second.progress) == (pytest.approx(4 / 6), 1.0)
    assert isinstance(events[0], Started)
    assert events[0].parameters == sum(p.numel() for p in toy_model().parameters() if p.requires_grad)
    validation = events[2]
    assert isinstance(validation, Validated)
    assert validation.samples == (Sample("a", "b", "c"),)


def test_the_reported_loss_is_per_token() -> None:
    model, task = toy_model(dropout=0.0), ToyTask()
    batches = list(ToyBatches().epoch(0))[:2]
    losses = [task.loss(model, batch, 1) for batch in batches]
    count = sum(int(loss.count) for loss in losses)
    expected = sum(float(loss.total.detach()) for loss in losses) / count
    nll = sum(float(loss.nll) for loss in losses) / count
    logged = next(e for e in run({"steps": 1, "accumulate": 2}, model=model) if isinstance(e, Logged))
    assert (logged.loss, logged.nll) == (pytest.approx(expected), pytest.approx(nll))


def test_clipping_bounds_the_update() -> None:
    for clip, longest in ((1e-3, 1e-3), (None, 1e9)):
        model, before = toy_model(), toy_model()
        norms = [
            event.gradient_norm
            for event in run({"steps": 1, "clip": clip, "optimiser": {"kind": "sgd", "lr": 1.0}}, model=model)
            if isinstance(event, Logged)
        ]
        moved = torch.cat([(a - b).flatten() for a, b in zip(model.parameters(), before.parameters(), strict=True)])
        assert norms[0] > 1e-3  # the norm is reported as it was before clipping
        assert moved.norm().item() == pytest.approx(min(longest, norms[0]), rel=1e-3)


@pytest.mark.parametrize("only_loss", [False, True])
def test_nan_stops_without_an_update_and_names_step_and_parameter(only_loss: bool) -> None:
    model = toy_model()
    events = run({"steps": 9, "log_every": 1}, Exploding(4, only_loss=only_loss), model)
    assert [event.step for event in islice(events, 4)] == [0, 1, 2, 3]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(SeqloomError) as refusal:
        next(events)
    assert (refusal.value.code, refusal.value.exit_code) == ("E_DIVERGED", 5)
    assert "step 4" in refusal.value.what
    assert ("in the loss" if only_loss else "norm.weight") in refusal.value.what
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


def test_nan_can_be_skipped_and_is_counted() -> None:
    model = toy_model()
    events = list(run({"steps": 8, "log_every": 8, "nonfinite": "skip"}, Exploding(2, 3, 7), model))
    logged = next(event for event in events if isinstance(event, Logged))
    assert (logged.skipped, logged.steps) == (3, 8)
    assert logged.loss == logged.loss
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


def test_too_many_skips_in_a_row_are_divergence() -> None:
    steps = range(3, 100)
    with pytest.raises(SeqloomError, match=f"at step {3 + SKIPS_IN_A_ROW}") as refusal:
        list(run({"steps": 100, "nonfinite": "skip"}, Exploding(*steps)))
    assert refusal.value.code == "E_DIVERGED"


class NoRoom(ToyTask):
    """Example 11 never fits."""

    def loss(self, model: ToyModel, batch: Batch, step: int) -> Loss:
        if 11 in batch.examples:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            )
        return super().loss(model, batch, step)


def test_an_example_that_never_fits_is_named() -> None:
    with pytest.raises(SeqloomError, match="example 11 ") as refusal:
        list(run({"epochs": 1}, NoRoom()))
    assert (refusal.value.code, refusal.value.exit_code) == ("E_MEMORY", 6)


class Broken(ToyTask):
    def loss(self, model: ToyModel, batch: Batch, step: int) -> Loss:
        raise RuntimeError("a mistake of ours")


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        list(run({"steps": 1}, Broken()))


def test_patience_ends_the_run_and_the_best_is_offered() -> None:
    values = iter([3.0, 2.0, float("nan"), 2.5, 9.9, 9.9])
    training = validated(Training, {"steps": 99, "validate_every": 1, "patience": 2, "metric": "wer"}, "test")
    events = list(
        fit(ToyTask(), toy_model(), ToyBatches(), training, validate=lambda model: {"wer": next(values)}, seed=1)
    )
    assert events[-1] == Finished(4, "patience")
    assert [(event.step, event.best) for event in events if isinstance(event, Checkpoint)] == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
    ]
    last = next(event for event in reversed(events) if isinstance(event, Validated))
    assert (last.best, last.best_step, last.bad) == (2.0, 2, 2)


@pytest.mark.parametrize(
    ("metric", "better", "value", "best", "expected"),
    [
        ("nll", "auto", 1.0, 2.0, True),
        ("bleu", "auto", 1.0, 2.0, False),
        ("bleu", "lower", 1.0, 2.0, True),
        ("nll", "higher", 1.0, 2.0, False),
        ("nll", "auto", 2.0, 2.0, False),
        ("bleu", "auto", float("inf"), None, False),
        ("bleu", "auto", 0.0, None, True),
    ],
)
def test_what_is_better(metric: str, better: str, value: float, best: float | None, expected: bool) -> None:
    training = validated(Training, {"steps": 1, "metric": metric, "better": better}, "test")
    assert training.is_better(value, best) is expected


def test_an_unknown_metric_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SeqloomError, match='did you mean "accuracy"') as refusal:
        list(run({"steps": 1, "metric": "acuracy"}))
    assert refusal.value.code == "E_RECIPE"


@pytest.mark.parametrize("reason", ["preempted", "interrupted"])
def test_a_stop_request_saves_and_ends_after_the_step(reason: str) -> None:
    training = validated(Training, {"steps": 99}, "test")
    asked = iter([None, None, reason])
    events = list(
        fit(ToyTask(), toy_model(), ToyBatches(), training, validate=toy_validation(), seed=1, stop=lambda: next(asked))
    )
    assert [type(event) for event in events] == [Started, Checkpoint, Finished]
    assert events[-1] == Finished(3, reason)  # type: ignore[arg-type]


def test_validation_sees_the_average_and_training_goes_on_with_its_own_weights() -> None:
    model = toy_model()
    seen: list[torch.Tensor] = []

    def validate(used: torch.nn.Module) -> dict[str, float]:
        assert isinstance(used, ToyModel)
        seen.append(used.embedding.weight.detach().clone())
        return {"nll": 0.0}

    training = validated(Training, {"steps": 5, "ema": 0.9}, "test")
    snapshot: Snapshot | None = None
    for event in fit(ToyTask(), model, ToyBatches(), training, validate=validate, seed=1):
        if isinstance(event, Checkpoint):
            snapshot = event.snapshot()
    assert snapshot is not None
    assert torch.equal(snapshot.weights()["embedding.weight"], seen[-1])
    assert torch.equal(snapshot.tensors["model/embedding.weight"], model.embedding.weight)
    assert not torch.equal(model.embedding.weight, seen[-1])
    assert not any(name.startswith("ema/frozen") for name in snapshot.tensors)


class Nothing:
    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        return iter(())


def test_no_data_is_refused() -> None:
    training = validated(Training, {"steps": 1}, "test")
    with pytest.raises(SeqloomError) as refusal:
        list(fit(ToyTask(), toy_model(), Nothing(), training, validate=toy_validation(), seed=1))
    assert refusal.value.code == "E_EMPTY"


@pytest.mark.parametrize("raw", [{}, {"steps": 0}, {"steps": 1, "clip": 0}, {"steps": 1, "ema": 1.0}, {"step": 1}])
def test_impossible_settings_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(SeqloomError) as refusal:
        validated(Training, raw, "recipe.yaml")
    assert refusal.value.code == "E_RECIPE"


def test_a_cosine_over_epochs_ends_with_the_last_of_them() -> None:
    """22 examples in batches of 4, two to a step: 3 steps an epoch, 6 in all; the rate at the last one is zero."""
    raw = {"epochs": 2, "accumulate": 2, "log_every": 1, "schedule": "cosine", "optimiser": {"kind": "adam", "lr": 1.0}}
    rates = [event.lr for event in run(raw) if isinstance(event, Logged)]
    assert len(rates) == 6
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)
    assert rates[2] == pytest.approx(0.5), "half the way, half the rate"


def test_of_equal_validations_the_surer_one_is_kept() -> None:
    values = iter([(1.0, 3.0), (1.0, 2.0), (1.0, 2.5), (0.5, 9.0)])

    def validate(model: torch.nn.Module) -> dict[str, float]:
        wer, nll = next(values)
        return {"wer": wer, "nll": nll}

    training = validated(Training, {"steps": 4, "validate_every": 1, "metric": "wer"}, "test")
    events = list(fit(ToyTask(), toy_model(), ToyBatches(), training, validate=validate, seed=1))
    assert [event.best for event in events if isinstance(event, Checkpoint)] == [True, True, False, True]

"""Law 11: accumulated and split batches equal one joined batch (dropout off)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batch import Batch
from seqloom.config import validated
from seqloom.models.model import EncoderDecoder
from seqloom.runtime import seed_step
from seqloom.tasks.base import Loss
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training import gradients
from seqloom.training.events import Event, Logged
from seqloom.training.gradients import Measured
from seqloom.training.loop import Training, fit
from toy_training import ToyBatches, ToyModel, ToyTask, toy_model, toy_validation


class Parts:
    """All examples in every epoch, cut into batches at the given places."""

    def __init__(self, cuts: Sequence[int]) -> None:
        self.cuts = sorted(cuts)

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        examples = ToyBatches().examples
        edges = [0, *self.cuts, len(examples)]
        for start, end in list(pairwise(edges))[skip:]:
            yield ToyTask().collate(examples[start:end])


def trained(cuts: Sequence[int], task: ToyTask, epochs: int = 3) -> tuple[ToyModel, list[Event]]:
    model = toy_model(dropout=0.0, dtype=torch.float64)
    raw = {"epochs": epochs, "accumulate": len(cuts) + 1, "log_every": 1, "clip": 0.2, "optimiser": "sgd"}
    training = validated(Training, raw, "test")
    return model, list(fit(task, model, Parts(cuts), training, validate=toy_validation(), seed=1))


class Cramped(ToyTask):
    """Memory for only so many examples; fails before, or midway through, the backward pass."""

    def __init__(self, room: int, midway: bool) -> None:
        self.room, self.midway = room, midway

    def loss(self, model: ToyModel, batch: Batch, step: int) -> Loss:
        loss = super().loss(model, batch, step)
        if len(batch) <= self.room:
            return loss
        if not self.midway:
            raise torch.OutOfMemoryError("no room")
        # the embedding's gradient is added first, then the failure comes
        total = loss.total + _Fails.apply(model.output.bias.sum()) * 0.0
        return Loss(total, loss.count, loss.nll)


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        raise MemoryError


def assert_same(one: ToyModel, other: ToyModel) -> None:
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=0, atol=1e-12, msg=name)


@given(cuts=st.sets(st.integers(1, 21), max_size=5))
@settings(max_examples=15, deadline=None)
def test_accumulated_batches_equal_one_joined_batch(cuts: set[int]) -> None:
    joined, events = trained([], ToyTask())
    parts, events_of_parts = trained(sorted(cuts), ToyTask())
    assert_same(joined, parts)
    for one, other in zip(events, events_of_parts, strict=True):
        if isinstance(one, Logged):
            assert isinstance(other, Logged)
            assert (other.step, other.tokens) == (one.step, one.tokens)
            assert other.loss == pytest.approx(one.loss, abs=1e-12)
            assert other.gradient_norm == pytest.approx(one.gradient_norm, abs=1e-12)


@pytest.mark.parametrize("midway", [False, True])
@pytest.mark.parametrize("room", [1, 5, 21])
@pytest.mark.parametrize("cuts", [[], [3, 15]])
def test_a_batch_that_does_not_fit_is_split_and_gives_the_same_gradient(
    midway: bool, room: int, cuts: list[int]
) -> None:
    assert_same(trained([], ToyTask())[0], trained(cuts, Cramped(room, midway))[0])


def test_the_mean_is_per_token_not_per_batch() -> None:
    """The trap this law is about: a mean of the batches' means weighs short batches too much."""
    joined = trained([], ToyTask(), epochs=1)[0]
    model = toy_model(dropout=0.0, dtype=torch.float64)
    for batch in Parts([2]).epoch(0):
        loss = ToyTask().loss(model, batch, 1)
        (loss.total / loss.count / 2).backward()
    norm = torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 0.2)
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    assert norm > 0
    assert not torch.allclose(joined.embedding.weight, model.embedding.weight, atol=1e-6)


# --- batches that do not fit, of real models ---

KINDS: dict[str, dict[str, object]] = {
    "rnn": {},
    "luong": {"decoder": {"kind": "luong", "width": 4}},
    "transformer": {
        "encoder": {"kind": "transformer", "width": 4, "heads": 2, "layers": 1, "dropout": 0.0},
        "decoder": {"kind": "transformer", "width": 4, "heads": 2, "layers": 1, "dropout": 0.0},
    },
}


@pytest.mark.parametrize("room", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_accumulated_batches_that_do_not_fit_give_the_gradient_of_those_that_do(kind: str, room: int) -> None:
    """Two batches of one step, cut until so many examples fit: forward fails in the first, backward in the second."""
    examples = ToyBatches(examples=9).examples
    group = [ToyTask().collate(examples[:5]), ToyTask().collate(examples[5:])]
    task, model = transduce("plain"), small_network(KINDS[kind])

    def plainly(batch: Batch) -> Loss:
        return task.loss(model, batch, 1)

    def cramped(batch: Batch) -> Loss:
        if len(batch) > room and len(batch) % 2:
            raise torch.OutOfMemoryError("no room")
        loss = task.loss(model, batch, 1)
        if len(batch) <= room:
            return loss
        return Loss(loss.total + _Fails.apply(loss.total) * 0.0, loss.count, loss.nll)

    found = []
    for loss_of in (plainly, cramped):
        sums = gradients.summed(gradients.plain(loss_of), group, lambda: seed(model))
        found.append((sums, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}))
    (one, expected), (other, split) = found
    for name, gradient in expected.items():
        torch.testing.assert_close(split[name], gradient, rtol=0, atol=1e-10, msg=name)
    assert float(other.total) == pytest.approx(float(one.total), abs=1e-9)
    assert float(other.count) == float(one.count)


# --- the real task, with weights --------------------

TASKS: dict[str, dict[str, object]] = {
    "plain": {},
    "label smoothing": {"label_smoothing": 0.2},
    "r_drop": {"r_drop": 2.0},
    "risk": {"risk": {"metric": "wer", "samples": 4, "alpha": 0.5}},
}


def transduce(name: str) -> Transduce:
    return Transduce(
        Transduce.Settings.model_validate(TASKS[name]),
        vocabularies=(12, 12),
        searching=SearchSettings(),
        decode=lambda ids: " ".join(map(str, ids)),
    )


def small_network(changes: Mapping[str, object] | None = None) -> EncoderDecoder:
    raw: dict[str, object] = {
        name: {"width": 4} for name in ("source_embedding", "target_embedding", "encoder", "decoder")
    }
    raw |= changes or {}
    torch.manual_seed(1)
    settings = EncoderDecoder.Settings.model_validate(raw)
    return EncoderDecoder(settings, source_vocabulary=12, target_vocabulary=12).double()


def measured(task: Transduce, parts: Sequence[Batch]) -> tuple[Measured, dict[str, torch.Tensor]]:
    """The step's numbers and the mean gradient, as the loop makes them."""
    model = small_network()
    loss = gradients.summed(gradients.plain(lambda batch: task.loss(model, batch, 1)), parts, lambda: seed(model))
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    numbers = gradients.measure(loss, list(found.values()))
    gradients.scale(list(found.values()), numbers, clip=0.5)
    return numbers, found


def seed(model: EncoderDecoder) -> None:
    model.zero_grad(set_to_none=True)
    seed_step(1, 1)


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", TASKS)
def test_the_real_loss_of_parts_is_that_of_the_whole(name: str, weighted: bool) -> None:
    examples = ToyBatches(examples=7).examples
    weights = torch.tensor([1.0, 0.25, 3.0, 0.0, 0.01, 2.0, 1.5]) if weighted else None
    whole = replace(ToyTask().collate(examples), weights=weights)
    task = transduce(name)
    expected, gradient = measured(task, [whole])
    for cuts in ([3], [1, 2, 6]):
        edges = [0, *cuts, len(examples)]
        parts = [whole.rows(torch.arange(start, end)) for start, end in pairwise(edges)]
        numbers, found = measured(task, parts)
        assert numbers.count == pytest.approx(expected.count, abs=1e-9)
        for one, other in ((numbers.loss, expected.loss), (numbers.nll, expected.nll), (numbers.norm, expected.norm)):
            assert one == pytest.approx(other, abs=1e-9)
        for key, tensor in gradient.items():
            torch.testing.assert_close(found[key], tensor, rtol=0, atol=1e-10, msg=key)


def test_weights_make_a_weighted_mean_and_weights_of_one_change_nothing() -> None:
    """An example of weight 3 counts as if it stood there three times, and one of weight 0 as if it did not."""
    examples = ToyBatches(examples=4).examples
    weighted = replace(ToyTask().collate(examples), weights=torch.tensor([1.0, 3.0, 0.0, 1.0]))
    repeated = ToyTask().collate([examples[0], *[examples[1]] * 3, examples[3]])
    numbers, found = measured(transduce("plain"), [weighted])
    expected, gradient = measured(transduce("plain"), [repeated])
    assert (numbers.count, numbers.norm) == (pytest.approx(expected.count), pytest.approx(expected.norm))
    for key, tensor in gradient.items():
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=1e-10, msg=key)
    plain = ToyTask().collate(examples)
    for one, other in zip(
        measured(transduce("plain"), [plain]),
        measured(transduce("plain"), [replace(plain, weights=torch.ones(4))]),
        strict=True,
    ):
        assert str(one) == str(other)


def test_validation_is_unweighted() -> None:
    model, task = small_network().eval(), transduce("plain")
    plain = ToyTask().collate(ToyBatches(examples=4).examples)
    weighted = replace(plain, weights=torch.tensor([1.0, 3.0, 0.0, 1.0]))
    one, other = task.loss(model, plain, 0), task.loss(model, weighted, 0)
    assert (float(one.nll), float(one.count)) == (float(other.nll), float(other.count))


def test_examples_that_all_weigh_nothing_change_nothing() -> None:
    batch = replace(ToyTask().collate(ToyBatches(examples=3).examples), weights=torch.zeros(3))
    numbers, found = measured(transduce("plain"), [batch])
    assert (numbers.finite, numbers.count, numbers.norm) == (True, 0.0, 0.0)
    assert not any(bool(tensor.any()) for tensor in found.values())

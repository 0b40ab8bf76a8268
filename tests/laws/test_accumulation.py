"""Law 11: accumulated and split batches equal one joined batch (dropout off)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batch import Batch
from seqloom.config import validated
from seqloom.tasks.base import Loss
from seqloom.training.events import Event, Logged
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

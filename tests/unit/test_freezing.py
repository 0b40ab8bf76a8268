"""Frozen parameters stay as they are, have no optimiser state, and are found by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.training.events import Checkpoint, Started
from seqloom.training.freezing import freeze
from seqloom.training.loop import Training, fit
from toy_training import ToyBatches, ToyTask, toy_model, toy_validation


def frozen(*patterns: str) -> set[str]:
    model = toy_model()
    freeze(model, patterns)
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


ALREADY = {"frozen.weight", "frozen.bias"}  # the toy's own


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["norm"], {"norm.weight", "norm.bias"}),
        (["norm.*"], {"norm.weight", "norm.bias"}),
        (["norm.weight", "cell.bias_*"], {"norm.weight", "cell.bias_ih_l0", "cell.bias_hh_l0"}),
        (["output.weight"], {"embedding.weight"}),  # tied: frozen by either name
        ([], set()),
    ],
)
def test_patterns_name_parts_parameters_and_globs(patterns: list[str], expected: set[str]) -> None:
    assert frozen(*patterns) == expected | ALREADY


@pytest.mark.parametrize(("pattern", "near"), [("embeding", "embedding"), ("embeding.*", "embedding"), ("nor", "norm")])
def test_a_pattern_that_names_nothing_is_refused_with_the_nearest(pattern: str, near: str) -> None:
    with pytest.raises(SeqloomError, match=rf'did you mean "{near}"') as refusal:
        frozen("norm", pattern)
    assert (refusal.value.code, refusal.value.where) == ("E_RECIPE", "training.freeze")
    assert "cell" in refusal.value.fix


def test_nothing_left_to_train_is_refused() -> None:
    with pytest.raises(SeqloomError, match="nothing is left to train"):
        frozen("*")


def test_a_frozen_part_stays_to_the_last_bit_and_has_no_optimiser_state() -> None:
    model, before = toy_model(), toy_model()
    raw = {
        "steps": 4,
        "freeze": ["cell", "output.bias"],
        "optimiser": {"kind": "adamw", "lr": 0.1, "weight_decay": 0.5},
    }
    events = list(
        fit(ToyTask(), model, ToyBatches(), validated(Training, raw, "test"), validate=toy_validation(), seed=1)
    )
    moved = {
        name
        for (name, one), (_, other) in zip(model.named_parameters(), before.named_parameters(), strict=True)
        if not torch.equal(one, other)
    }
    assert moved == {"embedding.weight", "norm.weight", "norm.bias"}
    assert model.cell.weight_hh_l0.grad is None
    snapshot = next(event for event in events if isinstance(event, Checkpoint)).snapshot()
    states = {name.rpartition("/")[0] for name in snapshot.part("optimiser/")}
    assert states == moved
    assert "cell.weight_hh_l0" in snapshot.part("model/")
    started = events[0]
    assert isinstance(started, Started)
    assert started.parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_what_is_frozen_still_carries_gradients_to_what_lies_before_it() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    freeze(model, ["1"])
    model(torch.ones(1, 2)).sum().backward()
    assert model[0].weight.grad is not None
    assert model[1].weight.grad is None

"""Optimisers keep torch's arithmetic and spare what must not decay; schedules follow their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.models.model import EncoderDecoder
from seqloom.training.loop import Training
from seqloom.training.optim import OPTIMISERS, SCHEDULES, Schedule
from toy_training import toy_model

TORCH = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "sgd": torch.optim.SGD,
}


def descend(model: nn.Module, step: int) -> None:
    model.zero_grad()
    torch.manual_seed(step)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn_like(parameter)


@pytest.mark.parametrize("kind", list(OPTIMISERS))
def test_the_updates_are_torchs(kind: str) -> None:
    ours, theirs = nn.Linear(3, 4), nn.Linear(3, 4)
    theirs.load_state_dict(ours.state_dict())
    settings = OPTIMISERS.settings({"kind": kind, "lr": 0.05, "weight_decay": 0.0})
    optimiser = OPTIMISERS.build(settings, model=ours)
    extra = {"adagrad": {"initial_accumulator_value": 0.1}, "adadelta": {"rho": 0.95}}.get(kind, {})
    reference = TORCH[kind](theirs.parameters(), lr=0.05 * 0.5, weight_decay=0.0, **extra)  # type: ignore[operator]
    for step in range(4):
        descend(ours, step)
        descend(theirs, step)
        optimiser.step(0.5)
        reference.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", list(OPTIMISERS))
def test_weight_decay_spares_biases_norms_and_embeddings(kind: str) -> None:
    plain, decayed = toy_model(), toy_model()
    for model, decay in ((plain, 0.0), (decayed, 0.3)):
        optimiser = OPTIMISERS.build(OPTIMISERS.settings({"kind": kind, "weight_decay": decay}), model=model)
        for step in range(3):
            descend(model, step)
            optimiser.step(1.0)
    changed = {
        name
        for (name, one), (_, other) in zip(plain.named_parameters(), decayed.named_parameters(), strict=True)
        if not torch.equal(one, other)
    }
    assert changed == {"cell.weight_ih_l0", "cell.weight_hh_l0"}  # not embedding (tied), norm, biases, frozen


@pytest.mark.parametrize("tied", [False, True])
def test_weight_decay_spares_our_own_embeddings(tied: bool) -> None:
    """Also where one is the output layer; an output layer of its own decays."""
    raw = {"encoder": {"width": 4}, "decoder": {"width": 4}, "tied": tied}
    model = EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=9, target_vocabulary=8)
    optimiser = OPTIMISERS.build(OPTIMISERS.settings({"kind": "adamw", "lr": 0.1, "weight_decay": 0.5}), model=model)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step(1.0)
    decayed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert decayed == {name for name, tensor in before.items() if tensor.dim() > 1 and "embedding" not in name}
    assert ("head.weight" in decayed) is not tied


@pytest.mark.parametrize("kind", list(OPTIMISERS))
def test_a_state_of_other_parameters_is_refused(kind: str) -> None:
    settings = OPTIMISERS.settings(kind)
    if kind == "sgd":
        settings = OPTIMISERS.settings({"kind": kind, "momentum": 0.9})
    model, wider = nn.Linear(3, 4), nn.Linear(3, 5)
    trained = OPTIMISERS.build(settings, model=wider)
    descend(wider, 0)
    trained.step(1.0)
    fresh = OPTIMISERS.build(settings, model=model)
    with pytest.raises(SeqloomError, match=r"wrong shape.*instead of") as shapes:
        fresh.load(trained.state(), "here")
    assert shapes.value.code == "E_BUNDLE"
    with pytest.raises(SeqloomError, match="extra: other/step"):
        fresh.load({"other/step": torch.tensor(1.0)}, "here")


def test_a_state_keeps_the_memory_layout_of_its_parameter() -> None:
    """Fused kernels walk parameter and moments as raw memory: a transposed parameter needs transposed moments."""

    def run(interrupted: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(3, 4)
        model.weight = nn.Parameter(torch.randn(3, 4).t())
        optimiser = OPTIMISERS.build(OPTIMISERS.settings("adam"), model=model)
        for step in range(4):
            if interrupted:
                state = {name: tensor.contiguous().clone() for name, tensor in optimiser.state().items()}
                optimiser = OPTIMISERS.build(OPTIMISERS.settings("adam"), model=model)
                optimiser.load(state, "here")
            descend(model, step)
            optimiser.step(1.0)
        return model.weight.detach()

    assert torch.equal(run(interrupted=True), run(interrupted=False))


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "adam", "lr": 0},
        {"kind": "adam", "lr": -1e-3},
        {"kind": "adam", "lr": math.nan},
        {"kind": "adam", "lr": math.inf},
        {"kind": "adam", "betas": [0.9, 1.0]},
        {"kind": "sgd", "nesterov": True},
        {"kind": "adamm"},
        {"kind": "adam", "learning_rate": 1},
    ],
)
def test_impossible_optimisers_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(SeqloomError) as refusal:
        validated(Training, {"steps": 1, "optimiser": raw}, "recipe.yaml")
    assert refusal.value.code == "E_RECIPE"
    assert "optimiser" in refusal.value.what


def schedule(raw: dict[str, object], steps: int | None = None) -> Schedule:
    return SCHEDULES.build(SCHEDULES.settings(raw), steps=steps)


def test_schedules_follow_their_formulas() -> None:
    assert [schedule({"kind": "constant"}).factor(s) for s in (1, 100)] == [1.0, 1.0]
    inverse = schedule({"kind": "inverse_sqrt", "warmup": 4})
    assert [inverse.factor(s) for s in (1, 2, 4, 16, 64)] == [0.25, 0.5, 1.0, 0.5, 0.25]
    cosine = schedule({"kind": "cosine", "warmup": 10, "min": 0.2}, steps=110)
    assert [cosine.factor(s) for s in (5, 10, 60, 110, 999)] == pytest.approx([0.5, 1.0, 0.6, 0.2, 0.2])
    halving = schedule({"kind": "step", "every": 10, "start": 20})
    assert [halving.factor(s) for s in (1, 20, 29, 30, 49, 50)] == [1.0, 1.0, 1.0, 0.5, 0.25, 0.125]


@pytest.mark.parametrize("kind", list(SCHEDULES))
def test_warm_up_grows_evenly_to_the_peak(kind: str) -> None:
    keys = {"every": 100} if kind == "step" else {}
    found = schedule({"kind": kind, "warmup": 8, **keys}, steps=100)
    assert [found.factor(step) for step in range(1, 9)] == [step / 8 for step in range(1, 9)]


def test_plateau_falls_after_too_many_validations_without_improvement() -> None:
    found = schedule({"kind": "plateau", "factor": 0.5, "patience": 1, "min": 0.2})
    levels = []
    for improved in (True, False, True, False, False, False, False, False, False):
        found.observe(improved)
        levels.append(found.factor(1))
    assert levels == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.2]
    again = schedule({"kind": "plateau", "factor": 0.5, "patience": 1, "min": 0.2})
    again.load(found.state())
    assert again.factor(1) == 0.2

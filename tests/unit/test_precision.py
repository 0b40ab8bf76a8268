"""Mixed precision: what is narrow and what stays wide, and a loss scale that finds itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from seqloom import runtime
from seqloom.batch import Batch
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.models.model import EncoderDecoder
from seqloom.runtime import Precision, Runtime, autocast
from seqloom.tasks.base import Loss
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training import precision as scaling
from seqloom.training.events import Checkpoint, Event, Logged
from seqloom.training.loop import Training, fit
from seqloom.training.precision import FIRST, LEAST, MOST, Scaler
from seqloom.training.state import Snapshot
from toy_training import ToyBatches, ToyModel, ToyTask, toy_model, toy_validation

CPU = torch.device("cpu")


class Overflowing(ToyTask):
    """Gradients that are infinite at the given steps."""

    def __init__(self, *steps: int) -> None:
        self.steps = steps

    def loss(self, model: ToyModel, batch: Batch, step: int) -> Loss:
        loss = super().loss(model, batch, step)
        if step not in self.steps:
            return loss
        return Loss(loss.total + model.norm.weight.sum() * float("inf"), loss.count, loss.nll)


def run(
    precision: Precision, steps: int = 6, explode: Sequence[int] = (), clip: float = 0.01
) -> tuple[ToyModel, list[Event], Snapshot]:
    """On a CPU fp16 computes in float32, but its loss is scaled all the same: what is scaled can be compared."""
    model = toy_model()
    raw = {"steps": steps, "log_every": 1, "clip": clip, "optimiser": {"kind": "adamw", "lr": 0.01}}
    training = validated(Training, raw, "test")
    events: list[Event] = []
    snapshot: Snapshot | None = None
    for event in fit(
        Overflowing(*explode), model, ToyBatches(), training, validate=toy_validation(), seed=1, precision=precision
    ):
        events.append(event)
        if isinstance(event, Checkpoint):
            snapshot = event.snapshot()
    assert snapshot is not None
    return model, events, snapshot


def test_scaling_the_loss_changes_neither_norm_nor_clipping_nor_update() -> None:
    """The scale is a power of two and is taken off before anything is measured: the same to the last bit."""
    plain, events, _ = run("float32")
    scaled, scaled_events, _ = run("fp16")
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, scaled.state_dict()[name]), name
    assert events[1:-2] == scaled_events[1:-2]
    assert all(event.gradient_norm > 0.01 for event in events if isinstance(event, Logged))  # clipping was at work


def test_an_overflow_is_skipped_counted_and_halves_the_scale() -> None:
    before = run("fp16", steps=2)[0]
    model, events, snapshot = run("fp16", steps=4, explode=[3, 4])
    for name, tensor in before.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name
    logged = [event for event in events if isinstance(event, Logged)]
    assert [event.skipped for event in logged] == [0, 0, 1, 2]
    assert snapshot.numbers["scaler"] == {"scale": FIRST / 4, "good": 0}


def test_a_scale_that_helps_nothing_is_divergence() -> None:
    halvings = int(torch.tensor(FIRST / LEAST).log2()) + 1
    with pytest.raises(SeqloomError, match=rf"at step {1 + halvings}, first in the gradient of norm.weight") as refusal:
        run("fp16", steps=200, explode=range(2, 200))
    assert refusal.value.code == "E_DIVERGED"
    assert "bf16" in refusal.value.fix


def test_a_scale_that_does_well_is_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "PATIENCE", 3)
    scaler = Scaler()
    for _ in range(7):
        scaler.went_well()
    assert (scaler.scale, scaler.good) == (4 * FIRST, 1)
    scaler.scale, scaler.good = MOST, 2
    scaler.went_well()
    assert scaler.scale == MOST


def test_a_snapshot_without_a_scale_is_refused() -> None:
    *_, snapshot = run("float32", steps=2)
    training = validated(Training, {"steps": 3, "optimiser": "adamw"}, "test")
    with pytest.raises(SeqloomError, match="cannot resume: scaler") as refusal:
        list(fit(
            ToyTask(), toy_model(), ToyBatches(), training, validate=toy_validation(), seed=1, precision="fp16",
            resume=snapshot,
        ))  # fmt: skip
    assert refusal.value.code == "E_BUNDLE"


def test_fp16_needs_a_gpu_to_train_and_none_to_predict() -> None:
    with pytest.raises(SeqloomError, match=r"runtime\.precision") as refusal:
        runtime.apply(Runtime(device="cpu", precision="fp16"))
    assert (refusal.value.code, refusal.value.exit_code) == ("E_RECIPE", 2)
    with autocast(CPU, "fp16"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


# --- auto --------------------


@pytest.mark.parametrize(
    ("has", "parameters", "chosen"),
    [
        ({"avx512_bf16": True}, runtime.LARGE, "bf16"),
        ({"amx_bf16": True}, runtime.LARGE, "bf16"),
        ({"amx_bf16": True}, runtime.LARGE - 1, "float32"),
        ({}, runtime.LARGE, "float32"),
    ],
)
def test_auto_is_bf16_for_large_models_where_a_processor_has_instructions_for_it(
    has: dict[str, bool], parameters: int, chosen: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert runtime.fastest(CPU, parameters) == chosen


def test_whoever_predicts_as_auto_predicts_in_float32() -> None:
    with autocast(CPU, "auto"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


# --- bf16 --------------------


def network(dropout: float = 0.0) -> EncoderDecoder:
    raw = {
        "source_embedding": {"width": 8},
        "target_embedding": {"width": 8},
        "encoder": {"width": 16, "dropout": dropout},
        "decoder": {"kind": "luong", "width": 16, "dropout": dropout, "context": {"recurrence": "attentional"}},
    }
    torch.manual_seed(1)
    settings = EncoderDecoder.Settings.model_validate(raw)
    return EncoderDecoder(settings, source_vocabulary=12, target_vocabulary=12)


def task(**raw: object) -> Transduce:
    return Transduce(Transduce.Settings.model_validate(raw), vocabularies=(12, 12), searching=SearchSettings())


BATCH = ToyTask().collate(ToyBatches().examples)


@pytest.mark.parametrize(
    "raw", [{}, {"label_smoothing": 0.1}, {"sampling": {"kind": "constant", "gold": 0.5}}], ids=str
)
def test_bf16_computes_narrow_and_sums_wide(raw: dict[str, object]) -> None:
    """Every parameter has a float32 gradient near the exact one, also after passes that needed none (sampling)."""
    found: dict[Precision, tuple[float, dict[str, torch.Tensor]]] = {}
    precisions: tuple[Precision, ...] = ("float32", "bf16")
    for precision in precisions:
        model = network()
        torch.manual_seed(2)
        with autocast(CPU, precision):
            loss = task(**raw).loss(model, BATCH, 1)
        assert loss.total.dtype == loss.nll.dtype == torch.float32
        loss.total.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        found[precision] = (float(loss.total.detach()), {name: g for name, g in gradients.items() if g is not None})
        assert found[precision][1].keys() == gradients.keys()
    (exact, wide), (rounded, narrow) = found["float32"], found["bf16"]
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=2e-2)
    if "sampling" not in raw:  # another prediction, once drawn, is another history
        for name, gradient in wide.items():
            assert narrow[name].dtype == torch.float32
            assert torch.nn.functional.cosine_similarity(narrow[name].flatten(), gradient.flatten(), 0) > 0.98, name


def test_log_probabilities_are_float32_and_sum_to_one() -> None:
    model = network().eval()
    with torch.no_grad(), autocast(CPU, "bf16"):
        log_probs, _ = model.step(torch.full((len(BATCH),), 2), model.start(BATCH.sources, 1))
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(len(BATCH)), atol=1e-5, rtol=0)


def test_weights_and_optimiser_stay_float32() -> None:
    model, _, snapshot = run("bf16", clip=1.0)
    assert all(tensor.dtype == torch.float32 for tensor in snapshot.tensors.values() if tensor.is_floating_point())
    exact = run("float32", clip=1.0)[0]
    assert not torch.equal(model.embedding.weight, exact.embedding.weight)
    torch.testing.assert_close(model.embedding.weight, exact.embedding.weight, atol=0.1, rtol=0)

"""On a GPU: recorded steps do what plain ones do, and a run is the same with and without them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import torch

from seqloom.batch import Batch, Tokens
from seqloom.config import validated
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS
from seqloom.runtime import Runtime, apply, seed_step
from seqloom.specials import EOS
from seqloom.tasks.base import Loss
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training import gradients, graphs
from seqloom.training.events import Finished, Logged
from seqloom.training.loop import Training, fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
VOCABULARY, BUDGET = 20, 96
TRANSFORMER = {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "dropout": 0.1, "attention_dropout": 0.1}
PARTS: dict[str, dict[str, object]] = {
    "transformer": {"encoder": TRANSFORMER, "decoder": TRANSFORMER},
    "luong": {"encoder": {"width": 16, "dropout": 0.1}, "decoder": {"kind": "luong", "width": 16, "dropout": 0.1}},
    "bahdanau": {"encoder": {"width": 16, "dropout": 0.1}, "decoder": {"kind": "bahdanau", "width": 16}},
    "bahdanau, GRU": {
        "encoder": {"width": 16, "cell": "gru"},
        "decoder": {"kind": "bahdanau", "width": 16, "cell": "gru", "dropout": 0.1},
    },
    "feeding": {
        "encoder": {"width": 16, "layers": 2, "dropout": 0.1},
        "decoder": {
            "kind": "luong",
            "width": 16,
            "dropout": 0.1,
            "context": {"recurrence": "attentional", "readout": True},
        },
    },
    "monotonic": {
        "encoder": {"kind": "convolution", "width": 16, "dropout": 0.1},
        "decoder": {"kind": "monotonic", "width": 16},
    },
    "joint": {"kind": "joint", "embedding": {"width": 16}, "decoder": TRANSFORMER},
    "joint rnn": {"kind": "joint", "embedding": {"width": 16}, "decoder": {"kind": "rnn", "width": 16, "layers": 2}},
}


class Batches:
    """Short copies, in batches of like lengths."""

    def rows(self, longest: int) -> int:
        return max(1, BUDGET // longest)

    def count(self, number: int) -> int:
        return 40

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        draw = Random(number)
        for place in range(40):
            length = draw.randint(2, 12)
            lengths = [draw.randint(max(1, length - 1), length) for _ in range(self.rows(length + 1))]
            rows = [[*(draw.randrange(6, VOCABULARY) for _ in range(size)), EOS] for size in lengths]
            if place >= skip:
                yield Batch({"source": Tokens.pad(rows)}, Tokens.pad(rows))


def task(*teachers: Generator, **settings: object) -> Transduce:
    taught = {"teachers": {"runs": ["x"]}} if teachers else {}
    chosen = Transduce.Settings.model_validate({"label_smoothing": 0.1, **taught, **settings})
    return Transduce(chosen, vocabularies=(VOCABULARY, VOCABULARY), searching=SearchSettings(), teachers=teachers)


def network(name: str) -> Generator:
    torch.manual_seed(1)
    raw: dict[str, object] = {"kind": "encoder_decoder", **PARTS[name]}
    if raw["kind"] == "encoder_decoder":
        raw |= {"source_embedding": {"width": 16}, "target_embedding": {"width": 16}}
    model = MODELS.build(MODELS.settings(raw), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    return model.to(apply(Runtime(device="cuda", tf32=False)))


@pytest.mark.parametrize(("r_drop", "taught"), [(0.0, False), (1.0, False), (0.0, True)])
@pytest.mark.parametrize("name", PARTS)
def test_a_replayed_step_leaves_the_gradient_of_a_plain_one(name: str, r_drop: float, taught: bool) -> None:
    """Dropout is on: the replayed graph draws what the plain step draws from the same seed."""
    teachers = [network(name).eval().requires_grad_(False)] if taught else []
    device, model, judge = torch.device("cuda"), network(name), task(*teachers, r_drop=r_drop)
    assert judge.obstacle(model) is None
    model.train()
    plain = gradients.plain(lambda batch: judge.loss(model, batch, 1))
    recorded = graphs.Graphs(plain, [*model.parameters()], device, Batches().rows)

    def outcome(backward: gradients.Backward, batch: Batch, step: int) -> tuple[Loss, list[torch.Tensor]]:
        gradients.clear(model.parameters(), in_place=True)
        seed_step(1, step)
        loss = backward(batch)
        return loss, [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    replayed = 0
    for step, batch in enumerate([*Batches().epoch(0), *Batches().epoch(1)]):
        if step == 60:
            model.to(device)  # the weights of recurrent layers move
        shape = graphs.shape_of(batch, Batches().rows)
        assert shape is not None
        loss, found = outcome(plain, graphs.padded(batch, shape).to(device), step)
        again, found_again = outcome(recorded, batch, step)
        assert recorded.failure is None, recorded.failure
        replayed += shape in recorded._recorded
        for key in ("total", "count", "nll"):
            torch.testing.assert_close(getattr(again, key), getattr(loss, key), rtol=1e-5, atol=1e-4)
        for one, other in zip(found, found_again, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-4)
    assert replayed > 30


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_recorded_run_learns_as_a_plain_one(precision: str) -> None:
    losses = {}
    for record in (False, True):
        raw = {"epochs": 4, "log_every": 40, "accumulate": 2, "ema": 0.9, "optimiser": {"kind": "adam", "lr": 5e-3}}
        events = fit(
            task(),
            network("transformer"),
            Batches(),
            validated(Training, raw, "test"),
            validate=lambda model: {"nll": 1.0},
            seed=1,
            precision=precision,
            record=record,
        )
        seen = list(events)
        assert isinstance(seen[-1], Finished)
        losses[record] = [event.nll for event in seen if isinstance(event, Logged)]
    assert losses[True][-1] < losses[True][0]
    assert losses[True][-1] == pytest.approx(losses[False][-1], rel=0.1)


def test_what_cannot_be_recorded_goes_on_without() -> None:
    device, model, judge = torch.device("cuda"), network("transformer"), task()

    def loss_of(batch: Batch) -> Loss:
        loss = judge.loss(model, batch, 1)
        float(loss.total)  # asks the device
        return loss

    recorded = graphs.Graphs(gradients.plain(loss_of), [*model.parameters()], device, Batches().rows)
    for batch in Batches().epoch(0):
        gradients.clear(model.parameters(), in_place=True)
        assert torch.isfinite(recorded(batch).total)
    assert recorded.failure


def test_a_graph_with_another_gradient_is_not_used() -> None:
    """What is true while recording stays true in every replay: here, that one layer gets no gradient."""
    device, model, judge = torch.device("cuda"), network("transformer"), task()
    layer = model.get_submodule("encoder.layers.0.feedforward")

    def loss_of(batch: Batch) -> Loss:
        layer.requires_grad_(not torch.cuda.is_current_stream_capturing())
        return judge.loss(model, batch, 1)

    recorded = graphs.Graphs(gradients.plain(loss_of), [*model.parameters()], device, Batches().rows)
    for batch in Batches().epoch(0):
        gradients.clear(model.parameters(), in_place=True)
        assert torch.isfinite(recorded(batch).total)
    assert recorded.failure == "a replayed step has another gradient than a plain one"


def test_where_memory_is_short_halves_go_without() -> None:
    device, model, judge = torch.device("cuda"), network("transformer"), task()

    def loss_of(batch: Batch) -> Loss:
        if len(batch) > 4:
            raise torch.OutOfMemoryError("no room")
        return judge.loss(model, batch, 1)

    recorded = graphs.Graphs(gradients.plain(loss_of), [*model.parameters()], device, Batches().rows)
    batch = next(batch for batch in Batches().epoch(0) if len(batch) > 8)
    loss = gradients.summed(recorded, [batch], lambda: gradients.clear(model.parameters(), in_place=True))
    assert int(loss.count) == batch.target_tokens
    assert recorded.failure == "memory is short"

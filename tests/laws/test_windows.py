"""Texts in windows: nothing is lost or asked twice, states go on, gradients do not, and checkpoints know where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Tokens, Window
from seqloom.config import validated
from seqloom.data.batching import Batching
from seqloom.data.windows import WindowBatches, judged
from seqloom.errors import SeqloomError
from seqloom.models.contracts import State
from seqloom.models.language import LanguageModel
from seqloom.models.model import MODELS
from seqloom.specials import BOS
from seqloom.tasks.carried import Carried
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training.events import Checkpoint
from seqloom.training.loop import Training, fit
from seqloom.training.state import Snapshot

VOCABULARY = 11
TEXT = np.random.default_rng(3).integers(6, VOCABULARY, 103).astype(np.uint16)  # as a corpus keeps ids


def language(kind: str = "rnn", **decoder: object) -> LanguageModel:
    torch.manual_seed(2)
    raw = {"kind": "language", "embedding": {"width": 6}, "decoder": {"kind": kind, "width": 6, **decoder}}
    model = MODELS.build(MODELS.settings(raw), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert isinstance(model, LanguageModel)
    return model.double()


def task(**raw: object) -> Transduce:
    settings = Transduce.Settings.model_validate(raw)
    sizes = (VOCABULARY, VOCABULARY)
    return Transduce(settings, vocabularies=sizes, searching=SearchSettings(), carried=Carried())


def windows(tokens: int = 40, window: int = 8) -> WindowBatches:
    return WindowBatches(TEXT, Batching(tokens=tokens, window=window), seed=1)


def window_of(batch: Batch) -> Window:
    assert batch.window is not None
    return batch.window


# --- cutting --------------------


@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize(("tokens", "window"), [(40, 8), (8, 8), (1000, 3), (90, 30)])
def test_rows_go_on_where_they_ended(tokens: int, window: int, epoch: int) -> None:
    batches = windows(tokens, window)
    made = list(batches.epoch(epoch))
    assert len(made) == batches.count(epoch)
    assert [window_of(batch).number for batch in made] == list(range(len(made)))
    read = torch.cat([window_of(batch).read for batch in made], dim=1)
    said = torch.cat([batch.target.ids for batch in made if batch.target is not None], dim=1)
    assert torch.equal(read[:, 1:], said[:, :-1])
    first = 0 if read[0, 0] == BOS else None
    flat = said.flatten().tolist()
    assert "".join(map(chr, flat)) in "".join(map(chr, TEXT.tolist())), "a part of the text, in its order"
    assert first is None or flat == TEXT[: len(flat)].tolist()
    assert len(TEXT) - len(flat) < batches.parts + window, "all but what does not fill the rows"
    later = list(batches.epoch(epoch, skip=2))
    assert [window_of(batch).number for batch in later] == list(range(len(made)))[2:]


@pytest.mark.parametrize("window", [2, 7, 8, 200])
def test_every_token_is_judged_once_after_those_before_it(window: int) -> None:
    asked: list[int] = []
    for batch in judged(TEXT, window, tokens=50):
        assert batch.target is not None
        source = batch.sources["source"]
        assert isinstance(source, Tokens)
        for row in range(len(batch)):
            before = source.ids[row, : int(source.lengths[row]) - 1].tolist()
            assert before == asked[len(asked) - len(before) :]
            assert len(before) == min(len(asked), max(1, window // 2))
            asked += batch.target.ids[row][batch.target.mask[row]].tolist()
    assert asked == TEXT.tolist()


def test_a_text_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(SeqloomError, match="103 tokens of text do not fill a window of 200"):
        windows(1000, 200)


# --- carrying --------------------


def one_row() -> Iterator[Batch]:
    return windows(tokens=8, window=8).epoch(0)


def test_a_text_in_windows_costs_what_it_costs_at_once() -> None:
    model, reading = language(layers=2), task()
    model.train()
    in_windows = sum(float(reading.loss(model, batch, 1).nll) for batch in one_row())
    whole = torch.from_numpy(TEXT.astype(np.int64))[None]
    read = torch.cat([torch.tensor([[BOS]]), whole[:, :-1]], dim=1)
    features, state = model.decoder(read, model.decoder.start(None, 1))
    every = Tokens(whole, torch.ones_like(whole, dtype=torch.bool))
    assert in_windows == pytest.approx(float(model.head.nll(features, state, every).sum().detach()), abs=1e-9)


def test_no_gradient_enters_the_window_before() -> None:
    model, reading = language(), task()
    model.train()
    batches = list(one_row())[:2]
    reading.loss(model, batches[0], 1)
    second = reading.loss(model, batches[1], 1).total
    state = reading.carried.states[1] if reading.carried else State({})
    assert not any(tensor.requires_grad for tensor in state.rows.values())
    found = torch.autograd.grad(second, model.embedding.table)[0]
    window = window_of(batches[1])
    assert set(found.abs().sum(1).nonzero()[:, 0].tolist()) <= set(window.read.flatten().tolist()), "only what it read"


def test_a_transformer_begins_every_window_anew() -> None:
    model, reading = language("transformer", heads=2, dropout=0.0, attention_dropout=0.0), task()
    model.train()
    losses = [float(reading.loss(model, batch, 1).nll) for batch in one_row()]
    alone = [float(task().loss(model, batch, 1).nll) for batch in one_row()]
    assert losses == alone


def test_a_batch_that_is_split_leaves_the_same_states_and_gradients() -> None:
    """What happens when memory runs out: halves take the place of a batch, and the group begins anew."""

    def outcome(split: bool) -> tuple[Tensor, dict[str, Tensor]]:
        model, reading = language(layers=2), task()
        model.train()
        for batch in list(windows().epoch(0))[:3]:
            index = torch.arange(len(batch))
            whole = [batch] if not split else [batch, batch.rows(index[:2]), batch.rows(index[2:])]
            model.zero_grad()
            for part in whole[-2:] if split else whole:
                reading.loss(model, part, window_of(batch).number + 1).total.backward()
        assert reading.carried is not None
        return model.embedding.table.grad.clone(), reading.carried.states[3].rows

    (gradient, states), (gradient_again, states_again) = outcome(False), outcome(True)
    torch.testing.assert_close(gradient_again, gradient)
    for name, tensor in states.items():
        torch.testing.assert_close(states_again[name], tensor)


# --- resuming --------------------


def sitting(resume: Snapshot | None, until: int | None, accumulate: int) -> tuple[LanguageModel, list[Snapshot]]:
    model = language(layers=2, dropout=0.2)
    raw = {"steps": 9, "accumulate": accumulate, "checkpoint_every": 1, "validate_every": 100}
    settings = validated(Training, {**raw, "optimiser": {"kind": "adam", "lr": 0.01}}, "test")
    taken: list[Snapshot] = []

    def stop() -> str | None:
        return "preempted" if until is not None and len(taken) + 1 == until else None

    events = fit(
        task(), model, windows(), settings, validate=lambda model: {"nll": 1.0}, seed=4, resume=resume, stop=stop
    )
    for event in events:
        if isinstance(event, Checkpoint):
            taken.append(event.snapshot())
    return model, taken


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("until", [1, 2, 4])
def test_resumed_in_the_middle_of_a_text_equals_uninterrupted(until: int, accumulate: int) -> None:
    """Three windows an epoch, nine steps: stops fall inside a text and at its end."""
    whole, _ = sitting(None, None, accumulate)
    _, taken = sitting(None, until, accumulate)
    resumed, _ = sitting(taken[-1], None, accumulate)
    for (name, one), other in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_without_what_is_carried_it_would_not() -> None:
    whole, _ = sitting(None, None, 1)
    _, taken = sitting(None, 1, 1)
    lost = {name: tensor for name, tensor in taken[-1].tensors.items() if not name.startswith("carried/")}
    zeros = {n: torch.zeros_like(t) for n, t in taken[-1].tensors.items() if n.startswith("carried/")}
    assert zeros, "the state is in the checkpoint"
    resumed, _ = sitting(replace(taken[-1], tensors={**lost, **zeros}), None, 1)
    assert not all(torch.equal(one, other) for one, other in zip(whole.parameters(), resumed.parameters(), strict=True))

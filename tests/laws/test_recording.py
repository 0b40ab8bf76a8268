"""Law 3 as steps are recorded: a batch in the corner of one of fixed shapes has the same loss and gradient."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import (
    SOURCE_VOCABULARY,
    TARGET_VOCABULARY,
    Case,
    close,
    close_trees,
    every_case,
    fresh,
    some_batch,
)
from hypothesis import given
from hypothesis import strategies as st

from seqloom.batch import Batch, Frames, Source, Tokens
from seqloom.models.contracts import Encoder
from seqloom.models.model import EncoderDecoder
from seqloom.tasks.base import Loss
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training import graphs


def task(**settings: object) -> Transduce:
    return Transduce(
        Transduce.Settings.model_validate(settings),
        vocabularies=(SOURCE_VOCABULARY, TARGET_VOCABULARY),
        searching=SearchSettings(),
    )


def plain_batch(weighted: bool, case: Case | None = None) -> Batch:
    """Nothing can be copied of it: what a recorded step reads."""
    batch = some_batch(case=case)
    sources: dict[str, Source] = {
        name: replace(source, copies=None, words=None)
        for name, source in batch.sources.items()
        if isinstance(source, Tokens)
    }
    weights = torch.tensor([1.0, 0.0, 2.0, 0.5], dtype=torch.float64) if weighted else None
    return replace(batch, sources=sources, weights=weights)


def outcome(model: EncoderDecoder, judge: Transduce, batch: Batch) -> tuple[Loss, dict[str, torch.Tensor]]:
    model.train().zero_grad()
    loss = judge.loss(model, batch, 1)
    loss.total.backward()
    zero = torch.zeros((), dtype=torch.float64)
    found = {name: zero if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    return loss, found


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@every_case
def test_a_padded_batch_of_fixed_shapes_has_the_same_loss_and_gradient(case: Case, weighted: bool) -> None:
    if isinstance(some_batch(case=case).sources["source"], Frames):
        assert graphs.shape_of(some_batch(case=case), lambda longest: 24 // longest) is None, "frames are not recorded"
        return
    if case.settings.decoder.points:
        assert graphs.shape_of(some_batch(case=case), lambda longest: 24 // longest) is None, "places are copies"
        return
    model, judge, batch = (
        without_dropout(fresh(case)),
        task(label_smoothing=0.1, r_drop=1.0),
        plain_batch(weighted, case),
    )
    if model.head.copies:
        assert judge.obstacle(model) == "what may be copied differs from batch to batch"
        return
    if any(isinstance(module, Encoder) and module.reads_words for module in model.modules()):
        source = replace(some_batch(case=case).sources["source"], copies=None)  # type: ignore[type-var]
        assert graphs.shape_of(replace(batch, sources={"source": source}), lambda longest: 24 // longest) is None
        return
    assert judge.obstacle(model) is None
    shape = graphs.shape_of(batch, lambda longest: 24 // longest)
    assert shape is not None
    padded = graphs.padded(batch, shape)
    assert len(padded) > len(batch), "rows were added"
    assert padded.target is not None
    assert padded.target.fixed
    loss, found = outcome(model, judge, batch)
    loss_again, found_again = outcome(model, judge, padded)
    for name in ("total", "count", "nll"):
        close(getattr(loss_again, name).double(), getattr(loss, name).double(), name)
    close_trees(found_again, found)


def without_dropout(model: EncoderDecoder) -> EncoderDecoder:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


@given(length=st.integers(1, 5_000))
def test_the_grid_is_coarse_but_near(length: int) -> None:
    point = graphs.rounded(length)
    assert length <= point <= max(length + 1, length * 1.25)
    assert graphs.rounded(point) == point
    assert graphs.rounded(graphs.lowest(point)) == point
    assert graphs.lowest(point) == 1 or graphs.rounded(graphs.lowest(point) - 1) < point


def test_what_is_no_plain_batch_of_tokens_has_no_shape() -> None:
    batch = plain_batch(weighted=False)
    assert graphs.shape_of(batch, lambda longest: 4) is not None
    assert graphs.shape_of(batch, lambda longest: 3) is None, "more rows than were promised"
    assert graphs.shape_of(some_batch(), lambda longest: 4) is None, "copies"
    assert graphs.shape_of(replace(batch, target=None), lambda longest: 4) is None
    assert graphs.shape_of(replace(batch, alignment=torch.zeros(4, 4, 4)), lambda longest: 4) is None
    frames = Frames(torch.zeros(4, 4, 2), torch.ones(4, 4, dtype=torch.bool))
    assert graphs.shape_of(replace(batch, sources={"source": frames}), lambda longest: 4) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"source_noise": {"mask": 0.1}}, "source_noise"),
        ({"history": {"drop": 0.1}}, "history"),
        ({"edit_temperature": 0.5}, "edit_temperature"),
        ({"sampling": {"kind": "linear", "steps": 10}}, "sampling"),
        ({"coverage_loss": 0.5}, "attention"),
    ],
)
def test_what_draws_on_the_host_is_never_recorded(settings: dict[str, object], words: str) -> None:
    raw = {name: {"width": 4} for name in ("source_embedding", "target_embedding", "encoder", "decoder")}
    model = EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=12, target_vocabulary=10)
    assert task().obstacle(model) is None
    assert words in str(task(**settings).obstacle(model))

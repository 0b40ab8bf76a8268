"""Gradients by distance: against finite differences, closed forms, and a task that needs a long memory."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from laws.cases import (
    COVERING_CASES,
    EXTRA_CASES,
    JOINT_CASES,
    STACK_CASES,
    TABLE_CASES,
    Case,
    build,
    close,
    some_batch,
)
from seqloom.batch import Batch, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS
from seqloom.nn.recurrent import CELLS
from seqloom.nn.tape import Tape
from seqloom.probe.gradients import Curve, Norms, Watched, chain, gradient_norms, jacobian, watched
from seqloom.specials import EOS, SPECIALS

SOME = [*TABLE_CASES[::2], *STACK_CASES[::2], *EXTRA_CASES[::3], *JOINT_CASES, *COVERING_CASES[::20]]
CASES = [case for case in SOME if "cnn" not in case.name and "patches" not in case.name]  # these read no tokens
STEP = 1e-5


def named(cases: list[Case], name: str) -> Case:
    return next(case for case in cases if case.name == name)


# --- against finite differences --------------------


def differences(network: Generator, batch: Batch, place: Watched, s: int) -> Tensor:
    """||d loss_t / d h_s|| of every row and t (B T), by moving every number of h_s a little to both sides."""
    with torch.no_grad(), Tape(place.tap) as tape:
        network.nll(batch)
    width = tape.steps(place.tap)[0].shape[-1]
    squares = 0

    def moved(by: float, column: int) -> Tensor:
        def change(tensor: Tensor, step: int) -> Tensor:
            other = tensor.clone()
            if place.steps and step == s:
                other[:, column] += by
            elif not place.steps and step == 0:
                other[:, s, column] += by
            return other

        with torch.no_grad(), Tape(replace={place.tap: change}):
            return network.nll(batch)

    for column in range(width):
        squares = squares + ((moved(STEP, column) - moved(-STEP, column)) / (2 * STEP)).square()
    return torch.sqrt(torch.as_tensor(squares))


@pytest.mark.parametrize(
    "case",
    [
        named(TABLE_CASES, "cell=lstm"),  # bahdanau: attention inside of the recurrence
        named(TABLE_CASES, "cell=elman"),
        named(TABLE_CASES, "decoder=rnn"),
        named(TABLE_CASES, "decoder=monotonic"),
        named(TABLE_CASES, "head=copy"),
        named(STACK_CASES, "transformer0"),
        named(STACK_CASES, "convolution->transformer"),
        named(JOINT_CASES, "joint,gru"),
        named(EXTRA_CASES, "extra=rnn"),
    ],
    ids=str,
)
def test_norms_are_those_of_finite_differences(case: Case) -> None:
    network, batch = build(case), some_batch()
    assert batch.target is not None
    places = watched(network)
    for place, found in zip(places, gradient_norms(network, batch, places), strict=True):
        lengths = batch.sources["source"].lengths
        before = 0 if place.encoder or "joint" not in case.name else None
        steps = batch.target.ids.shape[1]
        for s in range(int(lengths.max()) if place.encoder else steps):
            wanted = differences(network, batch, place, s)  # B T
            for row, t in batch.target.mask.nonzero().tolist():
                if place.encoder and s >= int(lengths[row]):
                    continue
                read = sum(int(source.lengths[row]) + 1 for source in batch.sources.values()) if before is None else 0
                distance = int(lengths[row]) - s + t if place.encoder else read + t - s
                chosen = (found.losses == row * steps + t) & (found.distances == distance)
                if distance < 0:
                    assert not chosen.any()
                    assert float(wanted[row, t]) < 1e-8
                    continue
                assert chosen.sum() == 1
                np.testing.assert_allclose(found.norms[chosen][0], float(wanted[row, t]), rtol=1e-5, atol=1e-9)


# --- factors and their product --------------------


def test_the_factor_of_an_elman_step_is_its_closed_form() -> None:
    """h' = tanh(W x + U h + b): d h' / d h = diag(1 - h'^2) U."""
    cell = CELLS.build(CELLS.settings("elman"), inputs=2, size=3).double()
    draw = torch.Generator().manual_seed(1)
    x, h = (torch.randn(4, size, generator=draw, dtype=torch.float64) for size in (2, 3))
    h.requires_grad_()
    (after,) = cell.step(x, (h,))
    recurrent = cell.kernel.weight_hh_l0.detach()
    close(jacobian(after, h), (1 - after.detach().square())[..., None] * recurrent)


@pytest.mark.parametrize("cell", list(CELLS))
def test_the_product_of_the_factors_is_the_whole_derivative(cell: str) -> None:
    raw = {"encoder": {"width": 4}, "decoder": {"kind": "rnn", "cell": cell, "width": 3}}
    network, batch = build(Case(f"product,{cell}", raw)), some_batch((3,), (5,))
    place = next(place for place in watched(network) if not place.encoder)
    found = chain(network, batch, place)
    assert found is not None
    with Tape(place.tap, keep_gradients=True) as tape:
        network.forced(batch)
    states = tape.steps(place.tap)
    assert len(found.factors) == len(found.products) == 4
    for back, product in enumerate(found.products):
        whole = jacobian(states[-1], states[-2 - back])[0]
        single = jacobian(states[-1 - back], states[-2 - back])[0]
        assert product == pytest.approx(float(torch.linalg.matrix_norm(whole, 2)), rel=1e-9)
        assert found.factors[back] == pytest.approx(float(torch.linalg.matrix_norm(single, 2)), rel=1e-9)


# --- the fit --------------------


def test_the_rate_is_exact_where_decay_is_and_easy_losses_do_not_bend_it() -> None:
    """Losses of very different size, the small ones seen from near alone: by their means they would bend the curve."""
    losses, distances = np.array([0] * 8 + [1] * 3), np.array([*range(8), *range(3)])
    norms = np.where(losses == 0, 5.0, 1e-6) * 0.5**distances
    found = Norms(losses, distances, norms)
    assert found.rate() == pytest.approx(0.5)
    curve = Curve.of("x", Norms.joined([found, found]))
    assert curve.rate == pytest.approx(0.5)
    assert curve.far_rate == pytest.approx(0.5)
    assert curve.half_life == pytest.approx(1.0)
    assert curve.counts == (4, 4, 4, 2, 2, 2, 2, 2)
    assert curve.norms[3] == pytest.approx(5 / 8)


def test_what_drops_first_and_is_kept_then_has_a_far_rate_of_its_own() -> None:
    distances = np.arange(20)
    curve = Curve.of("x", Norms(np.zeros(20, np.int64), distances, np.where(distances < 8, 0.3**distances, 0.3**8)))
    assert curve.rate < 0.7
    assert curve.far_rate == pytest.approx(1.0)
    assert curve.half_life == math.inf


def test_nothing_to_fit_is_said() -> None:
    curve = Curve.of("x", Norms(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1)))
    assert math.isnan(curve.rate)
    assert curve.as_dict()["rate"] is None
    assert "too few distances" in curve.lines()[1]


def test_states_that_nothing_reads_are_told() -> None:
    unread = Norms(np.zeros(3, np.int64), np.arange(3), np.zeros(3))
    assert "nothing reads these states" in Curve.of("x", unread).lines()[1]


# --- every model --------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_model_has_curves_of_real_positions_alone(case: Case) -> None:
    network, batch = build(case), some_batch()
    assert batch.target is not None
    places = watched(network)
    assert places
    for place, found in zip(places, gradient_norms(network, batch, places), strict=True):
        curve = Curve.of(str(place), found, chain(network, batch, place))
        assert np.isfinite(found.norms).all()
        if place.encoder:
            read = batch.sources["source"].lengths
            if case.settings.reads_words:  # then a position is a word
                read = network.encode(batch.sources)["source"].mask.sum(1)
            pairs = read * batch.target.lengths
            if "subsampled" in case.name or "pyramid" in case.name:  # fewer from layer to layer
                assert 0 < sum(curve.counts) <= int(pairs.sum())
            else:
                assert sum(curve.counts) == int(pairs.sum())
        assert all(len(line) <= 80 for line in curve.lines(80))
        assert (curve.chain is not None) == place.steps


def test_layers_are_counted_from_1() -> None:
    network = build(named(JOINT_CASES, "joint,gru"))
    assert [place.tap for place in watched(network, 1)] == ["decoder.0.steps"]
    assert str(watched(network)[0]) == "decoder layer 2"
    for layer in (0, 3):
        with pytest.raises(SeqloomError, match="layers 1 to 2"):
            watched(network, layer)


# --- a task that needs a long memory --------------------

LENGTH, CLASSES, NOISE = 20, 4, 4
FIRST = len(SPECIALS)
VOCABULARY = FIRST + CLASSES + NOISE


def recall(count: int, seed: int, length: int) -> Batch:
    """The first word, many others, the end: say the first word."""
    draw = torch.Generator().manual_seed(seed)
    first = torch.randint(FIRST, FIRST + CLASSES, (count, 1), generator=draw)
    others = torch.randint(FIRST + CLASSES, VOCABULARY, (count, length - 2), generator=draw)
    source = torch.cat([first, others, torch.full((count, 1), EOS)], dim=1)
    return Batch({"source": _whole(source)}, _whole(first))


def _whole(ids: Tensor) -> Tokens:
    return Tokens(ids, torch.ones_like(ids, dtype=torch.bool))


@cache
def trained(cell: str, decoder: str) -> tuple[Generator, float]:
    """A model after some steps, sources growing longer meanwhile; and the share of first words that it recalls.

    All get as many steps as the slowest of those that learn it needs.
    """
    torch.manual_seed(1)
    steps = 900
    cells = {"kind": cell, **({"forget_bias": 2.0} if cell == "lstm" else {})}
    raw = {
        "kind": "encoder_decoder",
        "source_embedding": {"width": 16},
        "target_embedding": {"width": 16},
        "encoder": {"kind": "rnn", "cell": cells, "width": 32, "bidirectional": False},
        "decoder": {"kind": decoder, "cell": cells, "width": 32},
    }
    network = MODELS.build(MODELS.settings(raw), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    for step in range(steps):
        loss = network.losses(recall(32, step, min(LENGTH, 4 + step * LENGTH * 3 // (2 * steps))))[0].mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
    batch = recall(64, 10_000, LENGTH)
    assert batch.target is not None
    with torch.no_grad():
        said = network.eval().head.log_probs(*network.forced(batch)).argmax(-1)
    return network, float((said == batch.target.ids).double().mean())


def curve_of(network: Generator) -> Curve:
    (place,) = [place for place in watched(network) if place.encoder]
    batch = recall(16, 20_000, LENGTH)
    (found,) = gradient_norms(network, batch, [place])
    return Curve.of(str(place), found, chain(network, batch, place))


def test_gradients_of_an_elman_network_vanish() -> None:
    """Each step of the far half takes 40 % or more, and a product of 19 factors is below a thousandth."""
    network, right = trained("elman", "rnn")
    curve = curve_of(network)
    assert right < 0.6
    assert curve.far_rate < 0.6
    assert curve.norms[-1] < 1e-4 * curve.norms[0]
    assert curve.chain is not None
    assert curve.chain.products[-1] < 1e-3


@pytest.mark.parametrize(("cell", "decoder"), [("lstm", "rnn"), ("gru", "rnn"), ("elman", "luong")])
def test_gradients_of_gates_and_of_attention_do_not(cell: str, decoder: str) -> None:
    """Each step of the far half keeps 90 % or more, and the first word is recalled."""
    network, right = trained(cell, decoder)
    curve = curve_of(network)
    assert right > 0.95
    assert curve.far_rate > 0.9
    assert curve.norms[-1] > 1e-3 * curve.norms[0]
    assert curve.chain is not None
    if decoder == "rnn":  # attention has a way beside the recurrence, whose own factors still vanish
        assert curve.chain.products[-1] > 0.1
    else:
        assert curve.chain.products[-1] < 1e-3

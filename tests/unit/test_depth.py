"""Depth: probes on states with known labels, reach with known windows, heads with known weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from laws.cases import EXTRA_CASES, JOINT_CASES, STACK_CASES, TABLE_CASES, Case, build, close, fresh, some_batch
from seqloom.batch import Batch
from seqloom.models.model import EncoderDecoder
from seqloom.nn.tape import Tape
from seqloom.probe import depth as probe
from seqloom.probe.depth import (
    Head,
    Roles,
    forced_loss,
    head_taps,
    joined_reach,
    layers,
    places,
    probe_accuracy,
    reaches,
    silenced,
    weights_passed,
)


def named(cases: list[Case], name: str) -> Case:
    return next(case for case in cases if case.name == name)


# --- probes --------------------


def test_a_label_that_lies_in_the_states_is_read_off_and_another_is_not() -> None:
    draw = torch.Generator().manual_seed(1)
    states = torch.randn(400, 5, generator=draw)
    by_sign = (states @ torch.randn(5, generator=draw) > 0).long()
    by_chance = torch.randint(0, 2, (400,), generator=draw)
    folds = by_sign[:300], by_sign[300:]
    assert probe_accuracy(states[:300], folds[0], states[300:], folds[1], 2) > 0.94  # about 5 weights from 300 examples
    assert abs(probe_accuracy(states[:300], by_chance[:300], states[300:], by_chance[300:], 2) - 0.5) < 0.12


def test_what_is_there_but_not_linear_is_not_read_off() -> None:
    corners = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).repeat(50, 1)
    either = (corners.sum(1) == 1).long()
    assert probe_accuracy(corners, either, corners, either, 2) <= 0.75
    first = corners[:, 0].long()
    assert probe_accuracy(corners, first, corners, first, 2) == 1.0


def test_a_state_that_never_changes_gives_the_majority() -> None:
    labels = torch.tensor([0, 1, 1, 1, 2])
    assert probe_accuracy(torch.ones(5, 3), labels, torch.ones(5, 3), labels, 3) == pytest.approx(0.6)


SHORTENING = [case for case in TABLE_CASES if "pyramid" in case.name or "subsampled" in case.name]


@pytest.mark.parametrize(
    "case", [*TABLE_CASES[:4], *STACK_CASES[:6], *EXTRA_CASES[:2], *JOINT_CASES, *SHORTENING], ids=str
)
def test_layers_are_pooled_over_real_positions(case: Case) -> None:
    network, batch = build(case), some_batch()
    found = layers(network, batch.sources)
    for name, pooled in found.pooled().items():
        for row, real in enumerate(found.real(name)):
            close(pooled[row], found.states[name][row, real].mean(0), name)


# --- reach --------------------


def encoder(**raw: object) -> EncoderDecoder:
    name = ",".join(map(str, raw.values()))
    return build(Case(f"reach,{name}", {"encoder": {"width": 4, **raw}, "decoder": {"kind": "luong", "width": 4}}))


def test_a_convolution_sees_its_window_and_one_more_on_each_side_with_every_layer() -> None:
    network, batch = encoder(kind="convolution", layers=3, kernel=3), some_batch((9, 5, 7, 9))
    for layer, (name, shares) in enumerate(reaches(network, batch.sources).items(), start=1):
        reach = joined_reach(name, [shares])
        assert name == f"layer {layer}"
        assert reach.farthest == layer
        assert reach.distance <= layer
        assert sum(reach.shares) == pytest.approx(1)


def test_what_a_position_stands_for_is_here_and_distance_counts_from_there_on() -> None:
    """Windows of three at every second position: two that it stands for and the one before them."""
    bag = {"kind": "bag", "width": 4}
    network, batch = encoder(kind="subsampled", halvings=1, scale_embedding=False, over=bag), some_batch((9, 5, 8, 2))
    ((name, shares),) = reaches(network, batch.sources).items()
    reach = joined_reach(name, [shares])
    assert len(shares) == 5 + 3 + 4 + 1
    assert sum(reach.shares) == pytest.approx(1)
    assert reach.before[0] > 0
    assert not any(reach.before[1:])
    assert not any(reach.after)
    both = joined_reach("x", [*reaches(encoder(kind="pyramid", layers=2), batch.sources).values()])
    assert sum(both.shares) == pytest.approx(1)
    assert min(sum(both.before), sum(both.after)) > 0


def test_a_recurrence_that_reads_forward_sees_nothing_of_what_follows() -> None:
    batch = some_batch((6, 2, 5, 1))
    for way, blind, seen in (("forward", "after", "before"), ("reverse", "before", "after")):
        network = encoder(kind="rnn", bidirectional=False, layers=2, reverse=way == "reverse")
        for name, shares in reaches(network, batch.sources).items():
            reach = joined_reach(name, [shares])
            assert sum(getattr(reach, blind)) == 0
            assert sum(getattr(reach, seen)) > 0
    both = encoder(kind="rnn", bidirectional=True)
    ((name, shares),) = reaches(both, batch.sources).items()
    reach = joined_reach(name, [shares])
    assert min(sum(reach.before), sum(reach.after)) > 0
    assert len(shares) == int(batch.sources["source"].mask.sum())


def test_random_directions_give_the_frobenius_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "DRAWS", 3000)
    network, batch = encoder(kind="transformer", heads=2, layers=1), some_batch((3,))
    ((_, shares),) = reaches(network, batch.sources).items()
    found = layers(network, batch.sources, keep_gradients=True)
    inputs, states = found.states["inputs"], found.states["layer 1"]
    for s in range(3):
        squares = torch.zeros(3, dtype=torch.float64)
        for column in range(states.shape[2]):
            (gradient,) = torch.autograd.grad(states[0, s, column], inputs, retain_graph=True)
            squares += gradient[0].square().sum(-1)
        wanted = (squares / squares.sum()).numpy()
        np.testing.assert_allclose(shares[s][2 - s : 5 - s], wanted, atol=0.03)


def test_batches_of_different_width_are_joined_in_their_middle() -> None:
    reach = joined_reach("x", [np.array([[0.0, 1.0, 0.0]]), np.array([[0.0, 0.5, 0.0, 0.5, 0.0]])])
    assert (reach.here, reach.before, reach.after) == (0.5, (0.25, 0.0), (0.25, 0.0))
    assert (reach.distance, reach.farthest) == (1, 1)
    assert joined_reach("x", [np.array([[1.0]])]).distance == 0


# --- roles --------------------


def head_of(weights: np.ndarray, visible: np.ndarray | None = None) -> Head:
    roles = Roles(1)
    shape = weights.shape
    roles.add(weights[None], places(*shape), np.ones(shape, dtype=bool) if visible is None else visible)
    return Head("x", 1, 1, roles.shares(0))


def test_a_head_has_the_role_of_where_it_looks() -> None:
    assert head_of(np.eye(4)).role == "same place"
    previous = head_of(np.vstack([[0.25] * 4, np.eye(4)[:3]]))  # the first row has no previous one, and does not count
    assert previous.role == "previous"
    assert previous.roles["previous"].share == 1
    assert previous.roles["previous"].chance == pytest.approx(0.25)
    assert previous.roles["previous"].rows == 3
    assert head_of(np.tile([0.0, 0.0, 0.0, 1.0], (4, 1))).role == "end"


def test_even_attention_is_chance_and_no_role_also_where_the_future_is_hidden() -> None:
    assert head_of(np.full((5, 5), 0.2)).role == "none"
    causal = np.tril(np.ones((5, 5)))
    even = head_of(causal / causal.sum(1, keepdims=True), causal.astype(bool))
    assert even.role == "none"
    for share in even.roles.values():
        assert share.share == pytest.approx(share.chance)
    assert "next" not in even.roles


# --- pruning --------------------


def without_output(network: EncoderDecoder, layer: str, head: int, batch: Batch) -> Tensor:
    """The same by other means: the columns of the output matrix that read this head are zero."""
    module = network.get_submodule(layer)
    size = module.output.weight.shape[1] // module.heads
    with torch.no_grad():
        module.output.weight[:, head * size : (head + 1) * size] = 0
        return network.nll(batch)


@pytest.mark.parametrize(
    ("tap", "layer"),
    [
        ("encoder.1.self", "encoder.layers.1.self_attention"),
        ("decoder.0.self", "decoder.layers.0.self_attention"),
        ("decoder.1.cross", "decoder.layers.1.cross_attention"),
    ],
)
@pytest.mark.parametrize("head", [0, 1])
def test_a_silenced_head_adds_nothing(tap: str, layer: str, head: int) -> None:
    case, batch = named(STACK_CASES, "transformer0"), some_batch()
    with torch.no_grad(), Tape(replace={tap: silenced(head)}):
        found = build(case).nll(batch)
    close(found, without_output(fresh(case), layer, head, batch))
    assert not torch.allclose(found, build(case).nll(batch))


def test_silencing_in_one_encoder_leaves_that_of_another_source_alone() -> None:
    """Both pass the same taps, the source's own first."""
    extra = {"embedding": {"width": 4}, "encoder": {"kind": "transformer", "width": 4, "heads": 2}}
    raw = {"encoder": {"kind": "transformer", "width": 4, "heads": 2}, "decoder": {"kind": "luong", "width": 4}}
    case, batch = Case("two transformers", raw, {"tags": extra}), some_batch()
    with torch.no_grad(), Tape("encoder.0.self", replace={"encoder.0.self": silenced(1, every=2)}) as tape:
        build(case).nll(batch)
    own, other = tape.steps("encoder.0.self")
    assert not own[:, 1].any()
    assert own[:, 0].any()
    assert other[:, 1].any()


@pytest.mark.parametrize("case", [*TABLE_CASES, *STACK_CASES, *JOINT_CASES], ids=str)
def test_the_loss_of_nothing_silenced_is_the_loss(case: Case) -> None:
    network, batch = build(case), some_batch(case=case)
    assert batch.target is not None
    wanted = float(network.nll(batch).sum().detach()) / batch.target_tokens
    assert forced_loss(network, [batch]) == pytest.approx(wanted)
    halves = [batch.rows(torch.tensor(rows)) for rows in ([0, 1], [2, 3])]
    assert forced_loss(network, halves) == pytest.approx(wanted)
    taps = [name for names in head_taps(network).values() for name in names]
    for name, steps in weights_passed(network, batch, taps).items():
        assert {weights.dim() for weights in steps} == {4}
        if not network.head.repeats:  # a monotonic decoder's weights are not what a head adds
            assert forced_loss(network, [batch], {name: silenced(0)}) != pytest.approx(wanted, abs=1e-12)

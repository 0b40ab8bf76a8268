"""States of sources: PCA against its definition, neighbours against brute force, taps against what flows without."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

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
from seqloom.api.states import Point, StateMap
from seqloom.batch import Tokens
from seqloom.models.joint import Joint
from seqloom.nn.tape import Tape
from seqloom.probe import states as probe
from seqloom.probe.states import (
    Layered,
    Measure,
    Nearest,
    Recurrent,
    layer_taps,
    nearest,
    principal,
    source_states,
    step_taps,
)
from seqloom.specials import BOS

PICTURES = ("encoder=cnn", "encoder=patches", "cnn->transformer", "patches->transformer")  # they read no tokens
CASES = [*TABLE_CASES[::2], *STACK_CASES[::3], *EXTRA_CASES[::3], *JOINT_CASES[::2], *COVERING_CASES[::20]]
CASES = [case for case in CASES if case.name not in PICTURES]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def test_a_map_whose_values_are_all_alike_says_so() -> None:
    points = tuple(Point(f"text {place}", float(place), 0.0, 4, 4) for place in range(3))
    assert StateMap(points, (1.0, 0.0), "length", "summary").lines()[-1] == "5: 4, all of them"
    longer = Point("a longer one", 3.0, 1.0, 12, 12)
    assert StateMap((*points, longer), (1.0, 0.0), "length", "summary").lines()[-1] == "0: 4 ... 9: 12"


# --- from far --------------------


def test_points_on_a_line_have_one_direction() -> None:
    steps = torch.tensor([-3.0, -1.0, 0.0, 4.0])
    found = principal(steps[:, None] * torch.tensor([0.6, -0.8, 0.0]) + torch.tensor([5.0, 5.0, 5.0]))
    assert found.shares == pytest.approx((1.0, 0.0), abs=1e-9)
    torch.testing.assert_close(found.points[:, 0], -steps.double(), atol=1e-6, rtol=0)  # -0.8 is made positive
    assert float(found.points[:, 1].abs().max()) < 1e-6


def test_shares_and_distances_are_those_of_the_covariance() -> None:
    states = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)) @ torch.diag(torch.arange(1.0, 7.0))
    found = principal(states, count=6)
    values = np.linalg.eigvalsh(np.cov(states.double().numpy(), rowvar=False))[::-1]
    np.testing.assert_allclose(found.shares, values / values.sum(), rtol=1e-6)
    apart = torch.cdist(states.double(), states.double())
    torch.testing.assert_close(torch.cdist(found.points, found.points), apart, atol=1e-5, rtol=1e-6)


def test_the_sign_does_not_depend_on_the_order_and_few_points_have_few_directions() -> None:
    states = torch.randn(9, 4, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(principal(states.flip(0)).points.flip(0), principal(states).points)
    two = principal(torch.tensor([[0.0], [2.0]]))
    assert two.points.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert two.shares == (1.0, 0.0)
    assert principal(torch.ones(3, 2)).shares == (0.0, 0.0)


# --- from near --------------------


def brute(queries: torch.Tensor, keys: torch.Tensor, k: int, measure: Measure) -> list[list[int]]:
    rows = []
    for query in queries.double():
        if measure == "l2":
            far = [float((query - key).norm()) for key in keys.double()]
        else:
            far = [1 - float(query @ key / (query.norm() * key.norm())) for key in keys.double()]
        rows.append(sorted(range(len(keys)), key=lambda i: (far[i], i))[:k])
    return rows


@pytest.mark.parametrize("measure", ["cosine", "l2"])
@pytest.mark.parametrize("cells", [1 << 20, 40])
def test_neighbours_are_those_of_brute_force_in_chunks_of_any_size(
    measure: Measure, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "CELLS", cells)
    draw = torch.Generator().manual_seed(3)
    queries, keys = torch.randn(4, 5, generator=draw), torch.randn(60, 5, generator=draw)
    wanted = brute(queries, keys, 7, measure)
    assert nearest(queries, keys, 7, measure).keys.tolist() == wanted
    halves = [nearest(queries, keys[a:b], 7, measure, first=a) for a, b in ((0, 25), (25, 60))]
    assert Nearest.none(4).merged(halves[0], 7).merged(halves[1], 7).keys.tolist() == wanted
    assert nearest(queries, keys[:3], 7, measure).keys.shape == (4, 3)


@pytest.mark.parametrize("measure", ["cosine", "l2"])
def test_equal_states_are_nothing_apart_and_the_first_comes_first(measure: Measure) -> None:
    keys = torch.tensor([[9.0, 1.0], [3.0, 4.0], [3.0, 4.0]])
    found = nearest(keys[1:2], keys, 3, measure)
    assert found.keys.tolist() == [[1, 2, 0]]
    assert found.distances[0, :2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("measure", ["cosine", "l2"])
def test_faiss_finds_the_same(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    draw = torch.Generator().manual_seed(4)
    queries, keys = torch.randn(6, 8, generator=draw), torch.randn(500, 8, generator=draw)
    wanted = nearest(queries, keys, 5, measure)
    monkeypatch.setattr(probe, "LARGE", 100)
    found = nearest(queries, keys, 5, measure)
    assert torch.equal(found.keys, wanted.keys)
    torch.testing.assert_close(found.distances, wanted.distances)


# --- which vector --------------------


@every_case
@pytest.mark.parametrize("which", ["summary", "mean"])
def test_a_source_has_the_same_state_alone_and_among_others(case: Case, which: probe.Which) -> None:
    network, batch = build(case, torch.float32), some_batch()
    together = source_states(network, batch.sources, which)
    for row in range(len(batch)):
        alone = {}
        for name, source in batch.rows(torch.tensor([row])).sources.items():
            assert isinstance(source, Tokens)
            length = int(source.lengths)
            copies = None if source.copies is None else source.copies[:, :length]
            words = None if source.words is None else source.words[:, :length]
            alone[name] = Tokens(source.ids[:, :length], source.mask[:, :length], copies, words=words)
        torch.testing.assert_close(source_states(network, alone, which)[0], together[row], atol=1e-5, rtol=1e-5)


def test_the_summary_is_what_the_decoder_starts_from() -> None:
    """LSTM: h and c of the last layer; a joint model: what says its first token."""
    case = next(case for case in TABLE_CASES if case.name == "cell=lstm")
    network, batch = build(case, torch.float32), some_batch()
    with torch.no_grad():
        summary = network.encode(batch.sources)["source"].summary
    assert torch.equal(source_states(network, batch.sources), torch.cat(summary[-1], dim=-1))
    joint = build(next(case for case in JOINT_CASES if case.name == "joint,gru"), torch.float32)
    assert isinstance(joint, Joint)
    with torch.no_grad():
        first = joint.step(torch.full((len(batch),), BOS), joint.start(batch.sources, 1))[1]
    torch.testing.assert_close(source_states(joint, batch.sources), first.rows["1.h"])  # nothing behind the top layer


@every_case
def test_every_python_finds_the_same_parts(case: Case) -> None:
    """Since 3.12 a protocol does not see what `__getattr__` makes up, such as a module's parts: nobody may ask so."""
    for module in build(case).modules():
        for protocol, name in ((Layered, "layer_taps"), (Recurrent, "step_taps")):
            found = inspect.getattr_static(module, name, None) is not None
            assert found == isinstance(module, protocol)


@every_case
def test_sources_are_read_by_encoders_or_by_the_decoder(case: Case) -> None:
    """One of both, and whoever asks learns it from the network itself."""
    network, batch = build(case), some_batch()
    places, memories = network.places(batch), network.encode(batch.sources)
    assert bool(network.readers()) == bool(memories) == (places is None)
    if places is not None and batch.target is not None:
        assert places.said.shape == batch.target.ids.shape
        assert places.read.shape[1] >= batch.sources["source"].mask.shape[1]


# --- taps of layers and steps --------------------


@every_case
@torch.no_grad()
def test_listening_to_layers_and_steps_changes_nothing(case: Case) -> None:
    """Kernels give way to the loop over steps, so that outputs agree to rounding, not to the bit."""
    network, batch = build(case), some_batch()
    silent = network.nll(batch)
    sides = ("encoder", "decoder")
    names = [name for side in sides for name in (*layer_taps(network, side), *step_taps(network, side))]
    names += ["encoder.inputs", *(["decoder.inputs"] if case.settings.decoder.listens else [])]
    with Tape(*names) as tape:
        close(network.nll(batch), silent)
    assert all(tape.steps(name) for name in names if name != "encoder.inputs"), names
    with Tape(replace=dict.fromkeys(names, lambda tensor, step: tensor.clone())):
        close(network.nll(batch), silent)


@every_case
@torch.no_grad()
def test_what_passes_step_by_step_is_what_passes_the_layer(case: Case) -> None:
    network, batch = build(case), some_batch()
    names = [*step_taps(network, "decoder")]
    with Tape(*names, *layer_taps(network, "decoder")) as tape:
        network.nll(batch)
    for name in names:
        states = tape.joined(name.replace("steps", "states"), dim=1)  # N T D
        steps = torch.stack(tape.steps(name), dim=1)[..., : states.shape[2]]  # h comes first
        close(steps, states)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("both", [False, True])
@torch.no_grad()
def test_an_encoder_passes_its_steps_in_the_order_of_reading_and_its_layers_in_that_of_the_source(
    reverse: bool, both: bool
) -> None:
    raw = {"kind": "rnn", "cell": "gru", "width": 4, "layers": 2, "bidirectional": both, "reverse": reverse}
    network = build(Case(f"reads,{reverse},{both}", {"encoder": raw, "decoder": {"kind": "luong", "width": 4}}))
    batch = some_batch()
    source = batch.sources["source"]
    taps = step_taps(network, "encoder")
    assert len(taps) == (4 if both else 2)
    with Tape("encoder.states", "encoder.1.states", *taps) as tape:
        network.encode(batch.sources)
    states = tape.steps("encoder.1.states")[0]
    close(states[source.mask], tape.steps("encoder.states")[0][source.mask])
    size = 2 if both else 4
    for backward, name in enumerate(taps[len(taps) // 2 :]):
        steps = torch.stack(tape.steps(name), dim=1)  # B S D
        for row, length in enumerate(source.lengths.tolist()):
            read = steps[row, :length]
            wanted = states[row, :length, backward * size : (backward + 1) * size]
            close(read.flip(0) if reverse != bool(backward) else read, wanted)

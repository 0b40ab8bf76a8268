"""Searches whose shapes never change find what the loop finds: what a GPU records must be true before it is fast."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch

from seqloom.batch import Tokens
from seqloom.models.contracts import Scorer
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS, Ensemble
from seqloom.search.constraints import CONSTRAINTS
from seqloom.search.frontier import best, by_keys
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.limits import Limits
from seqloom.search.loop import Wishes, searched
from seqloom.search.recordings import Recordings, Replay
from seqloom.search.steady import FEW_ROWS, FIRST_ROOM, Moment, grid, steady
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import EOS

V = 23
STACK = {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "feedforward": 32}
SIZES = {"kind": "encoder_decoder", "source_embedding": {"width": 8}, "target_embedding": {"width": 8}}
NETWORKS: dict[str, dict[str, object]] = {
    "transformer": {**SIZES, "encoder": STACK, "decoder": STACK},
    "rotary": {**SIZES, "encoder": STACK, "decoder": {**STACK, "positions": "rotary", "norm": "post"}},
    "luong": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "luong", "width": 16}},
    "input feeding": {
        **SIZES,
        "encoder": {"width": 16},
        "decoder": {"kind": "luong", "width": 16, "context": {"recurrence": "attentional"}},
    },
    "monotonic": {**SIZES, "encoder": {"width": 16}, "decoder": {"kind": "monotonic", "width": 16}},
    "joint": {"kind": "joint", "embedding": {"width": 16}, "decoder": STACK},
}
PLANS = [
    {"kind": "greedy"},
    {"kind": "beam", "size": 1},
    {"kind": "beam", "size": 4, "n_best": 3},
    {"kind": "beam", "size": 3, "stop": "all", "length": {"kind": "gnmt"}},
    {"kind": "beam", "size": 5, "stop": "bound", "length": {"kind": "none"}},
]


def network(name: str, seed: int = 1) -> Generator:
    torch.manual_seed(seed)
    built = MODELS.build(MODELS.settings(NETWORKS[name]), source_vocabulary=V, target_vocabulary=V).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(2.5)  # so that it has opinions
    return built


def some_sources() -> dict[str, Tokens]:
    torch.manual_seed(5)
    lengths = [3, 7, 1, 5, 7]
    return {"source": Tokens.pad([[*torch.randint(6, V, (length,)).tolist(), EOS] for length in lengths])}


def assert_equal(found: Sequence[Sequence[Hypothesis]], wanted: Sequence[Sequence[Hypothesis]]) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        assert [one.tokens for one in mine] == [one.tokens for one in theirs]
        assert [one.truncated for one in mine] == [one.truncated for one in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)
            assert one.score == pytest.approx(other.score, abs=1e-4)


def assert_same(scorer: Scorer, plan: dict[str, object], wishes: Wishes) -> None:
    settings = STRATEGIES.settings(plan)
    walk = steady(scorer, some_sources(), settings, wishes)
    assert walk is not None
    shapes = [tensor.shape for tensor in walk.moment.tensors()]
    after = walk.after(walk.moment.clone())
    assert [tensor.shape for tensor in after.tensors()] == shapes
    found, wanted = walk.found(), searched(scorer, some_sources(), settings, wishes)
    assert len(found) == grid(5) == 6
    assert_equal(found[:5], wanted)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(map(str, plan.values())))
@pytest.mark.parametrize("name", NETWORKS)
def test_steady_searches_find_what_the_loop_finds(name: str, plan: dict[str, object]) -> None:
    assert_same(network(name), plan, Wishes())


def test_an_ensemble_and_advice_are_steady_too() -> None:
    members = [network("transformer"), network("luong", 2)]
    assert_same(Ensemble(members), {"kind": "beam", "size": 4}, Wishes(advice=network("rotary", 3)))


@pytest.mark.parametrize("name", ["transformer", "luong"])
def test_limits_prefixes_and_bans_are_steady(name: str) -> None:
    banned = CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned", "tokens": [7, 9]}))
    phrases = CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned_phrases", "phrases": [[8, 8], [6, 10, 6]]}))
    prefixes = Tokens.pad([[8, 6], [], [9], [6, 6, 6], [10]])
    limits = Limits(min_length=3, max_length=9)
    for wishes in (Wishes(limits, [banned, phrases]), Wishes(limits, [banned], prefixes), Wishes(Limits(max_length=1))):
        assert_same(network(name), {"kind": "beam", "size": 4, "n_best": 2}, wishes)


@pytest.mark.parametrize("name", ["transformer", "rotary", "joint", "luong"])
def test_caches_are_as_exact_as_what_is_computed(name: str) -> None:
    model, settings = network(name), STRATEGIES.settings({"kind": "beam", "size": 3})
    with torch.autocast("cpu", torch.bfloat16):
        walk = steady(model, some_sources(), settings, Wishes())
        assert walk is not None
        kept = {tensor.dtype for state in walk.moment.states for key, tensor in state.rows.items() if key.isdigit()}
        assert kept <= {torch.bfloat16}
        found, wanted = walk.found(), searched(model, some_sources(), settings, Wishes())
    same = sum(mine[0].tokens == theirs[0].tokens for mine, theirs in zip(found, wanted, strict=False))
    assert same >= 4, "but for ties"


def test_what_changes_shapes_is_left_to_the_loop() -> None:
    model, beam = network("transformer"), STRATEGIES.settings({"kind": "beam"})
    again = CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "no_repeat", "ngram": 2}))
    assert steady(model, some_sources(), beam, Wishes(constraints=[again])) is None
    assert steady(model, some_sources(), beam, Wishes(phrases=[[(7,)]] * 5)) is None
    assert steady(model, some_sources(), STRATEGIES.settings({"kind": "sample"}), Wishes()) is None


def test_a_moment_is_overwritten_by_the_next() -> None:
    """What a recording does: the same buffers serve every step of a leg."""
    settings = STRATEGIES.settings({"kind": "beam", "size": 3})
    walk = steady(network("transformer"), some_sources(), settings, Wishes())
    assert walk is not None
    wanted = searched(network("transformer"), some_sources(), settings, Wishes())

    def overwritten(moment: Moment) -> Moment:
        moment.copy_(walk.stride(moment))
        return moment

    goes_on = True
    while goes_on:
        buffers = walk.moment.clone()
        places = [tensor.data_ptr() for tensor in buffers.tensors()]
        end, steps = walk.along(overwritten, buffers)
        assert [tensor.data_ptr() for tensor in end.tensors()] == places
        goes_on = walk.turn(end, steps)
    assert [one[0].tokens for one in walk.walk.hypotheses()[:5]] == [one[0].tokens for one in wanted]


class Again:
    """A recorder that writes nothing down: what a replay does, it does by doing it again."""

    room = 1e9

    def __init__(self) -> None:
        self.recorded = self.replays = 0

    def record(self, warm: Callable[[], object], written: Callable[[], object]) -> Replay:
        self.recorded += 1
        warm()

        def replay() -> None:
            self.replays += 1
            written()

        return replay


def many_sources(seed: int, count: int = 29) -> dict[str, Tokens]:
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 24, (count,), generator=drawn).tolist()
    return {
        "source": Tokens.pad([[*torch.randint(6, V, (n,), generator=drawn).tolist(), EOS] for n in lengths]),
    }


@pytest.mark.parametrize("plan", [PLANS[0], PLANS[2], PLANS[3]], ids=lambda plan: "-".join(map(str, plan.values())))
@pytest.mark.parametrize("name", ["transformer", "rotary", "luong", "monotonic"])
def test_legs_get_more_room_and_fewer_rows(name: str, plan: dict[str, object]) -> None:
    model, settings = network(name), STRATEGIES.settings(plan)
    walk = steady(model, many_sources(1), settings, Wishes())
    assert walk is not None
    legs = [(len(walk.moment.frontier.done), walk.room)]
    while walk.turn(*walk.along(walk.stride, walk.moment)):
        legs.append((len(walk.moment.frontier.done), walk.room))
    few = walk.walk.plan.hypotheses * grid(29) <= FEW_ROWS
    assert legs[0] == (grid(29), 2 * FIRST_ROOM if few else FIRST_ROOM)
    for (rows, room), (fewer, more) in itertools.pairwise(legs):
        assert (fewer <= rows // 2 and more == room) or more > room or fewer < rows
    assert len(legs) > 1
    assert_equal(walk.walk.hypotheses()[:29], searched(model, many_sources(1), settings, Wishes()))


@pytest.mark.parametrize("name", ["transformer", "luong", "joint"])
def test_what_is_met_again_is_recorded_and_finds_the_same(name: str) -> None:
    model, settings, recorder = network(name), STRATEGIES.settings({"kind": "beam", "size": 4}), Again()
    recordings, wishes = Recordings(recorder), Wishes(Limits(min_length=2))
    for round_ in range(4):
        for seed in (1, 2):
            found = recordings.search(model, many_sources(seed), settings, wishes)
            assert found is not None
            assert_equal(found, searched(model, many_sources(seed), settings, wishes))
        assert bool(recorder.recorded) == (round_ > 0 or recordings.count > 0)
    assert recordings.failure is None
    assert recordings.count > 0
    assert len(recordings.starts) > 0
    before = recorder.recorded
    recordings.search(model, many_sources(1), settings, wishes)
    assert recorder.recorded == before, "all of it is known by now"


def test_a_recording_that_finds_something_else_ends_all_recording() -> None:
    class Forgetful(Again):
        """Replays do nothing: what was there stays there."""

        def record(self, warm: Callable[[], object], written: Callable[[], object]) -> Replay:
            return lambda: None

    model, settings = network("transformer"), STRATEGIES.settings({"kind": "beam", "size": 4})
    recordings, wanted = Recordings(Forgetful()), searched(model, many_sources(1), settings, Wishes())
    for _ in range(2):
        found = recordings.search(model, many_sources(1), settings, Wishes())
        assert found is not None
        assert_equal(found, wanted)
    assert recordings.failure is not None
    assert recordings.count == 0
    assert recordings.search(model, many_sources(1), settings, Wishes()) is None


def test_recordings_keep_within_their_room() -> None:
    model, settings, recorder = network("transformer"), STRATEGIES.settings({"kind": "greedy"}), Again()
    recorder.room = 1.0
    recordings = Recordings(recorder)
    for _ in range(3):
        assert recordings.search(model, many_sources(1), settings, Wishes()) is not None
    assert recorder.recorded == recordings.count == 0


def test_the_best_by_keys_are_the_best() -> None:
    torch.manual_seed(0)
    for _ in range(50):
        values = torch.randint(-4, 4, (5, 97)) * torch.rand(1)  # many equal ones
        values[torch.rand_like(values) < 0.2] = -torch.inf
        values[0, 3:5] = torch.tensor([-0.0, 0.0])
        for count in (1, 3, 11, 97):
            for wanted, found in zip(best(values, count), by_keys(values, count), strict=True):
                assert torch.equal(wanted, found)
    for width in (40_000, 40_063, 640):
        wide = torch.randn(4, width) * 100
        assert torch.equal(best(wide, 10)[1], by_keys(wide, 10)[1])
        equals = torch.randint(-2, 2, (4, width)).float()  # by blocks too, the earlier of equals is the better
        equals[2] = -torch.inf
        equals[3, : width - 3] = -torch.inf
        for count in (1, 5, 10):
            expected = equals.sort(dim=1, descending=True, stable=True).indices[:, :count]
            assert torch.equal(by_keys(equals, count)[1], expected)


def test_the_grid_is_coarse_and_never_below() -> None:
    assert [grid(n) for n in (1, 2, 3, 4, 5, 6, 7, 9, 13, 17, 25, 33, 64, 65)] == [
        1, 2, 3, 4, 6, 6, 8, 12, 16, 24, 32, 48, 64, 96,
    ]  # fmt: skip

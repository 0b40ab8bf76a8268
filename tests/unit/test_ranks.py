"""The group that a process belongs to: how it learns of it, and what it makes of the others' signs of life."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.distributed import HashStore

from seqloom.errors import SeqloomError
from seqloom.ranks import watch as module
from seqloom.ranks.group import ALONE
from seqloom.ranks.launch import Launch, launched
from seqloom.ranks.meeting import meet
from seqloom.ranks.several import Several, _buckets
from seqloom.ranks.watch import Sign, Watch
from several import free_port

ENVIRONMENT = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "29500", "LOCAL_RANK": "0"}


def test_a_process_knows_how_it_was_started() -> None:
    launch = launched(ENVIRONMENT)
    assert launch == Launch(2, 4, 0, 4, "here", 29500)
    assert not launch.leads
    by_torchrun = {"TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_WORLD_SIZE": "2"}
    assert launched({**ENVIRONMENT, **by_torchrun}) == Launch(2, 4, 0, 2, "here", 29500, hosted=True)


@pytest.mark.parametrize("missing", [*ENVIRONMENT][:4])
def test_without_all_of_the_names_it_is_alone(missing: str) -> None:
    assert launched({name: value for name, value in ENVIRONMENT.items() if name != missing}) is None


def test_one_process_of_a_launcher_is_alone_as_well() -> None:
    assert launched({**ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "1"}) is None


@pytest.mark.parametrize("wrong", [{"RANK": "4"}, {"RANK": "-1"}, {"WORLD_SIZE": "four"}, {"MASTER_PORT": "1e3"}])
def test_numbers_that_are_none_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SeqloomError, match="E_USAGE"):
        launched({**ENVIRONMENT, **wrong})


def test_who_is_alone_has_nothing_to_say() -> None:
    value = torch.tensor(3.0)
    assert ALONE.leads
    assert ALONE.sum(value) is value
    assert ALONE.vote("preempted") == "preempted"
    assert ALONE.texts(["a"]) == [["a"]]
    assert ALONE.together(lambda: 5) == 5
    assert ALONE.values({"nll": 1.0}) == {"nll": 1.0}


def test_gradients_are_summed_in_pieces_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.ranks.several.BUCKET", 10)
    sizes = [(4, torch.float32), (30, torch.float32), (5, torch.float64), (3, torch.float32), (2, torch.float32)]
    parameters = [nn.Parameter(torch.zeros(size, dtype=dtype)) for size, dtype in sizes]
    pieces = list(_buckets(parameters))
    assert sorted(len(one) for piece in pieces for one in piece) == sorted(size for size, _ in sizes)
    assert all(len({one.dtype for one in piece}) == 1 for piece in pieces)
    assert len(pieces) > 2


# --- meeting -----------------------------------------------------------------------------------------------------


def test_processes_that_are_started_anew_meet_in_a_new_place() -> None:
    """What the ones before left in the store leads nobody astray."""
    store, places = HashStore(), []
    for _ in range(2):
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda rank: meet(store, rank, 3, 20.0), range(3)))
        assert len(set(found)) == 1
        places.append(found[0])
    assert places[0] != places[1]


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(SeqloomError, match="ranks 1, 2 did not come"):
        meet(HashStore(), 0, 3, 0.2)
    with pytest.raises(SeqloomError, match="rank 0 did not answer"):
        meet(HashStore(), 1, 3, 0.2)


# --- signs of life -----------------------------------------------------------------------------------------------


class Watching:
    """A watch of rank 1 of 3 whose clock is set by hand, and which reads what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.monotonic()
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.time, "sleep", self.passes)
        self.lines: list[str] = []
        self.watch = Watch(Launch(1, 3, 1, 3, "here", 1), HashStore(), 60.0, tell=self.lines.append)
        self.beats = dict.fromkeys(range(3), 0)
        self.still: set[int] = set()
        self.ended: dict[int, int] = {}
        self.blamed: dict[int, list[int]] = {}
        self.steps = dict.fromkeys(range(3), 5)
        self.read()

    def read(self) -> None:
        for rank in range(3):
            self.beats[rank] += rank not in self.still
        signs = [
            Sign(
                beat=self.beats[rank],
                host=f"m{rank}",
                step=self.steps[rank],
                end=self.ended.get(rank),
                code="",
                lost=self.blamed.get(rank, []),
                why="ended without a word",
            )
            for rank in range(3)
        ]
        self.watch._read([json.dumps(sign).encode() for sign in signs])

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.read()


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    return Watching(monkeypatch)


def test_the_silent_rank_is_blamed_by_the_lowest_that_is_left(watching: Watching) -> None:
    watching.still = {0}
    verdict = watching.watch.verdict("connection reset")
    assert isinstance(verdict, SeqloomError), "rank 0 is lost, so rank 1 speaks"
    assert verdict.code == "E_WORKER"
    assert "rank 0 (m0) ended without a word" in verdict.what


def test_others_leave_without_a_word(watching: Watching) -> None:
    watching.still = {2}
    verdict = watching.watch.verdict("connection reset")
    assert isinstance(verdict, SystemExit), "rank 0 is there to say it"
    assert verdict.code == 6


def test_who_leaves_without_a_word_leaves_it_to_another(watching: Watching) -> None:
    watching.still = {2}
    watching.watch.verdict("connection reset")
    watching.watch.end(6, "")
    sign = json.loads(watching.watch.store.get("sign/1"))
    assert sign["lost"] == [2]
    assert sign["why"] == "ended without a word, or cannot be reached"


def test_what_another_left_to_this_one_is_said(watching: Watching) -> None:
    """Rank 2 was quicker, and is gone: its exit code alone would leave the user with nothing to read."""
    watching.ended, watching.blamed = {2: 6}, {2: [0]}
    verdict = watching.watch.verdict("connection reset")
    assert isinstance(verdict, SeqloomError)
    assert "rank 0 (m0) ended without a word" in verdict.what
    with pytest.raises(SeqloomError, match="rank 0"):
        watching.watch.raise_failure()


def test_what_was_left_to_a_third_is_not_said(watching: Watching) -> None:
    watching.ended, watching.blamed = {2: 6}, {2: [2]}
    assert isinstance(watching.watch.verdict("connection reset"), SystemExit), "rank 0 says it"


def test_the_exit_code_of_who_failed_is_taken_over(watching: Watching) -> None:
    watching.ended = {2: 5}
    verdict = watching.watch.verdict("connection reset")
    assert isinstance(verdict, SystemExit)
    assert verdict.code == 5


def test_who_has_left_in_peace_is_not_missed(watching: Watching) -> None:
    watching.ended, watching.still = {2: 0}, {2}
    watching.passes(600)
    assert watching.watch._silent_by_limits() == []


def test_who_prepares_may_be_silent_for_longer(watching: Watching) -> None:
    watching.steps[0] = None  # type: ignore[assignment]
    watching.passes(1)
    watching.still = {0, 2}
    watching.passes(100)
    assert watching.watch._silent_by_limits() == [2]
    watching.passes(600)
    assert watching.watch._silent_by_limits() == [0, 2]


def test_time_in_which_nobody_read_is_nobodys_silence(watching: Watching) -> None:
    watching.now += 1000  # this process stood still
    assert watching.watch._silent_by_limits() == []
    watching.passes(1)
    assert watching.watch._silent_by_limits() == []


def test_all_are_there_but_one_is_behind(watching: Watching) -> None:
    watching.steps[2] = 4
    verdict = watching.watch.verdict("timed out")
    assert isinstance(verdict, SystemExit)
    watching.steps = {0: 4, 1: 5, 2: 5}
    verdict = watching.watch.verdict("timed out")
    assert isinstance(verdict, SeqloomError)
    assert "rank 0 (m0) did not come to the step" in verdict.what


# --- the real thing, with one process ----------------------------------------------------------------------------


def test_a_real_group_of_one_changes_nothing() -> None:
    with_gradient, without = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    with_gradient.grad = torch.full((3,), 2.0)
    with Several(Launch(0, 1, 0, 1, "127.0.0.1", free_port())) as ranks:
        assert ranks.gather("a") == ["a"]
        ranks.connect(torch.device("cpu"), 30)
        ranks.sum_gradients([with_gradient, without], all_there=False)
        assert with_gradient.grad.tolist() == [2.0] * 3
        assert without.grad is None
        assert ranks.sums([1.5, 2.0]) == [1.5, 2.0]
        assert ranks.texts(["ä", ""]) == [["ä", ""]]
        assert ranks.values({"nll": 0.1, "exact": 3.0}) == {"nll": 0.1, "exact": 3.0}
        assert ranks.vote("interrupted") is None, "the votes of a step are counted during the next"
        assert ranks.vote(None) == "interrupted"
        ranks.disconnect()


def test_an_error_of_one_is_an_error_of_all() -> None:
    def fails() -> None:
        raise SeqloomError("E_FILE", "not there", where="f", fix="put it there")

    ranks = Several(Launch(0, 1, 0, 1, "127.0.0.1", free_port()))
    with pytest.raises(SeqloomError, match="E_FILE"), ranks:
        ranks.together(fails)
    sign = json.loads(ranks.store.get("sign/0"))
    assert (sign["end"], sign["code"]) == (6, "E_FILE"), "those who read it end with that code"

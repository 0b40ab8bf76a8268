"""Questions of many, answered together: company, budgets, room, deadlines, and those who leave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest

from seqloom.serve.batcher import Batcher, Pace, Question
from seqloom.web.refusals import Refusal


class Desk:
    """Answers by doubling, remembers what came together, and waits at a gate."""

    def __init__(self, **pace: float) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = threading.Event()
        self.batcher = Batcher(Pace.model_validate({"patience": 0.05, **pace}))

    def answer(self, items: Sequence[int]) -> list[int]:
        self.busy.set()
        self.gate.wait(10)
        if 13 in items:
            raise ValueError("13")
        self.batches.append(list(items))
        return [2 * item for item in items]

    def question(self, *items: int, key: str = "k", cost: int = 1) -> Question[int, int]:
        return Question(key, items, cost, self.answer)

    async def hold(self) -> asyncio.Task[list[int]]:
        """Keep the thread busy until the gate opens."""
        self.gate.clear()
        self.busy.clear()
        task = asyncio.ensure_future(self.batcher.ask(self.question(0, key="held")))
        await asyncio.to_thread(self.busy.wait, 10)
        return task


def run(desk: Desk, work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    finally:
        desk.gate.set()
        desk.batcher.stop()


def test_questions_of_one_key_are_answered_together_and_each_gets_its_own() -> None:
    desk = Desk()

    async def work() -> None:
        asked = [desk.question(1, 2), desk.question(3), desk.question(7, key="other"), desk.question(4)]
        assert await asyncio.gather(*map(desk.batcher.ask, asked)) == [[2, 4], [6], [14], [8]]
        assert sorted(desk.batches) == [[1, 2, 3, 4], [7]]

    run(desk, work())


def test_a_batch_keeps_to_the_budget_and_one_that_is_larger_goes_alone() -> None:
    desk = Desk(budget=10)

    async def work() -> None:
        held = await desk.hold()
        asked = [desk.question(item, cost=cost) for item, cost in ((1, 6), (2, 4), (3, 1), (4, 50))]
        answers = asyncio.gather(*map(desk.batcher.ask, asked))
        await asyncio.sleep(0.05)
        desk.gate.set()
        assert await answers == [[2], [4], [6], [8]]
        assert await held == [0]
        assert desk.batches == [[0], [1, 2], [3], [4]]

    run(desk, work())


def test_one_bad_question_spoils_nobody_elses_answer() -> None:
    desk = Desk()

    async def work() -> None:
        asked = [desk.question(1), desk.question(13), desk.question(2)]
        one, bad, two = await asyncio.gather(*map(desk.batcher.ask, asked), return_exceptions=True)
        assert (one, two) == ([2], [4])
        assert isinstance(bad, ValueError)

    run(desk, work())


def test_a_full_queue_refuses_at_once_and_has_room_again() -> None:
    desk = Desk(room=2)

    async def work() -> None:
        held = await desk.hold()
        waits = asyncio.ensure_future(desk.batcher.ask(desk.question(1, 2)))
        await asyncio.sleep(0.01)
        with pytest.raises(Refusal, match="2 texts wait already") as refused:
            await desk.batcher.ask(desk.question(3))
        assert (refused.value.status_code, refused.value.headers["Retry-After"]) == (503, "1")
        desk.gate.set()
        assert await waits == [2, 4]
        assert await desk.batcher.ask(desk.question(3)) == [6]
        await held

    run(desk, work())


def test_what_would_come_too_late_is_refused_at_once() -> None:
    desk = Desk(budget=1, deadline=20)

    def slowly(items: Sequence[int]) -> list[int]:
        time.sleep(0.05)
        return desk.answer(items)

    async def work() -> None:
        assert desk.batcher.wait == 0
        first = await asyncio.gather(*(desk.batcher.ask(Question("k", [item], 1, slowly)) for item in (1, 2, 3)))
        assert first == [[2], [4], [6]]
        held = await desk.hold()
        waits = asyncio.ensure_future(desk.batcher.ask(desk.question(4, cost=1000)))
        await asyncio.sleep(0.01)
        assert desk.batcher.wait >= 50  # as slowly as the full ones
        with pytest.raises(Refusal, match=r"an answer would take about \d+ s") as refused:
            await desk.batcher.ask(desk.question(5))
        assert refused.value.status_code == 503
        assert int(refused.value.headers["Retry-After"]) >= 25
        desk.gate.set()
        assert await waits == [8]
        assert await desk.batcher.ask(desk.question(5)) == [10]
        await held

    run(desk, work())


def test_who_waits_too_long_is_told_and_the_work_never_begins() -> None:
    desk = Desk(deadline=0.2)

    async def work() -> None:
        held = await desk.hold()
        with pytest.raises(Refusal, match=r"not answered within 0.2 s") as refused:
            await desk.batcher.ask(desk.question(5))
        assert refused.value.status_code == 504
        assert desk.batcher.waiting == 0
        desk.gate.set()
        await asyncio.gather(held, return_exceptions=True)
        assert await desk.batcher.ask(desk.question(6)) == [12]
        assert [5] not in desk.batches

    run(desk, work())


def test_who_leaves_frees_the_room_and_the_work_never_begins() -> None:
    desk = Desk()

    async def work() -> None:
        held = await desk.hold()
        leaves = asyncio.ensure_future(desk.batcher.ask(desk.question(5)))
        await asyncio.sleep(0.01)
        assert desk.batcher.waiting == 1
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        assert desk.batcher.waiting == 0
        desk.gate.set()
        await held
        assert desk.batches == [[0]]

    run(desk, work())


@pytest.mark.parametrize("all_leave", [True, False])
def test_work_under_way_ends_when_the_last_who_waits_has_left(all_leave: bool) -> None:
    desk = Desk()
    steps: list[int] = []

    def long(items: Sequence[int]) -> list[int]:
        for step in range(100):
            steps.append(step)
            desk.batcher.heed()
            time.sleep(0.005)
        return list(items)

    async def work() -> None:
        asked = [asyncio.ensure_future(desk.batcher.ask(Question("long", [item], 1, long))) for item in (1, 2)]
        while not steps:
            await asyncio.sleep(0.01)
        for task in asked if all_leave else asked[:1]:
            task.cancel()
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert all_leave or done[1] == [2]
        assert await desk.batcher.ask(desk.question(3)) == [6]

    run(desk, work())
    assert (len(steps) < 100) == all_leave


def test_streams_take_turns_with_batches_and_end_when_nobody_listens() -> None:
    desk = Desk(patience=0)
    made: list[str] = []

    def pieces() -> Iterator[str]:
        for number in range(100_000):
            made.append(str(number))
            yield str(number)

    async def work() -> None:
        told = []
        async for piece in desk.batcher.stream(pieces):
            told.append(piece)
            if len(told) == 3:
                assert await desk.batcher.ask(desk.question(1)) == [2]  # in between
                break
        assert told == ["0", "1", "2"]

    run(desk, work())
    assert len(made) < 100_000
    assert desk.batcher.waiting == 0


def test_what_was_accepted_is_answered_before_the_end() -> None:
    desk = Desk()

    async def work() -> None:
        held = await desk.hold()
        waits = asyncio.ensure_future(desk.batcher.ask(desk.question(1)))
        await asyncio.sleep(0.01)
        ends = asyncio.ensure_future(asyncio.to_thread(desk.batcher.stop))
        await asyncio.sleep(0.05)
        with pytest.raises(Refusal, match="the server stops"):
            await desk.batcher.ask(desk.question(2))
        desk.gate.set()
        assert (await held, await waits) == ([0], [2])
        await ends

    run(desk, work())

"""Requests of many clients, answered together: one thread per device asks the model, everybody else waits for it.

Questions of the same key are answered in one call, as many as the budget allows; the first waits a few milliseconds
for company. The queue is bounded, in texts and by how long it takes as fast as full batches were answered lately: what
finds no room, or would come late, is refused at once. Who waits has a deadline, and may leave: what has not begun then
never begins. Streams take turns with the batches. Nothing here knows HTTP or models.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from pydantic import Field

from seqloom.config import Settings
from seqloom.web.refusals import Refusal

Q = TypeVar("Q")
A = TypeVar("A")

Told = Callable[[int], None]  # how many texts were answered together

MEMORY = 0.8  # of how fast earlier batches were, as a new one comes


class Pace(Settings):
    """How long questions wait, and how many."""

    room: int = Field(1024, ge=1, le=1_000_000)  # texts that may wait
    budget: int = Field(16_384, ge=1, le=100_000_000)  # characters (hardly ever fewer than tokens) answered together
    patience: float = Field(0.005, ge=0, le=10)  # seconds that a question waits for company
    deadline: float = Field(30.0, gt=0, le=86_400)  # seconds until an answer is of no use


@dataclass(frozen=True)
class Question(Generic[Q, A]):
    """Items to be answered one by one, by whatever answers all items of this key in one call."""

    key: Hashable
    items: Sequence[Q]
    cost: int  # characters
    answer: Callable[[Sequence[Q]], Sequence[A]]


@dataclass(eq=False)
class _Job:
    """One question that waits, and who waits for it."""

    question: Question[Any, Any]
    until: float
    future: asyncio.Future[Any]
    arrived_at: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return len(self.question.items)


@dataclass(eq=False)
class _Stream:
    """Pieces in the making, and where they go."""

    begin: Callable[[], Iterator[object]]
    loop: asyncio.AbstractEventLoop
    told: asyncio.Queue[object] = field(default_factory=asyncio.Queue)
    pieces: Iterator[object] | None = None
    gone: bool = False


class AbandonedError(Exception):
    """Nobody waits any more for what is being worked out."""


class Batcher:
    """One thread that answers; `begin` is called in it first, `told` after every batch."""

    def __init__(self, pace: Pace, begin: Callable[[], None] | None = None, told: Told | None = None) -> None:
        self.pace = pace
        self._begin, self._told = begin, told
        self._groups: dict[Hashable, deque[_Job]] = {}
        self._streams: deque[_Stream] = deque()
        self._waiting = 0  # texts
        self._ahead = 0  # characters that wait or are being answered
        self._pace_seen: tuple[float, float] | None = None  # characters and seconds of full batches, older ones less
        self._changed = threading.Condition()
        self._stopping = False
        self._present: Sequence[_Job] = ()  # those who are being answered
        self._thread = threading.Thread(target=self._work, name="seqloom-batcher", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Texts that have not begun, and streams."""
        return self._waiting + len(self._streams)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Answer what has been accepted, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    # --- for those who ask, in the event loop ------------------------------------------------------------------------

    async def ask(self, question: Question[Q, A]) -> list[A]:
        """The answers, in order; E_BUSY where there is no room, E_DEADLINE where they come too late."""
        until = time.monotonic() + self.pace.deadline
        job = _Job(question, until, asyncio.get_running_loop().create_future())
        with self._changed:
            self.refuse_full(job.size)
            self._groups.setdefault(question.key, deque()).append(job)
            self._waiting += job.size
            self._ahead += question.cost
            self._changed.notify()
        try:
            async with asyncio.timeout(self.pace.deadline):
                answers: list[A] = await job.future
                return answers
        except TimeoutError:
            raise self._late() from None
        finally:  # also when whoever asked has left
            self._forget(job)

    async def stream(self, begin: Callable[[], Iterator[A]]) -> AsyncIterator[A]:
        """Pieces as they are made; none of them is None."""
        stream = _Stream(begin, asyncio.get_running_loop())
        with self._changed:
            self.refuse_full()
            self._streams.append(stream)
            self._changed.notify()
        until = time.monotonic() + self.pace.deadline
        try:
            while (piece := await asyncio.wait_for(stream.told.get(), until - time.monotonic())) is not None:
                if isinstance(piece, Exception):
                    raise piece
                yield cast(A, piece)
        except TimeoutError:
            raise self._late() from None
        finally:
            stream.gone = True

    def _late(self) -> Refusal:
        return Refusal("E_DEADLINE", f"not answered within {self.pace.deadline:g} s", fix="ask for less at once")

    def refuse_full(self, size: int = 1) -> None:
        """E_BUSY where there is no room for so many."""
        if self._stopping:
            raise Refusal("E_BUSY", "the server stops", fix="ask again")
        if self.waiting + size > self.pace.room:
            raise Refusal("E_BUSY", f"{self.waiting:,} texts wait already", fix="ask again in a moment")
        if self._waiting and (wait := self.wait) > self.pace.deadline / 3:
            raise Refusal(
                "E_BUSY", f"an answer would take about {wait:.0f} s", fix="ask again then", retry_after=wait / 2
            )

    @property
    def wait(self) -> float:
        """Seconds until all that was asked is answered, as fast as full batches were lately; at first 0."""
        if self._pace_seen is None:
            return 0.0
        characters, seconds = self._pace_seen
        return self._ahead * seconds / characters

    def _forget(self, job: _Job) -> None:
        """Take a job out of the queue, if it is still there, so that its room is free."""
        with self._changed:
            group = self._groups.get(job.question.key)
            if group is not None and job in group:
                group.remove(job)
                self._waiting -= job.size
                self._ahead -= job.question.cost
                if not group:
                    del self._groups[job.question.key]

    def heed(self) -> None:
        """For whoever works long in the thread: raises where all have left, or will have when the answer comes."""
        if self._present and not any(_waits(job) for job in self._present):
            raise AbandonedError

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._begin is not None:
            self._begin()
        while (jobs := self._next()) is not None:
            crowded = bool(jobs) and jobs[0].question.key in self._groups  # as many as could be answered together
            started_at = time.monotonic()
            self._answer(jobs)
            self._learn(jobs, time.monotonic() - started_at if crowded else None)
            self._take_turns()

    def _learn(self, jobs: Sequence[_Job], seconds: float | None) -> None:
        """How fast full batches are answered: small ones are slower for their size, and say little of a crowd."""
        cost = sum(job.question.cost for job in jobs)
        with self._changed:
            self._ahead -= cost
            if cost and seconds is not None:
                characters, before = self._pace_seen or (0.0, 0.0)
                self._pace_seen = (MEMORY * characters + cost, MEMORY * before + seconds)

    def _next(self) -> list[_Job] | None:
        """Those to be answered together now (none: only streams go on); None at the end."""
        with self._changed:
            while not self._groups and not self._streams:
                if self._stopping:
                    return None
                self._changed.wait()
            if not self._groups:
                return []
            key = self._oldest()
            while not self._streams and not self._stopping and (left := self._left(key)) > 0:
                self._changed.wait(left)
                if key not in self._groups:  # whoever waited has left
                    return []
            return self._taken(key)

    def _oldest(self) -> Hashable:
        return min(self._groups, key=lambda key: self._groups[key][0].arrived_at)

    def _left(self, key: Hashable) -> float:
        """Seconds that a group still waits for company."""
        group = self._groups[key]
        if sum(job.question.cost for job in group) >= self.pace.budget:
            return 0.0
        return group[0].arrived_at + self.pace.patience - time.monotonic()

    def _taken(self, key: Hashable) -> list[_Job]:
        """The first of a group, and those after it that fit into the budget beside it."""
        group, cost = self._groups[key], 0
        taken: list[_Job] = []
        while group and (not taken or cost + group[0].question.cost <= self.pace.budget):
            job = group.popleft()
            taken.append(job)
            cost += job.question.cost
            self._waiting -= job.size
        if not group:
            del self._groups[key]
        return taken

    def _answer(self, jobs: Sequence[_Job]) -> None:
        jobs = [job for job in jobs if _waits(job)]
        if not jobs:
            return
        self._present = jobs
        items = [item for job in jobs for item in job.question.items]
        try:
            answers = iter(jobs[0].question.answer(items))
            found = [(job, [next(answers) for _ in job.question.items]) for job in jobs]
        except AbandonedError:
            return
        except Exception as error:
            if len(jobs) == 1:
                _told(jobs[0].future.get_loop(), _fail, jobs[0].future, error)
                return
            for job in jobs:  # one of them is at fault; the others shall not suffer for it
                self._answer([job])
            return
        finally:
            self._present = ()
        for job, own in found:
            _told(job.future.get_loop(), _settle, job.future, own)
        if self._told is not None:
            self._told(len(items))

    def _take_turns(self) -> None:
        """One piece of every stream."""
        for _ in range(len(self._streams)):
            with self._changed:
                stream = self._streams.popleft()
            if not stream.gone and self._goes_on(stream):
                with self._changed:
                    self._streams.append(stream)

    def _goes_on(self, stream: _Stream) -> bool:
        piece: object
        try:
            if stream.pieces is None:
                stream.pieces = stream.begin()
            piece = next(stream.pieces, None)
        except Exception as error:
            piece = error
        _told(stream.loop, stream.told.put_nowait, piece)
        return piece is not None and not isinstance(piece, Exception)


def _waits(job: _Job) -> bool:
    return job.until > time.monotonic() and not job.future.done()


def _told(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Call something in an event loop, if that is still there."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


def _settle(future: asyncio.Future[Any], answers: list[Any]) -> None:
    if not future.done():
        future.set_result(answers)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)

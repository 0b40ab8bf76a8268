"""Work shared out to the machines of a Ray cluster: answers in order, workers that may die, questions that kill.

Each worker is an actor that opens its model once and has one question at a time, so that a death has one suspect. At
most a few questions per worker are out or waiting to be taken, however long the input is. A question whose worker died
is asked again; one that kills them all is cut in halves, and what kills alone is answered as having failed. Nothing
here knows what is asked. Ray's own messages are pickles: a cluster is for its owner alone (docs/howto/bulk.md).
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from seqloom.errors import SeqloomError

RETRIES = 2  # times that a question is asked again whose worker died
AHEAD = 3  # questions per worker between the oldest that is not taken yet and the newest
EARLY_DEATHS = 6  # of workers, before anything was answered: then it is not the questions


class Question(Protocol):
    """What can be asked, and cut in halves where it is of several lines."""

    @property
    def lines(self) -> Sequence[object]: ...

    @property
    def halves(self) -> Sequence[Self]: ...


Q = TypeVar("Q", bound=Question)
A = TypeVar("A")
Answer = Callable[[Q, SeqloomError | None], A]  # with an error: the answer to what cannot be answered


@dataclass(frozen=True)
class _Task(Generic[Q]):
    """A question on its way: `place` is its number, followed by which half of a half it is."""

    place: tuple[int, ...]
    question: Q
    deaths: int = 0
    fault: SeqloomError | None = None
    is_new: bool = False


class _Worker:
    """An actor: opens what answers when it is first asked."""

    def __init__(self, make: Callable[[], Answer[Any, Any]]) -> None:
        self.make = make
        self.answer: Answer[Any, Any] | None = None

    def answered(self, question: Any, fault: SeqloomError | None) -> Any:
        if self.answer is None:
            self.answer = self.make()
        return self.answer(question, fault)


class Pool(Generic[Q, A]):
    """`with Pool(make) as pool: for answers in pool.answers(questions)`. `make` is called once in every worker."""

    def __init__(
        self, make: Callable[[], Answer[Q, A]], workers: int | None = None, tell: Callable[[str], None] = print
    ) -> None:
        if find_spec("ray") is None:
            raise SeqloomError("E_EXTRA", "ray is not installed", fix="pip install 'seqloom[cluster]'")
        self.make, self.tell, self.asked_for = make, tell, workers
        self.deaths = self.answered = 0
        self._idle: list[Any] = []
        self._out: dict[Any, tuple[_Task[Q], Any]] = {}  # what is asked for -> what, whom

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what is computed here
        ray = _ray()
        self._owns = not ray.is_initialized()
        if self._owns:  # the cluster of RAY_ADDRESS, or one of this machine alone
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        self.count = self.asked_for or gpus or max(1, int(resources.get("CPU", 1)))
        share = {"num_cpus": 0, "num_gpus": gpus / self.count} if gpus else {"num_cpus": 1 if not self.asked_for else 0}
        self._actor = ray.remote(**share)(_Worker)
        self._idle = [self._new() for _ in range(self.count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ray = _ray()
        for worker in [*self._idle, *(worker for _, worker in self._out.values())]:
            ray.kill(worker)
        self._idle, self._out = [], {}
        if self._owns:
            ray.shutdown()

    def _new(self) -> Any:
        return self._actor.remote(self.make)

    def answers(self, questions: Iterable[Q]) -> Iterator[list[A]]:
        """For every question, in order, its answer, or those of its parts where it had to be cut."""
        coming = enumerate(questions)
        waiting: deque[_Task[Q]] = deque()  # to be asked again
        parts: Counter[int] = Counter()  # of a question, those that are not answered yet
        found: dict[int, dict[tuple[int, ...], A]] = {}
        drawn = taken = 0
        while True:
            while self._idle and (waiting or drawn - taken < AHEAD * self.count):
                task = waiting.popleft() if waiting else _next(coming)
                if task is None:
                    break
                if task.is_new:
                    parts[drawn] = 1
                    drawn += 1
                self._ask(task)
            if not self._out:
                return
            for task, answer in self._arrived():
                number = task.place[0]
                if isinstance(answer, _Died):
                    again = self._suspected(task)
                    parts[number] += len(again) - 1
                    waiting.extend(again)
                else:
                    found.setdefault(number, {})[task.place] = answer
                    parts[number] -= 1
            while taken in found and not parts[taken]:
                answers = found.pop(taken)
                yield [answers[place] for place in sorted(answers)]
                taken += 1

    def _ask(self, task: _Task[Q]) -> None:
        worker = self._idle.pop()
        self._out[worker.answered.remote(task.question, task.fault)] = (task, worker)

    def _arrived(self) -> list[tuple[_Task[Q], A | _Died]]:
        """Wait for at least one answer; a death is one as well."""
        ray = _ray()
        done, _ = ray.wait(list(self._out), num_returns=1)
        arrived: list[tuple[_Task[Q], A | _Died]] = []
        for reference in done:
            task, worker = self._out.pop(reference)
            try:
                arrived.append((task, ray.get(reference)))
                self._idle.append(worker)
                self.answered += 1
            except ray.exceptions.RayTaskError as error:
                self._idle.append(worker)
                raise _told(error) from None
            except ray.exceptions.RayActorError:  # of every kind: killed, out of memory, its machine gone
                self._bury(worker)
                arrived.append((task, _Died()))
        return arrived

    def _bury(self, worker: Any) -> None:
        ray = _ray()
        self.deaths += 1
        if self.deaths >= EARLY_DEATHS and not self.answered:
            fix = "look at the memory of its machines, or ask for fewer workers"
            raise SeqloomError("E_WORKER", f"{self.deaths} workers died before any answered", where="ray", fix=fix)
        ray.kill(worker)  # one that only cannot be reached must not answer as well
        self._idle.append(self._new())

    def _suspected(self, task: _Task[Q]) -> list[_Task[Q]]:
        """What to do with a question whose worker died: ask again, then its halves, then no more."""
        if task.deaths < RETRIES:
            self.tell(f"a worker died; asked again (question {task.place[0] + 1:,}, time {task.deaths + 2})")
            return [_Task(task.place, task.question, task.deaths + 1)]
        if len(task.question.lines) > 1:
            halves = task.question.halves
            return [_Task((*task.place, side), half) for side, half in enumerate(halves)]
        fault = SeqloomError("E_WORKER", f"{RETRIES + 1} workers died while this line was answered")
        return [_Task(task.place, task.question, 0, fault)]


def _ray() -> Any:
    """Loaded only where it is used: it is large, and an extra."""
    return import_module("ray")


class _Died:
    """In the place of an answer."""


def _next(coming: Iterator[tuple[int, Q]]) -> _Task[Q] | None:
    for number, question in coming:
        return _Task((number,), question, is_new=True)
    return None


def _told(error: Exception) -> Exception:
    """What a worker raised, as it raised it where it is ours."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, SeqloomError) else error

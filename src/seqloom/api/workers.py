"""Prediction by several processes of one thread each: on a CPU that is faster than several threads in one.

The steps of a search are many small operations, which threads cannot share. Workers are forked from the process that
loaded the model, so that they start at once and share its weights. Where a system cannot fork safely (all but Linux)
there are none, and threads do what they can.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Generic, Protocol, TypeVar

import torch

from seqloom.errors import SeqloomError
from seqloom.interpreter import short_turns

Q = TypeVar("Q")
A = TypeVar("A")
MOST = 8  # more workers than this win little and hold a batch each in memory
FEW_TOKENS, SHARES = 512, 4  # workers get batches of at least so many source tokens, and so many of them each

_answer: Callable[[Any], Any] | None = None  # of a worker: what it was forked with


def usable(threads: int) -> int:
    """How many workers suit so many threads; 1 is none but the process itself."""
    return min(threads, MOST) if sys.platform == "linux" else 1


def ahead(answer: Callable[[Q], A], questions: Sequence[Q]) -> Iterator[A]:
    """`answer` of every question, in order: the next ones are on their way while somebody looks at one.

    For a GPU, which is waited for most of the time: the interpreter has time to read what was found before. A search
    lets go of the interpreter with every operation, so whoever reads may have it for short turns only.
    """
    around = copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread, short_turns():
        yield from thread.map(lambda question: around.run(answer, question), questions)


class Staff(Protocol[Q, A]):
    """Processes that share what is to be answered: forked workers, or the ranks of a group (`shared.py`)."""

    def budget(self, most: int, total: int) -> int:
        """Source tokens of a batch, at most so many, where there are `total` of them to be shared."""

    def answers(self, answer: Callable[[Q], A], questions: Sequence[Q], key: object = None) -> list[A]:
        """`answer` of every question, in order; `key` says by its equality whether it is the same as before."""


class Workers(Generic[Q, A]):
    """`count` processes, forked when there is work for the first time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._forked: tuple[int, object] | None = None  # by which process, and for what

    def budget(self, most: int, total: int) -> int:
        """Batches small enough that there are some for all."""
        return min(most, max(FEW_TOKENS, total // (self.count * SHARES)))

    def answers(self, answer: Callable[[Q], A], questions: Sequence[Q], key: object = None) -> list[A]:
        """`answer` of every question, in order. Put what takes longest first: then all are done at about the same time.

        What `answer` knows goes to the workers when they are forked; `key` says by its equality whether it is still the
        same.
        """
        try:
            with _undisturbed():
                coming = self._started(answer, key).map(_answered, questions)
            return list(coming)
        except BrokenProcessPool:
            self.stop()
            fix = "it may have run out of memory; fewer workers need less of it"
            raise SeqloomError("E_WORKER", "a process that predicts died", fix=fix) from None
        except BaseException:
            self.stop()
            raise

    def _started(self, answer: Callable[[Q], A], key: object) -> ProcessPoolExecutor:
        if self._pool is None or self._forked != (os.getpid(), key):  # a fork of ours must not use our workers
            self.stop()
            context = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_begin, initargs=(answer,))
            self._forked = (os.getpid(), key)
        return self._pool

    def stop(self) -> None:
        """Send the workers home, without waiting for what they are at."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C is heard, and acted upon behind the block: a pool that is cut off while it starts would never end."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        before(signal.SIGINT, None)


# --- in a worker -------------------------------------------------------------------------------------------------


def _begin(answer: Callable[[Any], Any]) -> None:
    global _answer
    _answer = answer
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that everybody works for
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _answered(question: Any) -> Any:
    assert _answer is not None
    return _answer(question)

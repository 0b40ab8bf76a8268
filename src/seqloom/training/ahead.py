"""Work ahead: a thread prepares what comes next while a GPU computes. Order and content stay as they are."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

from seqloom.interpreter import short_turns

T = TypeVar("T")
WAIT = 0.1  # seconds between two looks at whether anybody still waits


def ahead(items: Iterator[T], count: int) -> Iterator[T]:
    """The same items, up to `count` of them made before they are asked for. What fails there is raised here, in turn.

    Closed early, it stops its thread and waits for it.
    """
    made: queue.Queue[tuple[T | None, BaseException | None, bool]] = queue.Queue(count)
    closed = threading.Event()

    def put(item: tuple[T | None, BaseException | None, bool]) -> bool:
        while not closed.is_set():
            try:
                made.put(item, timeout=WAIT)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((item, None, True)):
                    return
            put((None, None, False))
        except BaseException as error:
            put((None, error, False))

    thread = threading.Thread(target=work, name="seqloom-ahead", daemon=True)
    with short_turns():
        thread.start()
        try:
            while True:
                item, error, more = made.get()
                if error is not None:
                    raise error
                if not more:
                    return
                yield item  # type: ignore[misc]
        finally:
            closed.set()
            thread.join()

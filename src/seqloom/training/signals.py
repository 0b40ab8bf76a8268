"""SIGTERM and Ctrl-C as requests to stop: the step is finished and saved first.

`Signals` is the `stop` callable of the loop. A second Ctrl-C does not wait, and neither does a SIGTERM whose grace
has passed: the checkpoint before is whole, whatever is being done.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from seqloom.errors import PREEMPTED


class Signals:
    """`with Signals(grace) as stop: fit(..., stop=stop)`. Outside the main thread it hears nothing."""

    def __init__(self, grace: float = 30.0) -> None:
        self.grace = grace
        self.reason: str | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __call__(self) -> str | None:
        """Why to stop: "preempted" (SIGTERM), "interrupted" (Ctrl-C), or None."""
        return self.reason

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGTERM, self._preempted),
                (signal.SIGINT, self._interrupted),
                (signal.SIGALRM, self._out_of_grace),
            ):
                self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _preempted(self, number: int, frame: FrameType | None) -> None:
        if self.reason is None:
            self.reason = "preempted"
            signal.setitimer(signal.ITIMER_REAL, self.grace)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.reason == "interrupted":
            raise KeyboardInterrupt
        self.reason = "interrupted"

    def _out_of_grace(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(PREEMPTED)

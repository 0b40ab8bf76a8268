"""SIGTERM, SIGHUP and Ctrl-C as requests to stop: the step is finished and saved first.

`Signals` is the `stop` callable of the loop. Until the loop asks for the first time there is nothing to save, and a
signal ends whatever is being prepared at once. Later, a second Ctrl-C does not wait, and neither does a SIGTERM whose
grace has passed: the checkpoint before is whole, whatever is being done. A third Ctrl-C ends the process there and
then.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

from seqloom.errors import INTERRUPTED, PREEMPTED


class Signals:
    """`with Signals(grace) as stop: fit(..., stop=stop)`. Outside the main thread it hears nothing."""

    def __init__(self, grace: float = 30.0) -> None:
        self.grace = grace
        self.reason: str | None = None
        self.early = True  # nothing was trained that could be saved
        self._interrupts = 0
        self._before: dict[int, signal._HANDLER] = {}

    def __call__(self) -> str | None:
        """Why to stop: "preempted" (SIGTERM, SIGHUP), "interrupted" (Ctrl-C), or None."""
        self.early = False
        return self.reason

    def begin(self) -> None:
        """Another run begins, of which nothing can be saved yet; not where a signal was heard before."""
        self.early = True
        if self.reason is not None:
            self._end()

    def leave(self) -> None:
        """The process is about to end, with the right code: from here on signals change nothing about that."""
        self._before = dict.fromkeys(self._before, signal.SIG_IGN)

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGTERM, self._preempted),
                (signal.SIGHUP, self._preempted),
                (signal.SIGINT, self._interrupted),
                (signal.SIGALRM, self._out_of_grace),
            ):
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup: not to be heard
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
            if self.early:
                self._end()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.reason = "interrupted"
        self._interrupts += 1
        if self._interrupts > 2:
            os._exit(INTERRUPTED)
        if self.early or self._interrupts == 2:
            self._end()

    def _end(self) -> None:
        if self.reason == "preempted":
            raise SystemExit(PREEMPTED)
        raise KeyboardInterrupt

    def _out_of_grace(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(PREEMPTED)

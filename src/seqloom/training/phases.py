"""Where the time of a training goes: `phase("forward")` is around a piece of it, `Phases()` around all of it.

Without a `Phases` around it a phase costs one look-up. An inner phase stops the clock of the outer one, so that shares
add up to the whole. A GPU is waited for at both ends of a phase: its work counts where it was asked for, and a run
that is looked at is slower than one that is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from typing import TypeVar

import torch

T = TypeVar("T")
REST = "the rest"

_watching: ContextVar[Phases | None] = ContextVar("seqloom_phases", default=None)
_nothing = nullcontext()


def phase(name: str) -> AbstractContextManager[None]:
    """The work inside belongs to this phase, if anybody watches."""
    phases = _watching.get()
    return _nothing if phases is None else phases.of(name)


def drawn(name: str, items: Iterable[T]) -> Iterator[T]:
    """The same items; the time until each is there belongs to this phase."""
    iterator = iter(items)
    while True:
        with phase(name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


class Phases:
    """Seconds by phase, of all that happens inside."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0
        self._token: Token[Phases | None] | None = None

    def __enter__(self) -> Phases:
        self._token = _watching.set(self)
        self._open, self._since = [REST], self._now()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        self._charge()
        _watching.reset(self._token)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def shares(self) -> dict[str, float]:
        """The share of each phase, the largest first and what belongs to none last."""
        whole = sum(self.seconds.values()) or 1.0
        ordered = sorted(self.seconds.items(), key=lambda item: (item[0] == REST, -item[1]))
        return {name: seconds / whole for name, seconds in ordered}

    def _charge(self) -> None:
        """What passed since the last look goes to the phase that is open."""
        now = self._now()
        self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now

    def _now(self) -> float:
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        return self._clock()

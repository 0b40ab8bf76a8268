"""Taps and tapes: look at, or replace, what flows through a model during one call.

A module calls `tap("attention", weights)` at a named place. When nobody listens that is one dictionary look-up and
nothing is kept. Inside `with Tape("attention") as tape:` the tensors that pass are recorded, or replaced by what a
function makes of them. A tape belongs to the call it surrounds, never to a module. Records are detached, so that
looking costs no graph; a loss that is computed from what passed asks for `keep_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType

import torch

from seqloom.shapes import Int, Tensor

Replacement = Callable[[Tensor, int], Tensor]  # (what passes, how often the tap was passed before) -> what goes on

_playing: ContextVar[Tape | None] = ContextVar("seqloom_tape", default=None)


def tap(name: str, tensor: Tensor) -> Tensor:
    """Let `tensor` pass the tap `name`: recorded or replaced by the tape of the current call, if there is one."""
    tape = _playing.get()
    return tensor if tape is None else tape.pass_by(name, tensor)


def listening(name: str) -> bool:
    """Does the tape of the current call record or replace what passes `name`? Then it must be worth computing."""
    tape = _playing.get()
    return tape is not None and tape.listens(name)


def playing() -> bool:
    """Is there a tape around the current call?"""
    return _playing.get() is not None


class Tape:
    """Records the named taps, in the order of their steps, and replaces what it is told to replace."""

    def __init__(
        self, *listen: str, replace: Mapping[str, Replacement] | None = None, keep_gradients: bool = False
    ) -> None:
        self._keep_gradients = keep_gradients
        self._records: dict[str, list[Tensor]] = {name: [] for name in listen}
        self._replace = dict(replace or {})
        self._passes: dict[str, int] = dict.fromkeys(self._replace, 0)
        self._token: Token[Tape | None] | None = None

    def __enter__(self) -> Tape:
        assert self._token is None, "a tape is bound to one call"
        self._token = _playing.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _playing.reset(self._token)

    def listens(self, name: str) -> bool:
        return name in self._records or name in self._replace

    def pass_by(self, name: str, tensor: Tensor) -> Tensor:
        if name in self._replace:
            tensor = self._replace[name](tensor, self._passes[name])
            self._passes[name] += 1
        if name in self._records:
            self._records[name].append(tensor if self._keep_gradients else tensor.detach())
        return tensor

    def steps(self, name: str) -> list[Tensor]:
        """What passed the tap, one tensor per pass."""
        return self._records[name]

    def joined(self, name: str, dim: int) -> Tensor:
        """All passes joined along the target dimension: one step at a time or all at once, the result is the same."""
        return torch.cat(self._records[name], dim=dim)


@contextmanager
def told_apart(name: str, parts: Sequence[tuple[str, Int[Tensor, "B _"]]]) -> Iterator[None]:
    """Inside, what passes `name` (B S D) is several things in one sequence, each with a tap of its own.

    `parts` are the taps and the places of what passes them. What is at no place of any part passes no tap.
    """
    tape = _playing.get()
    if tape is None or not any(tape.listens(tap_name) for tap_name in (name, *(part for part, _ in parts))):
        yield
        return
    token = _playing.set(_Apart(tape, name, parts))
    try:
        yield
    finally:
        _playing.reset(token)


class _Apart(Tape):
    """The same tape, for a call in which one tap is passed by several things at once."""

    def __init__(self, outer: Tape, name: str, parts: Sequence[tuple[str, Int[Tensor, "B _"]]]) -> None:
        super().__init__()
        self._outer, self._name, self._parts = outer, name, parts

    def listens(self, name: str) -> bool:
        return self._outer.listens(name)

    def pass_by(self, name: str, tensor: Tensor) -> Tensor:
        if name != self._name:
            return self._outer.pass_by(name, tensor)
        for part, places in self._parts:
            if self._outer.listens(part):
                index = places[..., None].expand(-1, -1, tensor.shape[-1])  # B s D
                tensor = tensor.scatter(1, index, self._outer.pass_by(part, tensor.gather(1, index)))
        return tensor

"""Recurrences over all steps at once, alone or with attention inside; forward and backward are written out.

    Alone       state_t = cell(x_t, state_{t-1})
    Previous    c_t = look(h_{t-1});  state_t = cell([x_t; c_t], state_{t-1})                        Bahdanau 2015
    Current     state_t = cell([x_t; f_{t-1}], state_{t-1});  c_t = look(h_t);  f_t = k'_t tanh(R [k_t h_t; c_t] + r_t)
                f is h~, fed to the next step; k and k' are what dropout keeps                       Luong 2015

Whatever does not depend on the state is made before the loop by those who call: W x_t + b of all steps is one product,
keys and values are made once. In the loop are the few products that must wait for each other; the parts of a step, and
how the gradients of all steps become single products, are in `adjoint.py`. Autograd comes by once, not T times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqloom.nn.adjoint import Look, Part, Parts, Product, Turn
from seqloom.shapes import Bool, Float, Tensor

Wanted = Sequence[Tensor | None]  # gradients of what came out, or of what went in; None where there is none

_off: ContextVar[bool] = ContextVar("seqloom_step_by_step", default=False)


@contextmanager
def step_by_step() -> Iterator[None]:
    """Inside, recurrences are left to autograd, step by step: what is written out here must equal that."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


def unrolls(x: Tensor) -> bool:
    """Is this worth it: is there a gradient to make, and did nobody ask for single steps?"""
    return torch.is_grad_enabled() and not _off.get() and x.shape[1] > 1


class Recurrence(NamedTuple):
    """A cell, laid open: what makes its turn; W and b; U, and the bias that belongs to U h alone (a GRU has one)."""

    turn: Callable[[], Turn]
    w: Float[Tensor, "M I"]
    b: Float[Tensor, "M"]
    u: Float[Tensor, "*g M D"]
    bias: Tensor | None

    def inputs(self, x: Float[Tensor, "T N E"]) -> Float[Tensor, "T N M"]:
        """W x + b of every step, as far as x goes: behind it may come what only the loop knows."""
        return F.linear(x, self.w[:, : x.shape[-1]], self.b)


class Memories(NamedTuple):
    """What a state looks at, and how it asks (`adjoint.Look`)."""

    keys: Float[Tensor, "N S A"]
    values: Float[Tensor, "N S C"]
    hidden: Bool[Tensor, "N S"]
    query: Float[Tensor, "A D"] | None
    vector: Float[Tensor, "A"] | None


class Feeding(NamedTuple):
    """What is fed to the next step: how it is read out (R and r), and what dropout keeps of h and of it."""

    added: Float[Tensor, "T N D"]
    readout: Float[Tensor, "D DC"]
    kept: Float[Tensor, "T N D"] | None
    kept_after: Float[Tensor, "T N D"] | None


def alone(cell: Recurrence, x: Float[Tensor, "T *g N M"], state: Parts) -> Parts:
    """The state after each step, part by part (T *g N D); `x` is W x + b of every step."""
    return _unrolled(partial(Alone, cell.turn), x, cell.u, cell.bias, *state)


def previous(
    cell: Recurrence, memory: Memories, x: Float[Tensor, "T N E"], state: Parts
) -> tuple[Float[Tensor, "T N D"], Float[Tensor, "T N C"], Parts]:
    """h_t and c_t of all steps, and the last state."""
    enters = cell.w[:, x.shape[-1] :]
    loop = partial(Previous, cell.turn)
    h, contexts, *last = _unrolled(loop, cell.inputs(x), cell.u, cell.bias, enters, *memory, *state)
    return h, contexts, tuple(last)


def current(
    cell: Recurrence, memory: Memories, feeding: Feeding, x: Float[Tensor, "T N E"], state: Parts
) -> tuple[Float[Tensor, "T N D"], Parts]:
    """f_t of all steps, and the last state; `state` ends with f_0."""
    enters = cell.w[:, x.shape[-1] :]
    loop = partial(Current, cell.turn)
    features, *last = _unrolled(loop, cell.inputs(x), cell.u, cell.bias, enters, *feeding, *memory, *state)
    return features, tuple(last)


class Loop(ABC):
    """A loop over steps, made of the tensors it reads; gradients come back in their order."""

    @abstractmethod
    def outputs(self) -> Parts: ...

    @abstractmethod
    def back(self, *wanted: Tensor | None) -> Wanted:
        """The gradients of all that was read; may be asked more than once."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Of a step; all are rewound before the way back."""


class Alone(Loop):
    def __init__(self, turn: Callable[[], Turn], x: Tensor, u: Tensor, bias: Tensor | None, *state: Tensor) -> None:
        self.x, self.state, self.turn, self.recurrent = x, state, turn(), Product(u, bias)

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.turn, self.recurrent

    def outputs(self) -> Parts:
        state, columns = self.state, []
        for x in self.x:
            state = self.turn.step(x, self.recurrent.step(state[0]), state)
            columns.append(state)
        return tuple(torch.stack(column) for column in zip(*columns, strict=True))

    def back(self, *wanted: Tensor | None) -> Wanted:
        carried, of_x = _zeros(self.state), []
        for t in reversed(range(len(self.x))):
            carried = tuple(_with(part, grad, t) for part, grad in zip(carried, wanted, strict=True))
            x, h, before = self.turn.back(carried)
            carried = (self.recurrent.back(h, before[0]), *(part for part in before[1:] if part is not None))
            of_x.append(x)
        return torch.stack(of_x[::-1]), *self.recurrent.gradients(), *carried


class Attending(Loop):
    """What both loops with attention inside are made of; `enters` is what the loop feeds into its cell."""

    def __init__(self, turn: Callable[[], Turn], own: Sequence[Any], memory: Sequence[Any]) -> None:
        """`own` are W x + b, U, its bias and what `enters` multiplies by, `memory` is `Memories`."""
        self.x, u, bias, enters = own
        keys, values, hidden, query, vector = memory
        self.turn, self.recurrent, self.enters = turn(), Product(u, bias), Product(enters)
        self.look = Look(keys, values, hidden, None if query is None else Product(query), vector)

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.turn, self.recurrent, self.enters, self.look

    def gradients(self, of_x: list[Tensor]) -> tuple[Wanted, Wanted]:
        """Those of `own` and of `memory`, after the way back."""
        keys, values, query, vector = self.look.gradients()
        own = (torch.stack(of_x[::-1]), *self.recurrent.gradients(), self.enters.gradients()[0])
        return own, (keys, values, None, query, vector)


class Previous(Attending):
    def __init__(self, turn: Callable[[], Turn], *given: Any) -> None:
        super().__init__(turn, given[:4], given[4:9])
        self.state: Parts = given[9:]

    def outputs(self) -> Parts:
        state, h, contexts = self.state, [], []
        for x in self.x:
            contexts.append(self.look.step(state[0]))
            x = self.enters.step(contexts[-1], x)
            state = self.turn.step(x, self.recurrent.step(state[0]), state)
            h.append(state[0])
        return torch.stack(h), torch.stack(contexts), *(part.clone() for part in state)

    def back(self, *wanted: Tensor | None) -> Wanted:
        of_h, of_contexts, *last = wanted
        carried, of_x = _given(last, self.state), []
        for t in reversed(range(len(self.x))):
            x, h, before = self.turn.back((_with(carried[0], of_h, t), *carried[1:]))
            context = self.enters.back(x, None if of_contexts is None else of_contexts[t])
            of_state = self.look.back(context, self.recurrent.back(h, before[0]))
            carried = (of_state, *(part for part in before[1:] if part is not None))
            of_x.append(x)
        own, memory = self.gradients(of_x)
        return *own, *memory, *carried


class Current(Attending):
    def __init__(self, turn: Callable[[], Turn], *given: Any) -> None:
        """After `own` comes `Feeding`, then `memory`, the state, and what is fed to the first step."""
        super().__init__(turn, given[:4], given[8:13])
        self.added, readout, self.kept, self.kept_after = given[4:8]
        self.readout = Product(readout)
        *state, self.fed = given[13:]
        self.state: Parts = tuple(state)
        self.bent: list[Tensor] = []

    @property
    def parts(self) -> tuple[Part, ...]:
        return *super().parts, self.readout

    def outputs(self) -> Parts:
        state, fed, features = self.state, self.fed, []
        for t, x in enumerate(self.x):
            state = self.turn.step(self.enters.step(fed, x), self.recurrent.step(state[0]), state)
            context = self.look.step(state[0])
            read = torch.cat([_kept(state[0], self.kept, t), context], dim=-1)
            self.bent.append(self.readout.step(read, self.added[t]).tanh_())
            fed = _kept(self.bent[-1], self.kept_after, t)
            features.append(fed)
        return torch.stack(features), *(part.clone() for part in (*state, fed))

    def back(self, *wanted: Tensor | None) -> Wanted:
        of_features, *last = wanted
        *carried, of_fed = _given(last, (*self.state, self.fed))
        of_x, of_added, width = [], [], self.fed.shape[-1]
        for t in reversed(range(len(self.x))):
            of_fed = _kept(_with(of_fed, of_features, t), self.kept_after, t)
            of_added.append(torch.ops.aten.tanh_backward(of_fed, self.bent[t]))
            of_read = self.readout.back(of_added[-1])
            h = carried[0] + _kept(of_read[..., :width], self.kept, t)
            x, of_h, before = self.turn.back((self.look.back(of_read[..., width:], h), *carried[1:]))
            carried = [self.recurrent.back(of_h, before[0]), *(part for part in before[1:] if part is not None)]
            of_fed = self.enters.back(x)
            of_x.append(x)
        own, memory = self.gradients(of_x)
        feeding = (torch.stack(of_added[::-1]), self.readout.gradients()[0], None, None)
        return *own, *feeding, *memory, *carried, of_fed


def _zeros(state: Parts) -> Parts:
    return tuple(torch.zeros_like(part) for part in state)


def _given(last: Wanted, state: Parts) -> Parts:
    """The gradients of the last state, zero where nobody reads it."""
    return tuple(torch.zeros_like(part) if grad is None else grad for grad, part in zip(last, state, strict=True))


def _with(carried: Tensor, wanted: Tensor | None, t: int) -> Tensor:
    """What later steps want of a state, and what is wanted of it directly."""
    return carried if wanted is None else carried + wanted[t]


def _kept(values: Tensor, kept: Tensor | None, t: int) -> Tensor:
    """What dropout leaves of them."""
    return values if kept is None else values * kept[t]


def _unrolled(make: Callable[..., Loop], *tensors: Tensor | None) -> Parts:
    """Through autograd; all of one type, that of products where autocast chooses it."""
    device = next(tensor for tensor in tensors if tensor is not None).device.type
    if torch.is_autocast_enabled(device):
        kind = torch.get_autocast_dtype(device)
        tensors = tuple(
            tensor.to(kind) if tensor is not None and tensor.is_floating_point() else tensor for tensor in tensors
        )
    found: Parts = _Unrolled.apply(make, *tensors)  # type: ignore[no-untyped-call]
    return found


class _Unrolled(torch.autograd.Function):
    """A loop, as autograd knows functions."""

    @staticmethod
    def forward(ctx: Any, make: Callable[..., Loop], *tensors: Tensor | None) -> Parts:
        ctx.set_materialize_grads(False)
        ctx.loop = make(*tensors)
        with torch.autocast(next(tensor for tensor in tensors if tensor is not None).device.type, enabled=False):
            found: Parts = ctx.loop.outputs()
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *wanted: Tensor | None) -> tuple[Tensor | None, ...]:
        for part in ctx.loop.parts:
            part.rewind()
        return None, *ctx.loop.back(*wanted)

"""Steps of a recurrence with their way back: what autograd would do, arranged so that steps share the large products.

Autograd goes back step by step: for every step it makes the gradient of every matrix and adds it to the others, dozens
of small operations in a row. Here each part of a step remembers what it read, its `back` passes on what the step before
it must know, and `gradients` makes the gradient of each matrix once, as one product over all steps.

Every part is used in one order: `step` for t = 1 ... T; `rewind`, `back` for t = T ... 1, `gradients`. All tensors are
of one type and without a graph; `unrolled.py` is where autograd meets them. G recurrences may run side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch

from seqloom.shapes import Bool, Float, Tensor

Parts = tuple[Tensor, ...]  # (h,) or (h, c), each N D or G N D
Before = tuple[Tensor | None, ...]  # the same, None for a gradient that is zero
Bend = Literal["tanh", "relu", "sigmoid"]

_aten = torch.ops.aten


class Part:
    """A part of a step: what it keeps of every step for the way back, which may be gone more than once."""

    def __init__(self) -> None:
        self.kept: list[tuple[Tensor, ...]] = []
        self.left = 0  # steps that the way back has not come to

    def rewind(self) -> None:
        """Before the way back begins."""
        self.left = len(self.kept)

    def recalled(self) -> tuple[Tensor, ...]:
        """What was kept of the step that the way back has come to."""
        self.left -= 1
        return self.kept[self.left]


class Product(Part):
    """y_t = W x_t + b"""

    def __init__(self, weight: Float[Tensor, "*g O I"], bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias
        self.wanted: list[Tensor] = []  # last step first

    def rewind(self) -> None:
        super().rewind()
        self.wanted = []

    def step(self, x: Float[Tensor, "*g N I"], added: Float[Tensor, "*g N O"] | None = None) -> Float[Tensor, "*g N O"]:
        """W x + b, or W x + `added`."""
        self.kept.append((x,))
        added = self.bias if added is None else added
        if added is None:
            return x @ self.weight.mT
        return (torch.addmm if x.dim() == 2 else torch.baddbmm)(added, x, self.weight.mT)

    def back(self, wanted: Float[Tensor, "*g N O"], added: Tensor | None = None) -> Float[Tensor, "*g N I"]:
        """The gradient of x, and what else it has (`added`)."""
        self.wanted.append(wanted)
        if added is None:
            return wanted @ self.weight
        return (torch.addmm if wanted.dim() == 2 else torch.baddbmm)(added, wanted, self.weight)

    def gradients(self) -> tuple[Tensor, Tensor | None]:
        """Those of W and of b."""
        read = torch.cat([x for (x,) in self.kept], dim=-2)  # *g TN I
        wanted = torch.cat(self.wanted[::-1], dim=-2)  # *g TN O
        return wanted.mT @ read, None if self.bias is None else wanted.sum(-2, keepdim=wanted.dim() == 3)


class Turn(Part, ABC):
    """What a cell does with W x + b and U h, the state before it, and nothing else."""

    @abstractmethod
    def step(self, x: Tensor, h: Tensor, state: Parts) -> Parts:
        """The state after this step; `x` and `h` are the two products."""

    @abstractmethod
    def back(self, wanted: Parts) -> tuple[Tensor, Tensor, Before]:
        """Gradients of both products and of the state before, where that did not pass through them."""


class ElmanTurn(Turn):
    """h' = f(x + h)"""

    def __init__(self, bend: Bend = "tanh") -> None:
        super().__init__()
        self.bend = bend

    def step(self, x: Tensor, h: Tensor, state: Parts) -> Parts:
        after = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}[self.bend](x + h)
        self.kept.append((after,))
        return (after,)

    def back(self, wanted: Parts) -> tuple[Tensor, Tensor, Before]:
        (after,) = self.recalled()
        if self.bend == "relu":
            inner = wanted[0] * (after > 0)
        else:
            inner = (_aten.tanh_backward if self.bend == "tanh" else _aten.sigmoid_backward)(wanted[0], after)
        return inner, inner, (None,)


class LSTMTurn(Turn):
    """i, f, g, o = x + h; c' = sigma(f) c + sigma(i) tanh(g), h' = sigma(o) tanh(c')"""

    def step(self, x: Tensor, h: Tensor, state: Parts) -> Parts:
        before = state[1]
        if x.is_cuda:  # one kernel, which takes matrices
            flat = (x.flatten(0, -2), h.flatten(0, -2), before.flatten(0, -2))
            said, after, gates = _aten._thnn_fused_lstm_cell(*flat)
            self.kept.append((flat[2], after, gates))
            return said.view_as(before), after.view_as(before)
        gates = x + h
        size = before.shape[-1]
        torch.sigmoid_(gates[..., : 2 * size])
        torch.tanh_(gates[..., 2 * size : 3 * size])
        torch.sigmoid_(gates[..., 3 * size :])
        i, f, g, o = gates.chunk(4, dim=-1)
        after = torch.addcmul(f * before, i, g)
        bent = after.tanh()
        self.kept.append((before, bent, gates))
        return o * bent, after

    def back(self, wanted: Parts) -> tuple[Tensor, Tensor, Before]:
        before, after, gates = self.recalled()
        if before.is_cuda:
            flat = [part.flatten(0, -2) for part in wanted]
            inner, earlier, _ = _aten._thnn_fused_lstm_cell_backward_impl(*flat, before, after, gates, False)
            shape = wanted[0].shape
            inner = inner.view(*shape[:-1], 4 * shape[-1])
            return inner, inner, (None, earlier.view(shape))
        i, f, g, o = gates.chunk(4, dim=-1)
        cell = wanted[1] + _aten.tanh_backward(wanted[0] * o, after)
        parts = (
            _aten.sigmoid_backward(cell * g, i),
            _aten.sigmoid_backward(cell * before, f),
            _aten.tanh_backward(cell * i, g),
            _aten.sigmoid_backward(wanted[0] * after, o),
        )
        inner = torch.cat(parts, dim=-1)
        return inner, inner, (None, cell * f)


class GRUTurn(Turn):
    """r, z = sigma(x + h), n = tanh(x_n + r h_n), h' = (1 - z) n + z h"""

    def step(self, x: Tensor, h: Tensor, state: Parts) -> Parts:
        before = state[0]
        if x.is_cuda:
            flat = (x.flatten(0, -2), h.flatten(0, -2), before.flatten(0, -2))
            after, gates = _aten._thnn_fused_gru_cell(*flat)
            self.kept.append((gates,))
            return (after.view_as(before),)
        (x_r, x_z, x_n), (h_r, h_z, h_n) = (part.chunk(3, dim=-1) for part in (x, h))
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(torch.addcmul(x_n, r, h_n))
        self.kept.append((before, r, z, n, h_n))
        return (torch.lerp(n, before, z),)

    def back(self, wanted: Parts) -> tuple[Tensor, Tensor, Before]:
        after = wanted[0]
        if after.is_cuda:
            (gates,), shape = self.recalled(), (*after.shape[:-1], 3 * after.shape[-1])
            x, h, earlier, *_ = _aten._thnn_fused_gru_cell_backward(after.flatten(0, -2), gates, False)
            return x.view(shape), h.view(shape), (earlier.view_as(after),)
        before, r, z, n, h_n = self.recalled()
        inner = _aten.tanh_backward(after * (1 - z), n)  # of x_n + r h_n
        of_r = _aten.sigmoid_backward(inner * h_n, r)
        of_z = _aten.sigmoid_backward(after * (before - n), z)
        x, h = torch.cat([of_r, of_z, inner], dim=-1), torch.cat([of_r, of_z, inner * r], dim=-1)
        return x, h, (after * z,)


class Look(Part):
    """A state asks the memory: weights = softmax(score), context = sum weights values.

    score = q . key, or v . tanh(q + key) where there is a `vector`; q = Q h, or h itself.
    """

    def __init__(
        self,
        keys: Float[Tensor, "N S A"],
        values: Float[Tensor, "N S C"],
        hidden: Bool[Tensor, "N S"],
        query: Product | None,
        vector: Float[Tensor, "A"] | None,
    ) -> None:
        super().__init__()
        self.keys, self.values, self.hidden, self.query, self.vector = keys, values, hidden, query, vector
        self.wanted: list[tuple[Tensor, Tensor]] = []  # of scores and contexts, last step first
        self.of_keys: Tensor | None = None  # where there is a vector: these add up on the way
        self.of_vector: Tensor | None = None

    def rewind(self) -> None:
        super().rewind()
        self.wanted = []
        if self.query is not None:
            self.query.rewind()
        if self.vector is not None:
            self.of_keys, self.of_vector = torch.zeros_like(self.keys), torch.zeros_like(self.vector)

    def step(self, h: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        q = h if self.query is None else self.query.step(h)
        if self.vector is None:
            bent = q
            scores = torch.bmm(self.keys, q[..., None])[..., 0]  # N S
        else:
            bent = (self.keys + q[:, None]).tanh_()  # N S A
            scores = bent @ self.vector
        weights = torch.softmax(scores.masked_fill_(self.hidden, -torch.inf), dim=-1)
        self.kept.append((weights, q, bent))
        return torch.bmm(weights[:, None], self.values)[:, 0]

    def back(self, wanted: Float[Tensor, "N C"], added: Tensor | None = None) -> Float[Tensor, "N D"]:
        """The gradient of h, and what else it has (`added`)."""
        weights, _, bent = self.recalled()
        of_weights = torch.bmm(self.values, wanted[..., None])[..., 0]  # N S
        of_scores = _aten._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        self.wanted.append((of_scores, wanted))
        if self.vector is None:
            of_query = torch.bmm(of_scores[:, None], self.keys)[:, 0]  # N A
        else:
            assert self.of_keys is not None
            assert self.of_vector is not None
            self.of_vector += of_scores.flatten() @ bent.flatten(0, 1)
            inner = _aten.tanh_backward(of_scores[..., None] * self.vector, bent)  # N S A
            self.of_keys += inner
            of_query = inner.sum(1)
        if self.query is not None:
            return self.query.back(of_query, added)
        return of_query if added is None else of_query + added

    def gradients(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Those of keys, values, Q and the vector."""
        scores, contexts = (torch.stack(steps, dim=1) for steps in zip(*self.wanted[::-1], strict=True))
        weights, queries = (torch.stack(steps, dim=1) for steps in list(zip(*self.kept, strict=True))[:2])
        of_keys = scores.mT @ queries if self.of_keys is None else self.of_keys  # N S T @ N T A
        of_query = None if self.query is None else self.query.gradients()[0]
        return of_keys, weights.mT @ contexts, of_query, self.of_vector

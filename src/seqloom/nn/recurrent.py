"""Recurrent cells and stacks of them (Elman, LSTM, GRU; bidirectional, multi-layer).

A cell reads any number of steps from any state: all steps of a sentence in training, one in decoding. torch's fused
kernels do the work where they exist; the loop over `step` says what they compute and serves the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeVar

import torch
from pydantic import Field
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqloom import config
from seqloom.config import Table
from seqloom.nn.adjoint import ElmanTurn, GRUTurn, LSTMTurn, Turn
from seqloom.nn.packed import is_packed, linear
from seqloom.nn.tape import listening, tap
from seqloom.nn.unrolled import Recurrence, alone, unrolls
from seqloom.shapes import Float, Int, Tensor

Parts = tuple[Tensor, ...]  # (h,) or (h, c), each N D
X = TypeVar("X", Tensor, PackedSequence)


class Cell(nn.Module, ABC):
    """One layer, one direction. `parts` says what its state is made of; the first part is its output.

    Tap: `<name>` = the state after each step, its parts side by side (N PD). Whoever listens makes the loop run.
    """

    parts: ClassVar[tuple[str, ...]]
    name = ""  # of the tap; whoever builds a stack of cells names them

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def step(self, x: Float[Tensor, "N I"], state: Parts) -> Parts:
        """One step of the recurrence."""

    def forward(
        self, x: Float[Tensor, "N T I"], state: Parts, lengths: Int[Tensor, "N"] | None = None
    ) -> tuple[Float[Tensor, "N T D"], Parts]:
        """Outputs at every step, and the state after each row's last real step (zero steps leave it as it was)."""
        outputs = []
        heard = self.heard
        for t in range(x.shape[1]):
            new = self.step(x[:, t], state)
            if heard:
                new = tap(self.name, torch.cat(new, dim=-1)).chunk(len(new), dim=-1)
            state = new if lengths is None else keep_ended(lengths > t, new, state)
            outputs.append(new[0])
        return torch.stack(outputs, dim=1), state

    def laid_open(self) -> Recurrence | None:
        """The same cell for loops that are written out (`unrolled.py`); None where nobody wrote its way back."""
        return None

    @property
    def is_open(self) -> bool:
        """May such a loop take its place now?"""
        return not self.heard and self.laid_open() is not None

    @property
    def heard(self) -> bool:
        """Does somebody listen to single steps? Inside of a kernel there are none."""
        return bool(self.name) and listening(self.name)


def keep_ended(real: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]) -> Parts:
    """Rows whose sequence goes on take the new state, the others keep the old one."""
    return tuple(torch.where(real[:, None], after, before) for after, before in zip(new, old, strict=True))


class FusedCell(Cell):
    """A cell whose sequence is one call of a torch kernel; weights are the kernel's own."""

    kernel: nn.RNN | nn.LSTM | nn.GRU

    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        w, u, bias_w, bias_u = self.kernel.all_weights[0]
        return w, u, bias_w, bias_u

    def products(self, x: Float[Tensor, "N I"], h: Float[Tensor, "N D"]) -> tuple[Tensor, Tensor] | None:
        """W x + b and U h + b, where these matrices are packed; torch's own cells know nothing of that."""
        w, u, bias_w, bias_u = self.weights()
        return (linear(x, w, bias_w), linear(h, u, bias_u)) if is_packed(w) else None

    def forward(
        self, x: Float[Tensor, "N T I"], state: Parts, lengths: Int[Tensor, "N"] | None = None
    ) -> tuple[Float[Tensor, "N T D"], Parts]:
        if x.shape[1] == 1 or self.heard:  # decoding: no packing, no layout change
            return super().forward(x, state, lengths)
        if lengths is None:
            outputs, final = self._run(x, state)
            return outputs, final
        if _recording(x):
            return read_through([self], [x], [state], lengths)[0] if unrolls(x) else super().forward(x, state, lengths)
        # Ragged rows are packed, so that nothing behind a row's end is ever computed. A row of zero steps is read as
        # one step and its state put back.
        packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        packed_outputs, final = self._run(packed, state)
        outputs, _ = pad_packed_sequence(packed_outputs, batch_first=True, total_length=x.shape[1])
        return outputs, keep_ended(lengths > 0, final, state)

    @abstractmethod
    def turn(self) -> Turn:
        """What it does with its two products, and the way back."""

    def laid_open(self) -> Recurrence:
        w, u, bias_w, bias_u = self.weights()
        return Recurrence(self.turn, w, bias_w + bias_u, u, None)

    def _run(self, x: X, state: Parts) -> tuple[X, Parts]:
        layered = tuple(part[None].contiguous() for part in state)  # 1 N D
        outputs, final = self.kernel(x, layered if len(layered) > 1 else layered[0])
        return outputs, tuple(part[0] for part in (final if isinstance(final, tuple) else (final,)))


class Elman(FusedCell):
    """s_i = f(W^x x_i + W^s s_{i-1} + b), f = tanh, relu or sigmoid"""

    parts = ("h",)

    class Settings(config.Settings):
        kind: Literal["elman"] = "elman"
        activation: Literal["tanh", "relu", "sigmoid"] = "tanh"

    def __init__(self, settings: Settings, *, inputs: int, size: int) -> None:
        super().__init__(size)
        self.activation = settings.activation
        fused = "relu" if settings.activation == "relu" else "tanh"
        self.kernel = nn.RNN(inputs, size, nonlinearity=fused, batch_first=True)

    def step(self, x: Float[Tensor, "N I"], state: Parts) -> Parts:
        w, u, bw, bu = self.weights()
        bend = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}[self.activation]
        return (bend(linear(x, w, bw) + linear(state[0], u, bu)),)

    def turn(self) -> Turn:
        return ElmanTurn(self.activation)

    def forward(
        self, x: Float[Tensor, "N T I"], state: Parts, lengths: Int[Tensor, "N"] | None = None
    ) -> tuple[Float[Tensor, "N T D"], Parts]:
        if self.activation == "sigmoid":  # torch has no such kernel: the plain loop
            return Cell.forward(self, x, state, lengths)
        return super().forward(x, state, lengths)


class LSTM(FusedCell):
    """i, f, o = sigma(W x + U s + b), g = tanh(W x + U s + b), c_t = f c_{t-1} + i g, s_t = o tanh(c_t)"""

    parts = ("h", "c")

    class Settings(config.Settings):
        kind: Literal["lstm"] = "lstm"
        forget_bias: float = Field(1.0, ge=-100, le=100)  # remember by default (Jozefowicz 2015)

    def __init__(self, settings: Settings, *, inputs: int, size: int) -> None:
        super().__init__(size)
        self.kernel = nn.LSTM(inputs, size, batch_first=True)
        with torch.no_grad():
            self.weights()[2][size : 2 * size] += settings.forget_bias

    def step(self, x: Float[Tensor, "N I"], state: Parts) -> Parts:
        if (made := self.products(x, state[0])) is None:
            h, c = torch.lstm_cell(x, list(state), *self.weights())
            return h, c
        i, f, g, o = made[0].add_(made[1]).chunk(4, dim=1)
        c = torch.addcmul(f.sigmoid() * state[1], i.sigmoid(), g.tanh())
        return o.sigmoid() * c.tanh(), c

    def turn(self) -> Turn:
        return LSTMTurn()


class GRU(FusedCell):
    """z, r = sigma(W x + U s + b), n = tanh(W x + r (U s) + b), s_t = (1 - z) n + z s_{t-1}"""

    parts = ("h",)

    class Settings(config.Settings):
        kind: Literal["gru"] = "gru"

    def __init__(self, settings: Settings, *, inputs: int, size: int) -> None:
        super().__init__(size)
        self.kernel = nn.GRU(inputs, size, batch_first=True)

    def step(self, x: Float[Tensor, "N I"], state: Parts) -> Parts:
        if (made := self.products(x, state[0])) is None:
            return (torch.gru_cell(x, state[0], *self.weights()),)
        (r, z, n), (of_r, of_z, of_n) = (part.chunk(3, dim=1) for part in made)
        candidate = torch.tanh(torch.addcmul(n, torch.sigmoid(r + of_r), of_n))
        return (torch.lerp(candidate, state[0], torch.sigmoid(z + of_z)),)

    def turn(self) -> Turn:
        return GRUTurn()

    def laid_open(self) -> Recurrence:
        w, u, bias_w, bias_u = self.weights()
        return Recurrence(self.turn, w, bias_w, u, bias_u)  # of U h: the candidate gates it with its bias


CELLS: Table[Cell] = Table("cells", {"elman": Elman, "lstm": LSTM, "gru": GRU})


class Start(nn.Module):
    """The state before the first step: zero, or learned (one vector per part)."""

    def __init__(self, cell: Cell, learned: bool) -> None:
        super().__init__()
        self.size, self.count = cell.size, len(cell.parts)
        self.values = nn.Parameter(torch.zeros(self.count, self.size)) if learned else None

    def forward(self, like: Float[Tensor, "N ..."]) -> Parts:
        """A state for as many rows as `like` has, of its type and on its device."""
        if self.values is None:
            return tuple(like.new_zeros(like.shape[0], self.size) for _ in range(self.count))
        return tuple(value.expand(like.shape[0], -1) for value in self.values)


def reverse(x: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B S D"]:
    """Each row's real part back to front; padding stays at the end."""
    positions = torch.arange(x.shape[1], device=x.device)
    backwards = lengths[:, None] - 1 - positions  # B S
    index = torch.where(backwards >= 0, backwards, positions)
    return x.gather(1, index[..., None].expand_as(x))


class Bidirectional(nn.Module):
    """One encoder layer: a cell forward and, if asked, one backward, states concatenated."""

    def __init__(
        self, cell: config.Settings, *, inputs: int, width: int, both: bool, learned_start: bool, name: str = ""
    ) -> None:
        """`name` is that of the taps: `<name>.steps`, and `<name>.backward` of the cell that reads backwards."""
        super().__init__()
        size = width // 2 if both else width
        self.cells = nn.ModuleList(CELLS.build(cell, inputs=inputs, size=size) for _ in range(2 if both else 1))
        self.step_taps = tuple(f"{name}.{way}" for way in ("steps", "backward")[: len(self.cells)]) if name else ()
        for module, tap_name in zip(self.cells, self.step_taps, strict=False):
            _cell(module).name = tap_name
        self.starts = nn.ModuleList(Start(_cell(module), learned_start) for module in self.cells)

    def forward(self, x: Float[Tensor, "B S I"], lengths: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B S D"], Parts]:
        """States at every position, and each part's last state per direction, concatenated."""
        inputs, starts = [x, reverse(x, lengths)][: len(self.cells)], [start(x) for start in self.starts]
        if _recording(x) and unrolls(x) and all(_cell(module).is_open for module in self.cells):
            read = read_through([_cell(module) for module in self.cells], inputs, starts, lengths)  # both ways together
        else:
            read = [cell(*given, lengths) for cell, *given in zip(self.cells, inputs, starts, strict=True)]
        outputs, finals = zip(*read, strict=True)
        in_order = [reverse(states, lengths) if backward else states for backward, states in enumerate(outputs)]
        return torch.cat(in_order, dim=-1), tuple(torch.cat(parts, dim=-1) for parts in zip(*finals, strict=True))


def read_through(
    cells: Sequence[Cell],
    inputs: Sequence[Float[Tensor, "N T I"]],
    states: Sequence[Parts],
    lengths: Int[Tensor, "N"],
) -> list[tuple[Float[Tensor, "N T D"], Parts]]:
    """What each cell makes of its input, all of one kind side by side, without a look at the lengths.

    Steps behind the end of a row are computed and never read.
    """
    opened = [cell.laid_open() for cell in cells]
    whole = [cell for cell in opened if cell is not None]
    assert len(whole) == len(cells), "a cell that nobody laid open"
    x = torch.stack([cell.inputs(x.transpose(0, 1)) for cell, x in zip(whole, inputs, strict=True)], dim=1)  # T G N M
    biases = [cell.bias for cell in whole if cell.bias is not None]
    bias = torch.stack(biases)[:, None] if biases else None  # G 1 M
    joined = whole[0]._replace(u=torch.stack([cell.u for cell in whole]), bias=bias)
    start = tuple(torch.stack(part) for part in zip(*states, strict=True))  # G N D each
    after = alone(joined, x, start)  # T G N D each
    last = (lengths - 1).clamp(min=0)[None, None, :, None].expand(1, *start[0].shape)
    finals = [part.gather(0, last)[0] for part in after]
    finals = [torch.where((lengths > 0)[:, None], new, old) for new, old in zip(finals, start, strict=True)]
    return [(after[0][:, g].transpose(0, 1), tuple(part[g] for part in finals)) for g in range(len(cells))]


def _recording(x: Tensor) -> bool:
    """Is a GPU's work being written down? Nobody can be asked for lengths then."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _cell(module: nn.Module) -> Cell:
    assert isinstance(module, Cell)
    return module

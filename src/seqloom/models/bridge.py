"""How a recurrent decoder begins: its first state from the encoder's summary, or without one."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from seqloom.errors import SeqloomError
from seqloom.models.contracts import Encoder, Layers, Memory
from seqloom.nn.recurrent import Cell, Parts, Start
from seqloom.shapes import Tensor

FirstState = Literal["bridge", "state", "zero", "learned"]


class Bridge(nn.Module):
    """The decoder's first state from the encoder's summary: passed on, transformed, or not used."""

    def __init__(self, kind: FirstState, cells: list[Cell], encoder: Encoder | None) -> None:
        super().__init__()
        self.kind = kind
        wanted = tuple((cell.size,) * len(cell.parts) for cell in cells)
        given = () if encoder is None else encoder.summary_sizes
        if self.kind == "state" and wanted != given:
            raise SeqloomError(
                "E_RECIPE",
                f"the encoder's summary {given} cannot be the decoder's first state {wanted}",
                where="model.decoder.start",
                fix="use the same cell, width and layers on both sides, or start: bridge",
            )
        self.starts = nn.ModuleList(Start(cell, self.kind == "learned") for cell in cells)
        self.linear = nn.ModuleList()
        if self.kind == "bridge":
            for layer, sizes in enumerate(wanted):
                source = given[_beside(layer, len(wanted), len(given))]
                self.linear.append(
                    nn.ModuleList(
                        nn.Linear(source[min(part, len(source) - 1)], size) for part, size in enumerate(sizes)
                    )
                )

    def forward(self, memory: Memory) -> Layers:
        if self.kind == "state":
            return memory.summary
        if self.kind != "bridge":
            return tuple(start(memory.states) for start in self.starts)
        return tuple(self._layer(index, linears, memory) for index, linears in enumerate(self.linear))

    def alone(self, like: Tensor, rows: int) -> Layers:
        """The first state where there is no memory, of the type and on the device of `like`: zero, or learned."""
        assert self.kind in ("zero", "learned"), "without an encoder there is no summary to start from"
        return tuple(start(like.new_empty(rows, 0)) for start in self.starts)

    def _layer(self, index: int, linears: nn.Module, memory: Memory) -> Parts:
        given = memory.summary[_beside(index, len(self.linear), len(memory.summary))]
        assert isinstance(linears, nn.ModuleList)
        return tuple(torch.tanh(linear(given[min(part, len(given) - 1)])) for part, linear in enumerate(linears))


def _beside(layer: int, layers: int, given: int) -> int:
    """Whose summary starts a decoder's layer: the encoder's beside it, counted from the top if the encoder has more.

    What the topmost layer made of a source is always among what is passed on.
    """
    return min(layer + max(0, given - layers), given - 1)

"""Small layers that others are built from: the three ways to compose two vectors, rows of sources, exact floats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import nn

from seqloom import config
from seqloom.config import Table
from seqloom.shapes import Bool, Float, Shaped, Tensor


class Composition(nn.Module, ABC):
    """Two vectors become one, of width `width`."""

    width: int
    side_by_side: ClassVar[bool] = False  # is it [a; b]? Then W [a; b] = W_a a + W_b b can be made in two places

    @abstractmethod
    def forward(self, main: Float[Tensor, "*r A"], other: Float[Tensor, "*r B"]) -> Float[Tensor, "*r C"]: ...


class Concatenation(Composition):
    """[a; b]"""

    side_by_side = True

    class Settings(config.Settings):
        kind: Literal["concat"] = "concat"

    def __init__(self, settings: Settings, *, main: int, other: int) -> None:
        super().__init__()
        self.width = main + other

    def forward(self, main: Float[Tensor, "*r A"], other: Float[Tensor, "*r B"]) -> Float[Tensor, "*r C"]:
        return torch.cat([main, other], dim=-1)


class Sum(Composition):
    """a + P b, the projection only where widths differ."""

    class Settings(config.Settings):
        kind: Literal["sum"] = "sum"

    def __init__(self, settings: Settings, *, main: int, other: int) -> None:
        super().__init__()
        self.width = main
        self.project = nn.Identity() if main == other else nn.Linear(other, main, bias=False)

    def forward(self, main: Float[Tensor, "*r A"], other: Float[Tensor, "*r B"]) -> Float[Tensor, "*r C"]:
        result: Tensor = main + self.project(other)
        return result


class Gate(Composition):
    """g * a + (1 - g) * P b, with g = sigma(W [a; b])."""

    class Settings(config.Settings):
        kind: Literal["gate"] = "gate"

    def __init__(self, settings: Settings, *, main: int, other: int) -> None:
        super().__init__()
        self.width = main
        self.project = nn.Identity() if main == other else nn.Linear(other, main, bias=False)
        self.gate = nn.Linear(main + other, main)

    def forward(self, main: Float[Tensor, "*r A"], other: Float[Tensor, "*r B"]) -> Float[Tensor, "*r C"]:
        gate = torch.sigmoid(self.gate(torch.cat([main, other], dim=-1)))
        result: Tensor = gate * main + (1 - gate) * self.project(other)
        return result


COMPOSITIONS: Table[Composition] = Table("compositions", {"concat": Concatenation, "sum": Sum, "gate": Gate})


def rows_per_source(rows: int, sources: int) -> int:
    """K, from N = B*K."""
    assert rows % sources == 0, (rows, sources)
    return rows // sources


def exact(values: Float[Tensor, "*r"]) -> Float[Tensor, "*r"]:
    """At least float32: a sum over a vocabulary in bf16 would keep three digits."""
    return values if values.dtype == torch.float64 else values.float()


def cells(most: int, like: Tensor) -> int:
    """How many cells of a large tensor may exist at once: on a GPU more, where it costs time to make them again."""
    return 4 * most if like.is_cuda else most


def spread(values: Shaped[Tensor, "B *d"], rows: int) -> Shaped[Tensor, "N *d"]:
    """Give every hypothesis its source's value: row b*K + k gets row b."""
    copies = rows_per_source(rows, values.shape[0])
    return values if copies == 1 else values.repeat_interleave(copies, dim=0)


def mean_of_real(states: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B D"]:
    """The mean over the real positions; zero where there are none."""
    real = mask[..., None].to(states.dtype)
    return (states * real).sum(1) / real.sum(1).clamp(min=1)


def nothing_behind(states: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
    """The same states, and nothing behind the end of each source."""
    return states.masked_fill(~mask[..., None], 0.0)


def halved(mask: Bool[Tensor, "B S"]) -> Bool[Tensor, "B H"]:
    """The mask after every two neighbours became one position: real where the first of them is."""
    return mask[:, ::2]

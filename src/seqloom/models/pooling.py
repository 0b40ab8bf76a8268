"""Pooling: a memory of any length becomes one vector, which an acceptor judges.

What lies behind the mask never matters. A source with nothing in it gives zeros (`last`: whatever its encoder starts
from).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from seqloom import config
from seqloom.config import Kind, Table
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Encoder, Memory
from seqloom.nn.layers import exact, mean_of_real
from seqloom.nn.scores import SCORES, Additive
from seqloom.nn.tape import tap
from seqloom.shapes import Float, States, Tensor

WEIGHTS = "pooling.weights"


class Pooling(nn.Module, ABC):
    """One vector of width `width` from a memory. Constructor keywords: `encoder`, and `query`, the width of a query."""

    width: int  # D of what it gives
    pooling_taps: tuple[str, ...] = ()  # taps of the weights over the memory: B H S

    @abstractmethod
    def forward(self, memory: Memory, query: Float[Tensor, "B Q"] | None = None) -> Float[Tensor, "B D"]: ...


class _Unasked(Pooling):
    """A pooling that no query can change."""

    def __init__(self, settings: config.Settings, *, encoder: Encoder, query: int | None = None) -> None:
        super().__init__()
        if query is not None:
            kind = config.kind_of(settings)
            raise SeqloomError(
                "E_RECIPE",
                f"{kind} pooling reads no query",
                where="model.pooling",
                fix="set pooling: attention, whose weights come from the query",
            )
        self.width = encoder.width


class Last(_Unasked):
    """h_n: the summary of the top layer. Of a recurrent encoder its last state, in both directions if it has two."""

    class Settings(config.Settings):
        kind: Literal["last"] = "last"

    def __init__(self, settings: Settings, *, encoder: Encoder, query: int | None = None) -> None:
        super().__init__(settings, encoder=encoder, query=query)
        self.width = encoder.summary_sizes[-1][0]

    def forward(self, memory: Memory, query: Float[Tensor, "B Q"] | None = None) -> Float[Tensor, "B D"]:
        return memory.summary[-1][0]


class Mean(_Unasked):
    """1/n sum_t s_t"""

    class Settings(config.Settings):
        kind: Literal["mean"] = "mean"

    def forward(self, memory: Memory, query: Float[Tensor, "B Q"] | None = None) -> Float[Tensor, "B D"]:
        return mean_of_real(_real(memory), memory.mask)


class Max(_Unasked):
    """max_t s_t, every feature where it is largest (Collobert and Weston 2008)"""

    class Settings(config.Settings):
        kind: Literal["max"] = "max"

    def forward(self, memory: Memory, query: Float[Tensor, "B Q"] | None = None) -> Float[Tensor, "B D"]:
        largest = memory.states.masked_fill(~memory.mask[..., None], -torch.inf).amax(1)
        return largest.masked_fill(~memory.mask.any(1, keepdim=True), 0.0)


class AttentionPooling(Pooling):
    """[c_1; ...; c_H], c_h = sum_t a_ht s_t, a_h = softmax_t(score(q_h, s_t)): what matters is looked at (Yang 2016).

    Without a query q_h are learned vectors, one question that every source is asked; an additive score is then the
    paper's v . tanh(W s_t + b), q_h being a part of b. With a query q_h = P_h query. Tap: `pooling.weights` (B H S).
    """

    pooling_taps = (WEIGHTS,)

    class Settings(config.Settings):
        kind: Literal["attention"] = "attention"
        heads: int = Field(1, ge=1)  # each looks in its own way; their contexts stand side by side
        score: Annotated[config.Settings, Kind(SCORES)] = Additive.Settings()

    def __init__(self, settings: Settings, *, encoder: Encoder, query: int | None = None) -> None:
        super().__init__()
        self.heads, self.width = settings.heads, settings.heads * encoder.width
        self.score = SCORES.build(settings.score, query=encoder.width, key=encoder.width)
        self.learned: nn.Parameter | None = None
        self.project: nn.Linear | None = None
        if query is None:
            self.learned = nn.Parameter(torch.empty(settings.heads, encoder.width))
            nn.init.normal_(self.learned, std=encoder.width**-0.5)
        else:
            self.project = nn.Linear(query, self.width, bias=False)

    def forward(self, memory: Memory, query: Float[Tensor, "B Q"] | None = None) -> Float[Tensor, "B D"]:
        states = _real(memory)  # B S D
        scores = exact(self.score(self._queries(states, query), self.score.keys(states)))  # B H S
        behind = ~memory.mask[:, None]  # B 1 S
        nothing = behind.all(-1, keepdim=True)  # no softmax of nothing: its weights become zero below
        weights = torch.softmax(scores.masked_fill(behind & ~nothing, -torch.inf), dim=-1).masked_fill(behind, 0.0)
        weights = tap(WEIGHTS, weights)
        return (weights.to(states.dtype) @ states).flatten(1)  # B HD

    def _queries(self, states: States, query: Float[Tensor, "B Q"] | None) -> Float[Tensor, "B H D"]:
        if self.learned is not None:
            assert query is None, "this pooling was built without a query"
            return self.learned.expand(len(states), -1, -1)
        assert query is not None, "this pooling was built for a query"
        assert self.project is not None
        queries: Tensor = self.project(query)
        return queries.view(len(query), self.heads, -1)


POOLINGS: Table[Pooling] = Table("poolings", {"last": Last, "mean": Mean, "max": Max, "attention": AttentionPooling})


def _real(memory: Memory) -> States:
    """States that are zero behind the mask, whatever stood there."""
    return memory.states.masked_fill(~memory.mask[..., None], 0.0)

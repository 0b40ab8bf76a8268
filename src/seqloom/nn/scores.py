"""Score functions: how well does a query fit each key? (dot, scaled dot, bilinear, additive)

`keys(memory)` is computed once per source; `forward(query, keys)` once per step. Queries come for N = B*K rows while
keys have B rows: hypotheses of one source share its keys and they are never copied. A score that reads `past` also
knows how much each position was attended to so far (coverage).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import nn

from seqloom import config
from seqloom.config import Table
from seqloom.errors import SeqloomError
from seqloom.nn.layers import rows_per_source
from seqloom.shapes import Float, Keys, Past, Query, States, Tensor, Weights

ADDITIVE_CELLS = 1 << 24  # a larger B x KT x S x A block is computed in pieces along the target


def by_source(query: Query, sources: int) -> Float[Tensor, "B KT Q"]:
    """Rows of one source side by side, so that one product serves all its hypotheses."""
    rows, steps, width = query.shape
    return query.reshape(sources, rows_per_source(rows, sources) * steps, width)


class Open(NamedTuple):
    """q . key, or v . tanh(q + key) where there is a `vector` v; q = Q h, or h itself."""

    keys: Keys
    query: Float[Tensor, "A D"] | None = None
    vector: Float[Tensor, "A"] | None = None


class ScoreFunction(nn.Module, ABC):
    """score(h, s) for every query h and memory state s."""

    reads_past: ClassVar[bool] = False  # True: built with `coverage`, its forward takes the sum of earlier weights

    @abstractmethod
    def keys(self, memory: States) -> Keys:
        """The part of the score that depends on the memory alone."""

    @abstractmethod
    def forward(self, query: Query, keys: Keys, past: Past | None = None) -> Weights: ...

    @property
    def laid_open(self) -> Callable[[Keys], Open] | None:
        """The same score as a loop that is written out (`unrolled.py`) makes it, for keys as `keys` gave them.

        None where no such loop can.
        """
        return None


class Dot(ScoreFunction):
    """h . s (Luong 2015)"""

    class Settings(config.Settings):
        kind: Literal["dot"] = "dot"

    def __init__(self, settings: config.Settings, *, query: int, key: int) -> None:
        super().__init__()
        if query != key:
            raise SeqloomError(
                "E_RECIPE",
                f"a dot product needs queries and keys of one width, got {query} and {key}",
                where="attention.score",
                fix="set attention.keys and attention.queries to linear, or use bilinear or additive",
            )

    def keys(self, memory: States) -> Keys:
        return memory

    def forward(self, query: Query, keys: Keys, past: Past | None = None) -> Weights:
        assert past is None, "a product of query and key has no place for what was attended to before"
        rows, steps, _ = query.shape
        scores = by_source(query, keys.shape[0]) @ keys.transpose(1, 2)  # B KT S
        return scores.reshape(rows, steps, keys.shape[1])  # N T S

    @property
    def laid_open(self) -> Callable[[Keys], Open] | None:
        return Open


class ScaledDot(Dot):
    """h . s / sqrt(d), d the width of the vectors that are multiplied (Vaswani 2017)"""

    class Settings(config.Settings):
        kind: Literal["scaled_dot"] = "scaled_dot"

    def forward(self, query: Query, keys: Keys, past: Past | None = None) -> Weights:
        return super().forward(query / math.sqrt(keys.shape[-1]), keys, past)

    @property
    def laid_open(self) -> Callable[[Keys], Open] | None:
        return lambda keys: Open(keys / math.sqrt(keys.shape[-1]))


class Bilinear(Dot):
    """h^T W s (Luong's "general"); with W = W_q^T W_k it equals linear queries and keys under a dot product."""

    class Settings(config.Settings):
        kind: Literal["bilinear"] = "bilinear"

    def __init__(self, settings: Settings, *, query: int, key: int) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Linear(key, query, bias=False)

    def keys(self, memory: States) -> Keys:
        projected: Tensor = self.weight(memory)
        return projected


class Additive(ScoreFunction):
    """v^T phi(W [h; s] + b), phi = tanh by default (Bahdanau 2015); W [h; s] = W_h h + W_s s.

    With coverage: v^T phi(W [h; s] + w_c past_s + b), past_s the sum of the earlier weights of s (Tu 2016, See 2017).
    """

    reads_past = True

    class Settings(config.Settings):
        kind: Literal["additive"] = "additive"
        width: int | None = Field(None, ge=1)  # of the hidden layer; the queries' width by default
        activation: Literal["tanh", "relu", "sigmoid"] = "tanh"

    def __init__(self, settings: Settings, *, query: int, key: int, coverage: bool = False) -> None:
        super().__init__()
        width = settings.width or query
        self.key = nn.Linear(key, width)
        self.query = nn.Linear(query, width, bias=False)
        self.vector = nn.Linear(width, 1, bias=False)
        self.coverage = nn.Linear(1, width, bias=False) if coverage else None
        self.activation = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}[settings.activation]

    def keys(self, memory: States) -> Keys:
        projected: Tensor = self.key(memory)
        return projected

    def forward(self, query: Query, keys: Keys, past: Past | None = None) -> Weights:
        rows, steps, _ = query.shape
        sources, positions, width = keys.shape
        queries = by_source(self.query(query), sources)  # B KT A
        piece = max(1, ADDITIVE_CELLS // max(1, sources * positions * width))
        scores = []
        for start in range(0, queries.shape[1], piece):
            hidden = queries[:, start : start + piece, None] + keys[:, None]  # B kt S A
            if past is not None:
                assert self.coverage is not None, "built without coverage"
                assert steps == 1, "the past of one step is not that of the next"
                seen = by_source(past[:, None], sources)[:, start : start + piece]  # B k S
                hidden = hidden + self.coverage(seen[..., None])
            scores.append(self.vector(self.activation(hidden)).squeeze(-1))  # B kt S
        return torch.cat(scores, dim=1).reshape(rows, steps, positions)

    @property
    def laid_open(self) -> Callable[[Keys], Open] | None:
        if self.coverage is not None or self.activation is not torch.tanh:
            return None
        return lambda keys: Open(keys, self.query.weight, self.vector.weight[0])


SCORES: Table[ScoreFunction] = Table(
    "scores", {"dot": Dot, "scaled_dot": ScaledDot, "bilinear": Bilinear, "additive": Additive}
)

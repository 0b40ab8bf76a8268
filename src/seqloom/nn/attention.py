"""Attention: scores become weights, weights a context (alpha = softmax(score), context = sum alpha_t value_t).

Keys, queries and values are chosen separately, one head or several, on any memory. What depends on the memory alone
is computed once, by `prepare`, and kept per source.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from seqloom.config import Kind, Settings
from seqloom.errors import SeqloomError
from seqloom.nn.layers import spread
from seqloom.nn.scores import SCORES, Additive, ScoreFunction, by_source
from seqloom.nn.tape import tap
from seqloom.nn.unrolled import Memories
from seqloom.shapes import Bool, Float, Mask, Past, Query, States, Tensor

Projection = Literal["identity", "linear", "relu"]


class AttentionSettings(Settings):
    """Keys, queries, values, heads: every combination is a recipe line."""

    score: Annotated[Settings, Kind(SCORES)] = Additive.Settings()
    keys: Projection = "identity"
    queries: Projection = "identity"
    values: Literal["identity", "linear"] = "identity"
    split: bool = False  # one state vector is [key; value]
    heads: int = Field(1, ge=1)
    merge: Literal["concat", "mean"] = "concat"  # heads see a slice each, or all of it and are averaged
    width: int | None = Field(None, ge=1)  # of projected keys, queries and values; the queries' width by default
    hard: bool = False  # at prediction, look at the best position only
    sampled: bool = False  # hard in training as well: one position, drawn from the weights (Xu et al. 2015)

    @model_validator(mode="after")
    def _heads_divide(self) -> AttentionSettings:
        if self.width is not None and self.width % self.heads:
            raise ValueError(f"heads: {self.heads} heads do not divide the width {self.width}")
        return self


def projection(kind: Projection, size: int, width: int) -> tuple[nn.Module, int]:
    """The module and its output width."""
    if kind == "identity":
        return nn.Identity(), size
    linear = nn.Linear(size, width, bias=False)
    return (linear if kind == "linear" else nn.Sequential(linear, nn.ReLU())), width


def _slice(width: int, heads: int, what: str) -> int:
    if width % heads:
        raise SeqloomError(
            "E_RECIPE",
            f"{heads} heads do not divide {what} of width {width}",
            where="attention.heads",
            fix=f"choose a divisor of {width}, or set attention.{what} to linear with a width that divides",
        )
    return width // heads


class Attention(nn.Module):
    """Queries (N T Q) against a memory (B S D) give contexts (N T `width`). Tap: `<name>` = weights (N H T S)."""

    def __init__(
        self,
        settings: AttentionSettings,
        *,
        query: int,
        memory: int,
        name: str = "attention",
        coverage: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.heads, self.merge = name, settings.heads, settings.merge
        self.hard, self.sampled = settings.hard or settings.sampled, settings.sampled
        if settings.split and memory % 2:
            raise SeqloomError("E_RECIPE", f"a memory of odd width {memory} cannot be split", where="attention.split")
        self.split = settings.split
        size = memory // 2 if settings.split else memory
        width = settings.width or query
        self.key, key_width = projection(settings.keys, size, width)
        self.query, query_width = projection(settings.queries, query, width)
        self.value, value_width = projection(settings.values, size, width)
        heads = self.heads
        sizes = {"query": _slice(query_width, heads, "queries"), "key": _slice(key_width, heads, "keys")}
        if coverage:  # only a score that reads the past has the keyword
            sizes["coverage"] = True
        self.scores = nn.ModuleList(SCORES.build(settings.score, **sizes) for _ in range(heads))
        if self.merge == "concat":
            _slice(value_width, heads, "values")
        self.width = value_width

    def prepare(self, states: States, mask: Mask) -> dict[str, Tensor]:
        """Everything that depends on the memory alone, one row per source: for `State.sources`."""
        keys_from, values_from = states.chunk(2, dim=-1) if self.split else (states, states)
        parts = self.key(keys_from).chunk(self.heads, dim=-1)
        prepared = {f"keys{head}": self._score(head).keys(part) for head, part in enumerate(parts)}
        return {**prepared, "values": self.value(values_from), "mask": mask}

    def _score(self, head: int) -> ScoreFunction:
        score = self.scores[head]
        assert isinstance(score, ScoreFunction)
        return score

    def forward(self, query: Query, prepared: dict[str, Tensor], causal: bool = False) -> Float[Tensor, "N T C"]:
        return self.attend(query, prepared, causal)[0]

    def attend(
        self, query: Query, prepared: dict[str, Tensor], causal: bool = False, past: Past | None = None
    ) -> tuple[Float[Tensor, "N T C"], Float[Tensor, "N H T S"]]:
        """Contexts, and the weights that made them; `past` is for a score that reads the sum of earlier weights."""
        weights = tap(self.name, self.weigh(query, prepared, causal, past))
        return self.contexts(weights, prepared["values"]), weights

    def weigh(
        self, query: Query, prepared: dict[str, Tensor], causal: bool = False, past: Past | None = None
    ) -> Float[Tensor, "N H T S"]:
        """The weights alone, before their tap: for whoever joins those of several memories."""
        queries = self.query(query).chunk(self.heads, dim=-1)
        scores = torch.stack(
            [self._score(head)(part, prepared[f"keys{head}"], past) for head, part in enumerate(queries)], dim=1
        )  # N H T S
        allowed = spread(prepared["mask"], query.shape[0])[:, None, None]  # N 1 1 S
        if causal:
            allowed = allowed & causal_mask(scores.shape[2], scores.shape[3], scores.device)
        weights = torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)
        if self.sampled and self.training:
            return drawn(weights)
        if self.hard and not self.training:
            weights = torch.zeros_like(weights).scatter(-1, weights.argmax(-1, keepdim=True), 1.0)
        return weights

    @property
    def closed(self) -> str | None:
        """Why no loop that is written out can make it (`unrolled.py`); None where one can."""
        reasons = {
            "several heads": self.heads > 1,
            "hard attention": self.hard,
            "projected queries": not isinstance(self.query, nn.Identity),
            "its score": self._score(0).laid_open is None,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def laid_open(self, prepared: dict[str, Tensor]) -> Memories:
        """The same attention, as such a loop makes it."""
        opened = self._score(0).laid_open
        assert opened is not None, "a score that no such loop can make"
        score = opened(prepared["keys0"])
        return Memories(score.keys, prepared["values"], ~prepared["mask"], score.query, score.vector)

    def contexts(self, weights: Float[Tensor, "N H T S"], values: States) -> Float[Tensor, "N T C"]:
        """sum_s weights_s values_s, head by head."""
        rows, _, steps, _ = weights.shape
        if self.merge == "mean":
            weights = weights.mean(1, keepdim=True)
        slices = values.chunk(weights.shape[1], dim=-1)  # H of B S C/H
        contexts = [by_source(weights[:, head], values.shape[0]) @ part for head, part in enumerate(slices)]
        return torch.cat(contexts, dim=-1).reshape(rows, steps, values.shape[2])


def drawn(weights: Float[Tensor, "N H T S"]) -> Float[Tensor, "N H T S"]:
    """One position of each row, drawn by its weights; gradients pass as if all had been looked at.

    The straight-through estimator (Bengio et al. 2013): biased, and with so little variance that it needs no baseline,
    which REINFORCE of Xu et al. (2015) does.
    """
    places = torch.multinomial(weights.detach().flatten(0, -2).float(), 1).view(*weights.shape[:-1], 1)
    one = torch.zeros_like(weights).scatter(-1, places, 1.0)
    return weights + (one - weights).detach()


def causal_mask(steps: int, positions: int, device: torch.device) -> Bool[Tensor, "T S"]:
    """Position t sees positions up to its own."""
    return torch.ones(steps, positions, dtype=torch.bool, device=device).tril()


class SelfAttention(nn.Module):
    """Intra-attention over an encoder's states: s_t + P context_t; each attends to all, or to those read so far."""

    class Settings(AttentionSettings):
        causal: bool = False

    def __init__(self, settings: Settings, *, width: int) -> None:
        super().__init__()
        self.causal = settings.causal
        self.attention = Attention(settings, query=width, memory=width, name="encoder.attention")
        self.project = nn.Linear(self.attention.width, width)

    def forward(self, states: States, mask: Mask) -> States:
        context = self.attention(states, self.attention.prepare(states, mask), causal=self.causal)
        mixed: Tensor = states + self.project(context)
        return mixed.masked_fill(~mask[..., None], 0.0)

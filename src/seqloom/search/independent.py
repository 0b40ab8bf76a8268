"""Strategies whose rows know nothing of each other: greedy search and sampling.

Temperature, top-k and constraints act on what is chosen, never on what is summed: `log_prob` stays the model's own.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from seqloom import config
from seqloom.search.contracts import Strategy
from seqloom.search.frontier import NEVER, Endings, Frontier, Offers, best
from seqloom.search.noise import uniforms
from seqloom.search.phrases import Phrases
from seqloom.shapes import Float, Int, Lengths, Tensor
from seqloom.specials import EOS


class Independent(Strategy):
    """Rows that choose for themselves: each picks one token per step, until it ends, dies or reaches the limit."""

    reorders = False

    @abstractmethod
    def choose(self, frontier: Frontier, candidates: Float[Tensor, "B K W"]) -> Int[Tensor, "B K"]:
        """One token per row; whatever it says of rows that have no candidate is ignored."""

    def begin(self, keys: Int[Tensor, "B"], limits: Lengths, phrases: Phrases | None = None) -> Frontier:
        return Frontier.begin(keys, limits, torch.zeros(len(limits), self.hypotheses, device=limits.device))

    def advance(self, frontier: Frontier, offers: Offers) -> Frontier:
        candidates = frontier.candidates(offers)
        tokens = self.choose(frontier, candidates)  # B K
        index = tokens + torch.arange(tokens.shape[1], device=tokens.device) * candidates.shape[2]
        totals = candidates.flatten(1).gather(1, index)
        chosen, advice = offers.taken(index)
        ends = (totals > NEVER) & (tokens == EOS)
        goes_on = (totals > NEVER) & ~ends & (frontier.lengths < frontier.limits)[:, None]
        stops = (frontier.totals > NEVER) & ~frontier.done[:, None] & ~goes_on
        old = frontier.endings
        endings = Endings(
            scores=torch.where(stops, torch.where(ends, totals, frontier.totals), old.scores),
            lengths=torch.where(stops, frontier.lengths[:, None], old.lengths),
            rows=frontier.parents,
            ends=torch.where(stops & ends, chosen, old.ends),
            advice=torch.where(stops & ends, advice, old.advice),
            truncated=torch.where(stops, ~ends, old.truncated),
        )
        return replace(
            frontier,
            lengths=frontier.lengths + goes_on.any(1),
            last=torch.where(goes_on, tokens, frontier.last),
            log_probs=torch.where(goes_on, chosen, 0),
            advice=torch.where(goes_on, advice, 0),
            totals=torch.where(goes_on, totals, NEVER),
            ended=frontier.ended + (stops & ends).sum(1, keepdim=True),
            endings=endings,
            done=~goes_on.any(1),
        )

    def end(self, frontier: Frontier) -> Endings:
        return frontier.endings


class Greedy(Independent):
    """The likeliest token at every step; of equals, the lower id."""

    steady = True

    class Settings(config.Settings):
        kind: Literal["greedy"] = "greedy"

    def __init__(self, settings: Settings) -> None:
        self.hypotheses = 1

    def choose(self, frontier: Frontier, candidates: Float[Tensor, "B K W"]) -> Int[Tensor, "B K"]:
        return candidates.argmax(-1)


class Sample(Independent):
    """Ancestral sampling: `samples` outputs per source, each token drawn from p(y_t | y_<t, x).

    `temperature`, then `top_k`, then `top_p` (the smallest set of tokens that holds this much probability) reshape
    what is drawn from; `log_prob` stays the model's. The draw depends on (seed, source, sample, step) only.
    """

    compares = False

    class Settings(config.Settings):
        kind: Literal["sample"] = "sample"
        samples: int = Field(default=1, ge=1, le=100_000)
        temperature: float = Field(default=1.0, ge=1e-3, le=1e3)  # beyond, float32 cannot tell tokens apart
        top_k: int | None = Field(default=None, ge=1)
        top_p: float = Field(default=1.0, ge=1e-6, le=1)
        seed: int = Field(default=0, ge=-(2**63), lt=2**63)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.hypotheses = settings.samples
        self.seed = settings.seed

    def choose(self, frontier: Frontier, candidates: Float[Tensor, "B K W"]) -> Int[Tensor, "B K"]:
        probabilities = self.reshaped(candidates.flatten(0, 1)).double()  # N W
        cumulative = probabilities.cumsum(-1)
        drawn = uniforms(frontier.keys, frontier.lengths, self.hypotheses).view(-1, 1)  # N 1
        tokens = torch.searchsorted(cumulative, drawn * cumulative[:, -1:], right=True)  # N 1
        return tokens.clamp(max=candidates.shape[-1] - 1).view(candidates.shape[:2])

    def reshaped(self, log_probs: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
        """The distribution that is drawn from; `log_probs` may be off by a constant per row."""
        log_probs = log_probs / self.settings.temperature
        top_k, top_p = self.settings.top_k, self.settings.top_p
        if top_k is None and top_p == 1:
            return log_probs.softmax(-1)
        if top_k is None:
            values, index = log_probs.sort(dim=1, descending=True, stable=True)
        else:
            values, index = best(log_probs, top_k)  # N R, best first
        largest = values.softmax(-1)
        before = largest.cumsum(1) - largest  # 0 for the first: one token always stays
        return torch.zeros_like(log_probs).scatter(1, index, largest * (before < top_p))

"""How a search goes on: greedy, beam, sample. Each advances a batched frontier by one step of log-probabilities.

A strategy sees numbers only: which rows live, what each token would add, what is allowed. It never calls a scorer (the
loop does), never sees a source, and never loops over rows. Log-probabilities stay the model's own throughout:
temperature, top-k and constraints act on the choice, not on what is summed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, model_validator

from seqloom import config
from seqloom.batch import EOS
from seqloom.config import Kind, Table
from seqloom.search.frontier import NEVER, Endings, Frontier, best
from seqloom.search.hypotheses import LENGTHS, Normalisation, Unnormalised
from seqloom.search.noise import uniforms
from seqloom.shapes import Bool, Float, Int, Lengths, StepLogProbs, Tensor


class Strategy(ABC):
    """begin -> frontier, advance(frontier, log_probs) -> frontier until every source is done, end -> endings."""

    hypotheses: int  # K rows per source
    seed: int = 0
    reorders: ClassVar[bool] = True  # False: a row only ever continues itself, so no state need be moved
    normalisation: Normalisation = Unnormalised(Unnormalised.Settings())

    @abstractmethod
    def begin(self, keys: Int[Tensor, "B"], limits: Lengths) -> Frontier: ...

    @abstractmethod
    def advance(self, frontier: Frontier, log_probs: StepLogProbs, allowed: Bool[Tensor, "#N W"]) -> Frontier:
        """One token further. Sources that are done stay as they are."""

    @abstractmethod
    def end(self, frontier: Frontier) -> Endings:
        """What to return, at least one hypothesis per source; asked once all its sources are done."""


class Independent(Strategy):
    """Rows that choose for themselves: each picks one token per step, until it ends, dies or reaches the limit."""

    reorders = False

    @abstractmethod
    def choose(self, frontier: Frontier, candidates: Float[Tensor, "B K W"]) -> Int[Tensor, "B K"]:
        """One token per row; whatever it says of rows that have no candidate is ignored."""

    def begin(self, keys: Int[Tensor, "B"], limits: Lengths) -> Frontier:
        totals = torch.zeros(len(limits), self.hypotheses, device=limits.device)
        return Frontier.begin(keys, limits, totals, self.hypotheses)

    def advance(self, frontier: Frontier, log_probs: StepLogProbs, allowed: Bool[Tensor, "#N W"]) -> Frontier:
        candidates = frontier.candidates(log_probs, allowed)
        tokens = self.choose(frontier, candidates)  # B K
        totals = candidates.gather(2, tokens[..., None])[..., 0]
        chosen = log_probs.view(candidates.shape).gather(2, tokens[..., None])[..., 0]
        ends = (totals > NEVER) & (tokens == EOS)
        goes_on = (totals > NEVER) & ~ends & (frontier.lengths < frontier.limits)[:, None]
        stops = (frontier.totals > NEVER) & ~frontier.done[:, None] & ~goes_on
        old = frontier.endings
        endings = Endings(
            scores=torch.where(stops, torch.where(ends, totals, frontier.totals), old.scores),
            lengths=torch.where(stops, frontier.lengths[:, None], old.lengths),
            rows=frontier.parents,
            ends=torch.where(stops & ends, chosen, old.ends),
            truncated=torch.where(stops, ~ends, old.truncated),
        )
        return replace(
            frontier,
            lengths=frontier.lengths + goes_on.any(1),
            last=torch.where(goes_on, tokens, frontier.last),
            log_probs=torch.where(goes_on, chosen, 0),
            totals=torch.where(goes_on, totals, NEVER),
            ended=frontier.ended + (stops & ends).sum(1),
            endings=endings,
            done=~goes_on.any(1),
        )

    def end(self, frontier: Frontier) -> Endings:
        return frontier.endings


class Greedy(Independent):
    """The likeliest token at every step; of equals, the lower id."""

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

    class Settings(config.Settings):
        kind: Literal["sample"] = "sample"
        samples: int = Field(default=1, ge=1)
        temperature: float = Field(default=1.0, gt=0)
        top_k: int | None = Field(default=None, ge=1)
        top_p: float = Field(default=1.0, gt=0, le=1)
        seed: int = 0

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


class Beam(Strategy):
    """Beam search with a pool of live and a pool of ended hypotheses.

    Each step looks at the 2K best of the K*W continuations. Those that end are accepted only if they stand among the
    first K: one that would not have stayed in the beam may not win by being short. The K best that go on stay live.

    stop: `finished` as soon as `finish` hypotheses (default K) have ended;
          `all` as soon as the K best of ended and live ones, by their present score, have all ended;
          `bound` as soon as no live hypothesis can still beat the worst of the `n_best` that are returned, whatever
          the model may say within the limit (log-probabilities must be <= 0).
    At the limit live hypotheses are returned, as truncated, only where fewer than `n_best` have ended.
    """

    class Settings(config.Settings):
        kind: Literal["beam"] = "beam"
        size: int = Field(default=5, ge=1)
        length: Annotated[config.Settings, Kind(LENGTHS)] = LENGTHS.settings("mean")
        n_best: int = Field(default=1, ge=1)
        stop: Literal["finished", "all", "bound"] = "finished"
        finish: int | None = Field(default=None, ge=1)

        @model_validator(mode="after")
        def _enough_hypotheses(self) -> Beam.Settings:
            if self.n_best > self.size:
                raise ValueError(f"n_best {self.n_best} is over the beam's size {self.size}")
            if self.finish is not None and self.finish < self.n_best:
                raise ValueError(f"finish {self.finish} is under n_best {self.n_best}")
            if self.finish is not None and self.stop != "finished":
                raise ValueError(f"finish has no meaning with stop: {self.stop}")
            return self

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.hypotheses = settings.size
        self.finish = settings.finish or settings.size
        self.normalisation = LENGTHS.build(settings.length)

    def begin(self, keys: Int[Tensor, "B"], limits: Lengths) -> Frontier:
        """One live row per source: K equal ones would fill the beam with copies."""
        totals = torch.full((len(limits), self.hypotheses), NEVER, device=limits.device)
        totals[:, 0] = 0
        return Frontier.begin(keys, limits, totals, self.hypotheses)

    def advance(self, frontier: Frontier, log_probs: StepLogProbs, allowed: Bool[Tensor, "#N W"]) -> Frontier:
        candidates = frontier.candidates(log_probs, allowed)  # B K W
        totals, index = best(candidates.flatten(1), 2 * self.hypotheses)  # B 2K
        parents, tokens = index // candidates.shape[2], index % candidates.shape[2]
        chosen = log_probs.view(len(totals), -1).gather(1, index)

        ends = (tokens == EOS) & (totals > NEVER)
        ends[:, self.hypotheses :] = False
        frontier = self._collect(frontier, totals, parents, chosen, ends)

        live, order = totals.masked_fill(tokens == EOS, NEVER).sort(dim=1, descending=True, stable=True)
        live, order = live[:, : self.hypotheses], order[:, : self.hypotheses]  # B K
        goes_on = (live[:, 0] > NEVER) & (frontier.lengths < frontier.limits)
        moved = goes_on[:, None]
        rows = torch.arange(self.hypotheses, device=live.device).expand(live.shape)
        left = frontier.totals.masked_fill(_marked(parents, ends, self.hypotheses), NEVER)
        frontier = replace(
            frontier,
            lengths=frontier.lengths + goes_on,
            parents=torch.where(moved, parents.gather(1, order), rows),
            last=torch.where(moved, tokens.gather(1, order), frontier.last),
            log_probs=torch.where(moved, chosen.gather(1, order), 0),
            totals=torch.where(moved, live, left),  # where nothing goes on, what was live and did not end is truncated
        )
        return replace(frontier, done=frontier.done | ~goes_on | self._may_stop(frontier))

    def _collect(
        self,
        frontier: Frontier,
        totals: Float[Tensor, "B M"],
        parents: Int[Tensor, "B M"],
        log_probs: Float[Tensor, "B M"],
        ends: Bool[Tensor, "B M"],
    ) -> Frontier:
        """Put the candidates that end into the pool, which keeps the K best."""
        lengths = frontier.lengths[:, None].expand(totals.shape)
        scores = self.normalisation.score(totals, lengths).masked_fill(~ends, NEVER)
        found = Endings(scores, lengths, parents, log_probs, torch.zeros_like(ends))
        endings = frontier.endings.best(found, self.hypotheses)
        return replace(frontier, endings=endings, ended=frontier.ended + ends.sum(1))

    def _may_stop(self, frontier: Frontier) -> Bool[Tensor, "B"]:
        if self.settings.stop == "finished":
            return frontier.ended >= self.finish
        top = frontier.totals.amax(1)
        if self.settings.stop == "all":
            return frontier.endings.scores[:, -1] >= self.normalisation.score(top, frontier.lengths)
        return frontier.endings.scores[:, self.settings.n_best - 1] >= self.normalisation.bound(top, frontier.limits)

    def end(self, frontier: Frontier) -> Endings:
        lengths = frontier.lengths[:, None].expand(frontier.totals.shape)
        scores = self.normalisation.score(frontier.totals, lengths)
        rows = torch.arange(self.hypotheses, device=lengths.device).expand(lengths.shape)
        live = Endings(scores, lengths, rows, torch.zeros_like(scores), torch.ones_like(lengths).bool())
        return frontier.endings.best(live, self.settings.n_best)


def _marked(rows: Int[Tensor, "B M"], marks: Bool[Tensor, "B M"], count: int) -> Bool[Tensor, "B K"]:
    """True for each of `count` rows that some mark points to."""
    return torch.zeros(len(rows), count + 1, dtype=torch.bool, device=rows.device).scatter(
        1, torch.where(marks, rows, count), True
    )[:, :count]


STRATEGIES: Table[Strategy] = Table("strategies", {"greedy": Greedy, "beam": Beam, "sample": Sample})

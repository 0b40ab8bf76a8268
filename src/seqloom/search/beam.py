"""Beam search: the K best hypotheses of each source live, side by side, until enough of them have ended.

`Beam.moved` is the one step that all beams share: candidates in order of preference end or go on. A beam of another
kind (diverse, lexical) only brings another order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, model_validator

from seqloom import config
from seqloom.config import Kind
from seqloom.search.contracts import Strategy
from seqloom.search.frontier import NEVER, Endings, Frontier, Offers, best
from seqloom.search.hypotheses import LENGTHS
from seqloom.search.phrases import Phrases
from seqloom.shapes import Bool, Float, Int, Lengths, Tensor
from seqloom.specials import EOS

MOST_HYPOTHESES = 100_000  # of one source


class BeamSettings(config.Settings):
    """Keys that all beams share."""

    size: int = Field(default=5, ge=1, le=MOST_HYPOTHESES)
    length: Annotated[config.Settings, Kind(LENGTHS)] = LENGTHS.settings("mean")
    n_best: int = Field(default=1, ge=1)
    stop: Literal["finished", "all", "bound"] = "finished"
    finish: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _enough_hypotheses(self) -> BeamSettings:
        if self.n_best > self.size:
            raise ValueError(f"n_best {self.n_best} is over the beam's size {self.size}")
        if self.finish is not None and self.finish < self.n_best:
            raise ValueError(f"finish {self.finish} is under n_best {self.n_best}")
        if self.finish is not None and self.stop != "finished":
            raise ValueError(f"finish has no meaning with stop: {self.stop}")
        return self


class Candidates(NamedTuple):
    """Continuations that may end: of which row, what their token adds, and whether they do."""

    parents: Int[Tensor, "B K"]
    log_probs: Float[Tensor, "B K"]
    advice: Float[Tensor, "B K"]
    ends: Bool[Tensor, "B K"]


class Beam(Strategy):
    """Beam search with a pool of live and a pool of ended hypotheses.

    Each step looks at the 2K best of the K*W continuations. Those that end are accepted only if they stand among the
    first K: one that would not have stayed in the beam may not win by being short. The K best that go on stay live.

    stop: `finished` as soon as `finish` hypotheses have ended; where `finish` is not given, as soon as K have and none
          that lives is more probable than all of them (on a small vocabulary K poor ones may end before a good one);
          `all` as soon as the K best of ended and live ones, by their present score, have all ended;
          `bound` as soon as no live hypothesis can still beat the worst of the `n_best` that are returned, whatever
          the model may say within the limit (log-probabilities must be <= 0).
    At the limit live hypotheses are returned, as truncated, only where fewer than `n_best` have ended.
    """

    steady = True

    class Settings(BeamSettings):
        kind: Literal["beam"] = "beam"

    def __init__(self, settings: BeamSettings, retires: bool = False) -> None:
        """`retires`: what is cut off is put away while other beams go on, and stands in the pool beside what ended."""
        self.settings, self.retires = settings, retires
        self.hypotheses = settings.size
        self.finish = settings.finish or settings.size
        self.normalisation = LENGTHS.build(settings.length)

    def begin(self, keys: Int[Tensor, "B"], limits: Lengths, phrases: Phrases | None = None) -> Frontier:
        """One live row per source: K equal ones would fill the beam with copies."""
        totals = torch.full((len(limits), self.hypotheses), NEVER, device=limits.device)
        totals[:, 0] = 0
        return Frontier.begin(keys, limits, totals)

    def advance(self, frontier: Frontier, offers: Offers) -> Frontier:
        candidates = frontier.candidates(offers)  # B K W
        return self.moved(frontier, offers, *best(candidates.flatten(1), 2 * self.hypotheses))

    def moved(
        self, frontier: Frontier, offers: Offers, totals: Float[Tensor, "B M"], index: Int[Tensor, "B M"]
    ) -> Frontier:
        """Candidates in order of preference: the first K may end, the first K that do not end go on.

        `index` counts through a source's rows, token by token; a total of -inf is no candidate.
        """
        width, first = offers.log_probs.shape[1], slice(self.hypotheses)
        parents, tokens = index // width, index % width
        chosen, advice = offers.taken(index)
        possible, is_end = totals > NEVER, tokens == EOS
        others = possible & ~is_end
        if others.device.type == "cpu" and bool(others.all() & (frontier.lengths < frontier.limits).all()):
            frontier = replace(  # most often no candidate ends; to ask a GPU would cost more than to go through it all
                frontier,
                lengths=frontier.lengths + 1,
                parents=parents[:, first],
                last=tokens[:, first],
                log_probs=chosen[:, first],
                advice=advice[:, first],
                totals=totals[:, first],
            )
            return replace(frontier, done=self._may_stop(frontier))

        ends = possible[:, first] & is_end[:, first]  # B K
        if ends.device.type != "cpu" or bool(ends.any()):
            those = Candidates(parents[:, first], chosen[:, first], advice[:, first], ends)
            frontier = self._collected(frontier, totals[:, first], those)
        order = others.sort(dim=1, descending=True, stable=True).indices[:, first]  # B K
        live = torch.where(others, totals, NEVER).gather(1, order)
        goes_on = (live[:, 0] > NEVER) & (frontier.lengths < frontier.limits)
        moves = goes_on[:, None]
        rows = torch.arange(self.hypotheses, device=live.device).expand(live.shape)
        left = frontier.totals.masked_fill(_marked(parents[:, first], ends, self.hypotheses), NEVER)
        if offers.advice is not None:
            advised = torch.where(moves, advice.gather(1, order), 0)
        frontier = replace(
            frontier,
            lengths=frontier.lengths + goes_on,
            parents=torch.where(moves, parents.gather(1, order), rows),
            last=torch.where(moves, tokens.gather(1, order), frontier.last),
            log_probs=torch.where(moves, chosen.gather(1, order), 0),
            advice=frontier.advice if offers.advice is None else advised,
            totals=torch.where(moves, live, left),  # where nothing goes on, what was live and did not end is truncated
        )
        return replace(frontier, done=frontier.done | ~goes_on | self._may_stop(frontier))

    def _collected(self, frontier: Frontier, totals: Float[Tensor, "B K"], those: Candidates) -> Frontier:
        """Put the candidates that end into the pool, which keeps the K best."""
        lengths = frontier.lengths[:, None].expand(totals.shape)
        scores = torch.where(those.ends, self.normalisation.score(totals, lengths), NEVER)
        known = frontier.endings
        found = Endings(scores, lengths, those.parents, those.log_probs, those.advice, torch.zeros_like(those.ends))
        endings = known.best(found, self.hypotheses) if self.retires else known.best_ended(found, self.hypotheses)
        return replace(frontier, endings=endings, ended=frontier.ended + those.ends.sum(1, keepdim=True))

    def _may_stop(self, frontier: Frontier) -> Bool[Tensor, "B"]:
        top = frontier.totals.amax(1)
        if self.settings.stop == "finished":
            enough = frontier.ended[:, 0] >= self.finish
            if self.settings.finish is not None:
                return enough
            ended = self.normalisation.log_prob(frontier.endings.scores, frontier.endings.lengths).amax(1)
            return enough & (ended >= top)
        if self.settings.stop == "all":
            return frontier.endings.scores[:, -1] >= self.normalisation.live(top, frontier.lengths)
        return frontier.endings.scores[:, self.settings.n_best - 1] >= self.normalisation.bound(top, frontier.limits)

    def retired(self, frontier: Frontier) -> Frontier:
        """Where a source is done, its live hypotheses take the places that no ended one has, as truncated."""
        done = frontier.done[:, None]
        totals = frontier.totals.masked_fill(~done, NEVER)
        lengths = frontier.lengths[:, None].expand(totals.shape)
        rows = torch.arange(self.hypotheses, device=lengths.device).expand(lengths.shape)
        nothing = torch.zeros_like(totals)
        live = Endings(
            self.normalisation.score(totals, lengths), lengths, rows, nothing, nothing, torch.ones_like(lengths).bool()
        )
        return replace(
            frontier,
            endings=frontier.endings.best(live, self.hypotheses),
            totals=frontier.totals.masked_fill(done, NEVER),
        )

    def end(self, frontier: Frontier) -> Endings:
        return self.retired(frontier).endings.first(self.settings.n_best)


def _marked(rows: Int[Tensor, "B M"], marks: Bool[Tensor, "B M"], count: int) -> Bool[Tensor, "B K"]:
    """True for each of `count` rows that some mark points to."""
    return torch.zeros(len(rows), count + 1, dtype=torch.bool, device=rows.device).scatter(
        1, torch.where(marks, rows, count), True
    )[:, :count]

"""Diverse beam search (Vijayakumar et al. 2016): groups of hypotheses that keep out of each other's way.

Each group is a beam of its own. At every step the groups choose one after the other, and a token costs `penalty` for
every time that an earlier group has just taken it (Hamming diversity). The penalty acts on that choice and on nothing
else: totals, scores and `log_prob` do not know of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field, model_validator

from seqloom.search.beam import MOST_HYPOTHESES, Beam, BeamSettings
from seqloom.search.contracts import Strategy
from seqloom.search.frontier import NEVER, Endings, Frontier, Offers, best
from seqloom.search.phrases import Phrases
from seqloom.shapes import Float, Int, Lengths, Tensor


class Diverse(Strategy):
    """`groups` beams of `size` / `groups` hypotheses; one group is plain beam search.

    `stop` and `finish` hold for each group (by default it stops when as many have ended as it has rows). The best of
    every group are wanted first, by score, then the second best of each, until `n_best` different ones are found; they
    are returned by score, like any others.
    """

    class Settings(BeamSettings):
        kind: Literal["diverse"] = "diverse"
        size: int = Field(default=6, ge=1, le=MOST_HYPOTHESES)
        groups: int = Field(default=3, ge=1)
        penalty: float = Field(default=0.5, ge=0)

        @model_validator(mode="after")
        def _equal_groups(self) -> Diverse.Settings:
            if self.size % self.groups:
                fitting = ", ".join(str(n) for n in range(1, self.size + 1) if self.size % n == 0)
                raise ValueError(f"groups: {self.groups} does not divide the beam's size {self.size}; one of {fitting}")
            return self

    def __init__(self, settings: Settings) -> None:
        self.groups, self.penalty = settings.groups, settings.penalty
        self.hypotheses, self.keep = settings.size, settings.n_best
        shared = {name: value for name, value in dict(settings).items() if name in BeamSettings.model_fields}
        own = -(-settings.n_best // settings.groups)  # of each group, rounded up
        shared |= {"size": settings.size // settings.groups, "n_best": own}
        self.beam = Beam(Beam.Settings.model_validate(shared), retires=True)
        self.normalisation = self.beam.normalisation

    def begin(self, keys: Int[Tensor, "B"], limits: Lengths, phrases: Phrases | None = None) -> Frontier:
        totals = torch.full((len(limits), self.hypotheses), NEVER, device=limits.device)
        totals[:, :: self.beam.hypotheses] = 0  # one live row per group
        return Frontier.begin(keys, limits, totals, self.groups)

    def advance(self, frontier: Frontier, offers: Offers) -> Frontier:
        taken = offers.log_probs.new_zeros(len(frontier.done), offers.log_probs.shape[1])  # B W, how often by others
        groups = []
        for number in range(self.groups):
            group = self._group(frontier, number)
            moved = self._advanced(group, offers.of_rows(*self._rows(number), len(taken)), taken)
            live = (moved.totals > NEVER) & (moved.lengths > group.lengths)[:, None]
            taken = taken.scatter_add(1, moved.last, live.to(taken.dtype))
            groups.append(moved)
        return self._joined(frontier, groups)

    def _advanced(self, group: Frontier, offers: Offers, taken: Float[Tensor, "B W"]) -> Frontier:
        """One step of one group, which others have made some tokens dear to."""
        candidates = group.candidates(offers)
        index = best((candidates - self.penalty * taken[:, None]).flatten(1), 2 * self.beam.hypotheses)[1]
        moved = self.beam.moved(group, offers, candidates.flatten(1).gather(1, index), index)
        return self.beam.retired(moved)  # other groups go on: what is left of this one is put away

    def _rows(self, number: int) -> tuple[int, int]:
        return number * self.beam.hypotheses, (number + 1) * self.beam.hypotheses

    def _group(self, frontier: Frontier, number: int) -> Frontier:
        """One group as a beam sees it: rows counted from 0, done when none of them lives."""
        first, last = self._rows(number)
        endings = Endings(*(values[:, first:last] for values in frontier.endings))
        totals = frontier.totals[:, first:last]
        return replace(
            frontier,
            parents=frontier.parents[:, first:last] - first,
            last=frontier.last[:, first:last],
            log_probs=frontier.log_probs[:, first:last],
            advice=frontier.advice[:, first:last],
            totals=totals,
            ended=frontier.ended[:, number : number + 1],
            endings=endings._replace(rows=endings.rows - first),
            done=(totals == NEVER).all(1),
        )

    def _joined(self, frontier: Frontier, groups: list[Frontier]) -> Frontier:
        firsts = [self._rows(number)[0] for number in range(self.groups)]
        endings = [
            group.endings._replace(rows=group.endings.rows + first) for group, first in zip(groups, firsts, strict=True)
        ]
        return replace(
            frontier,
            lengths=torch.stack([group.lengths for group in groups]).amax(0),
            parents=torch.cat([group.parents + first for group, first in zip(groups, firsts, strict=True)], 1),
            last=torch.cat([group.last for group in groups], 1),
            log_probs=torch.cat([group.log_probs for group in groups], 1),
            advice=torch.cat([group.advice for group in groups], 1),
            totals=torch.cat([group.totals for group in groups], 1),
            ended=torch.cat([group.ended for group in groups], 1),
            endings=Endings(*(torch.cat(parts, 1) for parts in zip(*endings, strict=True))),
            done=torch.stack([group.done for group in groups]).all(0),
        )

    def end(self, frontier: Frontier) -> Endings:
        """The best of every group by score, then the second of every group, ...; those cut off behind all others."""
        sources, places = frontier.endings.scores.shape
        rounds = frontier.endings.scores.view(sources, self.groups, -1)  # B G K/G, each group's best first
        by_score = rounds.sort(dim=1, descending=True, stable=True).indices * rounds.shape[2]
        order = (by_score + torch.arange(rounds.shape[2], device=by_score.device)).transpose(1, 2).reshape(-1, places)
        endings = Endings(*(values.gather(1, order) for values in frontier.endings))
        cut_off = endings.truncated | (endings.scores == NEVER)
        ended_first = cut_off.sort(dim=1, stable=True).indices
        return Endings(*(values.gather(1, ended_first) for values in endings))

"""Given outputs under a search's own eyes: what the scorer, the advice and the constraints say of each of their tokens.

A search is walked along outputs that somebody else chose, so that whatever search can step (a model, an ensemble, a
shortlist, with advice, a prefix, a pattern) answers for a reference exactly as it does for a hypothesis. Nothing here
compares outputs or judges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch

from seqloom.batch import Source, Tokens
from seqloom.models.contracts import Scorer
from seqloom.search.frontier import Offers
from seqloom.search.hypotheses import Normalisation
from seqloom.search.loop import Walk, Wishes
from seqloom.search.phrases import Wanted
from seqloom.search.strategies import Greedy
from seqloom.shapes import Float, Int, Tensor
from seqloom.specials import EOS


@dataclass(frozen=True)
class Forced:
    """One output of T tokens and its end, token by token; `allowed` says where search was free to say so."""

    tokens: tuple[int, ...]  # T, without the end
    log_probs: tuple[float, ...]  # T + 1, the last is that of the end
    ranks: tuple[int, ...]  # T + 1; 1: no token is more probable
    allowed: tuple[bool, ...]  # T + 1
    advice: float  # what advice added in all
    limit: int  # tokens that an output to this source may have
    phrases: bool = True  # whether it holds all that must occur

    @property
    def log_prob(self) -> float:
        return sum(self.log_probs)

    def score(self, normalisation: Normalisation) -> float:
        """What search would have ranked it by."""
        total = torch.tensor(self.log_prob + self.advice, dtype=torch.float64)
        return float(normalisation.score(total, torch.tensor(len(self.tokens))))

    @property
    def reachable(self) -> bool:
        """Could search have said it? Within the limit, held back by no constraint, and of a probability at all."""
        within = len(self.tokens) <= self.limit and all(self.allowed) and self.phrases
        return within and self.log_prob + self.advice > float("-inf")


@torch.inference_mode()
def forced(
    scorer: Scorer, sources: Mapping[str, Source], outputs: Sequence[Sequence[int]], wishes: Wishes
) -> list[Forced]:
    """Every source's given output (without its end), as a search with these wishes would have met it."""
    walk = Walk(scorer, sources, Greedy.Settings(), replace(wishes, phrases=None))
    limits = walk.frontier.limits.tolist()
    device = walk.frontier.limits.device
    columns: list[_Column] = []
    for wanted in Tokens.pad([[*output, EOS] for output in outputs], fill=EOS).ids.T.to(device):
        columns.append(_column(walk.offers(), wanted))
        walk.frontier = replace(walk.frontier, last=wanted[:, None])
        walk.steps += 1
    log_probs, advice, ranks, allowed = (torch.stack(part, 1).tolist() for part in zip(*columns, strict=True))
    needed = wishes.phrases or []
    return [
        Forced(
            tokens=tuple(output),
            log_probs=tuple(log_probs[row][: len(output) + 1]),
            ranks=tuple(ranks[row][: len(output) + 1]),
            allowed=tuple(allowed[row][: len(output) + 1]),
            advice=sum(advice[row][: len(output) + 1]),
            limit=limits[row],
            phrases=_holds(output, phrases or ()),
        )
        for row, (output, phrases) in enumerate(zip_longest(outputs, needed))
    ]


_Column = tuple[Float[Tensor, "N"], Float[Tensor, "N"], Int[Tensor, "N"], Tensor]


def _column(offers: Offers, wanted: Int[Tensor, "N"]) -> _Column:
    """(log-probability, advice, rank, allowed) of one token per row."""
    log_probs, advice = (values[:, 0] for values in offers.taken(wanted[:, None]))
    ranks = (offers.log_probs > log_probs[:, None]).sum(1) + 1
    allowed = offers.allowed.expand(len(wanted), -1).gather(1, wanted[:, None])[:, 0]
    return log_probs.double(), advice.double(), ranks, allowed


def _holds(output: Sequence[int], phrases: Wanted | Sequence[Sequence[int]]) -> bool:
    """Does every phrase stand somewhere in the output?"""
    return all(
        any(tuple(output[start : start + len(phrase)]) == tuple(phrase) for start in range(len(output)))
        for phrase in phrases
    )

"""Where a batched search stands: the live hypotheses, those that ended, and the trail to read them back from.

All of it is tensors with B sources in front, so that one tree map drops finished sources. Hypotheses are not carried
as growing sequences: each step writes down which row continued which (parent, token, log-probability), and the trail is
walked backwards once, at the end. Nothing here decides what is a good hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch

from seqloom.batch import BOS
from seqloom.search.hypotheses import Hypothesis, Normalisation
from seqloom.shapes import Bool, Float, Int, Lengths, Rows, StepLogProbs, Tensor

NEVER = float("-inf")
Place = tuple[list[int], list[float], float, float, int, float, bool]


class Endings(NamedTuple):
    """Where hypotheses stop on the trail: after `lengths` tokens, on row `rows` of their source.

    `ends` is the log-probability of EOS (0 if truncated). A score of -inf marks an empty place.
    """

    scores: Float[Tensor, "B R"]
    lengths: Int[Tensor, "B R"]
    rows: Int[Tensor, "B R"]
    ends: Float[Tensor, "B R"]
    truncated: Bool[Tensor, "B R"]

    @staticmethod
    def none(sources: int, places: int, device: torch.device) -> Endings:
        zeros = torch.zeros(sources, places, dtype=torch.long, device=device)
        return Endings(torch.full(zeros.shape, NEVER, device=device), zeros, zeros, zeros.float(), zeros.bool())

    def best(self, others: Endings, count: int) -> Endings:
        """The `count` best of both: those that ended before those cut off, then by score, then the earlier."""
        both = Endings(*(torch.cat(pair, 1) for pair in zip(self, others, strict=True)))
        by_score = both.scores.sort(dim=1, descending=True, stable=True).indices
        cut_off = (both.truncated | (both.scores == NEVER)).gather(1, by_score)
        ranks = by_score.gather(1, cut_off.sort(dim=1, stable=True).indices)[:, :count]
        return Endings(*(values.gather(1, ranks) for values in both))

    @staticmethod
    def joined(parts: Sequence[Endings]) -> Endings:
        """Several groups of sources one after the other."""
        return Endings(*(torch.cat(values) for values in zip(*parts, strict=True)))

    def only(self, places: Int[Tensor, "b"]) -> Endings:
        """Those of some of the sources."""
        return Endings(*(values.index_select(0, places) for values in self))


@dataclass(frozen=True)
class Frontier:
    """One moment of a search over B sources with K rows each; row k of source b is row b*K + k of the scorer.

    `parents`, `last` and `log_probs` say what the last step did: row k continued row `parents[k]` with token `last[k]`.
    `totals` are sums of log-probabilities, -inf for rows that do not live. A source that is `done` no longer changes.
    """

    sources: Int[Tensor, "B"]  # their places in the call
    keys: Int[Tensor, "B"]  # what randomness is drawn from
    limits: Int[Tensor, "B"]
    lengths: Int[Tensor, "B"]  # tokens of the live hypotheses
    parents: Int[Tensor, "B K"]
    last: Int[Tensor, "B K"]
    log_probs: Float[Tensor, "B K"]
    totals: Float[Tensor, "B K"]
    ended: Int[Tensor, "B"]  # how many ended so far, also those that were not kept
    endings: Endings
    done: Bool[Tensor, "B"]

    @staticmethod
    def begin(keys: Int[Tensor, "B"], limits: Lengths, totals: Float[Tensor, "B K"], places: int) -> Frontier:
        """Nothing read but BOS; `totals` says which rows live."""
        count = torch.zeros_like(limits)
        parents = torch.arange(totals.shape[1], device=totals.device).expand(totals.shape)
        return Frontier(
            sources=torch.arange(len(limits), device=limits.device),
            keys=keys,
            limits=limits,
            lengths=count,
            parents=parents,
            last=torch.full_like(parents, BOS),
            log_probs=torch.zeros_like(totals),
            totals=totals,
            ended=count,
            endings=Endings.none(len(limits), places, limits.device),
            done=count.bool(),
        )

    def only(self, places: Int[Tensor, "b"]) -> Frontier:
        """Some of the sources."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "endings"}
        chosen = {name: tensor.index_select(0, places) for name, tensor in tensors.items()}
        return Frontier(endings=self.endings.only(places), **chosen)

    @property
    def parent_rows(self) -> Rows:
        """Rows of the scorer's state that the present rows continue."""
        first = torch.arange(len(self.parents), device=self.parents.device) * self.parents.shape[1]
        return (first[:, None] + self.parents).flatten()

    def candidates(self, log_probs: StepLogProbs, allowed: Bool[Tensor, "#N W"]) -> Float[Tensor, "B K W"]:
        """Summed log-probability of every continuation; -inf where the row is dead or the token is not allowed.

        Constraints act here and nowhere else: they take candidates away and never change a log-probability.
        """
        live = self.totals.masked_fill(self.done[:, None], NEVER)
        sums = (live.flatten()[:, None] + log_probs).masked_fill_(~allowed, NEVER)  # N W
        return sums.view(*self.totals.shape, -1)


def best(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """The `count` largest of each row, best first; of equal values the earlier index wins, in any batch.

    `topk` alone promises nothing about equals, so one value more is looked at: only where the cut falls between
    equals is the row sorted in full.
    """
    count = min(count, values.shape[1])
    top, index = values.topk(min(count + 1, values.shape[1]))
    tied = (top[:, count - 1] == top[:, -1]) & (top[:, -1] > NEVER) if top.shape[1] > count else None
    index, order = index[:, :count].sort(1)
    top, order = top[:, :count].gather(1, order).sort(dim=1, descending=True, stable=True)
    index = index.gather(1, order)
    if tied is not None and tied.any():
        full = values[tied].sort(dim=1, descending=True, stable=True)
        top[tied], index[tied] = full.values[:, :count], full.indices[:, :count]
    return top, index


class Trail:
    """Every step's (parent, token, log-probability) for all sources of the call, also those that have left."""

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._steps: list[tuple[Tensor, Tensor, Tensor]] = []  # each B K

    def record(self, frontier: Frontier) -> None:
        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(self._sources, values.shape[1]).index_copy_(0, frontier.sources, values)

        self._steps.append((spread(frontier.parents), spread(frontier.last), spread(frontier.log_probs)))

    def read(self, endings: Endings, normalisation: Normalisation) -> list[list[Hypothesis]]:
        """The hypotheses of every source, best first: walked backwards from where they stopped, all at once."""
        rows, lengths = endings.rows, endings.lengths  # B R
        tokens, log_probs = [], []
        for step in range(len(self._steps) - 1, -1, -1):
            parents, token, log_prob = self._steps[step]  # B K
            inside = step < lengths
            tokens.append(token.gather(1, rows))
            log_probs.append(torch.where(inside, log_prob.gather(1, rows), 0))
            rows = torch.where(inside, parents.gather(1, rows), rows)
        all_tokens = torch.stack(tokens[::-1], -1)  # B R T
        all_log_probs = torch.stack(log_probs[::-1], -1).double()  # B R T
        totals = all_log_probs.sum(-1) + endings.ends
        scores = normalisation.score(totals, lengths)
        columns = (all_tokens, all_log_probs, totals, scores, lengths, endings.ends, endings.truncated)
        plain = zip(*(column.tolist() for column in columns), strict=True)  # the one transfer of a search
        real = (endings.scores > NEVER).tolist()
        return [_ranked(zip(*source, strict=True), there) for source, there in zip(plain, real, strict=True)]


def _ranked(places: Iterable[Place], real: Iterable[bool]) -> list[Hypothesis]:
    """The hypotheses of one source from plain numbers: those that ended first, then by score."""
    found = []
    for (tokens, log_probs, total, score, length, end, truncated), there in zip(places, real, strict=True):
        if there:
            terms = log_probs[:length] if truncated else [*log_probs[:length], end]
            found.append(Hypothesis(tuple(tokens[:length]), tuple(terms), total, score, truncated))
    return sorted(found, key=lambda one: (one.truncated, -one.score))

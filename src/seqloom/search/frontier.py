"""Where a batched search stands: the live hypotheses, those that ended, and the trail to read them back from.

All of it is tensors with B sources in front, so that one tree map drops finished sources. Hypotheses are not carried
as growing sequences: each step writes down which row continued which (parent, token, log-probability), and the trail is
walked backwards once, at the end. Nothing here decides what is a good hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import torch
from torch.nn import functional as F

from seqloom.search.hypotheses import Hypothesis, Normalisation
from seqloom.shapes import Bool, Float, Int, Lengths, Rows, StepLogProbs, Tensor
from seqloom.specials import BOS

NEVER = float("-inf")
BLOCK, MANY_BLOCKS = 64, 8  # cells of a row that are looked at together, and how many times more blocks than wanted
SORTED = 2048  # cells of a row that a GPU sorts at once
PLACES = 31  # bits that say where a value stands in its row
LOWEST = -(2**31)  # the bits of minus zero
Place = tuple[list[int], list[float], float, float, float, int, float, bool]


class Offers(NamedTuple):
    """What a step offers every row: the model's own log-probabilities, which tokens are allowed, and advice.

    Advice (a weighted language model) is added when hypotheses are compared, and never to `log_prob`.
    """

    log_probs: StepLogProbs
    allowed: Bool[Tensor, "#N W"]
    advice: StepLogProbs | None = None

    @property
    def merits(self) -> StepLogProbs:
        """What continuations are compared by."""
        return self.log_probs if self.advice is None else self.log_probs + self.advice

    def taken(self, index: Int[Tensor, "B M"]) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M"]]:
        """(log-probability, advice) of some continuations; an index counts through a source's rows, token by token."""
        own = self.log_probs.view(len(index), -1).gather(1, index)
        if self.advice is None:
            return own, torch.zeros_like(own)
        return own, self.advice.view(len(index), -1).gather(1, index)

    def of_rows(self, first: int, last: int, sources: int) -> Offers:
        """What is offered to some of each source's rows."""
        width = self.log_probs.shape[1]

        def cut(values: Tensor) -> Tensor:
            return values.view(sources, -1, width)[:, first:last].reshape(-1, width)

        return Offers(
            cut(self.log_probs),
            self.allowed if len(self.allowed) == 1 else cut(self.allowed),
            None if self.advice is None else cut(self.advice),
        )


class Endings(NamedTuple):
    """Where hypotheses stop on the trail: after `lengths` tokens, on row `rows` of their source.

    `ends` is the log-probability of EOS (0 if truncated), `advice` what advice added to it. A score of -inf marks an
    empty place.
    """

    scores: Float[Tensor, "B R"]
    lengths: Int[Tensor, "B R"]
    rows: Int[Tensor, "B R"]
    ends: Float[Tensor, "B R"]
    advice: Float[Tensor, "B R"]
    truncated: Bool[Tensor, "B R"]

    @staticmethod
    def none(sources: int, places: int, device: torch.device) -> Endings:
        zeros = torch.zeros(sources, places, dtype=torch.long, device=device)
        empty = torch.full(zeros.shape, NEVER, device=device)
        return Endings(empty, zeros, zeros, zeros.float(), zeros.float(), zeros.bool())

    def best(self, others: Endings, count: int) -> Endings:
        """The `count` best of both: those that ended before those cut off, then by score, then the earlier."""
        both = Endings(*(torch.cat(pair, 1) for pair in zip(self, others, strict=True)))
        by_score = both.scores.sort(dim=1, descending=True, stable=True).indices
        cut_off = (both.truncated | (both.scores == NEVER)).gather(1, by_score)
        ranks = by_score.gather(1, cut_off.sort(dim=1, stable=True).indices)[:, :count]
        return Endings(*(values.gather(1, ranks) for values in both))

    def best_ended(self, others: Endings, count: int) -> Endings:
        """The same where all have ended, in fewer passes."""
        scores, ranks = torch.cat([self.scores, others.scores], 1).sort(dim=1, descending=True, stable=True)
        columns = zip(self[1:5], others[1:5], strict=True)
        lengths, rows, ends, advice = (torch.cat(pair, 1).gather(1, ranks[:, :count]) for pair in columns)
        return Endings(scores[:, :count], lengths, rows, ends, advice, self.truncated)

    @staticmethod
    def joined(parts: Sequence[Endings]) -> Endings:
        """Several groups of sources one after the other."""
        return Endings(*(torch.cat(values) for values in zip(*parts, strict=True)))

    def first(self, count: int) -> Endings:
        """Of each source only the first ones."""
        return Endings(*(values[:, :count] for values in self))

    def only(self, places: Int[Tensor, "b"]) -> Endings:
        """Those of some of the sources."""
        return Endings(*(values.index_select(0, places) for values in self))


@dataclass(frozen=True)
class Frontier:
    """One moment of a search over B sources with K rows each; row k of source b is row b*K + k of the scorer.

    `parents`, `last`, `log_probs` and `advice` say what the last step did: row k continued row `parents[k]` with token
    `last[k]`. `totals` are sums of what hypotheses are compared by (log-probability and advice), -inf for rows that do
    not live. A source that is `done` no longer changes. Rows may form G groups that search for themselves. `notes` is
    what a strategy writes down of its own for every source; B is in front there as well.
    """

    sources: Int[Tensor, "B"]  # their places in the call
    keys: Int[Tensor, "B"]  # what randomness is drawn from
    limits: Int[Tensor, "B"]
    lengths: Int[Tensor, "B"]  # tokens of the live hypotheses
    parents: Int[Tensor, "B K"]
    last: Int[Tensor, "B K"]
    log_probs: Float[Tensor, "B K"]
    advice: Float[Tensor, "B K"]
    totals: Float[Tensor, "B K"]
    ended: Int[Tensor, "B G"]  # how many ended so far, also those that were not kept
    endings: Endings
    done: Bool[Tensor, "B"]
    notes: Mapping[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def begin(keys: Int[Tensor, "B"], limits: Lengths, totals: Float[Tensor, "B K"], groups: int = 1) -> Frontier:
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
            advice=torch.zeros_like(totals),
            totals=totals,
            ended=count[:, None].repeat(1, groups),
            endings=Endings.none(len(limits), totals.shape[1], limits.device),
            done=count.bool(),
        )

    def only(self, places: Int[Tensor, "b"]) -> Frontier:
        """Some of the sources."""
        return self.of([tensor.index_select(0, places) for tensor in self.tensors()])

    def to(self, device: torch.device) -> Frontier:
        return self.of([tensor.to(device, non_blocking=True) for tensor in self.tensors()])

    def tensors(self) -> list[Tensor]:
        """All that is kept of every source; notes by their names."""
        own = [getattr(self, name) for name in _OWN]
        return [*own, *self.endings, *(self.notes[name] for name in sorted(self.notes))]

    def of(self, tensors: Sequence[Tensor]) -> Frontier:
        """The same with other tensors, in the order of `tensors`."""
        own, endings = len(_OWN), len(Endings._fields)
        notes = dict(zip(sorted(self.notes), tensors[own + endings :], strict=True))
        return Frontier(
            endings=Endings(*tensors[own : own + endings]), notes=notes, **dict(zip(_OWN, tensors, strict=False))
        )

    @property
    def parent_rows(self) -> Rows:
        """Rows of the scorer's state that the present rows continue."""
        sources, hypotheses = self.parents.shape
        first = torch.arange(0, sources * hypotheses, hypotheses, device=self.parents.device)
        return (first[:, None] + self.parents).flatten()

    def candidates(self, offers: Offers) -> Float[Tensor, "B K W"]:
        """What every continuation is compared by; -inf where the row is dead or the token is not allowed.

        Constraints act here and nowhere else: they take candidates away and never change a log-probability.
        """
        live = self.totals.masked_fill(self.done[:, None], NEVER)
        sums = live.flatten()[:, None] + offers.merits  # N W
        if len(offers.allowed) == 1 and sums.device.type == "cpu":  # few columns, for all rows: no need to touch others
            sums.index_fill_(1, (~offers.allowed[0]).nonzero()[:, 0], NEVER)
        else:
            sums.masked_fill_(~offers.allowed, NEVER)
        return sums.view(*self.totals.shape, -1)


_OWN = tuple(each.name for each in fields(Frontier) if each.name not in ("endings", "notes"))


def best(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """The `count` largest of each row, best first; of equal values the earlier index wins, in any batch.

    `topk` alone promises nothing about equals, so one value more is looked at: only where the cut falls between
    equals is the row sorted in full. A GPU, which must not be asked what it found, compares values and places as one.
    """
    count = min(count, values.shape[1])
    if values.is_cuda and values.dtype == torch.float32:
        return by_keys(values, count)
    top, index = _largest(values, min(count + 1, values.shape[1]))
    if values.device.type == "cpu" and not bool((top[:, 1:] == top[:, :-1]).any()):
        return top[:, :count], index[:, :count]  # no two are equal
    tied = (top[:, count - 1] == top[:, -1]) & (top[:, -1] > NEVER) if top.shape[1] > count else None
    index, order = index[:, :count].sort(1)
    top, order = top[:, :count].gather(1, order).sort(dim=1, descending=True, stable=True)
    index = index.gather(1, order)
    if tied is not None and tied.any():
        full = values[tied].sort(dim=1, descending=True, stable=True)
        top[tied], index[tied] = full.values[:, :count], full.indices[:, :count]
    return top, index


def by_keys(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """`best` of float32 without a look at what was found. Of a long row, by blocks: the `count` best stand in the
    `count` blocks whose maxima are best, of equal ones the earlier (else as many would be better than one of them)."""
    blocks = values.shape[1] // BLOCK
    if blocks < MANY_BLOCKS * count:
        return _foremost(values, count)
    whole, rest = values[:, : blocks * BLOCK].view(-1, blocks, BLOCK), values[:, blocks * BLOCK :]
    chosen = _foremost(whole.amax(2), count)[1].sort(1).values  # B R, in their order, so that equals keep theirs
    cells = whole.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    top, place = _foremost(torch.cat([cells, rest], 1), count)
    return top, _unblocked(place, chosen, blocks)


def _foremost(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """A short row is sorted in one kernel; of a long one only the best are looked for."""
    if values.shape[1] > SORTED:
        return _keyed(values, count)
    top, index = values.sort(dim=1, descending=True, stable=True)
    return top[:, :count], index[:, :count]


def _keyed(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """The order of values, then of places, as one whole number.

    The bits of a float, read as a whole number, are in the order of the floats, backwards for the negative ones. No
    two keys are equal, so `topk` has no choice.
    """
    bits = (values + 0.0).view(torch.int32).long()  # + 0: there is one zero
    ordered = torch.where(bits < 0, LOWEST - bits, bits)
    places = torch.arange(values.shape[1], device=values.device)
    keys = (ordered << PLACES) - places
    index = -keys.topk(count).values & ((1 << PLACES) - 1)
    return values.gather(1, index), index


def _unblocked(place: Int[Tensor, "B R"], chosen: Int[Tensor, "B C"], blocks: int) -> Int[Tensor, "B R"]:
    """Places among the cells of C chosen blocks, and of what no block holds, as places in the whole row."""
    moved = F.pad(chosen, (0, 1), value=blocks) - torch.arange(chosen.shape[1] + 1, device=chosen.device)  # by blocks
    return torch.add(place, moved.gather(1, place // BLOCK), alpha=BLOCK)


def _largest(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B R"], Int[Tensor, "B R"]]:
    """`topk`; on a CPU of a long row by blocks: its `count` largest stand in the `count` blocks of largest maxima."""
    width = values.shape[1]
    blocks = width // BLOCK
    if values.device.type != "cpu" or blocks < MANY_BLOCKS * count or not values.is_contiguous():
        return values.topk(count)
    whole, rest = values[:, : blocks * BLOCK].view(-1, blocks, BLOCK), values[:, blocks * BLOCK :]
    chosen = whole.amax(2).topk(count, sorted=False).indices  # B R
    cells = whole.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    top, place = torch.cat([cells, rest], 1).topk(count)
    return top, _unblocked(place, chosen, blocks)


class Trail:
    """Every step's (parent, token, log-probability, advice) for all sources of the call, also those that have left."""

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # each B K

    def record(self, frontier: Frontier) -> None:
        parts = (frontier.parents, frontier.last, frontier.log_probs, frontier.advice)
        self.extend(frontier.sources, [part[None] for part in parts])

    def extend(self, sources: Int[Tensor, "b"], columns: Sequence[Tensor]) -> None:
        """Several steps of some of the sources: parents, tokens, log-probabilities and advice, each M b K."""

        def spread(values: Tensor) -> Tensor:
            steps, _, rows = values.shape
            return values.new_zeros(steps, self._sources, rows).index_copy_(1, sources, values)

        parents, last, log_probs, advice = (spread(values).unbind() for values in columns)
        self._steps.extend(zip(parents, last, log_probs, advice, strict=True))

    def back(
        self, rows: Int[Tensor, "B R"], lengths: Int[Tensor, "B R"]
    ) -> tuple[Int[Tensor, "B R T"], Float[Tensor, "B R T"], Float[Tensor, "B R T"]]:
        """(tokens, log-probabilities, advice) of hypotheses, walked backwards from where they stand, all at once.

        Behind their `lengths` tokens are any, and the numbers are 0.
        """
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        last = max(1, int(lengths.max())) if lengths.numel() else 1
        for step in range(min(last, len(self._steps)) - 1, -1, -1):
            parents, token, log_prob, advice = self._steps[step]  # B K
            inside = step < lengths
            log_prob, advice = (torch.where(inside, values.gather(1, rows), 0) for values in (log_prob, advice))
            found.append((token.gather(1, rows), log_prob, advice))
            rows = torch.where(inside, parents.gather(1, rows), rows)
        tokens, log_probs, advices = (torch.stack(column[::-1], -1) for column in zip(*found, strict=True))
        return tokens, log_probs.double(), advices.double()

    def read(self, endings: Endings, normalisation: Normalisation, keep: int | None = None) -> list[list[Hypothesis]]:
        """The hypotheses of every source, best first; with `keep`, only the first so many different ones."""
        tokens, log_probs, advice = self.back(endings.rows, endings.lengths)
        totals = log_probs.sum(-1) + endings.ends
        advised = advice.sum(-1) + endings.advice
        scores = normalisation.score(totals + advised, endings.lengths)
        columns = (tokens, log_probs, totals, advised, scores, endings.lengths, endings.ends, endings.truncated)
        plain = zip(*(column.tolist() for column in columns), strict=True)  # the one transfer of a search
        real = (endings.scores > NEVER).tolist()
        return [_ranked(zip(*source, strict=True), there, keep) for source, there in zip(plain, real, strict=True)]


def _ranked(places: Iterable[Place], real: Iterable[bool], keep: int | None) -> list[Hypothesis]:
    """The hypotheses of one source from plain numbers: those that ended first, then by score."""
    found = []
    for (tokens, log_probs, total, advice, score, length, end, truncated), there in zip(places, real, strict=True):
        if there:
            terms = log_probs[:length] if truncated else [*log_probs[:length], end]
            found.append(Hypothesis(tuple(tokens[:length]), tuple(terms), total, score, truncated, advice))
    if keep is not None:
        different: dict[tuple[int, ...], Hypothesis] = {}
        for one in found:
            different.setdefault(one.tokens, one)
        found = list(different.values())[:keep]
    return sorted(found, key=lambda one: (one.truncated, -one.score))

"""Which examples stand side by side: batches of a token budget, of like lengths, in an order that a seed decides.

Planning is pure arithmetic on lengths, so that an epoch can be planned, counted and resumed in its middle without
touching a token. The same (seed, epoch) gives the same batches on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Annotated, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, PlainValidator
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Batch, Frames, Source, Tokens
from seqloom.data.codecs import NO_PIECE, Encoded, Ids, Pair
from seqloom.data.columns import Columns, Picked, Ragged, picked
from seqloom.data.corpus import Corpus, Lengths
from seqloom.data.mixing import Mixture
from seqloom.ranks.share import WHOLE, Share
from seqloom.shapes import Float, Int, Tensor

Plan = list[npt.NDArray[np.int64]]  # one array of example indices per batch
Rows = npt.NDArray[np.int64]  # which pairs, by number
Pick = Callable[[Rows], Sequence[Pair]]
Collate = Callable[[Sequence[Pair]], Batch]
Recut = Callable[[int, npt.NDArray[np.int64], npt.NDArray[np.int64]], Columns | list[Pair]]  # as recutting.py has it
EQUAL = 33  # lengths that differ by less than this part of them count as one: else few long examples are alike
GROWTH_PAIRS = 1_000  # cut anew to see how much longer they become


def _budget(value: object) -> object:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"a number of tokens from 1 up, or auto (got {value!r})")
    return value


Budget = Annotated[int | Literal["auto"], PlainValidator(_budget)]


class Batching(config.Settings):
    """How large a batch is. The budget holds rows x the longest sequence of either side, EOS counted.

    So padding is paid for, and neither a long source nor a long target can outgrow the memory that was planned.
    """

    tokens: Budget = 4096  # auto: by the size of the data and of the memory
    sentences: int | None = Field(default=None, ge=1)  # at most so many rows
    pool: int = Field(default=1000, ge=1)  # batches' worth of shuffled examples that are sorted together
    window: int | None = Field(default=None, ge=2)  # tokens of a text that a language model learns from at once

    @property
    def budget(self) -> int:
        """Tokens of a batch, once `auto` has been settled."""
        assert self.tokens != "auto", "auto is settled before anything is planned"
        return self.tokens


def plan(source: Lengths, target: Lengths, settings: Batching, *key: int) -> Plan:
    """Every example exactly once, in shuffled batches of like lengths; `key` (seed, epoch) decides the order.

    Shuffle all; sort each pool by the longer side, then by how much longer it is (up, then down, so that neighbours
    stay alike); fill batches greedily to the budget; shuffle the batches. So the rows of a batch are all but equally
    long on one side, which fills the budget, and alike on the other.
    """
    rng = np.random.default_rng(key)
    order = rng.permutation(len(target))
    cost = np.maximum(source, target) + 1
    batches_expected = max(1.0, cost.sum() / settings.budget, len(cost) / (settings.sentences or len(cost) or 1))
    order = order[_alike(source[order], target[order], math.ceil(batches_expected / settings.pool))]
    batches = _filled(order, cost[order], settings.budget, settings.sentences)
    return [batches[i] for i in rng.permutation(len(batches))]


def _alike(source: Lengths, target: Lengths, pools: int) -> npt.NDArray[np.int64]:
    """The order of shuffled examples after sorting inside pools; ties keep their shuffled order."""
    pool = np.arange(len(target)) * pools // max(1, len(target))
    longer = np.maximum(source, target)
    borders = [1]
    while borders[-1] <= longer.max(initial=0):
        borders.append(borders[-1] + max(1, borders[-1] // EQUAL))
    band = np.searchsorted(borders, longer, side="right")
    upwards = np.where(band % 2 == 0, 1, -1)
    return np.lexsort(((source - target) * upwards, band, pool))


def _filled(order: npt.NDArray[np.int64], cost: Lengths, tokens: int, sentences: int | None) -> Plan:
    """Cut an order into batches: as many rows as the budget holds. One row over the budget stands alone."""
    batches: Plan = []
    start = 0
    while start < len(order):
        most = max(1, tokens // int(cost[start]))
        most = most if sentences is None else min(most, sentences)
        longest = np.maximum.accumulate(cost[start : start + most])
        rows = int(np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= tokens))
        batches.append(order[start : start + max(1, rows)])
        start += max(1, rows)
    return batches


def in_order(lengths: Lengths, tokens: int, sentences: int | None = None) -> Plan:
    """Batches for prediction, longest first (so that memory trouble shows at once); the indices restore the order."""
    order = np.argsort(-lengths, kind="stable")
    return _filled(order, lengths[order] + 1, tokens, sentences)


def padding_share(batches: Plan, source: Lengths, target: Lengths) -> float:
    """The share of cells, source and target together, that hold no token. EOS is a token."""
    real = cells = 0
    for batch in batches:
        for lengths in (source[batch] + 1, target[batch] + 1):
            real += int(lengths.sum())
            cells += int(lengths.max()) * len(batch)
    return 1 - real / cells if cells else 0.0


def collate_pairs(pairs: Sequence[Pair]) -> Batch:
    """Pairs side by side: `sources["source"]` (then the extras) and the target, all ending in EOS."""
    if isinstance(pairs, Picked):
        return pairs.batch()
    target = ended([pair.target for pair in pairs])
    weighted = any(pair.weight != 1 for pair in pairs)
    aligned = any(pair.links is not None for pair in pairs)
    return Batch(
        collate_sources(pairs),
        target,
        [pair.index for pair in pairs],
        torch.tensor([pair.weight for pair in pairs], dtype=torch.float32) if weighted else None,
        _alignment(pairs, target.ids.shape[1]) if aligned else None,
    )


def collate_sources(inputs: Sequence[Pair | Encoded]) -> dict[str, Source]:
    """What a model reads: the source, with what may be copied of it, and every extra that has its own encoder."""
    first = np.ndim(inputs[0].source) if inputs else 1
    source = SIDE_BY_SIDE[first](inputs)
    extras = {name: ended([one.extras[name] for one in inputs]) for name in (inputs[0].extras if inputs else ())}
    return {"source": source, **extras}


def _texts(inputs: Sequence[Pair | Encoded]) -> Source:
    """Token ids with EOS after each, and what is known of their pieces."""
    source = ended([cast(Ids, one.source) for one in inputs])
    if inputs and inputs[0].copies is not None:
        source = replace(source, copies=_beside(source, [one.copies for one in inputs]))
    if inputs and inputs[0].words is not None:
        source = replace(source, words=_beside(source, [one.words for one in inputs]))
    return source


def _frames(inputs: Sequence[Pair | Encoded]) -> Source:
    """Frames with a frame of zeros after each: their end, as EOS is that of a text."""
    return Frames.pad([F.pad(torch.from_numpy(np.array(one.source, np.float32)), (0, 0, 0, 1)) for one in inputs])


SIDE_BY_SIDE: Mapping[int, Callable[[Sequence[Pair | Encoded]], Source]] = {1: _texts, 2: _frames}  # by dimensions


def _beside(source: Tokens, rows: Sequence[Ids | None]) -> Int[Tensor, "B S"]:
    """What is known of every piece, in the shape of the ids; padding and EOS are no pieces."""
    known = np.full(source.ids.shape, NO_PIECE, dtype=np.int64)
    for place, row in enumerate(rows):
        assert row is not None, "of some sources of a batch it is known, of others not"
        known[place, : len(row)] = row
    return torch.from_numpy(known)


def _alignment(pairs: Sequence[Pair], steps: int) -> Float[Tensor, "B T S"]:
    """Gold alignments, each known row summing to 1; the target's end is aligned to the source's."""
    positions = max(len(pair.source) for pair in pairs) + 1
    gold = np.zeros((len(pairs), steps, positions), dtype=np.float32)
    for row, pair in enumerate(pairs):
        if pair.links is not None:
            gold[row, pair.links[:, 0], pair.links[:, 1]] = 1
            gold[row, len(pair.target), len(pair.source)] = 1
    return torch.from_numpy(gold / np.maximum(gold.sum(-1, keepdims=True), 1))


def ended(sequences: Sequence[Ids]) -> Tokens:
    """Padded tokens with EOS after each sequence."""
    return Ragged.of(sequences).ended()


def _sides(pairs: Columns | Sequence[Pair]) -> tuple[Lengths, Lengths]:
    """Tokens that are read and tokens that are said, of pairs that are in memory; as `Corpus.lengths` counts them."""
    if isinstance(pairs, Columns):
        read_alone = sum((column.lengths + 1 for column in pairs.extras.values()), start=pairs.source.lengths)
        return read_alone, pairs.target.lengths
    read = [len(pair.source) + sum(len(ids) + 1 for ids in pair.extras.values()) for pair in pairs]
    return np.array(read, dtype=np.int64), np.array([len(pair.target) for pair in pairs], dtype=np.int64)


class TokenBatches:
    """The batches of a corpus, epoch after epoch. `recut` may cut the pairs anew (BPE dropout).

    Cut anew, a pair has another length, so batches are then planned from the new lengths, a pool of examples at a
    time: planned from the old ones, a third of their cells would be padding. A `mixture` says which pairs an epoch
    holds; without one it holds each pair once.
    """

    def __init__(
        self,
        corpus: Corpus,
        settings: Batching,
        seed: int,
        collate: Collate = collate_pairs,
        recut: Recut | None = None,
        mixture: Mixture | None = None,
        vary: Recut | None = None,
        share: Share = WHOLE,
    ) -> None:
        """`vary` changes pairs without making them longer, a batch at a time: nothing is planned anew. Where several
        processes train, each plans all batches and makes its `share` of them."""
        self.corpus, self.settings, self.seed = corpus, settings, seed
        self.collate, self.recut, self.mixture, self.vary, self.share = collate, recut, mixture, vary, share
        self._lengths = corpus.lengths()
        self._planned: tuple[int, Plan] | None = None  # the last epoch asked for: counting it is then free

    def _draws(self, epoch: int) -> npt.NDArray[np.int64]:
        """The pairs that the epoch holds."""
        return np.arange(len(self.corpus)) if self.mixture is None else self.mixture.draws(self.seed, epoch)

    def plan(self, epoch: int) -> Plan:
        if self._planned is None or self._planned[0] != epoch:
            drawn = self._draws(epoch)
            source, target = (lengths[drawn] for lengths in self._lengths)
            planned = [drawn[rows] for rows in plan(source, target, self.settings, self.seed, epoch)]
            self._planned = (epoch, planned)
        return self._planned[1]

    def count(self, epoch: int) -> int:
        """How many batches the epoch has; where pairs are cut anew, about as many."""
        return round(len(self.plan(epoch)) * self._growth)

    @cached_property
    def _growth(self) -> float:
        """How much more room pairs take when they are cut anew, from some that lie evenly over the corpus."""
        if self.recut is None or not len(self.corpus):
            return 1.0
        chosen = np.unique(np.linspace(0, len(self.corpus) - 1, GROWTH_PAIRS).astype(np.int64))
        new = np.maximum(*_sides(self.recut(0, chosen, np.zeros_like(chosen))))
        old = np.maximum(*(lengths[chosen] for lengths in self._lengths))
        return float((new + 1).sum() / (old + 1).sum())

    def rows(self, longest: int) -> int:
        """The most pairs that a batch can have whose longest sequence, EOS counted, is so long."""
        most = max(1, self.settings.budget // longest)
        return self.share.most(most if self.settings.sentences is None else min(most, self.settings.sentences))

    def padding(self, epoch: int) -> float:
        """Share of padded cells, both sides together."""
        return padding_share(self.plan(epoch), *self._lengths)

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch | None]:
        """The batches of one epoch; the first `skip` cost nothing (a resumed run has seen them). Of each this process
        makes its share, and None stands for one that others compute."""
        if self.recut is not None:
            made = self._recut_epoch(number, self.recut)
        elif self.vary is not None:
            made = self._varied_epoch(number, self.vary)
        else:
            made = ((indices, self.corpus.pick) for indices in self.plan(number))
        for place, (indices, pick) in islice(enumerate(made), skip, None):
            rows = self.share.rows(place, len(indices))
            yield None if rows is None else self.collate(pick(indices[rows]))

    def _varied_epoch(self, number: int, vary: Recut) -> Iterator[tuple[Rows, Pick]]:
        batches = self.plan(number)
        again = np.split(_occurrences(np.concatenate(batches)), np.cumsum([len(rows) for rows in batches])[:-1])
        for indices, times in zip(batches, again, strict=True):
            yield np.arange(len(indices)), _varied(vary, number, indices, times)

    def _recut_epoch(self, number: int, recut: Recut) -> Iterator[tuple[Rows, Pick]]:
        drawn = self._draws(number)
        order = np.random.default_rng((self.seed, number)).permutation(len(drawn))
        again = _occurrences(drawn)[order]  # a pair that stands twice is cut in two ways
        cost = np.maximum(*(lengths[drawn] for lengths in self._lengths)) + 1
        parts = max(1, round(cost.sum() / (self.settings.budget * self.settings.pool)))
        pools = zip(np.array_split(drawn[order], parts), np.array_split(again, parts), strict=True)
        for place, (pool, times) in enumerate(pools):
            pairs = recut(number, pool, times)
            for indices in plan(*_sides(pairs), self.settings, self.seed, number, place):
                yield indices, partial(picked, pairs)


def _varied(vary: Recut, number: int, indices: Rows, times: Rows) -> Pick:
    """Some rows of a batch, each varied as it would be beside the others."""

    def pick(rows: Rows) -> Sequence[Pair]:
        return picked(vary(number, indices[rows], times[rows]), np.arange(len(rows)))

    return pick


def _occurrences(drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How often each index stood there before: 7 8 7 7 gives 0 0 1 2."""
    order = np.argsort(drawn, kind="stable")
    ordered = drawn[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if len(drawn) else np.zeros(0, bool)
    within = np.arange(len(drawn)) - np.maximum.accumulate(np.where(starts, np.arange(len(drawn)), 0))
    times = np.empty_like(order)
    times[order] = within
    return times

"""Pairs cut into other pieces in every epoch (BPE dropout, subword regularisation), a pool of them at a time.

A training step on a GPU takes less time than Python needs to cut its sentences. So every text is split into words
once, every word is cut in `VARIANTS` ways at most, and which of them stands where is drawn for a whole pool by one hash
of seed, epoch, pair and place. A pair is therefore cut alike whatever batch it stands in and whatever is remembered.
Codecs that need more of a pair than its ids (extras, copies, words, links, frames) cut their pairs one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from seqloom.data.batching import Recut
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs, Pair
from seqloom.data.columns import Columns, Numbers, Ragged
from seqloom.data.corpus import Corpus
from seqloom.data.merging import mixed

BITS = 4
VARIANTS = 1 << BITS  # different cuts of a word
MOST_WORDS = 500_000  # different ones that a side remembers; then it begins anew
MOST_TEXTS = 1_000_000  # of a corpus whose texts are remembered as words, some 150 bytes each

_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def recutting(corpus: Corpus, codecs: Codecs, seed: int) -> Recut:
    """How the pairs of a corpus are cut anew."""
    if codecs.extras or codecs.copies or codecs.words or corpus.columns is None:
        return one_by_one(corpus, lambda pair, rng: corpus.resampled(pair, codecs, rng), seed)
    return ByWords(corpus, codecs, seed)


def varying(corpus: Corpus, codecs: Codecs, seed: int) -> Recut:
    """How training sees the pairs of a corpus whose sources vary (pictures that are moved, mirrored, turned)."""
    return one_by_one(corpus, lambda pair, rng: corpus.varied(pair, codecs, rng), seed)


def one_by_one(corpus: Corpus, recut: Callable[[Pair, Random], Pair], seed: int) -> Recut:
    """Each pair for itself, with an rng that depends on seed, epoch and pair alone."""

    def pool(epoch: int, indices: Numbers, times: Numbers) -> list[Pair]:
        drawn = zip(indices.tolist(), times.tolist(), strict=True)
        return [recut(corpus[i], Random(f"{seed} {epoch} {i}" + (f" {time}" if time else ""))) for i, time in drawn]

    return pool


class ByWords:
    """Cuts whole pools by words. A side whose tokenizer does not sample keeps the ids that the corpus has."""

    def __init__(self, corpus: Corpus, codecs: Codecs, seed: int) -> None:
        assert corpus.columns is not None, "pairs with more than ids are cut one by one"
        self.corpus, self.columns, self.seed = corpus, corpus.columns, seed
        keep = len(corpus) <= MOST_TEXTS
        sides = (codecs.source.as_text(), codecs.target)  # only texts stand in columns
        self.sides = [_Side(codec, keep) if codec.samples else None for codec in sides]

    def __call__(self, epoch: int, indices: Numbers, times: Numbers) -> Columns:
        first = np.random.SeedSequence((self.seed, epoch)).generate_state(2, np.uint64)
        unsigned = indices.astype(np.uint64) * np.uint64(_ODD[0]) + times.astype(np.uint64) * np.uint64(_ODD[1])
        source, target = [
            self._kept(number, indices) if side is None else side.cut(self._texts(number), indices, unsigned + start)
            for number, (side, start) in enumerate(zip(self.sides, first, strict=True))
        ]
        weights = self.columns.weights
        return Columns(source, target, indices, weights=None if weights is None else weights[indices])

    def _texts(self, number: int) -> Callable[[int], str]:
        return lambda index: self.corpus.text(index)[number]

    def _kept(self, number: int, indices: Numbers) -> Ragged:
        return (self.columns.source, self.columns.target)[number].rows(indices)


class _Side:
    """One side's words, and the cuts of them that were drawn so far."""

    def __init__(self, codec: TextCodec, keep: bool) -> None:
        self.codec, self.keep = codec, keep
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[str, int] = {}  # of a word
        self._split: dict[int, Numbers] = {}  # a text as its words
        self._starts = np.zeros(0, np.int64)  # where the cut (word, variant) begins in `_ids`; -1: not made yet
        self._lengths = np.zeros(0, np.int64)
        self._ids = np.zeros(0, np.int32)

    def cut(self, text: Callable[[int], str], indices: Numbers, keys: npt.NDArray[np.uint64]) -> Ragged:
        """The texts of these pairs in pieces; `keys` are what their randomness comes from."""
        if len(self._numbers) > MOST_WORDS:
            self._forget()
        words = [self._words(index, text) for index in indices.tolist()]
        counts = np.fromiter(map(len, words), np.int64, len(words))
        ends = np.cumsum(counts)
        place = (np.arange(ends[-1]) - np.repeat(ends - counts, counts)).astype(np.uint64)
        drawn = mixed(np.repeat(keys, counts) + place * np.uint64(_ODD[2])) >> np.uint64(64 - BITS)
        cuts = np.concatenate(words) * VARIANTS + drawn.astype(np.int64)
        self._make(cuts)
        lengths = self._lengths[cuts]
        pieces = np.concatenate([[0], np.cumsum(lengths)])
        offsets = np.repeat(self._starts[cuts] - pieces[:-1], lengths)
        ids = self._ids[np.arange(pieces[-1]) + offsets]
        return Ragged(ids, pieces[np.concatenate([[0], ends])])

    def _words(self, index: int, text: Callable[[int], str]) -> Numbers:
        found = self._split.get(index)
        if found is None:
            parts = self.codec.tokenizer.parts(self.codec.normalise(text(index)))
            numbers = self._numbers
            found = np.array([numbers.setdefault(part, len(numbers)) for part in parts], np.int64)
            if self.keep:
                self._split[index] = found
        return found

    def _make(self, cuts: Numbers) -> None:
        """Cut the words that are to be cut so for the first time."""
        room = len(self._numbers) * VARIANTS - len(self._starts)
        self._starts = np.concatenate([self._starts, np.full(room, -1)])
        self._lengths = np.concatenate([self._lengths, np.zeros(room, np.int64)])
        new = np.unique(cuts[self._starts[cuts] < 0])
        words: Sequence[str] = list(self._numbers) if len(new) else ()
        made = self.codec.tokenizer.cuts([words[word] for word in (new >> BITS).tolist()], new % VARIANTS)
        ids = np.array(self.codec.vocabulary.ids(made.names), np.int32)[made.pieces]
        self._starts[new] = len(self._ids) + np.cumsum(made.lengths) - made.lengths
        self._lengths[new] = made.lengths
        self._ids = np.concatenate([self._ids, ids])

"""Batches: every example once, inside the budget, decided by (seed, epoch), with little padding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batch import Batch
from seqloom.data.batching import Batching, TokenBatches, collate_pairs, in_order, padding_share, plan
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs, Pair
from seqloom.data.corpus import Corpus, Limits
from seqloom.data.mixing import Mixture
from seqloom.data.readers import Example
from seqloom.data.recutting import one_by_one
from seqloom.ranks.share import WHOLE, Share
from seqloom.specials import EOS, PAD

lengths = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=120)


@given(
    lengths=lengths,
    tokens=st.integers(1, 200),
    sentences=st.none() | st.integers(1, 10),
    pool=st.integers(1, 50),
    epoch=st.integers(0, 5),
)
@settings(deadline=None)
def test_each_example_once_and_within_budget(lengths, tokens, sentences, pool, epoch) -> None:
    source = np.array([a for a, _ in lengths], dtype=np.int64)
    target = np.array([b for _, b in lengths], dtype=np.int64)
    chosen = Batching(tokens=tokens, sentences=sentences, pool=pool)
    batches = plan(source, target, chosen, 1, epoch)
    assert sorted(i for batch in batches for i in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        longest = max(source[batch].max(), target[batch].max()) + 1
        assert len(batch) == 1 or len(batch) * longest <= tokens
        assert sentences is None or len(batch) <= sentences


@given(lengths=st.lists(st.integers(0, 60), max_size=100), tokens=st.integers(1, 200))
@settings(deadline=None)
def test_prediction_batches_hold_every_line_longest_first(lengths, tokens) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    batches = in_order(sizes, tokens)
    flat = [i for batch in batches for i in batch.tolist()]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[i] for i in flat] == sorted(lengths, reverse=True)
    assert all(len(batch) == 1 or len(batch) * (sizes[batch].max() + 1) <= tokens for batch in batches)


def test_padding_of_a_translation_corpus_is_small() -> None:
    rng = np.random.default_rng(0)
    source = rng.gamma(2.5, 10, 100_000) + 1
    target = (source * rng.normal(1, 0.2, len(source)).clip(0.5, 2)).astype(np.int64).clip(1)
    batches = plan(source.astype(np.int64), target, Batching(tokens=4096), 1, 0)
    assert padding_share(batches, source.astype(np.int64), target) < 0.025


def test_batches_are_nearly_as_full_as_the_budget() -> None:
    """Rows of a batch are equally long on their longer side, so that the budget is not spent on padding."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(5, 26, (2, 20_000))
    batches = plan(source, target, Batching(tokens=1000), 1, 0)
    assert len(batches) < 1.03 * (np.maximum(source, target) + 1).sum() / 1000


def test_padding_share_counts_cells() -> None:
    # One batch of sources 1 and 3 long, targets 2 and 2: with EOS 2 + 4 of 2 x 4 cells, and 6 of 6: 12 of 14 are real.
    share = padding_share([np.array([0, 1])], np.array([1, 3]), np.array([2, 2]))
    assert share == pytest.approx(2 / 14)


def test_collate_ends_both_sides() -> None:
    pairs = [
        Pair(np.array([7, 8, 9], dtype=np.uint16), np.array([6], dtype=np.uint16), 4),
        Pair(np.array([7]), np.array([8, 9]), 2),
    ]
    batch = collate_pairs(pairs)
    assert batch.sources["source"].ids.tolist() == [[7, 8, 9, EOS], [7, EOS, PAD, PAD]]
    assert batch.target.ids.tolist() == [[6, EOS, PAD], [8, 9, EOS]]
    assert batch.target.mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.sources["source"].lengths.tolist() == [4, 2]
    assert list(batch.examples) == [4, 2]
    assert batch.target.ids.dtype == torch.long


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    rng = Random(0)
    texts = ["".join(rng.choices("abc", k=rng.randint(1, 20))) for _ in range(300)]
    codec = TextCodec.train(TextCodec.Settings(tokenizer="characters"), lambda: texts, seed=1)
    examples = [Example(text, (text[::-1],), "f", i) for i, text in enumerate(texts)]
    return Corpus.build(examples, Codecs(codec, codec), tmp_path / "c", Limits(), keep_text=True)[0]


def test_epochs_repeat_and_differ(corpus: Corpus) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        return [list(batch.examples) for batch in TokenBatches(corpus, Batching(tokens=100), seed).epoch(epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    assert sorted(i for batch in order(1, 3) for i in batch) == list(range(300))


def test_a_resumed_epoch_goes_on_where_it_stopped(corpus: Corpus) -> None:
    collated = 0

    def counting(pairs):
        nonlocal collated
        collated += 1
        return collate_pairs(pairs)

    whole = list(TokenBatches(corpus, Batching(tokens=100), 1).epoch(2))
    batches = TokenBatches(corpus, Batching(tokens=100), 1, counting)
    rest = list(batches.epoch(2, skip=10))
    assert batches.count(2) == len(whole)
    assert collated == len(whole) - 10, "skipped batches are not collated"
    for one, other in zip(rest, whole[10:], strict=True):
        assert torch.equal(one.target.ids, other.target.ids)
        assert list(one.examples) == list(other.examples)


def test_batches_hold_the_corpus(corpus: Corpus) -> None:
    for batch in TokenBatches(corpus, Batching(tokens=100), 1).epoch(0):
        for row, index in enumerate(batch.examples):
            expected = [*corpus[index].target.tolist(), EOS]
            assert batch.target.ids[row][batch.target.mask[row]].tolist() == expected


def test_resampling_depends_on_seed_epoch_and_example_alone(corpus: Corpus) -> None:
    def shuffled(pair: Pair, rng: Random) -> Pair:
        return Pair(np.array([6 + rng.randrange(3) for _ in pair.source]), pair.target, pair.index)

    def sources(tokens: int, epoch: int) -> dict[int, list[int]]:
        batches = TokenBatches(corpus, Batching(tokens=tokens), 1, recut=one_by_one(corpus, shuffled, 1)).epoch(epoch)
        tokens_of = [(batch.examples, batch.sources["source"]) for batch in batches]
        return {i: s.ids[row][s.mask[row]].tolist() for examples, s in tokens_of for row, i in enumerate(examples)}

    assert sources(100, 0) == sources(70, 0), "whatever batch it stands in"
    assert sources(100, 0) != sources(100, 1)


def test_batches_of_pairs_cut_anew_are_counted_by_their_new_lengths(corpus: Corpus) -> None:
    def doubled(pair: Pair, rng: Random) -> Pair:
        return Pair(np.repeat(pair.source, 2), np.repeat(pair.target, 2), pair.index)

    batches = TokenBatches(corpus, Batching(tokens=200), 1, recut=one_by_one(corpus, doubled, 1))
    plain = TokenBatches(corpus, Batching(tokens=200), 1).count(0)
    counted, made = batches.count(0), len(list(batches.epoch(0)))
    assert abs(counted - made) <= 0.05 * made
    assert made > 1.6 * plain


# --- mixtures ----------------------------------------------------------------------------------------------------


def test_a_mixture_says_which_pairs_an_epoch_holds(corpus: Corpus) -> None:
    mixture = Mixture([20, 280], [0.5, 0.5])
    batches = TokenBatches(corpus, Batching(tokens=100), 1, mixture=mixture)
    for epoch in range(3):
        seen = [i for batch in batches.epoch(epoch) for i in batch.examples]
        assert sorted(seen) == sorted(mixture.draws(1, epoch).tolist())
        assert sum(i < 20 for i in seen) == 150
        assert len(list(batches.epoch(epoch))) == batches.count(epoch)
    whole, rest = list(batches.epoch(1)), list(batches.epoch(1, skip=5))
    assert [list(batch.examples) for batch in rest] == [list(batch.examples) for batch in whole[5:]]


def test_a_pair_that_stands_twice_is_cut_in_two_ways(corpus: Corpus) -> None:
    def shuffled(pair: Pair, rng: Random) -> Pair:
        return Pair(np.array([rng.randrange(6, 999) for _ in pair.source]), pair.target, pair.index)

    mixture = Mixture([3, 297], [0.5, 0.5])
    batches = TokenBatches(corpus, Batching(tokens=100), 1, recut=one_by_one(corpus, shuffled, 1), mixture=mixture)
    cuts = [
        batch.sources["source"].ids[row].tolist()
        for batch in batches.epoch(0)
        for row, i in enumerate(batch.examples)
        if i == 0
    ]
    assert len(cuts) == 50
    assert len({tuple(cut) for cut in cuts}) == 50
    order = [list(batch.examples) for batch in batches.epoch(0)]
    assert order == [list(batch.examples) for batch in batches.epoch(0)]


# --- all that a batch may hold -----------------------------------------------------------------------------------


def test_collate_fills_extras_copies_weights_and_alignments() -> None:
    pairs = [
        Pair(
            np.array([7, 8, 9]),
            np.array([6, 11]),
            0,
            {"tags": np.array([6])},
            np.array([6, -1, 11]),
            0.5,
            np.array([[0, 0], [1, 0], [1, 2]]),
        ),
        Pair(np.array([7]), np.array([8]), 1, {"tags": np.zeros(0, np.int64)}, np.array([12])),
    ]
    batch = collate_pairs(pairs)
    assert list(batch.sources) == ["source", "tags"]
    assert batch.sources["tags"].ids.tolist() == [[6, EOS], [EOS, PAD]]
    assert batch.sources["source"].copies.tolist() == [[6, -1, 11, -1], [12, -1, -1, -1]]
    assert batch.weights.tolist() == [0.5, 1.0]
    assert batch.alignment[0].tolist() == [[1, 0, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1]], "the end to the end"
    assert not batch.alignment[1].any(), "nothing is known of it"
    part = batch.rows(torch.tensor([1]))
    assert part.weights.tolist() == [1.0]
    assert part.alignment.shape == (1, 3, 4)
    assert part.sources["source"].copies.tolist() == [[12, -1, -1, -1]]


def test_what_no_pair_has_no_batch_has() -> None:
    batch = collate_pairs([Pair(np.array([7]), np.array([8]), 0)])
    assert (batch.weights, batch.alignment, batch.sources["source"].copies) == (None, None, None)


@pytest.mark.parametrize("how", ["plain", "recut", "vary"])
@pytest.mark.parametrize("batches", [1, 3, 4])
def test_several_processes_share_an_epoch_without_overlap_or_loss(corpus: Corpus, how: str, batches: int) -> None:
    """And what they see is what one process would: a pair is cut alike whoever computes it."""

    def recut(pair: Pair, rng: Random) -> Pair:
        return replace(pair, target=pair.target[: rng.randint(1, len(pair.target))])

    changes = {} if how == "plain" else {how: one_by_one(corpus, recut, 1)}

    def seen(share: Share, skip: int = 0) -> list[dict[int, list[int]]]:
        made = TokenBatches(corpus, Batching(tokens=100), 1, share=share, **changes).epoch(1, skip)
        return [{} if batch is None else told(batch) for batch in made]

    def told(batch: Batch) -> dict[int, list[int]]:
        assert batch.target is not None
        rows = zip(batch.examples, batch.target.ids, batch.target.mask, strict=True)
        return {index: ids[mask].tolist() for index, ids, mask in rows}

    whole = seen(WHOLE)
    for skip in (0, batches):
        parts = [seen(Share.of_steps(rank, 3, batches), skip) for rank in range(3)]
        for expected, *own in zip(whole[skip:], *parts, strict=True):
            assert sum(map(len, own)) == len(expected), "no pair twice"
            assert {index: ids for part in own for index, ids in part.items()} == expected

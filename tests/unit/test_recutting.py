"""Pairs cut anew by words: the same texts, in cuts that depend on seed, epoch, pair and place alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from seqloom.data import recutting as module
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs, Pair
from seqloom.data.corpus import Corpus, Limits
from seqloom.data.readers import Example
from seqloom.data.recutting import VARIANTS, ByWords, recutting
from seqloom.data.tokenizers import Bpe, Unigram, Words

WORDS = ("lower", "lowest", "newer", "newest", "wider", "widest", "the", "a", "slow", "Straße")


def sentences(count: int) -> list[tuple[str, str]]:
    rng = Random(1)
    made = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(2 * count)]
    return list(zip(made[:count], made[count:], strict=True))


@pytest.fixture(scope="module")
def codecs() -> Codecs:
    texts = [text for pair in sentences(300) for text in pair]

    def trained(settings: TextCodec.Settings) -> TextCodec:
        return TextCodec.train(settings, lambda: texts, 1)

    source = trained(TextCodec.Settings(tokenizer=Bpe.Settings(size=60, sampling=0.2), lowercase=True))
    return Codecs(source, trained(TextCodec.Settings(tokenizer=Unigram.Settings(size=45, sampling=0.3))))


@pytest.fixture
def corpus(codecs: Codecs, tmp_path: Path) -> Corpus:
    examples = (Example(source, (target,), "pairs.tsv", i + 1) for i, (source, target) in enumerate(sentences(200)))
    return Corpus.build(examples, codecs, tmp_path / "corpus", Limits(), keep_text=True)[0]


def cut(recut: ByWords, epoch: int, indices: list[int], times: list[int] | None = None) -> list[Pair]:
    return recut(epoch, np.array(indices), np.array(times or [0] * len(indices)))


def ids(pairs: list[Pair]) -> dict[int, tuple[list[int], list[int]]]:
    return {pair.index: (pair.source.tolist(), pair.target.tolist()) for pair in pairs}


def test_the_texts_stay_the_same(corpus: Corpus, codecs: Codecs) -> None:
    given = sentences(200)
    for epoch in range(3):
        for pair in cut(ByWords(corpus, codecs, 1), epoch, list(range(200))):
            source, target = given[pair.index]
            assert codecs.source.decode(pair.source.tolist()) == source.lower()
            assert codecs.target.decode(pair.target.tolist()) == target


def test_cuts_depend_on_seed_epoch_and_pair_alone(corpus: Corpus, codecs: Codecs) -> None:
    one, other = ByWords(corpus, codecs, 1), ByWords(corpus, codecs, 1)
    whole = ids(cut(one, 4, list(range(200))))
    parts = ids(cut(other, 4, list(range(199, 99, -1)))) | ids(cut(other, 4, list(range(100))))
    assert whole == parts
    assert ids(cut(one, 4, list(range(200)))) == whole, "what is remembered changes nothing"
    assert ids(cut(one, 5, list(range(200)))) != whole
    assert ids(cut(ByWords(corpus, codecs, 2), 4, list(range(200)))) != whole
    assert ids(cut(one, 4, [7], [1])) != {7: whole[7]}, "a pair that stands twice is cut in two ways"


def test_what_is_forgotten_changes_nothing(corpus: Corpus, codecs: Codecs, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [ids(cut(ByWords(corpus, codecs, 1), epoch, list(range(200)))) for epoch in range(3)]
    monkeypatch.setattr(module, "MOST_WORDS", 1)
    monkeypatch.setattr(module, "MOST_TEXTS", 1)
    forgetful = ByWords(corpus, codecs, 1)
    assert [ids(cut(forgetful, epoch, list(range(200)))) for epoch in range(3)] == expected


def test_cuts_are_drawn_as_often_as_dropout_makes_them(codecs: Codecs, tmp_path: Path) -> None:
    """Every place draws among the variants alike, and these are draws of BPE dropout themselves."""
    count = 4_000
    examples = (Example("lowest", ("a",), "pairs.tsv", i + 1) for i in range(count))
    corpus, _ = Corpus.build(examples, codecs, tmp_path / "many", Limits(), keep_text=True)
    found = Counter(tuple(pair.source) for pair in cut(ByWords(corpus, codecs, 1), 0, list(range(count))))
    tokenizer, vocabulary = codecs.source.tokenizer, codecs.source.vocabulary
    part = tokenizer.parts("lowest")[0]
    cuts = [tokenizer.cuts([part], np.array([number])) for number in range(VARIANTS)]
    variants = Counter(tuple(vocabulary.ids(made.names[piece] for piece in made.pieces)) for made in cuts)
    assert found.keys() == variants.keys()
    assert len(variants) > 3
    for pieces, times in variants.items():
        assert found[pieces] / count == pytest.approx(times / VARIANTS, abs=0.03)


def test_a_side_that_does_not_sample_keeps_its_ids_and_weights_stay(codecs: Codecs, tmp_path: Path) -> None:
    plain = TextCodec.train(TextCodec.Settings(tokenizer=Words.Settings()), lambda: list(WORDS), 1)
    mixed = Codecs(codecs.source, plain)
    examples = (Example(s, (t,), "pairs.tsv", i + 1, weight=0.5 + i % 3) for i, (s, t) in enumerate(sentences(30)))
    corpus, _ = Corpus.build(examples, mixed, tmp_path / "mixed", Limits(), keep_text=True)
    for pair in cut(ByWords(corpus, mixed, 1), 0, list(range(30))):
        assert pair.target.tolist() == corpus[pair.index].target.tolist()
        assert pair.weight == corpus[pair.index].weight == 0.5 + pair.index % 3


def test_codecs_that_need_more_than_ids_cut_pair_by_pair(codecs: Codecs, corpus: Corpus) -> None:
    copying = Codecs(codecs.source, codecs.target, copies=True)
    assert not isinstance(recutting(corpus, copying, 1), ByWords)
    assert isinstance(recutting(corpus, codecs, 1), ByWords)
    pairs = recutting(corpus, copying, 1)(0, np.arange(5), np.zeros(5, np.int64))
    assert [pair.index for pair in pairs] == list(range(5))
    assert all(pair.copies is not None for pair in pairs)

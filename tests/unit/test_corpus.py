"""The corpus on disk holds exactly what was kept, and counts what was not."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from seqloom.data.codec import TextCodec
from seqloom.data.corpus import Corpus, Limits
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError

SENTENCES = ["the lower the better", "new and newer", "low", "a wider test of words"]


def codec(kind: str = "words", **more: object) -> TextCodec:
    return TextCodec.train(TextCodec.Settings(tokenizer={"kind": kind, **more}), lambda: SENTENCES, seed=1)


def examples(pairs: list[tuple[str, str]]) -> list[Example]:
    return [
        Example(source, (target, "another reference"), "f.tsv", line) for line, (source, target) in enumerate(pairs, 1)
    ]


@pytest.mark.parametrize("keep_text", [False, True])
def test_what_was_kept_comes_back(keep_text: bool, tmp_path: Path) -> None:
    source, target = codec("words"), codec("characters")
    pairs = [(a, b) for a in SENTENCES for b in SENTENCES]
    corpus, counts = Corpus.build(iter(examples(pairs)), source, target, tmp_path / "c", Limits(), keep_text)
    for opened in (corpus, Corpus.open(tmp_path / "c")):
        assert len(opened) == len(pairs) == counts.kept == counts.read
        for i, (a, b) in enumerate(pairs):
            pair = opened[i]
            assert (pair.source.tolist(), pair.target.tolist()) == (source.encode(a), target.encode(b))
            assert (pair.index, opened.line(i)) == (i, i + 1)
            assert not keep_text or opened.text(i) == (a, b)
        assert opened.lengths()[0].tolist() == [len(source.encode(a)) for a, _ in pairs]
        assert opened.lengths()[1].tolist() == [len(b) for _, b in pairs]
    assert counts.target_tokens == sum(len(b) for _, b in pairs)


def test_every_filter_is_counted_once(tmp_path: Path) -> None:
    pairs = [("a", "b"), (" ", "b"), ("a", ""), ("a b c", "b"), ("a", "b c d"), ("a b", "b"), ("moon", "a")]
    limits = Limits(max_source=2, max_target=2, max_ratio=1.5)
    _, counts = Corpus.build(examples(pairs), codec(), codec(), tmp_path / "c", limits)
    assert (counts.read, counts.kept) == (7, 2)
    assert counts.skipped == {"empty_source": 1, "empty_target": 1, "long_source": 1, "long_target": 1, "ratio": 1}
    assert (counts.source_unknown, counts.target_unknown) == (1, 1), "moon and b are no words of the vocabulary"


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    def built(name: str, pairs: list[tuple[str, str]]) -> str:
        return Corpus.build(examples(pairs), codec("characters"), codec("characters"), tmp_path / name, Limits())[
            0
        ].fingerprint

    assert built("a", [("a", "b"), ("new", "low")]) == built("b", [("a", "b"), ("new", "low")])
    assert built("a", [("a", "b"), ("new", "low")]) != built("b", [("a", "b"), ("newl", "ow")])


def test_a_large_vocabulary_needs_wider_ids(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(70_000)]
    wide = TextCodec.train(TextCodec.Settings(tokenizer="words"), lambda: words, seed=1)
    corpus, _ = Corpus.build(examples([(words[-1], words[0])]), wide, codec(), tmp_path / "c", Limits())
    assert corpus[0].source.tolist() == wide.encode(words[-1])


def test_building_again_replaces_the_old_corpus(tmp_path: Path) -> None:
    for text in ("low", "new"):
        corpus, _ = Corpus.build(examples([(text, text)]), codec(), codec(), tmp_path / "c", Limits(), keep_text=True)
        assert corpus.text(0) == (text, text)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_an_error_while_reading_leaves_the_old_corpus(tmp_path: Path) -> None:
    Corpus.build(examples([("low", "low")]), codec(), codec(), tmp_path / "c", Limits())

    def broken():
        yield from examples([("new", "new")])
        raise SeqloomError("E_DATA", "broken")

    with pytest.raises(SeqloomError, match="broken"):
        Corpus.build(broken(), codec(), codec(), tmp_path / "c", Limits())
    assert Corpus.open(tmp_path / "c")[0].source.tolist() == codec().encode("low")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_resampling_cuts_the_same_text_anew(tmp_path: Path) -> None:
    bpe = codec("bpe", size=40, sampling=0.5)
    corpus, _ = Corpus.build(examples([(SENTENCES[0], "low")]), bpe, codec(), tmp_path / "c", Limits(), keep_text=True)
    cuts = [corpus.resampled(corpus[0], bpe, codec(), Random(seed)) for seed in range(10)]
    assert {bpe.decode(pair.source.tolist()) for pair in cuts} == {SENTENCES[0]}
    assert len({tuple(pair.source.tolist()) for pair in cuts}) > 1
    again = corpus.resampled(corpus[0], bpe, codec(), Random(3))
    assert np.array_equal(again.source, cuts[3].source)


@pytest.mark.parametrize("damage", ["truncate", "json", "format", "missing"])
def test_a_damaged_corpus_is_refused(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    Corpus.build(examples([("low", "low")]), codec(), codec(), folder, Limits())
    if damage == "truncate":
        (folder / "source.ids").write_bytes(b"")
    elif damage == "json":
        (folder / "corpus.json").write_text("[]")
    elif damage == "format":
        (folder / "corpus.json").write_text(json.dumps({"format": 99}))
    else:
        (folder / "lines").unlink()
    with pytest.raises(SeqloomError) as caught:
        Corpus.open(folder)
    assert caught.value.code == ("E_FILE" if damage == "missing" else "E_BUNDLE")

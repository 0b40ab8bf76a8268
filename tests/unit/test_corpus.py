"""The corpus on disk holds exactly what was kept, and counts what was not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
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
    corpus, counts = Corpus.build(iter(examples(pairs)), Codecs(source, target), tmp_path / "c", Limits(), keep_text)
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
    _, counts = Corpus.build(examples(pairs), Codecs(codec(), codec()), tmp_path / "c", limits)
    assert (counts.read, counts.kept) == (7, 2)
    once = ("empty_source", "empty_target", "long_source", "long_target", "ratio")
    assert {name: count for name, count in counts.skipped.items() if count} == dict.fromkeys(once, 1)
    assert (counts.source_unknown, counts.target_unknown) == (1, 1), "moon and b are no words of the vocabulary"


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    def built(name: str, pairs: list[tuple[str, str]]) -> str:
        return Corpus.build(
            examples(pairs), Codecs(codec("characters"), codec("characters")), tmp_path / name, Limits()
        )[0].fingerprint

    assert built("a", [("a", "b"), ("new", "low")]) == built("b", [("a", "b"), ("new", "low")])
    assert built("a", [("a", "b"), ("new", "low")]) != built("b", [("a", "b"), ("newl", "ow")])


def test_a_large_vocabulary_needs_wider_ids(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(70_000)]
    wide = TextCodec.train(TextCodec.Settings(tokenizer="words"), lambda: words, seed=1)
    corpus, _ = Corpus.build(examples([(words[-1], words[0])]), Codecs(wide, codec()), tmp_path / "c", Limits())
    assert corpus[0].source.tolist() == wide.encode(words[-1])


def test_building_again_replaces_the_old_corpus(tmp_path: Path) -> None:
    for text in ("low", "new"):
        corpus, _ = Corpus.build(
            examples([(text, text)]), Codecs(codec(), codec()), tmp_path / "c", Limits(), keep_text=True
        )
        assert corpus.text(0) == (text, text)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_an_error_while_reading_leaves_the_old_corpus(tmp_path: Path) -> None:
    Corpus.build(examples([("low", "low")]), Codecs(codec(), codec()), tmp_path / "c", Limits())

    def broken():
        yield from examples([("new", "new")])
        raise SeqloomError("E_DATA", "broken")

    with pytest.raises(SeqloomError, match="broken"):
        Corpus.build(broken(), Codecs(codec(), codec()), tmp_path / "c", Limits())
    assert Corpus.open(tmp_path / "c")[0].source.tolist() == codec().encode("low")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_resampling_cuts_the_same_text_anew(tmp_path: Path) -> None:
    bpe = codec("bpe", size=40, sampling=0.5)
    corpus, _ = Corpus.build(
        examples([(SENTENCES[0], "low")]), Codecs(bpe, codec()), tmp_path / "c", Limits(), keep_text=True
    )
    cuts = [corpus.resampled(corpus[0], Codecs(bpe, codec()), Random(seed)) for seed in range(10)]
    assert {bpe.decode(pair.source.tolist()) for pair in cuts} == {SENTENCES[0]}
    assert len({tuple(pair.source.tolist()) for pair in cuts}) > 1
    again = corpus.resampled(corpus[0], Codecs(bpe, codec()), Random(3))
    assert np.array_equal(again.source, cuts[3].source)


@pytest.mark.parametrize("damage", ["truncate", "json", "format", "missing"])
def test_a_damaged_corpus_is_refused(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    Corpus.build(examples([("low", "low")]), Codecs(codec(), codec()), folder, Limits())
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


# --- further sources, copies, weights, alignments ----------------------------------------------------------------


def tags() -> TextCodec:
    settings = TextCodec.Settings(tokenizer={"kind": "symbols", "separator": ";"})
    return TextCodec.train(settings, lambda: ["V;PST", "N;PL"], seed=1)


RICH = [
    Example("the new test", ("new words",), "f", 1, {"tags": "V;PST"}),
    Example("low", ("lower",), "f", 2, {"tags": ""}, weight=0.25),
    Example("Zed and new", ("new and Zed",), "f", 3, {"tags": "N"}, links=((0, 2), (1, 1), (2, 0))),
    Example("the low", ("low",), "f", 4, {"tags": "X"}, weight=3.0),
]


@pytest.mark.parametrize("keep_text", [False, True])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("prefixes", [(), ("tags",)])
def test_all_that_a_pair_holds_comes_back(
    prefixes: tuple[str, ...], copies: bool, keep_text: bool, tmp_path: Path
) -> None:
    codecs = Codecs(codec(), codec("characters"), {"tags": tags()}, prefixes=prefixes, copies=copies)
    Corpus.build(RICH, codecs, tmp_path / "c", Limits(), keep_text)
    corpus = Corpus.open(tmp_path / "c")
    for i, example in enumerate(RICH):
        wanted, read = codecs.pair(example.inputs, example.target, i, example.links)
        found = corpus[i]
        for mine, theirs in ((found.source, wanted.source), (found.target, wanted.target)):
            assert mine.tolist() == theirs.tolist()
        assert {name: ids.tolist() for name, ids in found.extras.items()} == {
            name: ids.tolist() for name, ids in wanted.extras.items()
        }
        assert (found.copies is None) == (not copies)
        assert found.copies is None or found.copies.tolist() == wanted.copies.tolist()  # type: ignore[union-attr]
        assert found.weight == example.weight
        assert (found.links is None) == (example.links is None)
        assert found.links is None or found.links.tolist() == wanted.links.tolist()  # type: ignore[union-attr]
        assert corpus.lengths()[0][i] == read.length
        if keep_text:
            again = corpus.resampled(found, codecs, Random(1))
            assert again.source.tolist() == found.source.tolist()
            assert again.weight == found.weight
            assert (again.links is None) == (found.links is None)


def test_extras_and_weights_have_filters_of_their_own(tmp_path: Path) -> None:
    examples = [
        *RICH,
        Example("low", ("low",), "f", 5, {"tags": "V;V;V"}),
        Example("a", ("a",), "f", 6, {"tags": ""}, 0.0),
    ]
    for prefixes in ((), ("tags",)):
        codecs = Codecs(codec(), codec(), {"tags": tags()}, prefixes=prefixes)
        corpus, counts = Corpus.build(examples, codecs, tmp_path / "c", Limits(max_extra=2))
        assert (counts.kept, counts.long_extra, counts.no_weight) == (4, 1, 1)
        assert [corpus.line(i) for i in range(4)] == [1, 2, 3, 4]


def test_the_fingerprint_is_of_everything_a_pair_holds(tmp_path: Path) -> None:
    codecs = Codecs(codec(), codec(), {"tags": tags()})

    def mark(*changes: Example) -> str:
        return Corpus.build([*changes, *RICH[len(changes) :]], codecs, tmp_path / "c", Limits())[0].fingerprint

    marks = [
        mark(),
        mark(replace(RICH[0], extras={"tags": "V"})),
        mark(replace(RICH[0], weight=2.0)),
        mark(replace(RICH[0], links=((0, 0),))),
        mark(replace(RICH[0], links=((1, 0),))),
    ]
    assert len(set(marks)) == len(marks)
    assert mark() == marks[0]


def test_several_corpora_stand_one_after_the_other(tmp_path: Path) -> None:
    pairs = [replace(example, corpus=corpus) for corpus, example in zip((0, 0, 0, 2), RICH, strict=True)]
    corpus, _ = Corpus.build(pairs, Codecs(codec(), codec(), {"tags": tags()}), tmp_path / "c", Limits())
    assert corpus.sizes == (3, 0, 1)

"""All sides of a run as ids and back: extras before the source, copies, links of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreign import sentencepiece_model
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.tokenizers import TOKENIZERS
from seqloom.errors import SeqloomError
from seqloom.specials import SEP, SPECIALS, UNK


def codec(texts: list[str], **tokenizer: object) -> TextCodec:
    return TextCodec.train(TextCodec.Settings(tokenizer={"kind": "words", **tokenizer}), lambda: texts, seed=1)


TAGS = codec(["V;PST", "N;PL"], kind="symbols", separator=";")
SOURCE, TARGET = codec(["V PST walk the dog"]), codec(["walked dogs dog"])


def test_a_tag_is_never_taken_for_a_word_that_spells_the_same() -> None:
    codecs = Codecs(SOURCE, TARGET, {"tags": TAGS}, prefixes=["tags"])
    read = codecs.encode({"source": "V PST walk", "tags": "V;PST"})
    tags, text = read.source[:2].tolist(), read.source[3:].tolist()
    assert read.source[2] == SEP
    assert text == SOURCE.encode("V PST walk")
    assert not set(tags) & set(text)
    assert min(tags) >= len(SOURCE.vocabulary), "behind the source's own tokens"
    assert max(tags) < len(codecs.source.vocabulary), "and within what the embedding knows"
    assert read.own == 3
    assert codecs.source.pieces(read.source.tolist()) == ["tags:V", "tags:PST", "<sep>", "V", "PST", "walk"]


def test_every_prefix_has_symbols_of_its_own_and_keeps_its_place() -> None:
    codecs = Codecs(SOURCE, TARGET, {"one": TAGS, "two": TAGS}, prefixes=["one", "two"])
    read = codecs.encode({"two": "V", "source": "walk", "one": "V;X"})
    assert codecs.source.pieces(read.source.tolist()) == ["one:V", "<unk>", "<sep>", "two:V", "<sep>", "walk"]
    empty = codecs.encode({"source": "walk", "one": "", "two": ""})
    assert empty.source.tolist() == [SEP, SEP, *SOURCE.encode("walk")]


def test_one_vocabulary_for_both_sides_also_has_the_symbols() -> None:
    codecs = Codecs(SOURCE, SOURCE, {"tags": TAGS}, prefixes=["tags"])
    assert codecs.target is codecs.source
    assert len(codecs.target.vocabulary) == len(SOURCE.vocabulary) + len(TAGS.vocabulary.ordinary)
    assert codecs.target.vocabulary.spelled == len(SOURCE.vocabulary)
    symbol = len(SOURCE.vocabulary)
    assert codecs.decode([symbol]) == codecs.said([symbol])[0] == f"tags:{TAGS.vocabulary.ordinary[0]}"
    assert codecs.target.encode(f"tags:{TAGS.vocabulary.ordinary[0]}").count(symbol) == 0, "no text spells it"


def test_an_extra_with_its_own_encoder_is_a_sequence_of_its_own() -> None:
    codecs = Codecs(SOURCE, TARGET, {"tags": TAGS})
    read = codecs.encode({"source": "the dog", "tags": "N;X"})
    assert read.source.tolist() == SOURCE.encode("the dog")
    assert read.extras["tags"].tolist() == TAGS.encode("N;X")
    assert codecs.source is SOURCE
    assert codecs.positions(read) == ("the", "dog", "<eos>", "tags:N", "tags:<unk>", "tags:<eos>")
    assert read.length == 5


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("walk", "missing: tags; line 3; this model reads: source, tags"),
        ({"source": "walk"}, "missing: tags"),
        ({"tags": "V"}, "missing: source"),
        ({"source": "walk", "tag": "V"}, "no input is called 'tag' (did you mean \"tags\"?)"),
    ],
)
def test_what_is_missing_or_unknown_is_named(inputs: object, said: str) -> None:
    with pytest.raises(SeqloomError) as caught:
        Codecs(SOURCE, TARGET, {"tags": TAGS}).texts(inputs, "line 3")  # type: ignore[arg-type]
    assert said in caught.value.line
    assert caught.value.code == "E_USAGE"


# --- copying -----------------------------------------------------------------------------------------------------


def test_copies_are_target_ids_or_places_behind_the_vocabulary() -> None:
    codecs = Codecs(SOURCE, TARGET, {"tags": TAGS}, prefixes=["tags"], copies=True)
    size = len(TARGET.vocabulary)
    pair, read = codecs.pair({"source": "Zed the dog Zed", "tags": "V"}, "Zed dog the Moon")
    dog = TARGET.encode("dog")[0]
    assert read.copies is not None
    assert read.copies.tolist() == [-1, -1, size, size + 1, dog, size]
    assert read.foreign == ("Zed", "the")
    assert pair.target.tolist() == [size, dog, size + 1, UNK]
    assert codecs.decode(pair.target, read.foreign) == "Zed dog the <unk>"
    assert codecs.said([size + 7], read.foreign) == ["<copy 7>"]


@given(
    source=st.lists(st.sampled_from("abcdexyz"), max_size=8),
    target=st.lists(st.sampled_from("abcdexyz"), max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_what_stands_in_source_or_vocabulary_is_never_unknown(source: list[str], target: list[str]) -> None:
    side = codec(["a b c d e"])
    codecs = Codecs(side, side, copies=True)
    pair, read = codecs.pair(" ".join(source), " ".join(target))
    shown = [piece if piece in "abcde" or piece in source else "<unk>" for piece in target]
    assert codecs.said(pair.target, read.foreign) == shown
    assert codecs.decode(pair.target, read.foreign) == " ".join(shown)
    assert pair.copies is not None
    assert codecs.said(pair.copies, read.foreign) == source


# --- alignments --------------------------------------------------------------------------------------------------

TEXTS = ["we don't go home", "never mind the gap"]
SETTINGS: dict[str, dict[str, object]] = {"bpe": {"size": 24}, "unigram": {"size": 24}}


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if kind not in ("whole", "set", "number")])  # no words
def test_every_piece_of_a_word_inherits_its_links(kind: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.model").write_bytes(sentencepiece_model("source"))
    SETTINGS["sentencepiece"] = {"model": str(tmp_path / "elsewhere.model")}
    side = TextCodec.train(TextCodec.Settings(tokenizer={"kind": kind, **SETTINGS.get(kind, {})}), lambda: TEXTS, 1)
    codecs = Codecs(side, side)
    pair, read = codecs.pair("we don't  go", "ne we go", links=((0, 1), (1, 0), (2, 2)))
    assert pair.links is not None
    pieces = side.tokens("we don't  go"), side.tokens("ne we go")
    words = [side.tokenizer.words(cut, text) for cut, text in zip(pieces, ("we don't  go", "ne we go"), strict=True)]
    for cut, found, text in zip(pieces, words, ("we don't  go", "ne we go"), strict=True):
        spelled = [
            "".join(side.tokenizer.surface(p) for p, w in zip(cut, found, strict=True) if w == n) for n in range(3)
        ]
        assert [part.strip() for part in spelled] == text.split(), kind
    linked = {(words[0][s], words[1][t]) for t, s in pair.links.tolist()}
    assert linked == {(0, 1), (1, 0), (2, 2)}
    assert len(pair.links) == sum(words[1].count(t) * words[0].count(s) for s, t in linked)
    assert read.own == len(pieces[0])


def test_links_move_behind_a_prefix() -> None:
    codecs = Codecs(SOURCE, TARGET, {"tags": TAGS}, prefixes=["tags"])
    pair, _ = codecs.pair({"source": "walk dog", "tags": "V;PST"}, "dog walked", links=((0, 1), (1, 0)))
    assert pair.links is not None
    assert sorted(map(tuple, pair.links.tolist())) == [(0, 4), (1, 3)]


def test_bytes_of_a_character_belong_to_its_word() -> None:
    tokenizer = TOKENIZERS.build(TOKENIZERS.settings("bytes"))
    assert tokenizer.words(tokenizer.encode("ü b"), "ü b") == [0, 0, -1, 1]


def test_symbols_stay_out_of_lists_and_files(tmp_path) -> None:
    marked = SOURCE.with_symbols(["tags:V"])
    assert len(marked.vocabulary) == len(SOURCE.vocabulary) + 1
    assert marked.vocabulary != SOURCE.vocabulary
    assert "tags:V" not in marked.vocabulary
    assert marked.vocabulary.ordinary == SOURCE.vocabulary.ordinary
    marked.save(tmp_path)
    assert TextCodec.load(SOURCE.settings, tmp_path).vocabulary == SOURCE.vocabulary
    assert len(SPECIALS) + len(marked.vocabulary.ordinary) == marked.vocabulary.spelled

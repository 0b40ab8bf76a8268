"""The vocabulary: ids, counting, a file that survives every character; and the codec above it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from foreign import sentencepiece_of
from seqloom.data.codec import TextCodec, normalise
from seqloom.data.tokenizers import TOKENIZERS
from seqloom.data.vocabulary import Vocabulary
from seqloom.errors import SeqloomError
from seqloom.specials import BOS, EOS, PAD, SPECIALS, UNK

pieces = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4), unique=True, max_size=20)


def test_ordinary_pieces_follow_the_special_tokens() -> None:
    vocabulary = Vocabulary(["a", "<eos>"])
    assert len(vocabulary) == len(SPECIALS) + 2
    assert vocabulary.ids(["a", "<eos>", "b", "<pad>"]) == [6, 7, UNK, UNK]
    assert vocabulary.pieces([EOS, 7, 6]) == ["<eos>", "<eos>", "a"]
    assert vocabulary.unknown(["a", "b", "<unk>"]) == 2


def test_counting_sorts_by_count_then_piece() -> None:
    vocabulary = Vocabulary.count([["b", "a"], ["c", "a", "b"], ["d"]], max_size=3, min_count=1)
    assert list(vocabulary.ordinary) == ["a", "b", "c"]
    assert vocabulary.counts == {"a": 2, "b": 2, "c": 1}
    assert list(Vocabulary.count([["b", "a"], ["a", "b"], ["d"]], None, 2).ordinary) == ["a", "b"]


@given(pieces=pieces, counted=st.booleans())
@example(pieces=["\n", "\r", "\t", " ", "\\", "\\n", "\ufeff", "\u2028", "\x85", "a\tb", "0"], counted=True)
@settings(deadline=None)
def test_the_file_survives_every_character(pieces: list[str], counted: bool) -> None:
    vocabulary = Vocabulary(pieces, list(range(len(pieces))) if counted and pieces else None)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary.save(Path(folder) / "v.txt")
        assert Vocabulary.load(Path(folder) / "v.txt") == vocabulary
        assert [path.name for path in Path(folder).iterdir()] == ["v.txt"], "no temporary file stays"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\nb\na\nb\n", ["line 3: 'a' stands already on line 1", "line 4: 'b' stands already on line 2"]),
        ("a\n\nb\n\n", ["line 2: an empty entry", "line 4: an empty entry"]),
        ("a\n\t3\n", ["line 2: an empty entry"]),
        ("a\tmany\n", ["line 1: after the tab a count"]),
        ("a\n\\q\n", ["line 2: unknown escape"]),
        ("a\t1\nb\n", ["counts must stand on every line"]),
    ],
)
def test_a_bad_file_names_its_lines(content: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text(content)
    with pytest.raises(SeqloomError) as caught:
        Vocabulary.load(path)
    assert (caught.value.code, caught.value.exit_code, caught.value.where) == ("E_VOCABULARY", 2, str(path))
    assert all(part in caught.value.what for part in expected)


def codec(kind: str, texts: list[str], elsewhere: Path | None = None, **more: object) -> TextCodec:
    wanted: dict[str, object] = {"kind": kind}
    if "size" in TOKENIZERS.settings_class(kind).model_fields:
        wanted["size"] = 60
    if "model" in TOKENIZERS.settings_class(kind).model_fields:  # one that was trained elsewhere
        assert elsewhere is not None
        elsewhere.write_bytes(sentencepiece_of(texts))
        wanted["model"] = str(elsewhere)
    return TextCodec.train(TextCodec.Settings(tokenizer=wanted, **more), lambda: texts, seed=1)


TEXTS = ["hello world", "hello <eos> there, world!"]


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_codec_round_trip_and_bundle(kind: str, tmp_path: Path) -> None:
    texts = ["1.00", "5.00"] if TOKENIZERS[kind].scale else TEXTS
    trained = codec(kind, texts, tmp_path / "elsewhere.model")
    trained.save(tmp_path)
    loaded = TextCodec.load(trained.settings, tmp_path)
    for text in texts:
        ids = trained.encode(text)
        assert min(ids) >= len(SPECIALS), "text never becomes a special token"
        assert trained.decode([BOS, *ids, EOS, PAD]) == text
        assert loaded.encode(text) == ids
        assert loaded.encode_sampled(text, Random(0)) == ids
    assert loaded.vocabulary == trained.vocabulary


def test_unknown_tokens_show() -> None:
    trained = codec("words", TEXTS)
    assert trained.encode("hello moon") == [trained.vocabulary.ids(["hello"])[0], UNK]
    assert trained.decode([UNK]) == "<unk>"


def test_normalisation_is_the_codecs_alone() -> None:
    assert normalise("E\u0301", "nfc", "lower") == "\u00e9"
    assert normalise("E\u0301", "none", "keep") == "E\u0301"
    assert codec("characters", ["e\u0301A"], lowercase=True).decode([7, 6]) == "éa"
    assert len(codec("characters", ["e\u0301"], normalise="none").vocabulary.ordinary) == 2
    assert codec("characters", ["\ud55c"], normalise="nfd").tokens("\ud55c") == ["\u1112", "\u1161", "\u11ab"]


def test_a_vocabulary_file_replaces_counting(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("world\n")
    chosen = TextCodec.Settings(tokenizer="words", vocabulary={"file": "v.txt"})
    trained = TextCodec.train(chosen, lambda: TEXTS, seed=1, base=tmp_path)
    assert trained.encode("hello world") == [UNK, len(SPECIALS)]


@pytest.mark.parametrize(
    "raw",
    [
        {"tokenizer": "bpe", "vocabulary": {"max_size": 5}},
        {"tokenizer": "bytes", "vocabulary": {"min_count": 2}},
        {"tokenizer": "words", "vocabulary": {"file": "x", "min_count": 2}},
        {"tokenizer": {"kind": "symbols", "separator": ""}},
        {"tokenizer": {"kind": "bpe", "sampling": 1.5}},
        {"tokenizer": "word"},
    ],
)
def test_settings_that_would_do_nothing_are_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TextCodec.Settings.model_validate(raw)


def test_settings_round_trip() -> None:
    chosen = TextCodec.Settings(tokenizer={"kind": "bpe", "size": 100, "sampling": 0.1}, lowercase=True)
    assert TextCodec.Settings.model_validate(chosen.model_dump(mode="json")) == chosen


def test_an_empty_vocabulary_is_an_error() -> None:
    with pytest.raises(SeqloomError) as caught:
        codec("words", TEXTS, vocabulary={"min_count": 99})
    assert caught.value.code == "E_EMPTY"

"""One side's whole path between text and ids: normalise, tokenize, look up; and back.

A codec is trained once, travels in the bundle, and is used in the same way at training and at prediction, so nobody
tokenises by hand. It never adds BOS or EOS: those belong to batches.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Literal, cast

import numpy as np
from pydantic import Field, model_validator

from seqloom import config
from seqloom.config import Kind, kind_of
from seqloom.data.files import resolved
from seqloom.data.source import Cut, Read, SourceCodec, SourceSettings, Texts
from seqloom.data.tokenizer import Tokenizer
from seqloom.data.tokenizers import TOKENIZERS
from seqloom.data.vocabulary import Vocabulary
from seqloom.errors import SeqloomError
from seqloom.specials import BOS, EOS, PAD

MAX_CHARACTERS = 1_000_000  # of one text; longer ones teach the tokenizer nothing and are no examples

LEARNING = ("size", "sampling", "character_coverage")  # settings of tokenizers that a learned one no longer heeds

UnicodeForm = Literal["nfc", "nfd", "none"]  # nfd: accents and the letters of Hangul syllables stand apart


def normalise(text: str, unicode: UnicodeForm = "nfc", case: Literal["keep", "lower"] = "keep") -> str:
    """The only place where characters of the user change: Unicode form, then case."""
    if unicode == "nfc":
        text = unicodedata.normalize("NFC", text)
    elif unicode == "nfd":
        text = unicodedata.normalize("NFD", text)
    return text.lower() if case == "lower" else text


class VocabularySettings(config.Settings):
    """How many pieces are kept, or the file that lists them."""

    max_size: int | None = Field(default=None, ge=1)  # ordinary pieces, the special tokens not counted
    min_count: int = Field(default=1, ge=1)
    file: str | None = None  # one piece per line

    @model_validator(mode="after")
    def _one_way(self) -> VocabularySettings:
        if self.file is not None and (self.max_size is not None or self.min_count != 1):
            raise ValueError("with 'file' the pieces are given: 'max_size' and 'min_count' do not apply")
        return self


class TextCodec(SourceCodec):
    """Text <-> ids for one side."""

    unit, tagged = "token", "word"
    uneven = "give one tag for each word; if the source was cut otherwise, set source.tokenizer: symbols"

    class Settings(SourceSettings):
        kind: Literal["text"] = "text"
        tokenizer: Annotated[config.Settings, Kind(TOKENIZERS)]
        normalise: UnicodeForm = "nfc"
        lowercase: bool = False
        vocabulary: VocabularySettings = VocabularySettings()
        form = "text"

        @model_validator(mode="after")
        def _sizes_apply(self) -> TextCodec.Settings:
            kind = kind_of(self.tokenizer)
            if TOKENIZERS[kind].fixed_inventory and self.vocabulary.with_(file=None) != VocabularySettings():
                raise ValueError(f"{kind!r} brings its own pieces: 'max_size' and 'min_count' do not apply")
            return self

    def __init__(self, settings: Settings, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self.settings: TextCodec.Settings = settings
        self.tokenizer, self.vocabulary = tokenizer, vocabulary

    @classmethod
    def train(cls, settings: SourceSettings, texts: Texts, seed: int, base: Path | None = None) -> TextCodec:
        """Learn tokenizer and vocabulary in up to two passes. `base` is what a vocabulary file is relative to."""
        settings = cast(TextCodec.Settings, settings)

        def passes() -> Iterator[str]:
            return (_normalised(settings, text) for text in texts() if len(text) <= MAX_CHARACTERS)

        tokenizer = TOKENIZERS[kind_of(settings.tokenizer)].train(settings.tokenizer, passes(), seed)
        chosen = settings.vocabulary
        pieces = tokenizer.pieces()
        if chosen.file is not None:
            vocabulary = Vocabulary.load(Path(resolved(chosen.file, base)))
        elif pieces is not None:
            vocabulary = Vocabulary(pieces)
        else:
            vocabulary = Vocabulary.count(map(tokenizer.encode, passes()), chosen.max_size, chosen.min_count)
        if tokenizer.ordered:
            vocabulary = vocabulary.in_order()
        if not vocabulary.ordinary:
            raise SeqloomError("E_EMPTY", "the vocabulary is empty", fix="check the data, or lower min_count")
        return cls(settings, tokenizer, vocabulary)

    def normalise(self, text: str) -> str:
        return _normalised(self.settings, text)

    def words(self, text: str) -> list[int]:
        """For each token of a text the word between blanks that it is a part of, counted from 0; -1 for blanks."""
        return self.tokenizer.words(self.tokens(text), self.normalise(text))

    def difference(self, other: SourceCodec) -> str:
        """`key differs: mine, theirs`. How a vocabulary came about does not matter here: two of them are compared piece
        by piece."""
        mine, theirs = (one.settings.model_dump(mode="json", exclude={"vocabulary"}) for one in (self, other))
        for key, kinds in (
            ("kind", (mine["kind"], theirs["kind"])),
            ("tokenizer", [one.get("tokenizer", {}).get("kind") for one in (mine, theirs)]),
        ):
            if kinds[0] != kinds[1]:
                return f"{key} differs: {kinds[0]}, {kinds[1]}"
        mine |= {f"tokenizer.{key}": value for key, value in mine.pop("tokenizer").items() if key not in LEARNING}
        theirs |= {f"tokenizer.{key}": value for key, value in theirs.pop("tokenizer").items() if key not in LEARNING}
        return next((f"{key} differs: {mine[key]}, {theirs[key]}" for key in mine if mine[key] != theirs[key]), "")

    def with_symbols(self, symbols: Sequence[str]) -> TextCodec:
        """The same codec with symbols behind its vocabulary: ids that no text spells."""
        return TextCodec(self.settings, self.tokenizer, self.vocabulary.with_symbols(symbols))

    @property
    def learned(self) -> Vocabulary:
        return self.vocabulary

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    @property
    def natural(self) -> bool:
        return self.tokenizer.text_like

    @property
    def samples(self) -> bool:
        return self.tokenizer.samples

    def as_text(self) -> TextCodec:
        return self

    def cut(self, text: str, rng: Random | None = None) -> list[str]:
        return self.tokens(text, rng)

    def numbers(self, cut: Cut) -> Read:
        return np.array(self.vocabulary.ids(cut), dtype=np.int64)

    def labels(self, read: Read) -> list[str]:
        return self.pieces(read.tolist())

    def tokens(self, text: str, rng: Random | None = None) -> list[str]:
        """The pieces of a text, known or not; with an rng a random segmentation where the tokenizer has one."""
        text = self.normalise(text)
        return self.tokenizer.encode(text) if rng is None else self.tokenizer.encode_sampled(text, rng)

    def rewritten(self, text: str) -> str:
        """A text as a model would write it: normalised, the labels of a set in their order, a number as its level."""
        return self.tokenizer.decode(self.tokens(text))

    def encode(self, text: str) -> list[int]:
        return self.vocabulary.ids(self.tokens(text))

    def encode_sampled(self, text: str, rng: Random) -> list[int]:
        """A random segmentation where the tokenizer has one (BPE dropout); the rng alone decides."""
        return self.vocabulary.ids(self.tokenizer.encode_sampled(self.normalise(text), rng))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return self.vocabulary.pieces(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids. PAD, BOS and EOS vanish; an unknown token shows as "<unk>". Nothing stops at EOS here."""
        return self.tokenizer.decode(self.pieces(token for token in ids if token not in (PAD, BOS, EOS)))

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder)
        self.vocabulary.save(folder / "vocabulary.txt")

    @classmethod
    def load(cls, settings: SourceSettings, folder: Path) -> TextCodec:
        chosen = cast(TextCodec.Settings, settings)
        tokenizer = TOKENIZERS[kind_of(chosen.tokenizer)].load(chosen.tokenizer, folder)
        return cls(chosen, tokenizer, Vocabulary.load(folder / "vocabulary.txt"))


def _normalised(settings: TextCodec.Settings, text: str) -> str:
    return normalise(text, settings.normalise, "lower" if settings.lowercase else "keep")

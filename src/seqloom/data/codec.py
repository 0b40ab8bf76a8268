"""One side's whole path between text and ids: normalise, tokenize, look up; and back.

A codec is trained once, travels in the bundle, and is used in the same way at training and at prediction, so nobody
tokenises by hand. It never adds BOS or EOS: those belong to batches.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field, model_validator

from seqloom import config
from seqloom.config import Kind, kind_of
from seqloom.data.files import resolved
from seqloom.data.tokenizers import TOKENIZERS, Tokenizer
from seqloom.data.vocabulary import Vocabulary
from seqloom.errors import SeqloomError
from seqloom.specials import BOS, EOS, PAD

MAX_CHARACTERS = 1_000_000  # of one text; longer ones teach the tokenizer nothing and are no examples

LEARNING = ("size", "sampling", "character_coverage")  # settings of tokenizers that a learned one no longer heeds

UnicodeForm = Literal["nfc", "nfd", "none"]  # nfd: accents and the letters of Hangul syllables stand apart
Texts = Callable[[], Iterable[str]]  # a fresh pass over the texts at every call


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


class TextCodec:
    """Text <-> ids for one side."""

    class Settings(config.Settings):
        tokenizer: Annotated[config.Settings, Kind(TOKENIZERS)]
        normalise: UnicodeForm = "nfc"
        lowercase: bool = False
        vocabulary: VocabularySettings = VocabularySettings()

        @model_validator(mode="after")
        def _sizes_apply(self) -> TextCodec.Settings:
            kind = kind_of(self.tokenizer)
            if TOKENIZERS[kind].fixed_inventory and self.vocabulary.with_(file=None) != VocabularySettings():
                raise ValueError(f"{kind!r} brings its own pieces: 'max_size' and 'min_count' do not apply")
            return self

    def __init__(self, settings: Settings, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self.settings, self.tokenizer, self.vocabulary = settings, tokenizer, vocabulary

    @classmethod
    def train(cls, settings: Settings, texts: Texts, seed: int, base: Path | None = None) -> TextCodec:
        """Learn tokenizer and vocabulary in up to two passes. `base` is what a vocabulary file is relative to."""

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
        if not vocabulary.ordinary:
            raise SeqloomError("E_EMPTY", "the vocabulary is empty", fix="check the data, or lower min_count")
        return cls(settings, tokenizer, vocabulary)

    def normalise(self, text: str) -> str:
        return _normalised(self.settings, text)

    def words(self, text: str) -> list[int]:
        """For each token of a text the word between blanks that it is a part of, counted from 0; -1 for blanks."""
        return self.tokenizer.words(self.tokens(text), self.normalise(text))

    def difference(self, other: TextCodec) -> str:
        """The setting by which the other reads a text differently, `key differs: mine, theirs`; empty where none does.

        How a vocabulary came about does not matter here: two of them are compared piece by piece.
        """
        mine, theirs = (one.settings.model_dump(mode="json", exclude={"vocabulary"}) for one in (self, other))
        kinds = (kind_of(self.settings.tokenizer), kind_of(other.settings.tokenizer))
        if kinds[0] != kinds[1]:
            return f"tokenizer differs: {kinds[0]}, {kinds[1]}"
        mine |= {f"tokenizer.{key}": value for key, value in mine.pop("tokenizer").items() if key not in LEARNING}
        theirs |= {f"tokenizer.{key}": value for key, value in theirs.pop("tokenizer").items() if key not in LEARNING}
        return next((f"{key} differs: {mine[key]}, {theirs[key]}" for key in mine if mine[key] != theirs[key]), "")

    def with_symbols(self, symbols: Sequence[str]) -> TextCodec:
        """The same codec with symbols behind its vocabulary: ids that no text spells."""
        return TextCodec(self.settings, self.tokenizer, self.vocabulary.with_symbols(symbols))

    def tokens(self, text: str, rng: Random | None = None) -> list[str]:
        """The pieces of a text, known or not; with an rng a random segmentation where the tokenizer has one."""
        text = self.normalise(text)
        return self.tokenizer.encode(text) if rng is None else self.tokenizer.encode_sampled(text, rng)

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
    def load(cls, settings: Settings, folder: Path) -> TextCodec:
        tokenizer = TOKENIZERS[kind_of(settings.tokenizer)].load(settings.tokenizer, folder)
        return cls(settings, tokenizer, Vocabulary.load(folder / "vocabulary.txt"))


def _normalised(settings: TextCodec.Settings, text: str) -> str:
    return normalise(text, settings.normalise, "lower" if settings.lowercase else "keep")

"""Text to pieces and back, exactly: `decode(encode(text)) == text` for every tokenizer of the table.

A tokenizer is one class and one line in `TOKENIZERS`. Pieces are strings; ids belong to the vocabulary, and Unicode
form and case to the codec: no tokenizer here changes a character, but for a sentencepiece model that was made elsewhere
(`sentencepieces.py`). What the sentencepiece kinds need lives in `subwords.py`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, Self, cast
from zlib import crc32

import numpy as np
from pydantic import Field
from sentencepiece import SentencePieceProcessor

from seqloom import config
from seqloom.config import Table
from seqloom.data import subwords
from seqloom.data.examples import ITEMS, words_of_pieces
from seqloom.data.levels import Number
from seqloom.data.merging import Cuts, Merges, Numbers
from seqloom.data.sentencepieces import SentencePiece
from seqloom.data.tokenizer import Tokenizer, Untrained
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_bounded

# --- words -------------------------------------------------------------------------------------------------------

MOST_BYTES = 100_000_000  # of a sentencepiece model
JOINER = "\uffed"  # "￭" on a side of a piece: no space stands there
_QUOTED_JOINER = f"[{JOINER}]"  # the mark itself, when the user writes it: no other piece has two symbols inside
_SPACE = f"{JOINER} {JOINER}"  # a space that is not the single one between two pieces


@cache
def _atoms() -> re.Pattern[str]:
    """(word, symbol): a word or a single other character. Marks and zero-width joiners belong to words."""
    codes = chain(range(0x300, 0x20000), range(0xE0100, 0xE01F0))
    marks = "".join(chr(code) for code in codes if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"([\w{re.escape(marks)}\u200c\u200d]+)|(.)", re.DOTALL)


@lru_cache(maxsize=1 << 16)  # a corpus repeats itself
def _joined(part: str) -> tuple[str, ...]:
    """The pieces of a part without spaces, each joined to the next."""
    pieces: list[str] = []
    for word, symbol in _atoms().findall(part):
        if word and pieces:
            pieces[-1] += JOINER  # two words never touch, so the last piece is a symbol
        piece = word or (_QUOTED_JOINER if symbol == JOINER else symbol)
        pieces.append(JOINER + piece if symbol and pieces else piece)
    return tuple(pieces)


class Words(Untrained):
    """Words and punctuation, fully reversible.

    A single space between two pieces is understood; where there is none, the symbol (not the word) carries a joiner:
    `(no, it's)` is `(￭ no ￭, it ￭'￭ s ￭)`. So a plain word is a plain piece, and finds its GloVe vector.
    """

    text_like = True

    class Settings(config.Settings):
        kind: Literal["words"] = "words"

    def encode(self, text: str) -> list[str]:
        pieces: list[str] = []
        before = ""
        for i, part in enumerate(text.split(" ")):
            if i > 0 and not (before and part):
                pieces.append(_SPACE)
            pieces += _joined(part) if len(part) <= 40 else _joined.__wrapped__(part)  # only words are worth caching
            before = part
        return pieces

    def decode(self, pieces: Sequence[str]) -> str:
        out: list[str] = []
        glued = True  # nothing stands before the first piece
        for piece in pieces:
            if not glued and not piece.startswith(JOINER):
                out.append(" ")
            out.append(self.surface(piece))
            glued = piece.endswith(JOINER)
        return "".join(out)

    def surface(self, piece: str) -> str:
        core = piece.removeprefix(JOINER).removesuffix(JOINER)
        return JOINER if core == _QUOTED_JOINER else core

    def edge(self, piece: str) -> str:
        return JOINER if piece.endswith(JOINER) else ""

    def added(self, piece: str, edge: str | None) -> bytes | None:
        glued = edge is None or edge == JOINER or piece.startswith(JOINER)
        return (("" if glued else " ") + self.surface(piece)).encode("utf-8")


# --- characters, bytes, symbols ----------------------------------------------------------------------------------


class Characters(Untrained):
    """One piece per Unicode code point, spaces too."""

    class Settings(config.Settings):
        kind: Literal["characters"] = "characters"

    def encode(self, text: str) -> list[str]:
        return list(text)

    def decode(self, pieces: Sequence[str]) -> str:
        return "".join(pieces)

    def added(self, piece: str, edge: str | None) -> bytes | None:
        return piece.encode("utf-8")


class Bytes(Untrained):
    """The UTF-8 bytes: 256 pieces and nothing is ever unknown. Printable ASCII shows as itself, the rest as <C3>."""

    fixed_inventory = True
    _pieces: ClassVar[list[str]] = [chr(byte) if 32 <= byte < 127 else f"<{byte:02X}>" for byte in range(256)]
    _bytes: ClassVar[dict[str, bytes]] = {piece: bytes([byte]) for byte, piece in enumerate(_pieces)}

    class Settings(config.Settings):
        kind: Literal["bytes"] = "bytes"

    def encode(self, text: str) -> list[str]:
        return [self._pieces[byte] for byte in text.encode("utf-8")]

    def decode(self, pieces: Sequence[str]) -> str:
        data = b"".join(self._bytes.get(piece) or piece.encode("utf-8") for piece in pieces)
        return data.decode("utf-8", errors="replace")  # a model may break off inside a character

    def added(self, piece: str, edge: str | None) -> bytes | None:
        return self._bytes.get(piece) or piece.encode("utf-8")

    def words(self, pieces: Sequence[str], text: str) -> list[int]:
        places = zip(text, words_of_pieces(list(text), text), strict=True)
        return [word for character, word in places for _ in character.encode("utf-8")]

    def pieces(self) -> list[str]:
        return list(self._pieces)


class Symbols(Untrained):
    """What stands between separators, for phonemes and tags. Empty symbols vanish: `AH  B` is `AH B`."""

    class Settings(config.Settings):
        kind: Literal["symbols"] = "symbols"
        separator: str = Field(default=" ", min_length=1)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.separator = settings.separator

    def encode(self, text: str) -> list[str]:
        return [symbol for symbol in text.split(self.separator) if symbol]

    def decode(self, pieces: Sequence[str]) -> str:
        return self.separator.join(pieces)

    def added(self, piece: str, edge: str | None) -> bytes | None:
        return (piece if edge is None else self.separator + piece).encode("utf-8")


class LabelSet(Untrained):
    """Labels between separators, each once and in the order of their names: `b; a; b` is `a;b`, and nothing is none.

    Blanks around a label, and how many stand inside of it, do not count.
    """

    ordered = True

    class Settings(config.Settings):
        kind: Literal["set"] = "set"
        separator: str = Field(default=ITEMS, min_length=1)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.separator = settings.separator

    def encode(self, text: str) -> list[str]:
        return sorted({" ".join(label.split()) for label in text.split(self.separator)} - {""})

    def decode(self, pieces: Sequence[str]) -> str:
        return self.separator.join(pieces)

    def added(self, piece: str, edge: str | None) -> bytes | None:
        return (piece if edge is None else self.separator + piece).encode("utf-8")


class Whole(Untrained):
    """The whole text is one piece: a label, whatever is written in it."""

    class Settings(config.Settings):
        kind: Literal["whole"] = "whole"

    def encode(self, text: str) -> list[str]:
        return [text] if text else []

    def decode(self, pieces: Sequence[str]) -> str:
        return "".join(pieces)

    def added(self, piece: str, edge: str | None) -> bytes | None:
        return piece.encode("utf-8")


# --- subwords ----------------------------------------------------------------------------------------------------


class SubwordSettings(config.Settings):
    """Keys that both sentencepiece kinds share."""

    size: int = Field(default=8000, ge=2, le=10_000_000)  # pieces wanted; a small corpus may give fewer
    sampling: float = Field(default=0.0, ge=0.0, le=1.0)  # in training only; 0 is off
    character_coverage: float = Field(default=1.0, gt=0.9, le=1.0)  # below 1, the rarest characters become unknown


class _Subwords(Tokenizer):
    """A sentencepiece model that seqloom trained itself, kept as bytes."""

    text_like = True
    fixed_inventory = True
    algorithm: ClassVar[Literal["bpe", "unigram"]]
    file: ClassVar[str] = "sentencepiece.model"

    def __init__(self, settings: config.Settings, model: bytes) -> None:
        self.settings, self.model = cast(SubwordSettings, settings), model
        self._processor = SentencePieceProcessor(model_proto=model)
        self._scores = subwords.inventory(self._processor)

    @classmethod
    def train(cls, settings: config.Settings, texts: Iterable[str], seed: int) -> Self:
        chosen = cast(SubwordSettings, settings)
        model = subwords.train_model(cls.algorithm, texts, chosen.size, chosen.character_coverage, seed)
        return cls(settings, model)

    @property
    def samples(self) -> bool:
        return self.settings.sampling > 0

    def encode(self, text: str) -> list[str]:
        pieces: list[str] = self._processor.encode(subwords.escaped(text), out_type=str)
        return pieces

    def encode_sampled(self, text: str, rng: Random) -> list[str]:
        if not self.samples:
            return self.encode(text)
        parts = self.parts(text)
        names, pieces, _ = self.cuts(parts, np.array([rng.getrandbits(32) for _ in parts], np.int64))
        return [names[piece] for piece in pieces.tolist()]

    def parts(self, text: str) -> list[str]:
        return subwords.words_of(subwords.escaped(text))

    def decode(self, pieces: Sequence[str]) -> str:
        return subwords.unescaped("".join(pieces))

    def pieces(self) -> list[str]:
        return list(self._scores)

    def surface(self, piece: str) -> str:
        return subwords.unescaped(piece)

    def added(self, piece: str, edge: str | None) -> bytes | None:
        if piece.endswith(subwords.ESCAPE):  # the next piece says what was escaped
            return None
        return subwords.unescaped(piece if edge is None else subwords.SPACE + piece).encode("utf-8")

    def save(self, folder: Path) -> None:
        atomic_write(folder / self.file, self.model)

    @classmethod
    def load(cls, settings: config.Settings, folder: Path) -> Self:
        path = folder / cls.file
        try:
            model = read_bounded(path, MOST_BYTES)
            if not model:
                raise RuntimeError("an empty file")  # sentencepiece would take it for "no model yet"
            return cls(settings, model)
        except OSError as error:
            raise SeqloomError("E_BUNDLE", f"cannot read the tokenizer: {error.strerror}", where=str(path)) from None
        except (RuntimeError, ValueError, IndexError):  # ValueError: pieces that are not UTF-8
            raise SeqloomError("E_BUNDLE", "not a sentencepiece model", where=str(path)) from None


class Bpe(_Subwords):
    """Byte pair encoding (Sennrich et al. 2016); `sampling` is the dropout probability of a merge."""

    algorithm = "bpe"

    class Settings(SubwordSettings):
        kind: Literal["bpe"] = "bpe"

    @cached_property
    def _merges(self) -> Merges:
        return Merges(self._scores, self.settings.sampling)

    def cuts(self, parts: Sequence[str], numbers: Numbers) -> Cuts:
        words = np.fromiter((crc32(part.encode()) for part in parts), np.uint64, len(parts))
        return self._merges.cuts(parts, (words << np.uint64(32)) + numbers.astype(np.uint64))


class Unigram(_Subwords):
    """A unigram language model over pieces (Kudo 2018); `sampling` is its alpha: the smaller, the wilder."""

    algorithm = "unigram"

    class Settings(SubwordSettings):
        kind: Literal["unigram"] = "unigram"

    def __init__(self, settings: config.Settings, model: bytes) -> None:
        super().__init__(settings, model)
        self._sampler = subwords.UnigramSampler(self._scores, self.settings.sampling)

    def _cut(self, part: str, number: int) -> list[str]:
        rng = Random(crc32(f"{number} {part}".encode()))
        return subwords.unknown_runs_joined(self._sampler.draw(part, rng), self._scores)


TOKENIZERS: Table[Tokenizer] = Table(
    "tokenizers",
    {
        "words": Words,
        "characters": Characters,
        "bytes": Bytes,
        "symbols": Symbols,
        "whole": Whole,
        "set": LabelSet,
        "number": Number,
        "bpe": Bpe,
        "unigram": Unigram,
        "sentencepiece": SentencePiece,
    },
)

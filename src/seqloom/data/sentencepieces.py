"""A sentencepiece model that was made elsewhere, as a tokenizer.

The kinds that seqloom trains (`bpe`, `unigram`) change no character. A model from elsewhere does what it was trained to
do: most normalise (NFKC) and drop repeated blanks. All of that stays its own; what it has changed once it leaves alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from sentencepiece import SentencePieceProcessor

from seqloom import config
from seqloom.data.subwords import SPACE
from seqloom.data.tokenizer import Tokenizer
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_bounded

MOST_BYTES = 200_000_000  # of a model's file


class SentencePiece(Tokenizer):
    """Pieces of a given sentencepiece model, which normalises as it was trained to; `symbols` are pieces besides.

    A text may begin with one of the symbols (">>fra<<"): it is then cut off as a piece of its own.
    """

    text_like = True
    fixed_inventory = True
    file: ClassVar[str] = "sentencepiece.model"

    class Settings(config.Settings):
        kind: Literal["sentencepiece"] = "sentencepiece"
        model: str  # the file, as sentencepiece wrote it; a bundle holds a copy
        symbols: tuple[str, ...] = ()

    def __init__(self, settings: config.Settings, model: bytes) -> None:
        assert isinstance(settings, SentencePiece.Settings)
        self.settings, self.model = settings, model
        self._processor = SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(cls, settings: config.Settings, texts: Iterable[str], seed: int) -> Self:
        assert isinstance(settings, SentencePiece.Settings)
        return cls.read(settings, Path(settings.model), "E_FILE")

    @classmethod
    def load(cls, settings: config.Settings, folder: Path) -> Self:
        return cls.read(settings, folder / cls.file, "E_BUNDLE")

    @classmethod
    def read(cls, settings: config.Settings, path: Path, code: str) -> Self:
        """A model's file; an error under this name where it is none."""
        fix = "give a file that sentencepiece wrote (its names end in .model or .spm)"
        if not path.is_file():
            raise SeqloomError(code, "no such sentencepiece model", where=str(path), fix=fix)
        model = read_bounded(path, MOST_BYTES)
        try:
            if not model:
                raise RuntimeError("an empty file")  # sentencepiece would take it for "no model yet"
            return cls(settings, model)
        except RuntimeError:
            raise SeqloomError(code, "not a sentencepiece model", where=str(path), fix=fix) from None

    def encode(self, text: str) -> list[str]:
        begun = [symbol for symbol in self.settings.symbols if text.startswith(symbol)]
        first = max(begun, key=len, default="")
        pieces: list[str] = self._processor.encode(text.removeprefix(first), out_type=str)
        return [first, *pieces] if first else pieces

    def decode(self, pieces: Sequence[str]) -> str:
        begun = pieces[:1] if pieces and pieces[0] in self.settings.symbols else []
        text: str = self._processor.decode_pieces(list(pieces[len(begun) :]))
        return "".join(begun) + text.replace(SPACE, " ").strip()

    def pieces(self) -> list[str]:
        every = range(self._processor.get_piece_size())
        own = [self._processor.id_to_piece(i) for i in every if not self._special(i)]
        return [*dict.fromkeys([*own, *self.settings.symbols])]

    def _special(self, piece: int) -> bool:
        return bool(self._processor.is_unknown(piece) or self._processor.is_control(piece))

    def surface(self, piece: str) -> str:
        return piece.replace(SPACE, " ").removeprefix(" ")

    def save(self, folder: Path) -> None:
        atomic_write(folder / self.file, self.model)

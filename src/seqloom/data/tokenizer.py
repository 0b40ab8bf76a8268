"""What a tokenizer is: it cuts a text into pieces and joins pieces to a text. This file knows no particular one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import ClassVar, Self

import numpy as np

from seqloom import config
from seqloom.data.examples import words_of_pieces
from seqloom.data.merging import Cuts, Numbers


class Tokenizer(ABC):
    """Cuts a text into pieces and joins pieces to a text. Law 9: joining what was cut gives the text back."""

    Settings: type[config.Settings]
    text_like: ClassVar[bool] = False  # natural text, which `predict` may split into sentences
    fixed_inventory: ClassVar[bool] = False  # `pieces()` lists all it can produce; otherwise they are counted from data
    scale: ClassVar[bool] = False  # True: pieces are the levels of one scale, in their order
    ordered: ClassVar[bool] = False  # True: pieces of a text stand in the order of their names, and so do their ids

    @classmethod
    @abstractmethod
    def train(cls, settings: config.Settings, texts: Iterable[str], seed: int) -> Self:
        """Learn from texts what there is to learn (for most kinds: nothing, and the texts are not read)."""

    @abstractmethod
    def encode(self, text: str) -> list[str]: ...

    @abstractmethod
    def decode(self, pieces: Sequence[str]) -> str:
        """The text of any pieces, also of those a model invents: never fails."""

    def encode_sampled(self, text: str, rng: Random) -> list[str]:
        """One of several ways to cut the text, for training; the rng alone decides which."""
        return self.encode(text)

    @property
    def samples(self) -> bool:
        """Whether `encode_sampled` differs from `encode`: then a corpus must keep its texts."""
        return False

    def parts(self, text: str) -> list[str]:
        """The text in parts that no piece crosses, by which it can be sampled."""
        return [text]

    def cuts(self, parts: Sequence[str], numbers: Numbers) -> Cuts:
        """One of several ways to cut each part, for training; its number decides which, always the same one."""
        names: dict[str, int] = {}
        cut = [self._cut(part, number) for part, number in zip(parts, numbers.tolist(), strict=True)]
        pieces = [names.setdefault(piece, len(names)) for pieces in cut for piece in pieces]
        return Cuts([*names], np.array(pieces, np.int64), np.fromiter(map(len, cut), np.int64, len(cut)))

    def _cut(self, part: str, number: int) -> list[str]:
        return self.encode(part)

    def pieces(self) -> list[str] | None:
        """Every piece there can be, or None where pieces are counted from data."""
        return None

    def surface(self, piece: str) -> str:
        """The piece as it reads in a text, marks taken off: what word vectors and frequencies are looked up by."""
        return piece

    def edge(self, piece: str) -> str:
        """What of a piece decides how the next one is joined to it; for most tokenizers nothing does."""
        return ""

    def added(self, piece: str, edge: str | None) -> bytes | None:
        """The UTF-8 that a piece adds to a text which ends with such an edge (None: which it begins).

        None where that cannot be told piece by piece; outputs then cannot be held to a pattern. Law: added up they are
        what `decode` gives.
        """
        return None

    @classmethod
    def refuse(cls, text: str, where: str) -> None:
        """E_DATA for a text that cannot be meant, as a word where only numbers can stand."""
        return None

    def words(self, pieces: Sequence[str], text: str) -> list[int]:
        """For each piece of this text the word between blanks that it is a part of, counted from 0; -1 for blanks."""
        return list(words_of_pieces([self.surface(piece) for piece in pieces], text))

    def save(self, folder: Path) -> None:
        """Write what `train` learned; nothing for kinds that learn nothing."""
        return None

    @classmethod
    @abstractmethod
    def load(cls, settings: config.Settings, folder: Path) -> Self: ...


class Untrained(Tokenizer):
    """A tokenizer that learns nothing: its settings are all of it."""

    def __init__(self, settings: config.Settings) -> None:
        self.settings = settings

    @classmethod
    def train(cls, settings: config.Settings, texts: Iterable[str], seed: int) -> Self:
        return cls(settings)

    @classmethod
    def load(cls, settings: config.Settings, folder: Path) -> Self:
        return cls(settings)

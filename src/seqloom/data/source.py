"""What every kind of source can do, whatever it is made of: text, frames; and what stands in a recipe for it.

A kind of source is a codec here (from what a person names to numbers), a front end in `nn/frontends.py` (from numbers
to vectors) and a part of a batch in `batch.py`. Its codec is trained once, travels in the bundle, and reads the same at
training and at prediction. Whoever needs the words of a text asks for it (`as_text`): other kinds refuse.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from seqloom import config
from seqloom.config import kind_of
from seqloom.errors import SeqloomError
from seqloom.files import file_error

if TYPE_CHECKING:
    from seqloom.data.codec import TextCodec

Read = npt.NDArray[np.integer] | npt.NDArray[np.floating]  # one source: ids (S), or frames (S F)
Texts = Callable[[], Iterable[str]]  # a fresh pass over the texts (or names of files) at every call
Cut = Sequence[str] | npt.NDArray[np.floating]  # S: pieces of a text, or frames
Grid = tuple[int, int]  # rows and columns of a picture's regions, S = rows x columns


class SourceSettings(config.Settings):
    """How a source is read."""

    kind: str
    in_files: ClassVar[bool] = False  # True: a source is a file by itself, which the data only name
    form: ClassVar[str]  # what a model gets of it, which its front end must read: "text", "frames"

    def suits(self) -> Mapping[str, Mapping[str, object]]:
        """Parts of a model that suit such sources, where a recipe leaves them open: what is said of each."""
        return {}


class SourceCodec(ABC):
    """What is asked, as numbers."""

    unit: ClassVar[str]  # what its positions are called: "token"
    tagged: ClassVar[str]  # what has a tag of its own, where every part has one: "word"
    uneven: ClassVar[str]  # what to do where there are not as many tags as that
    suffixes: ClassVar[tuple[str, ...]] = ()  # how names of files end that are sources by themselves
    settings: SourceSettings

    @classmethod
    @abstractmethod
    def train(cls, settings: SourceSettings, texts: Texts, seed: int, base: Path | None = None) -> SourceCodec:
        """Learn from the training set. `base` is what files named in the settings are relative to."""

    @classmethod
    @abstractmethod
    def load(cls, settings: SourceSettings, folder: Path) -> SourceCodec: ...

    @abstractmethod
    def save(self, folder: Path) -> None: ...

    @property
    @abstractmethod
    def size(self) -> int:
        """V, the different tokens; or F, the features of a frame: what a front end must know."""

    @property
    def natural(self) -> bool:
        """Is it natural text, which may be split into sentences?"""
        return False

    @property
    def samples(self) -> bool:
        """May the same source be cut in several ways?"""
        return False

    @property
    def grid(self) -> Grid | None:
        """Rows and columns, where its positions are the regions of a picture."""
        return None

    @property
    def varies(self) -> bool:
        """May training see the same source changed, another way in every epoch?"""
        return False

    def varied(self, read: Read, rng: Random) -> Read:
        """The same source as training sees it this time: of as many positions; the rng alone decides."""
        return read

    @abstractmethod
    def cut(self, text: str, rng: Random | None = None) -> Cut:
        """The S positions of a source; with an rng a random segmentation where there is one."""

    def recut(self, text: str, read: Read, rng: Random) -> Cut:
        """The positions of a source as training reads them this time; `read` is what it is without an rng."""
        return self.cut(text, rng)

    @abstractmethod
    def numbers(self, cut: Cut) -> Read:
        """What a model reads of these positions."""

    @abstractmethod
    def labels(self, read: Read) -> list[str]:
        """How the positions are called where a person sees them."""

    @abstractmethod
    def words(self, text: str) -> list[int]:
        """For each position the word of the text that it is a part of, counted from 0; -1: none."""

    @abstractmethod
    def difference(self, other: SourceCodec) -> str:
        """The setting by which the other reads a source differently, in a few words; empty where none does."""

    @property
    @abstractmethod
    def learned(self) -> object:
        """What it learned from the training set, to be compared: a vocabulary; means and deviations."""

    def length(self, text: str) -> int:
        """How many positions a source has."""
        return len(self.cut(text))

    def signal(self, read: Read) -> npt.NDArray[np.float32] | None:
        """What was read as a picture of S columns, low features first; None where it is no signal."""
        return None

    def inputs(self, place: str) -> list[str] | None:
        """The sources that a file or folder is by itself; None where its lines are the sources."""
        return None

    def located(self, text: str, file: str) -> str:
        """A source as the model is asked, from how a line of `file` writes it."""
        return text

    def shown(self, text: str) -> str:
        """The source as a data URI that a page can draw; empty where it is shown as text."""
        return ""

    def as_text(self) -> TextCodec:
        what = f"this model reads {kind_of(self.settings)}, and that is about the words of a text"
        raise SeqloomError("E_USAGE", what, fix="ask it of a model whose source is text")


def check_file(path: str) -> os.stat_result:
    """What the system knows of a source's file; E_FILE where it is none that can be read."""
    try:
        found = os.stat(path)
        with suppress(IsADirectoryError):
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        refused = file_error(error if isinstance(error, OSError) else OSError(str(error)), path, "read")
        fix = "relative paths begin at the folder of the list that names them"
        raise SeqloomError(refused.code, refused.what, where=path, fix=fix) from None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder, not a file" if stat.S_ISDIR(found.st_mode) else "not a plain file"
        raise SeqloomError("E_FILE", what, where=path, fix="name the file of a source")
    return found


def in_folder(text: str, file: str) -> str:
    """The place of a file that a list names: relative to the list's folder, or to the current one where it is piped."""
    text = text.strip()
    return text if not text or file in ("-", "<stdin>", "") else str(Path(file).parent / text)


def apart(one: SourceSettings, other: SourceSettings, aside: set[str]) -> str:
    """The first setting that differs, those aside that change nothing of what is read; nothing where none does."""
    mine, theirs = (settings.model_dump(mode="json", exclude=aside) for settings in (one, other))
    keys = ("kind",) if mine["kind"] != theirs["kind"] else tuple(mine)
    return next((f"{key} differs: {mine[key]}, {theirs[key]}" for key in keys if mine[key] != theirs[key]), "")

"""Frames: a source that is a sequence of feature vectors, one .npy file of (time, features) each.

What stands in the data is the file's name, relative to the list that names it. Features are brought to mean 0 and
deviation 1, which is learned from the training set and travels in the bundle (or taken from each file by itself), and
neighbours may be stacked into one longer frame, so that there are fewer positions (Sak et al. 2015).
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field

from seqloom.data import moments
from seqloom.data.arrays import MAX_FEATURES, SUFFIX, Header, Values, files_in
from seqloom.data.masking import Masks
from seqloom.data.moments import Moments, divisors
from seqloom.data.source import Cut, Read, SourceCodec, SourceSettings, Texts, apart, in_folder
from seqloom.errors import SeqloomError

FILE = "frames.json"
LEAST = 1e-6  # a deviation below this part of the mean is that of a constant feature: it is left as it is
NOT_READ = {"rate", "augment", "speeds", "max_seconds"}  # settings that change nothing of what is read
Statistics = npt.NDArray[np.float64]  # F


class FrameSettings(SourceSettings):
    """What is said of frames, whatever they are made from."""

    normalise: Literal["training", "each", "none"] = "training"  # by the training set's mean and deviation, or own
    stack: int = Field(1, ge=1, le=100)  # so many neighbours are one position
    augment: Masks = Masks()  # of training alone
    in_files = True
    form = "frames"


class FramesCodec(SourceCodec):
    """A file of frames <-> normalised numbers. Another kind of file overrides how it is read, and how often."""

    unit, tagged = "frame", "frame"
    suffixes: ClassVar[tuple[str, ...]] = (SUFFIX,)
    uneven = "give one tag for each frame; where so many frames share one, say so: source.stack"

    class Settings(FrameSettings):
        kind: Literal["frames"] = "frames"
        features: int | None = Field(None, ge=1, le=MAX_FEATURES)  # F of every file; null: that of the first
        rate: float | None = Field(None, gt=0.0)  # frames a second: positions are then shown as times

    settings: FrameSettings

    def __init__(self, settings: FrameSettings, mean: Statistics, deviation: Statistics) -> None:
        self.settings = settings
        self.mean, self.deviation = mean, deviation

    @classmethod
    def train(cls, settings: SourceSettings, texts: Texts, seed: int, base: Path | None = None) -> FramesCodec:
        """Mean and deviation of every feature over all frames, in one pass; nothing is drawn."""
        found: Moments | None = None
        for path in filter(str.strip, texts()):
            values = cls.values(settings, path)
            found = found or Moments(values.shape[1])
            _check_features(path, values.shape, len(found.mean))
            found.add(values)
        if found is None:
            raise SeqloomError("E_EMPTY", "no file of frames to learn from", fix="check the data")
        return cls(cast(FrameSettings, settings), found.mean, found.deviation(LEAST))

    @property
    def size(self) -> int:
        return len(self.mean) * self.settings.stack

    @classmethod
    def values(cls, settings: SourceSettings, path: str) -> Values:
        """What a file holds, S F."""
        header = Header.read(path)
        expected = cast(FramesCodec.Settings, settings).features
        _check_features(path, (header.frames, header.features), expected or header.features)
        return header.values()

    def count(self, path: str) -> int:
        """S of a file, by its head alone."""
        return Header.read(path).frames

    @property
    def samples(self) -> bool:
        return not self.settings.augment.silent

    @property
    def frame_rate(self) -> float | None:
        """Frames a second, where that is known."""
        return cast(FramesCodec.Settings, self.settings).rate

    def cut(self, text: str, rng: Random | None = None) -> Values:
        return self._stacked(self._checked(text, self.values(self.settings, text)))

    def recut(self, text: str, read: Read, rng: Random) -> Values:
        """With parts of it masked: the frames as they were read before, from the encoded corpus."""
        single = np.asarray(read, dtype=np.float32).reshape(-1, len(self.mean))
        return self._stacked(self.settings.augment.masked(single, rng))

    def _checked(self, path: str, values: Values) -> Values:
        """What a file holds, normalised."""
        _check_features(path, values.shape, len(self.mean))
        return self._normalised(values)

    def _normalised(self, values: Values) -> Values:
        if self.settings.normalise == "none":
            return values
        mean, deviation = self.mean, self.deviation
        if self.settings.normalise == "each":
            mean, own = values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64)
            deviation = divisors(own, mean, LEAST)
        return ((values - mean) / deviation).astype(np.float32)

    def _stacked(self, values: Values) -> Values:
        """S F as ceil(S / k) kF; what is missing at the end is zero, the mean."""
        size = self.settings.stack
        if size == 1:
            return values
        return np.pad(values, ((0, -len(values) % size), (0, 0))).reshape(-1, size * values.shape[1])

    def numbers(self, cut: Cut) -> Read:
        assert isinstance(cut, np.ndarray)
        return cut

    def length(self, text: str) -> int:
        return math.ceil(self.count(text) / self.settings.stack)

    def labels(self, read: Read) -> list[str]:
        """The frame at which each position begins, counted from 0; its time where the rate is known."""
        firsts = range(0, len(read) * self.settings.stack, self.settings.stack)
        rate = self.frame_rate
        return [str(first) if rate is None else f"{first / rate:.2f}s" for first in firsts]

    def signal(self, read: Read) -> Values:
        """Neighbours that are stacked to one position are drawn as their mean."""
        stacked = np.asarray(read, dtype=np.float32).reshape(len(read), self.settings.stack, len(self.mean))
        mean: Values = stacked.mean(1)
        return mean

    def words(self, text: str) -> list[int]:
        return [-1] * self.length(text)

    def inputs(self, place: str) -> list[str] | None:
        return files_in(place)

    def located(self, text: str, file: str) -> str:
        return in_folder(text, file)

    def difference(self, other: SourceCodec) -> str:
        return apart(self.settings, other.settings, NOT_READ)

    @property
    def learned(self) -> dict[str, list[float]]:
        return moments.plain(self.mean, self.deviation)

    def save(self, folder: Path) -> None:
        moments.save(folder / FILE, self.mean, self.deviation)

    @classmethod
    def load(cls, settings: SourceSettings, folder: Path) -> FramesCodec:
        return cls(cast(FrameSettings, settings), *moments.load(folder / FILE, "frames", MAX_FEATURES))


def _check_features(path: str, shape: tuple[int, ...], expected: int) -> None:
    frames, features = shape
    if features != expected:
        what = f"{features:,} features a frame, but {expected:,} are expected"
        fix = "it looks like (features, time): save x.T" if frames == expected else "give every file the same features"
        raise SeqloomError("E_DATA", what, where=path, fix=fix)

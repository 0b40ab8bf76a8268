"""Pixels: a source that is a picture, read as the regions of a grid, row by row from the top left.

What stands in the data is the file's name, relative to the list that names it. Every picture is brought to one size
and cut into square regions; each region is a position, with its pixels as features. Values are brought to mean 0 and
deviation 1 in every colour, which is learned from the training set and travels in the bundle. How files are decoded is
`images.py`'s business, how training changes them `augmenting.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Annotated, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, model_validator

from seqloom.data import moments
from seqloom.data.augmenting import Augmentation, Picture, augmented
from seqloom.data.images import SUFFIXES, Colours, Fit, as_uri, check_picture, decoded, pictures_in, require
from seqloom.data.moments import Moments
from seqloom.data.source import Cut, Grid, Read, SourceCodec, SourceSettings, Texts, apart, in_folder
from seqloom.errors import SeqloomError

FILE = "pixels.json"
CHANNELS = {"rgb": 3, "grey": 1}
LEAST = 1e-3  # a smaller deviation is that of one colour alone: it is left as it is
Regions = npt.NDArray[np.float32]  # S F: F = region x region x channels
Side = Annotated[int, Field(ge=2, le=2048)]


def _power(value: int) -> int:
    if value & (value - 1):
        below = 1 << (value.bit_length() - 1)
        raise ValueError(f"a power of two is expected, such as {below} or {2 * below} (got {value})")
    return value


class PixelsCodec(SourceCodec):
    """A file of a picture <-> normalised regions."""

    unit, tagged = "region", "region"
    suffixes = SUFFIXES
    uneven = "give one tag for each region, row by row from the top left"

    class Settings(SourceSettings):
        kind: Literal["pixels"] = "pixels"
        size: Side | tuple[Side, Side] = 64  # pixels: of a square, or height and width
        region: Annotated[int, Field(ge=2, le=64), AfterValidator(_power)] = 8  # pixels of a region's side
        fit: Fit = "crop"  # to that shape: the middle is cut out, or borders are added, or it is squashed
        colours: Colours = "rgb"
        augment: Augmentation = Augmentation()  # of training alone
        in_files = True
        form = "pixels"

        @model_validator(mode="after")
        def _regions_fill_it(self) -> PixelsCodec.Settings:
            if odd := [side for side in self.shape if side % self.region]:
                near = (odd[0] // self.region or 1) * self.region
                what = f"size: regions of {self.region} pixels do not fill {odd[0]}"
                raise ValueError(f"{what}; use {near} or {near + self.region}, or another region")
            if self.augment.turn and self.shape[0] != self.shape[1]:
                raise ValueError("augment.turn: only squares can be turned by quarters")
            return self

        @property
        def shape(self) -> tuple[int, int]:
            return (self.size, self.size) if isinstance(self.size, int) else self.size

        @property
        def channels(self) -> int:
            return CHANNELS[self.colours]

        @property
        def grid(self) -> Grid:
            return self.shape[0] // self.region, self.shape[1] // self.region

        def suits(self) -> Mapping[str, Mapping[str, object]]:
            rows, columns = self.grid
            geometry = {"rows": rows, "columns": columns, "region": self.region, "channels": self.channels}
            return {"source_embedding": {"kind": "regions", **geometry}, "encoder": {"kind": "cnn"}}

    def __init__(self, settings: Settings, mean: npt.NDArray[np.float64], deviation: npt.NDArray[np.float64]) -> None:
        self.settings: PixelsCodec.Settings = settings
        self.mean, self.deviation = mean, deviation

    @classmethod
    def train(cls, settings: SourceSettings, texts: Texts, seed: int, base: Path | None = None) -> PixelsCodec:
        """Mean and deviation of every colour over all pixels of all pictures; nothing is drawn."""
        settings = cast(PixelsCodec.Settings, settings)
        require()
        found = Moments(settings.channels)
        for path in filter(str.strip, texts()):
            found.add(_decoded(path, settings).reshape(-1, settings.channels) / 255)
        if not found.count:
            raise SeqloomError("E_EMPTY", "no picture to learn from", fix="check the data")
        return cls(settings, found.mean, found.deviation(LEAST))

    @property
    def size(self) -> int:
        return self.settings.region**2 * self.settings.channels

    @property
    def grid(self) -> Grid | None:
        return self.settings.grid

    @property
    def varies(self) -> bool:
        return not self.settings.augment.silent

    def cut(self, text: str, rng: Random | None = None) -> Regions:
        pixels = _decoded(text, self.settings)
        return self._regions(((pixels / 255 - self.mean) / self.deviation).astype(np.float32))

    def varied(self, read: Read, rng: Random) -> Read:
        return self._regions(augmented(self._picture(cast(Regions, read)), self.settings.augment, rng))

    def _regions(self, picture: Picture) -> Regions:
        """H W C as S F."""
        (rows, columns), side, channels = self.settings.grid, self.settings.region, self.settings.channels
        parts = picture.reshape(rows, side, columns, side, channels).swapaxes(1, 2)
        return np.ascontiguousarray(parts.reshape(rows * columns, -1))

    def _picture(self, regions: Regions) -> Picture:
        """S F as H W C."""
        (rows, columns), side = self.settings.grid, self.settings.region
        parts = regions.reshape(rows, columns, side, side, -1).swapaxes(1, 2)
        return parts.reshape(rows * side, columns * side, -1)

    def numbers(self, cut: Cut) -> Read:
        assert isinstance(cut, np.ndarray)
        return cut

    def length(self, text: str) -> int:
        check_picture(text)
        return self.settings.grid[0] * self.settings.grid[1]

    def labels(self, read: Read) -> list[str]:
        """Row and column of each region, counted from 1."""
        rows, columns = self.settings.grid
        return [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]

    def words(self, text: str) -> list[int]:
        return [-1] * (self.settings.grid[0] * self.settings.grid[1])

    def shown(self, text: str) -> str:
        return as_uri(text, self.settings.shape, self.settings.fit, self.settings.colours)

    def inputs(self, place: str) -> list[str] | None:
        return pictures_in(place)

    def located(self, text: str, file: str) -> str:
        return in_folder(text, file)

    def difference(self, other: SourceCodec) -> str:
        return apart(self.settings, other.settings, {"augment"})

    @property
    def learned(self) -> dict[str, list[float]]:
        return moments.plain(self.mean, self.deviation)

    def save(self, folder: Path) -> None:
        moments.save(folder / FILE, self.mean, self.deviation)

    @classmethod
    def load(cls, settings: SourceSettings, folder: Path) -> PixelsCodec:
        chosen = cast(PixelsCodec.Settings, settings)
        return cls(chosen, *moments.load(folder / FILE, "pixels", 100, chosen.channels))


def _decoded(path: str, settings: PixelsCodec.Settings) -> npt.NDArray[np.uint8]:
    return decoded(path, settings.shape, settings.fit, settings.colours)

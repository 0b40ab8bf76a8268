"""Pictures as training may see them another time: moved, mirrored, turned, brighter, with a part missing.

Everything is drawn from one rng, which depends on seed, epoch and example alone; nothing here draws by itself. Values
are normalised, so that 0 is the mean: what comes in from outside is 0.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from seqloom import config

Share = Annotated[float, Field(ge=0.0, le=0.5)]
Picture = npt.NDArray[np.float32]  # H W C


class Augmentation(config.Settings):
    """How much a picture may change. Mirrored and turned pictures are off by default: left and right may be words."""

    flip: Literal["none", "sideways", "both"] = "none"
    turn: bool = False  # by quarters; for what has no up and down
    shift: Share = 0.0  # of height and width
    zoom: Share = 0.0  # a window smaller by up to this share, brought back to full size
    brightness: float = Field(0.0, ge=0.0, le=1.0)  # up to so many deviations
    contrast: float = Field(0.0, ge=0.0, lt=1.0)  # times 1 - x to 1 + x
    erase: Share = 0.0  # a rectangle of up to this share of height and width

    @property
    def silent(self) -> bool:
        return self == Augmentation()


def augmented(picture: Picture, settings: Augmentation, rng: Random) -> Picture:
    """One more look at a picture; the rng is asked for the same numbers whatever is switched on."""
    drawn = [rng.random() for _ in range(12)]
    if settings.flip != "none" and drawn[0] < 0.5:
        picture = picture[:, ::-1]
    if settings.flip == "both" and drawn[1] < 0.5:
        picture = picture[::-1]
    if settings.turn:
        picture = np.rot90(picture, int(drawn[2] * 4))
    if settings.zoom:
        picture = _zoomed(picture, 1 - settings.zoom * drawn[3], drawn[4], drawn[5])
    if settings.shift:
        height, width = picture.shape[:2]
        down, right = (round((2 * x - 1) * settings.shift * n) for x, n in ((drawn[6], height), (drawn[7], width)))
        picture = _shifted(picture, down, right)
    if settings.contrast:
        picture = picture * np.float32(1 + settings.contrast * (2 * drawn[8] - 1))
    if settings.brightness:
        picture = picture + np.float32(settings.brightness * (2 * drawn[9] - 1))
    if settings.erase:
        picture = _erased(picture, settings.erase, drawn[10], Random(drawn[11]))
    return np.ascontiguousarray(picture, dtype=np.float32)


def _zoomed(picture: Picture, share: float, down: float, right: float) -> Picture:
    """A window of this share of the picture, brought back to its size by the nearest pixels."""
    height, width = picture.shape[:2]
    rows = down * (1 - share) * height + (np.arange(height) + 0.5) * share
    columns = right * (1 - share) * width + (np.arange(width) + 0.5) * share
    places = (np.clip(at.astype(np.int64), 0, most - 1) for at, most in ((rows, height), (columns, width)))
    window: Picture = picture[np.ix_(*places)]
    return window


def _shifted(picture: Picture, down: int, right: int) -> Picture:
    moved = np.zeros_like(picture)
    height, width = picture.shape[:2]
    target = slice(max(0, down), height + min(0, down)), slice(max(0, right), width + min(0, right))
    source = slice(max(0, -down), height + min(0, -down)), slice(max(0, -right), width + min(0, -right))
    moved[target] = picture[source]
    return moved


def _erased(picture: Picture, most: float, share: float, rng: Random) -> Picture:
    height, width = picture.shape[:2]
    rows, columns = round(most * share * height), round(most * rng.random() * width)
    top, left = int(rng.random() * (height - rows + 1)), int(rng.random() * (width - columns + 1))
    picture = picture.copy()
    picture[top : top + rows, left : left + columns] = 0.0
    return picture

"""Numbers as pieces: the levels of an even grid over what training has, in steps that people count in.

A number becomes the nearest level and is written as that level; so a model that says levels says numbers, to the
precision of the grid. Beyond the smallest and the largest number of training the grid goes on for `MARGIN` of that
range on either side (`models/labels.py` says why); numbers beyond that are its ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Self, cast

from pydantic import Field, model_validator

from seqloom import config
from seqloom.data.tokenizer import Tokenizer
from seqloom.errors import SeqloomError
from seqloom.figures import FIX, MARGIN, no_number, number_in
from seqloom.files import atomic_write, read_json

HEADER = "; or is this a header (header: true), or another column the target (columns: [source, target])?"
STEPS = (1, 2, 5)  # times a power of ten
APART = 1e-9  # of the largest number: what differs by less cannot be told apart
MOST_DIGITS = 15  # behind the point that a level is written with
Bound = Field(None, ge=-1e38, le=1e38)  # of float32


class Number(Tokenizer):
    """A number as the nearest of many levels. What is no number is a piece of its own, which no vocabulary has."""

    fixed_inventory = True
    scale = True
    file = "levels.json"

    class Settings(config.Settings):
        kind: Literal["number"] = "number"
        levels: int = Field(400, ge=2, le=10_000)  # between the smallest and the largest number, about
        low: float | None = Bound  # the smallest number there is; null: that of the training data
        high: float | None = Bound  # the largest one; numbers beyond are taken for it, or nearly

        @model_validator(mode="after")
        def _in_order(self) -> Number.Settings:
            if self.low is not None and self.high is not None and not self.low < self.high:
                raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
            return self

    def __init__(self, settings: Settings, step: tuple[int, int], first: int, count: int) -> None:
        """Levels are `(first + k) * step[0] * 10 ** step[1]`, k = 0 ... count - 1."""
        self.settings, self.step, self.first = settings, step, first
        self._pieces = [_written(first + k, step) for k in range(count)]

    @classmethod
    def train(cls, settings: config.Settings, texts: Iterable[str], seed: int) -> Self:
        chosen = cast(Number.Settings, settings)
        low, high = chosen.low, chosen.high
        if low is None or high is None:
            numbers = [number for text in texts if text.strip() and (number := number_in(text)) is not None]
            if not numbers:
                raise SeqloomError("E_EMPTY", "there is no number to learn from", fix=FIX)
            low = min(numbers) if low is None else low
            high = max(numbers) if high is None else high
        if not high - low > APART * max(abs(low), abs(high)):
            what = f"all numbers are {low:g}" if low == high else f"numbers from {low:g} to {high:g} are nearly one"
            raise SeqloomError("E_DATA", what, fix="give examples of different numbers; is it the right column?")
        step = _step((high - low) / chosen.levels)
        size = step[0] * 10.0 ** step[1]
        begin, end = math.floor(low / size + 1e-6), math.ceil(high / size - 1e-6)
        margin = max(1, round(MARGIN * (end - begin)))
        return cls(chosen, step, begin - margin, end - begin + 1 + 2 * margin)

    def encode(self, text: str) -> list[str]:
        number = number_in(text)
        if number is None:
            return [text] if text else []
        place = round(number / (self.step[0] * 10.0 ** self.step[1])) - self.first
        return [self._pieces[min(max(place, 0), len(self._pieces) - 1)]]

    def decode(self, pieces: Sequence[str]) -> str:
        return "".join(pieces)

    @classmethod
    def refuse(cls, text: str, where: str) -> None:
        if number_in(text) is None:
            raise SeqloomError("E_DATA", f"the target {no_number(text)}", where=where, fix=FIX + HEADER)

    def pieces(self) -> list[str]:
        return list(self._pieces)

    def added(self, piece: str, edge: str | None) -> bytes | None:
        return piece.encode("utf-8")

    def save(self, folder: Path) -> None:
        told = {"step": self.step, "first": self.first, "count": len(self._pieces)}
        atomic_write(folder / self.file, json.dumps(told).encode())

    @classmethod
    def load(cls, settings: config.Settings, folder: Path) -> Self:
        path = folder / cls.file
        told = read_json(path, 10_000, "the levels of a number", "take the bundle from where it is whole")
        match told:
            case {"step": [int(size), int(power)], "first": int(first), "count": int(count)} if 2 <= count <= 1 << 16:
                return cls(cast(Number.Settings, settings), (size, power), first, count)
        raise SeqloomError("E_BUNDLE", "not the levels of a number", where=str(path))


def _number(text: str) -> float | None:
    return number_in(text)


def _step(least: float) -> tuple[int, int]:
    """The smallest of 1, 2, 5 times a power of ten that is not below; as (1, 2 or 5; the power)."""
    power = math.floor(math.log10(least))
    for exponent in (power, power + 1):
        for size in STEPS:
            if size * 10.0**exponent >= least * (1 - 1e-9):
                return size, exponent
    raise AssertionError("one of the next power is large enough")


def _written(place: int, step: tuple[int, int]) -> str:
    """A level as people write it: 3.62, -0.5, 1250000."""
    size, power = step
    if power >= 0:
        return str(place * size * 10**power) if power <= MOST_DIGITS else f"{place * size}e{power}"
    if power < -MOST_DIGITS:
        return f"{place * size}e{power}"
    return f"{place * size * 10.0**power:.{-power}f}".replace("-0." + "0" * -power, "0." + "0" * -power)

"""How long an output may become: a limit and a minimum per source, never per batch.

A limit of one's neighbours would make the result depend on the batch (law 4). The limit counts tokens without EOS; a
hypothesis that has reached it may still end if the model wants it to, and is otherwise returned as truncated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from seqloom import config

if TYPE_CHECKING:  # text can be limited without torch
    from seqloom.shapes import Lengths

MOST_TOKENS = 1_000_000  # of one output


class Limits(config.Settings):
    """At most `max_ratio` * S + `extra` tokens and `max_length`; at least `min_length` and `min_ratio` * S."""

    max_length: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    min_length: int = Field(default=0, ge=0, le=MOST_TOKENS)
    max_ratio: float = Field(default=2.0, ge=0, le=1000)
    min_ratio: float = Field(default=0.0, ge=0, le=1000)
    extra: int = Field(default=10, ge=1, le=MOST_TOKENS)

    @model_validator(mode="after")
    def _minimum_below_maximum(self) -> Limits:
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is over max_length {self.max_length}")
        if self.min_ratio > self.max_ratio:
            raise ValueError(f"min_ratio {self.min_ratio} is over max_ratio {self.max_ratio}")
        return self

    def bounds(self, length: int, room: int = 0) -> tuple[int, int]:
        """(least, most) tokens for a source of this length.

        A demanded minimum, or the `room` that given outputs need, lifts a limit that is only a ratio; `max_length` has
        the last word.
        """
        least = max(self.min_length, math.ceil(length * self.min_ratio))
        most = max(least, room, math.floor(length * self.max_ratio) + self.extra)
        if self.max_length is not None:
            most = min(most, self.max_length)
        return min(least, most), most

    def of(self, lengths: Lengths, room: int = 0) -> tuple[Lengths, Lengths]:
        """The bounds of several sources."""
        different, which = lengths.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        bounds = lengths.new_tensor([self.bounds(length, room) for length in different.tolist()])
        least, most = bounds.view(-1, 2)[which].unbind(1)
        return least, most

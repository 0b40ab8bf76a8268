"""How long an output may become: a limit and a minimum per source, never per batch.

A limit of one's neighbours would make the result depend on the batch (law 4). The limit counts tokens without EOS; a
hypothesis that has reached it may still end if the model wants it to, and is otherwise returned as truncated.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field, model_validator

from seqloom import config
from seqloom.batch import Source
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

    def of(self, lengths: Lengths, room: int = 0) -> tuple[Lengths, Lengths]:
        """(least, most) tokens for sources of these lengths.

        A demanded minimum, or the `room` that given outputs need, lifts a limit that is only a ratio; `max_length` has
        the last word.
        """
        least = (lengths.double() * self.min_ratio).ceil().long().clamp(min=self.min_length)
        most = (lengths.double() * self.max_ratio).floor().long() + self.extra
        most = torch.maximum(most, least).clamp(min=room)
        if self.max_length is not None:
            most = most.clamp(max=self.max_length)
        return torch.minimum(least, most), most


def source_lengths(sources: Mapping[str, Source]) -> Lengths:
    """S of every source: its real positions; of several sources together, those of the longest."""
    assert sources, "search needs at least one source: it says how many there are"
    return torch.stack([source.lengths for source in sources.values()]).amax(0)

"""Several sources, one memory: a further source has an encoder of its own whose states join those of the first.

The join is flat: states stand one after the other, the first source's first, so every decoder works as it is, with
attention (over all positions) and without (through the summary, to which each source adds). How many sources there
are is the recipe's choice; nothing here knows what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import model_validator
from torch import nn

from seqloom import config
from seqloom.batch import Source
from seqloom.config import Kind, kind_of
from seqloom.models.bag import Bag
from seqloom.models.contracts import Encoder, Memory
from seqloom.models.tables import ENCODERS
from seqloom.nn.frontends import EMBEDDINGS, Learned


class ExtraSource(nn.Module):
    """A further source with its own embedding and encoder, handed over in the first encoder's shapes.

    states    P s + v: projected where the widths differ, with a learned vector that says whose states they are
    summary   one linear map of its own summary per tensor of the first one's
    """

    class Settings(config.Settings):
        kind: Literal["encoder"] = "encoder"
        embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings(width=64)
        encoder: Annotated[config.Settings, Kind(ENCODERS)] = Bag.Settings()

        @model_validator(mode="after")
        def _knows_its_words(self) -> ExtraSource.Settings:
            if ENCODERS[kind_of(self.encoder)].reads_words:
                kind = kind_of(self.encoder)
                raise ValueError(f"encoder: only the words of the first source are known, so {kind} reads no other")
            return self

    def __init__(self, settings: Settings, *, vocabulary: int, main: Encoder) -> None:
        super().__init__()
        self.embedding = EMBEDDINGS.build(settings.embedding, vocabulary=vocabulary)
        self.encoder: Encoder = ENCODERS.build(settings.encoder, embedding=self.embedding)
        own, width = self.encoder.width, main.width
        self.project = nn.Identity() if own == width else nn.Linear(own, width, bias=False)
        self.mark = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.mark, std=width**-0.5)
        top = self.encoder.summary_sizes[-1][0]
        self.sizes = main.summary_sizes
        self.summaries = nn.ModuleList(nn.Linear(top, size, bias=False) for sizes in self.sizes for size in sizes)

    def forward(self, source: Source) -> Memory:
        memory: Memory = self.encoder(source)
        states = self.project(memory.states) + self.mark  # B S D
        parts = iter([linear(memory.summary[-1][0]) for linear in self.summaries])
        summary = tuple(tuple(next(parts) for _ in sizes) for sizes in self.sizes)
        return Memory(states.masked_fill(~memory.mask[..., None], 0.0), memory.mask, summary)


def joined(memories: Sequence[Memory]) -> Memory:
    """One memory of several in the same shapes: states one after the other, summaries added."""
    if len(memories) == 1:
        return memories[0]
    summaries = [memory.summary for memory in memories]
    return Memory(
        torch.cat([memory.states for memory in memories], dim=1),
        torch.cat([memory.mask for memory in memories], dim=1),
        tuple(tuple(sum(parts) for parts in zip(*layers, strict=True)) for layers in zip(*summaries, strict=True)),
    )

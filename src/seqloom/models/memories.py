"""Several sources, one memory: a further source has an encoder of its own, or is read by that of the first.

The join is flat: states stand one after the other, the first source's first, so every decoder works as it is, with
attention (over all positions) and without (through the summary, to which each source adds). A decoder that compares
its sources gets their memories apart. How many sources there are is the recipe's choice; nothing here knows what they
mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import model_validator
from torch import nn

from seqloom import config
from seqloom.batch import Source
from seqloom.config import Kind, Table, kind_of
from seqloom.models.bag import Bag
from seqloom.models.contracts import Encoder, Memory
from seqloom.models.tables import ENCODERS
from seqloom.nn.frontends import EMBEDDINGS, Learned
from seqloom.shapes import Bool, Float, Tensor


class FurtherSource(nn.Module, ABC):
    """A source beside the first one, handed over in the first encoder's shapes.

    states    P s + v: projected where the widths differ, with a learned vector that says whose states they are
    summary   one linear map of its own summary per tensor of the first one's
    """

    @abstractmethod
    def reader(self, main: Encoder) -> Encoder:
        """The encoder that reads it; `main` is the first one's."""

    @abstractmethod
    def forward(self, source: Source, main: Encoder) -> Memory: ...

    def _fit(self, own: Encoder, main: Encoder) -> None:
        """What brings memories of one encoder into the shapes of the other."""
        width = main.width
        self.project = nn.Identity() if own.width == width else nn.Linear(own.width, width, bias=False)
        self.mark = nn.Parameter(torch.empty(width))
        nn.init.normal_(self.mark, std=width**-0.5)
        top = own.summary_sizes[-1][0]
        self.sizes = main.summary_sizes
        self.summaries = nn.ModuleList(nn.Linear(top, size, bias=False) for sizes in self.sizes for size in sizes)

    def _fitted(self, memory: Memory) -> Memory:
        states = self.project(memory.states) + self.mark  # B S D
        parts = iter([linear(memory.summary[-1][0]) for linear in self.summaries])
        summary = tuple(tuple(next(parts) for _ in sizes) for sizes in self.sizes)
        return Memory(states.masked_fill(~memory.mask[..., None], 0.0), memory.mask, summary)


class ExtraSource(FurtherSource):
    """A further source with its own embedding and encoder."""

    class Settings(config.Settings):
        kind: Literal["encoder"] = "encoder"
        embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings(width=64)
        encoder: Annotated[config.Settings, Kind(ENCODERS)] = Bag.Settings()

        @model_validator(mode="after")
        def _knows_its_words(self) -> ExtraSource.Settings:
            kind = kind_of(self.encoder)
            if ENCODERS[kind].shrinks:
                raise ValueError(f"encoder: a {kind} shortens sounds, and an extra is a short text; use bag or rnn")
            if ENCODERS[kind].reads_words:
                raise ValueError(f"encoder: only the words of the first source are known, so {kind} reads no other")
            if (only := ENCODERS[kind_of(self.encoder)].reads) is not None:
                raise ValueError(f"encoder: {kind_of(self.encoder)} reads {only}, and extras are text; use bag or rnn")
            return self

    def __init__(self, settings: Settings, *, vocabulary: int, main: Encoder, apart: bool = False) -> None:
        super().__init__()
        self.embedding = EMBEDDINGS.build(settings.embedding, vocabulary=vocabulary)
        self.encoder: Encoder = ENCODERS.build(settings.encoder, embedding=self.embedding)
        self._fit(self.encoder, main)

    def reader(self, main: Encoder) -> Encoder:
        return self.encoder

    def forward(self, source: Source, main: Encoder) -> Memory:
        return self._fitted(self.encoder(source))


class SharedSource(FurtherSource):
    """A further source that the first one's embedding and encoder read as well (siamese: Bromley et al. 1993).

    Where memories are kept `apart` it is handed over as it was read, so that the same text has the same memory in both
    places; where they are joined, with the vector that says whose states they are.
    """

    class Settings(config.Settings):
        kind: Literal["shared"] = "shared"

    def __init__(self, settings: Settings, *, vocabulary: int, main: Encoder, apart: bool = False) -> None:
        super().__init__()
        self.apart = apart
        if not apart:
            self._fit(main, main)

    def reader(self, main: Encoder) -> Encoder:
        return main

    def forward(self, source: Source, main: Encoder) -> Memory:
        memory: Memory = main(source)
        return memory if self.apart else self._fitted(memory)


FURTHER: Table[FurtherSource] = Table("sources", {"encoder": ExtraSource, "shared": SharedSource})


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


def spread_out(
    weights: Float[Tensor, "B H T P"], masks: Sequence[Bool[Tensor, "B _"]], factors: Sequence[int]
) -> Float[Tensor, "B H T S"]:
    """Weights over a memory as weights over its sources, of which `factors` neighbours became one position each.

    A position's weight is shared evenly by the real ones it stands for, so that rows keep their sum.
    """
    found, at = [], 0
    for mask, factor in zip(masks, factors, strict=True):
        size = -(-mask.shape[1] // factor)
        own, at = weights[..., at : at + size], at + size
        groups = torch.arange(mask.shape[1], device=mask.device) // factor  # S
        sharing = torch.zeros(mask.shape[0], size, device=mask.device).index_add(1, groups, mask.float())  # B P
        shares = (mask / sharing[:, groups].clamp(min=1)).to(own.dtype)  # B S
        found.append(own[..., groups] * shares[:, None, None])
    return torch.cat(found, dim=-1)

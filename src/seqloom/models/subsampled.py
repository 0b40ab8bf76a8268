"""A front of convolutions that shortens a source before any other encoder reads it (Dong, Xu and Xu 2018).

    x <- GLU(conv(x)), of two positions one,    GLU([a; b]) = a * sigmoid(b);    memory = encoder(x)

Self-attention over every frame of a sound costs the square of their number, and neighbours say nearly the same. What
lies behind a source's end is zero before every convolution, so that padding never leaks into a source.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Frames, Source
from seqloom.config import Kind
from seqloom.models.contracts import Encoder, Memory
from seqloom.models.spelling import WORD_ENCODERS
from seqloom.models.transformer import TransformerEncoder
from seqloom.nn.entrance import scale_of
from seqloom.nn.frontends import SOURCE, Frontend, Vectors
from seqloom.nn.layers import halved, nothing_behind
from seqloom.nn.tape import told_apart


class SubsampledEncoder(Encoder):
    """Convolutions of stride two, then an encoder over what is left."""

    shrinks = True

    class Settings(config.Settings):
        kind: Literal["subsampled"] = "subsampled"
        width: int = Field(256, ge=1)  # of what the convolutions hand over
        halvings: int = Field(2, ge=1, le=8)  # 2^halvings positions become one
        kernel: int = Field(3, ge=1, le=99)  # positions that a convolution sees: odd, so that both sides are alike
        scale_embedding: bool = True  # by sqrt(its width): embeddings are drawn small
        over: Annotated[config.Settings, Kind(WORD_ENCODERS)] = TransformerEncoder.Settings()

        @model_validator(mode="after")
        def _middle(self) -> SubsampledEncoder.Settings:
            if self.kernel % 2 == 0:
                raise ValueError(f"kernel: a window needs a middle, use {self.kernel - 1} or {self.kernel + 1}")
            return self

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.vectors = Vectors(embedding, frames)
        self.reduction, self.scale = 2**settings.halvings, scale_of(embedding, settings.scale_embedding)
        inputs = [self.vectors.width] + [settings.width] * (settings.halvings - 1)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(size, 2 * settings.width, settings.kernel, stride=2, padding=settings.kernel // 2)
            for size in inputs
        )
        for layer, size in zip(self.convolutions, inputs, strict=True):
            assert isinstance(layer, nn.Conv1d)
            assert layer.bias is not None
            nn.init.normal_(layer.weight, std=2 / math.sqrt(settings.kernel * size))  # a gate lets half of it pass
            nn.init.zeros_(layer.bias)
        self.over = WORD_ENCODERS.build(settings.over, embedding=None, frames=settings.width)
        self.width, self.summary_sizes = self.over.width, self.over.summary_sizes

    def forward(self, source: Source) -> Memory:
        x, mask = self.scale * self.vectors(source), source.mask  # B S D
        for layer in self.convolutions:
            x, mask = F.glu(layer(x.transpose(1, 2)), dim=1).transpose(1, 2), halved(mask)
            x = nothing_behind(x, mask)
        with told_apart(SOURCE, []):  # the source's own tap was passed before
            memory: Memory = self.over(Frames(x, mask))
        return memory

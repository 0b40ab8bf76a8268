"""A convolutional text encoder: every position sees a window, and a wider one from layer to layer (Gehring 2017).

    x <- (x + GLU(conv(dropout(x)))) sqrt(1/2),    GLU([a; b]) = a * sigmoid(b)

All positions are computed at once. What lies behind a sentence's end is zero before every convolution, as if nothing
were there, so that padding never leaks into a sentence.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from seqloom.batch import Source
from seqloom.config import kind_of
from seqloom.models.contracts import Encoder, Memory
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.entrance import Entrance, StackSettings, draw_xavier, from_the_start
from seqloom.nn.frontends import Frontend, Vectors
from seqloom.nn.layers import mean_of_real
from seqloom.nn.positions import POSITIONS
from seqloom.nn.tape import listening, tap


class ConvolutionalEncoder(Encoder):
    """A stack of gated convolutions. The summary is the mean of its states."""

    class Settings(StackSettings):
        kind: Literal["convolution"] = "convolution"
        kernel: int = Field(3, ge=1)  # positions that one layer sees: odd, so that both sides are alike

        @model_validator(mode="after")
        def _possible(self) -> ConvolutionalEncoder.Settings:
            if self.kernel % 2 == 0:
                raise ValueError(f"kernel: a window needs a middle, use {self.kernel - 1} or {self.kernel + 1}")
            if POSITIONS[kind_of(self.positions)].turns:
                raise ValueError("positions: rotary ones turn queries and keys, and a convolution has none")
            return self

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.width, self.summary_sizes = settings.width, ((settings.width,),)
        self.vectors = Vectors(embedding, frames)
        self.entrance = Entrance(settings, given=self.vectors.width, embedded=embedding is not None)
        self.dropout = CheapDropout(settings.dropout)
        self.layers = nn.ModuleList(
            nn.Conv1d(settings.width, 2 * settings.width, settings.kernel, padding=settings.kernel // 2)
            for _ in range(settings.layers)
        )
        self.layer_taps = tuple(f"encoder.{i}.states" for i in range(settings.layers))
        draw_xavier(self.entrance)
        for layer in self.layers:
            assert isinstance(layer, nn.Conv1d)
            std = math.sqrt((1 - settings.dropout) / (settings.kernel * self.width))  # dropout adds to the variance
            nn.init.normal_(layer.weight[: self.width], std=2 * std)  # what passes is halved by its gate,
            nn.init.normal_(layer.weight[self.width :], std=std)  # which begins near a half: states keep their size
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)

    def forward(self, source: Source) -> Memory:
        mask = source.mask
        places = from_the_start(mask.shape[1], mask.device)
        x = tap("encoder.inputs", self.entrance(self.vectors(source), places, mask.shape[1])).transpose(1, 2)  # B D S
        behind = ~mask[:, None]  # B 1 S
        for layer, name in zip(self.layers, self.layer_taps, strict=True):
            seen = self.dropout(x).masked_fill(behind, 0.0)
            x = (x + F.glu(layer(seen), dim=1)) * math.sqrt(0.5)
            if listening(name):
                x = tap(name, x.transpose(1, 2)).transpose(1, 2)  # B S D for whoever looks
        states = tap("encoder.states", x.masked_fill(behind, 0.0).transpose(1, 2))  # B S D
        return Memory(states, mask, ((mean_of_real(states, mask),),))

"""An encoder for what has no order: tags, features, a set of words. Every token stands for itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from seqloom import config
from seqloom.batch import Source
from seqloom.models.contracts import Encoder, Memory
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.frontends import Frontend, Vectors
from seqloom.nn.tape import tap

Dropout = Annotated[float, Field(ge=0.0, lt=1.0)]


class Bag(Encoder):
    """s_i = f(W x_i + b) for each token alone; the summary is their mean, so no order can matter."""

    class Settings(config.Settings):
        kind: Literal["bag"] = "bag"
        width: int = Field(64, ge=1)
        activation: Literal["tanh", "relu"] = "tanh"
        dropout: Dropout = 0.0

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.vectors = Vectors(embedding, frames)
        self.width, self.summary_sizes = settings.width, ((settings.width,),)
        self.linear = nn.Linear(self.vectors.width, settings.width)
        self.activation = nn.Tanh() if settings.activation == "tanh" else nn.ReLU()
        self.dropout = CheapDropout(settings.dropout)

    def forward(self, source: Source) -> Memory:
        states = self.dropout(self.activation(self.linear(self.dropout(self.vectors(source)))))  # B S D
        states = states.masked_fill(~source.mask[..., None], 0.0)
        mean = states.sum(1) / source.lengths[:, None].clamp(min=1).to(states.dtype)  # B D
        return Memory(tap("encoder.states", states), source.mask, ((mean,),))

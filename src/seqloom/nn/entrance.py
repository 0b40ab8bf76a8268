"""The entrance of a stack that reads all tokens at once: embeddings scaled, brought to its width, and placed."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from seqloom import config
from seqloom.config import Kind
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.frontends import Frontend
from seqloom.nn.positions import POSITIONS, Places, Positions, Sinusoidal
from seqloom.shapes import Float, Tensor

Dropout = Annotated[float, Field(ge=0.0, lt=1.0)]


class StackSettings(config.Settings):
    """What Transformers and convolutions have in common."""

    width: int = Field(256, ge=1)
    layers: int = Field(3, ge=1, le=1000)
    positions: Annotated[config.Settings, Kind(POSITIONS)] = Sinusoidal.Settings()
    scale_embedding: bool = True  # by sqrt(its width): embeddings are drawn small, positions are not
    dropout: Dropout = 0.1


class Entrance(nn.Module):
    """dropout(P sqrt(E) embedding + position), the projection P only where widths differ."""

    def __init__(self, settings: StackSettings, *, given: int, embedded: bool = True) -> None:
        super().__init__()
        self.width = settings.width
        self.scale = math.sqrt(given) if embedded and settings.scale_embedding else 1.0  # given frames stay as they are
        same = given == settings.width
        self.project = nn.Identity() if same else nn.Linear(given, settings.width, bias=False)
        self.positions: Positions = POSITIONS.build(settings.positions, width=settings.width)
        self.dropout = CheapDropout(settings.dropout)

    def forward(self, x: Float[Tensor, "N T E"], places: Places, end: int) -> Float[Tensor, "N T D"]:
        """`x` at its places, all of which are below `end`."""
        placed: Tensor = self.dropout(self.positions.added(self.brought(x), places, end))
        return placed

    def brought(self, x: Float[Tensor, "*r E"]) -> Float[Tensor, "*r D"]:
        """`x` before it has places."""
        projected: Tensor = self.project(x if self.scale == 1.0 else x * self.scale)
        return projected


def scale_of(embedding: Frontend | None, scaled: bool) -> float:
    """What brings embeddings, which are drawn small, to the size that layers are drawn for; others stay as they are."""
    return math.sqrt(embedding.width) if embedding is not None and scaled else 1.0


def from_the_start(steps: int, device: torch.device) -> Places:
    """0, 1, 2, ...: the places of sequences that are read whole."""
    return torch.arange(steps, device=device)[None]


def draw_xavier(module: nn.Module) -> None:
    """Linear maps that keep the size of what flows through them, forward and backward (Glorot 2010); biases zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)

"""Encoders of pictures: what they hand over are the regions of a grid, row by row, and a vector that stands for all.

    cnn       a residual network (He et al. 2016) whose strides make one position of every region; GroupNorm, so that
              a picture never depends on those beside it (Wu and He 2018)
    patches   each region as one vector, placed in two dimensions, into the Transformer's layers (Dosovitskiy 2021)

A picture ends with a position of its own, as a text does: a learned vector that a decoder can look at where no region
matters (the sentinel of Lu et al. 2017). The summary is the mean of the regions, so one vector can start a decoder.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Frames, Source
from seqloom.models.contracts import Encoder, Memory
from seqloom.models.transformer import TransformerEncoder, TransformerSettings
from seqloom.nn.entrance import Dropout
from seqloom.nn.frontends import Frontend, Regions, Vectors
from seqloom.nn.positions import Nowhere, angles
from seqloom.nn.tape import tap
from seqloom.shapes import Float, Mask, Tensor

Planes = Float[Tensor, "B C H W"]
GROUP = 8  # channels that are normalised together


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(max(1, channels // GROUP) if channels % GROUP == 0 else 1, channels)


class Residual(nn.Module):
    """relu(x + f(x)), f = conv, norm, relu, conv, norm; where sizes differ, x passes a 1 x 1 convolution."""

    def __init__(self, given: int, channels: int, stride: int, dropout: float, second: int = 3) -> None:
        """`second` is the kernel of the second convolution: 1 or 3."""
        super().__init__()
        self.first = nn.Conv2d(given, channels, 3, stride, 1, bias=False)
        self.first_norm = _norm(channels)
        self.second = nn.Conv2d(channels, channels, second, 1, second // 2, bias=False)
        self.second_norm = _norm(channels)
        self.dropout = nn.Dropout2d(dropout)
        self.beside: nn.Module = nn.Identity()
        if stride != 1 or given != channels:
            self.beside = nn.Sequential(nn.Conv2d(given, channels, 1, stride, bias=False), _norm(channels))

    def forward(self, x: Planes) -> Float[Tensor, "B c h w"]:
        changed = self.dropout(F.relu(self.first_norm(self.first(x))))
        out: Tensor = F.relu(self.beside(x) + self.second_norm(self.second(changed)))
        return out


class CnnEncoder(Encoder):
    """A residual convolutional network. Every halving of the picture is one stage; channels double up to the width."""

    reads = "pixels"

    class Settings(config.Settings):
        kind: Literal["cnn"] = "cnn"
        width: int = Field(128, ge=1)
        channels: int = Field(32, ge=1)  # of the first stage
        blocks: int = Field(1, ge=1, le=50)  # residual blocks of every stage
        # A region knows what is in it and close by, not all of the picture: attention then says where something is.
        # With regions of 8 pixels it sees 25 x 25 of them instead of 49 x 49
        local: bool = False
        positions: bool = True  # add to every region where it stands: attention alone cannot tell left from right
        dropout: Dropout = 0.0
        weights: str | None = None  # a safetensors file of this network's tensors to start from

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.vectors, self.picture = Vectors(embedding, frames), cast(Regions, embedding)
        self.width, self.summary_sizes, self.positions = settings.width, ((settings.width,),), settings.positions
        stages = self.picture.region.bit_length() - 1  # 2^stages pixels become one position
        channels = [min(settings.width, settings.channels << stage) for stage in range(stages)]
        channels[-1] = settings.width
        self.stem = nn.Conv2d(self.picture.channels, channels[0], 5, 2, 2, bias=False)
        self.stem_norm = _norm(channels[0])
        blocks: list[nn.Module] = []
        given = channels[0]
        for stage, size in enumerate(channels):
            for block in range(settings.blocks):
                stride, second = (2 if stage and not block else 1), (1 if stage and settings.local else 3)
                blocks.append(Residual(given, size, stride, settings.dropout, second))
                given = size
        self.blocks = nn.ModuleList(blocks)
        self.end = nn.Parameter(torch.empty(settings.width))
        nn.init.normal_(self.end, std=settings.width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, source: Source) -> Memory:
        x = self.picture.planes(self.vectors(source))  # B C H W
        x = F.relu(self.stem_norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        regions = x.flatten(2).transpose(1, 2)  # B S D
        if self.positions:
            regions = regions + places(self.picture, regions)
        return ended(regions, self.end, source.mask)


class PatchesEncoder(Encoder):
    """Regions in the Transformer's layers, each told where it stands: half of its vector by row, half by column."""

    reads = "pixels"

    class Settings(TransformerSettings):
        kind: Literal["patches"] = "patches"
        width: int = Field(128, ge=1)

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.vectors, self.picture = Vectors(embedding, frames), cast(Regions, embedding)
        self.width, self.summary_sizes = settings.width, ((settings.width,),)
        self.project = nn.Linear(self.vectors.width, settings.width)
        raw = settings.model_dump() | {"kind": "transformer", "positions": Nowhere.Settings()}
        self.stack = TransformerEncoder(TransformerEncoder.Settings(**raw), embedding=None, frames=settings.width)
        self.layer_taps, self.self_taps = self.stack.layer_taps, self.stack.self_taps
        self.end = nn.Parameter(torch.empty(settings.width))
        nn.init.normal_(self.end, std=settings.width**-0.5)

    def forward(self, source: Source) -> Memory:
        x = self.project(self.vectors(source))[:, : self.picture.regions]  # B S D
        placed = ended(x + places(self.picture, x), self.end, source.mask)
        memory: Memory = self.stack(Frames(placed.states, placed.mask))
        return Memory(memory.states, memory.mask, ((mean_of_regions(memory.states, self.picture.regions),),))


def places(picture: Regions, like: Float[Tensor, "B S D"]) -> Float[Tensor, "1 S D"]:
    """Waves of a region's row in the first half of its vector, of its column in the second."""
    place = torch.arange(picture.regions, device=like.device)
    half = (like.shape[-1] + 1) // 2
    waves = []
    for number in (place // picture.columns, place % picture.columns):
        angle = angles(number[None], half, like)  # 1 S h
        waves.append(torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :half])
    return torch.cat(waves, dim=-1)[..., : like.shape[-1]].to(like.dtype)


def ended(regions: Float[Tensor, "B R D"], end: Float[Tensor, "D"], mask: Mask) -> Memory:
    """Regions, then the end (whatever stands behind it is no part of the picture), and the mean of the regions."""
    behind = end.expand(regions.shape[0], mask.shape[1] - regions.shape[1], -1)
    states = torch.cat([regions, behind.to(regions.dtype)], dim=1).masked_fill(~mask[..., None], 0.0)
    return Memory(tap("encoder.states", states), mask, ((mean_of_regions(states, regions.shape[1]),),))


def mean_of_regions(states: Float[Tensor, "B S D"], regions: int) -> Float[Tensor, "B D"]:
    return states[:, :regions].mean(1)

"""One vector of a whole sequence: the last state, the mean or the maximum of all, or what attention picks.

The paddings of a memory never matter. Nothing here knows what the vector is for.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from seqloom.models.contracts import Encoder, Memory
from seqloom.nn.attention import Attention, AttentionSettings
from seqloom.nn.layers import mean_of_real
from seqloom.shapes import Float, Tensor

Plainly = Literal["last", "mean", "max"]
How = Literal["last", "mean", "max", "attention"]


def pooled(memory: Memory, how: Plainly) -> Float[Tensor, "B D"]:
    """The last state, or the mean or the maximum of those that are real."""
    if how == "last":
        return memory.summary[-1][0]
    if how == "mean":
        return mean_of_real(memory.states, memory.mask)
    return memory.states.masked_fill(~memory.mask[..., None], -torch.inf).amax(1)


def pooled_width(encoder: Encoder, how: Plainly) -> int:
    """D of what `pooled` gives."""
    return encoder.summary_sizes[-1][0] if how == "last" else encoder.width


def learned_query(width: int) -> nn.Parameter:
    """What attention asks for where no source asks: what matters here?"""
    asks = nn.Parameter(torch.empty(width))
    nn.init.normal_(asks, std=width**-0.5)
    return asks


class Pooling(nn.Module):
    """A memory as one vector. With attention, tap: `<name>` = the weights of its positions (B H 1 S)."""

    def __init__(self, how: How, attention: AttentionSettings, *, encoder: Encoder, name: str) -> None:
        super().__init__()
        self.how, self.attention = how, None
        if how == "attention":
            self.attention = Attention(attention, query=encoder.width, memory=encoder.width, name=name)
            self.width = self.attention.width
            self.asks = learned_query(encoder.width)
        else:
            self.width = pooled_width(encoder, how)

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        if self.attention is None:
            assert self.how != "attention"
            return pooled(memory, self.how)
        query = self.asks.expand(memory.mask.shape[0], 1, -1)  # B 1 D
        found: Tensor = self.attention(query, self.attention.prepare(memory.states, memory.mask))
        return found[:, 0]

"""Several sources compared: what a decision about a pair of sentences is made of.

    pair_features   [u; v; |u - v|; u * v], u and v one vector each (Conneau et al. 2017, InferSent)
    Between         every position looks at the other source and is compared with what it finds there (Parikh et al.
                    2016, a decomposable attention model; Chen et al. 2017, ESIM); u and v are then made of these

Nothing here knows how sources were read; two that share one encoder are told apart by their places alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from seqloom.models.contracts import Memory
from seqloom.nn.attention import Attention, AttentionSettings
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.tape import tap
from seqloom.shapes import Bool, Float, Tensor

BETWEEN = "decoder.between"


def pair_features(vectors: Sequence[Float[Tensor, "*r D"]]) -> Float[Tensor, "*r F"]:
    """[u; v; |u - v|; u * v] of the first and the second vector; of more, the first goes with each in turn."""
    first, *others = vectors
    parts = [first]
    for other in others:
        parts += [other, (first - other).abs(), first * other]
    return torch.cat(parts, dim=-1)


def pair_width(sources: int, width: int) -> int:
    """F, from D."""
    return (1 + 3 * (sources - 1)) * width


def parts_of(memories: Sequence[Memory]) -> Bool[Tensor, "B k S"]:
    """Which real positions of the joined memory are those of each memory."""
    rows = [
        torch.cat([one.mask & (place == index) for place, one in enumerate(memories)], dim=1)  # B S
        for index in range(len(memories))
    ]
    return torch.stack(rows, dim=1)


class Between(nn.Module):
    """Memories whose positions have been compared with those of the others, one attention for all directions.

    a_i = softmax_j score(s_i, s_j), j all positions of other sources;  c_i = sum_j a_ij s_j
    m_i = relu(W [s_i; c_i; s_i - c_i; s_i * c_i] + b)

    Tap: `decoder.between` = the weights (B H S S), positions in the order of the joined memory, zero within a source.
    """

    def __init__(self, settings: AttentionSettings, *, width: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(settings, query=width, memory=width, name=BETWEEN)
        found = self.attention.width
        self.project = nn.Identity() if found == width else nn.Linear(found, width, bias=False)
        self.dropout = CheapDropout(dropout)
        self.compare = nn.Linear(4 * width, width)

    def forward(self, memories: Sequence[Memory]) -> list[Memory]:
        states = torch.cat([one.states for one in memories], dim=1)  # B S D
        mask = torch.cat([one.mask for one in memories], dim=1)
        prepared = self.attention.prepare(states, mask)
        rows = [
            self.attention.weigh(one.states, {**prepared, "mask": mask & ~own})  # B H s S
            for one, own in zip(memories, parts_of(memories).unbind(1), strict=True)
        ]
        weights = tap(BETWEEN, torch.cat(rows, dim=2))  # B H S S
        found = self.project(self.attention.contexts(weights, prepared["values"]))  # B S D
        pair = torch.cat([states, found, states - found, states * found], dim=-1)  # B S 4D
        compared = torch.relu(self.compare(self.dropout(pair))).masked_fill(~mask[..., None], 0.0)  # B S D
        pieces = torch.split(compared, [one.mask.shape[1] for one in memories], dim=1)
        return [replace(one, states=piece) for one, piece in zip(memories, pieces, strict=True)]

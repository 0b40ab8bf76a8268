"""The position-wise network of a Transformer layer: wide, bent, and narrow again."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.nn.dropout import CheapDropout
from seqloom.shapes import Float, Tensor

Activation = Literal["relu", "gelu", "silu", "swiglu"]


class FeedForward(nn.Module):
    """W_2 f(W_1 x), f = relu (Vaswani 2017), gelu, silu (swish); swiglu: W_2 (silu(W_1 x) * (W_3 x)) (Shazeer 2020)."""

    def __init__(self, width: int, inner: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.activation = activation
        self.widen = nn.Linear(width, 2 * inner if activation == "swiglu" else inner)  # [W_1; W_3] in one product
        self.dropout = CheapDropout(dropout)
        self.narrow = nn.Linear(inner, width)

    def forward(self, x: Float[Tensor, "N T D"]) -> Float[Tensor, "N T D"]:
        wide = self.widen(x)
        if self.activation == "relu":
            bent = F.relu(wide, inplace=True)
        elif self.activation == "gelu":
            bent = F.gelu(wide)
        elif self.activation == "silu":
            bent = F.silu(wide)
        else:
            gate, value = torch.chunk(wide, 2, dim=-1)
            bent = F.silu(gate) * value
        narrow: Tensor = self.narrow(self.dropout(bent))
        return narrow

"""Scaled dot-product attention of all heads at once, through torch's fused kernel (Vaswani 2017).

softmax(q k^T / sqrt(d)) v per head. Weights exist only where somebody listens to their tap or shares them; computed
step by step they give what the kernel gives. Keys and values may be kept: a memory's per source, shared by all its
hypotheses and never copied; those of tokens per row, token p in slot p. `nn/attention.py` has the general attention
(any score, any projection); this file has the one kind that is fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.nn.attention import causal_mask
from seqloom.nn.dropout import dropped
from seqloom.nn.fusion import compiling
from seqloom.nn.layers import rows_per_source
from seqloom.nn.positions import Turn, turned
from seqloom.nn.tape import listening, tap
from seqloom.shapes import Bool, Features, Float, Int, Mask, States, Tensor

Heads = Float[Tensor, "N H T d"]
HeadWeights = Float[Tensor, "N H T S"]
Kept = Float[Tensor, "N G P d"]  # of each row's tokens keys, then values (G = 2H), in P slots: one tensor to move
Grown = Float[Tensor, "N G Q d"]  # the same after a call, Q = P + T
Remembered = tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S d"]]  # keys and values of a memory
FEW = 24  # keys, on a GPU
FEW_IN_CACHE = 64  # keys, on a CPU,
SEVERAL = 4  # and sources, in prediction


@dataclass(frozen=True)
class View:
    """What the tokens of one call look at, and where their own keys and values go."""

    visible: Bool[Tensor, "m 1 t Q"] | None = None  # which slots (m, t: 1 where all rows or tokens agree); None: all
    causal: bool = False  # slots are the tokens of this call, and none sees a later one
    turn: Turn | None = None
    slots: Int[Tensor, "N T"] | None = None  # None: behind those that are filled
    held: bool = False  # there is room in the slots that are kept: none is added


class MultiHead(nn.Module):
    """What self- and cross-attention share. Tap: `<name>` = weights (N H T S)."""

    def __init__(self, width: int, heads: int, dropout: float, name: str) -> None:
        super().__init__()
        assert width % heads == 0, (width, heads)
        self.heads, self.size, self.dropout, self.name = heads, width // heads, dropout, name
        self.output = nn.Linear(width, width)

    def attend(
        self, query: Heads, kept: Remembered, view: View, share: bool = False
    ) -> tuple[Features, HeadWeights | None]:
        """What the queries find, heads side by side and projected; the weights too where they are shared."""
        rows, _, steps, _ = query.shape
        keys, values = kept
        sources = keys.shape[0]
        together = _by_source(query, sources)  # B H KT d: the hypotheses of a source ask at once
        weights: Tensor | None = None
        heard = not compiling() and listening(self.name)
        if share or heard or _by_products(together, keys, view.causal):
            scores = together @ keys.transpose(-1, -2) / math.sqrt(self.size)  # B H KT S
            visible = causal_mask(scores.shape[2], scores.shape[3], scores.device) if view.causal else view.visible
            if visible is not None:
                scores = scores.masked_fill(~visible, -torch.inf)
            used = torch.softmax(scores, dim=-1)
            if share or heard:
                weights = _by_row(used, rows)  # N H T S
                if heard:
                    weights = tap(self.name, weights)
                used = _by_source(weights, sources)
            found = (dropped(used, self.dropout) if self.training and self.dropout else used) @ values
        else:
            dropout = self.dropout if self.training else 0.0
            found = F.scaled_dot_product_attention(
                together, keys, values, attn_mask=view.visible, dropout_p=dropout, is_causal=view.causal
            )
        side_by_side = found.transpose(1, 2).reshape(rows, steps, self.heads * self.size)  # N T D
        output: Tensor = self.output(side_by_side)
        return output, weights


class SelfHeads(MultiHead):
    """Tokens attend to tokens of their own row: those of this call and those that were kept."""

    def __init__(self, width: int, heads: int, dropout: float, name: str) -> None:
        super().__init__(width, heads, dropout, name)
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: Features, kept: Kept | None, view: View) -> tuple[Features, Grown]:
        """What was found, and all keys and values that are kept now."""
        heads = self.heads
        qkv = self.qkv(x).unflatten(-1, (3 * heads, self.size))  # N T 3H d
        if view.turn is not None:
            qkv = torch.cat([turned(qkv[:, :, : 2 * heads], view.turn), qkv[:, :, 2 * heads :]], dim=2)
        query, new = qkv.transpose(1, 2).split([heads, 2 * heads], dim=1)  # N H T d, N G T d
        grown = new if kept is None else appended(kept, new, view.slots, view.held)
        keys, values = grown.chunk(2, dim=1)
        return self.attend(query, (keys, values), view)[0], grown


class CrossHeads(MultiHead):
    """Tokens attend to a memory, whose keys and values are projected once."""

    def __init__(self, width: int, heads: int, dropout: float, name: str, memory: int) -> None:
        super().__init__(width, heads, dropout, name)
        self.query = nn.Linear(width, width)
        self.kv = nn.Linear(memory, 2 * width)

    def keep(self, states: States) -> Remembered:
        keys, values = self.kv(states).unflatten(-1, (2, self.heads, self.size)).unbind(2)  # B S H d each
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)
        if torch.is_grad_enabled() or keys.is_cuda:
            return keys, values
        return keys.contiguous(), values.contiguous()  # read again at every step

    def forward(
        self, x: Features, kept: Remembered, mask: Mask, share: bool = False
    ) -> tuple[Features, HeadWeights | None]:
        query = self.query(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)  # N H T d
        return self.attend(query, kept, View(visible=mask[:, None, None]), share)


def _by_products(query: Float[Tensor, "B H KT d"], keys: Float[Tensor, "B H S d"], causal: bool) -> bool:
    """Is attention faster as products and a softmax than in one kernel?

    On a GPU the kernels work on 64 or 128 keys at a time. Measured on an H200, forward and back, with 4,096 and 16,384
    tokens: up to 24 keys yes where the kernel is the one of causal or of float32 attention; compiled, when softmax and
    mask are one kernel, always for few. On a CPU: for few yes in training, where the kernel makes a step in bf16 nearly
    twice as long; and in prediction where hypotheses of several sources ask for keys that lie side by side.
    """
    if not keys.is_cuda:
        if torch.compiler.is_exporting() or keys.shape[2] > FEW_IN_CACHE:  # a graph is for any number of keys
            return False
        return torch.is_grad_enabled() or (len(keys) >= SEVERAL and query.shape[2] > 1 and keys.is_contiguous())
    few = keys.shape[2] <= FEW
    return few and (compiling() or causal or keys.dtype == torch.float32)


def looked_up(
    query: Float[Tensor, "B H K d"], memory: Remembered, visible: Bool[Tensor, "B 1 1 S"] | None
) -> Float[Tensor, "B H K d"]:
    """What queries find in a memory when nobody listens."""
    keys, values = memory
    if not _by_products(query, keys, causal=False):
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=visible)
    scores = query @ keys.transpose(-1, -2) / math.sqrt(query.shape[-1])  # B H K S
    used = torch.softmax(scores if visible is None else scores.masked_fill_(~visible, -torch.inf), dim=-1)
    return used @ values


def appended(kept: Kept, new: Float[Tensor, "N G T d"], slots: Int[Tensor, "N T"] | None, held: bool = False) -> Grown:
    """Kept keys and values and new ones: behind them, or in the given slots of P + T; where room is held, of P."""
    if not kept.shape[2]:
        return new
    grown = kept if held else torch.cat([kept, new], dim=2)  # N G P+T d: where slots are given, the end is only room
    if slots is None:
        return grown
    return grown.scatter_(2, slots[:, None, :, None].expand_as(new), new.to(grown.dtype))


def _by_source(x: Float[Tensor, "N H T e"], sources: int) -> Float[Tensor, "B H KT e"]:
    """The rows of one source side by side; of queries, as they come from a projection, a view."""
    rows, heads, steps, size = x.shape
    copies = rows_per_source(rows, sources)
    if copies == 1:
        return x
    return x.view(sources, copies, heads, steps, size).transpose(1, 2).reshape(sources, heads, copies * steps, size)


def _by_row(x: Float[Tensor, "B H KT e"], rows: int) -> Float[Tensor, "N H T e"]:
    sources, heads, steps, size = x.shape
    copies = rows_per_source(rows, sources)
    if copies == 1:
        return x
    return x.view(sources, heads, copies, steps // copies, size).transpose(1, 2).reshape(rows, heads, -1, size)

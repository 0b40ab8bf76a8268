"""Single steps of a Transformer decoder on a CPU: what its layers compute, laid flat.

A step of decoding is a few rows against many small matrices, and most of its time would go to what stands around the
products: modules calling modules, masks and positions made again, sums and activations as passes of their own. Here
the matrices of all layers stand in one list, in the form that `nn/packed.py` gave them, what depends on a token's place
alone is kept, and sums and activations are done by the products themselves. Training, tapes, whole sequences and rows
that have read different numbers of tokens take the layers; both ways say the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.models.contracts import State
from seqloom.nn.entrance import Entrance
from seqloom.nn.feedforward import Activation, FeedForward
from seqloom.nn.multihead import CrossHeads, Remembered, SelfHeads, appended, looked_up
from seqloom.nn.packed import Product
from seqloom.nn.positions import Turn, turned
from seqloom.shapes import Bool, Float, Tensor

Vectors = Float[Tensor, "N D"]
Norm = Callable[[Vectors], Vectors]


class Cross:
    """The matrices of attention to the memory."""

    __slots__ = ("norm", "output", "query")

    def __init__(self, heads: CrossHeads, norm: nn.LayerNorm) -> None:
        self.norm, self.query, self.output = _normalising(norm), Product.of(heads.query), Product.of(heads.output)


@dataclass(frozen=True, slots=True)
class Layer:
    """The matrices of a layer."""

    around_self: Norm
    qkv: Product
    output: Product
    cross: Cross | None
    around_forward: Norm
    widen: Product
    narrow: Product

    @staticmethod
    def of(
        heads: SelfHeads, cross: Cross | None, feedforward: FeedForward, norms: tuple[nn.LayerNorm, nn.LayerNorm]
    ) -> Layer:
        return Layer(
            _normalising(norms[0]),
            Product.of(heads.qkv),
            Product.of(heads.output),
            cross,
            _normalising(norms[1]),
            Product.of(feedforward.widen),
            Product.of(feedforward.narrow),
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """What the layers have in common."""

    heads: int
    activation: Activation
    pre: bool  # the norm comes before a sublayer, not behind it


class SingleSteps:
    """A decoder's layers, from the embedding of a token to its features."""

    def __init__(self, layers: Sequence[Layer], entrance: Entrance, norm: nn.Module, shape: Shape) -> None:
        self.layers, self.entrance, self.shape = layers, entrance, shape
        self.norm: Norm = _normalising(norm) if isinstance(norm, nn.LayerNorm) else norm
        self._places: list[tuple[Tensor, Turn | None]] = []  # what each place adds to a vector, and turns it by

    def __call__(self, embedded: Float[Tensor, "N E"], state: State) -> tuple[Vectors, dict[str, Tensor]]:
        """The features of one more token in every row, and all keys and values that are kept now."""
        added, turn = self._place(state.rows["0"].shape[2], embedded)
        x = self.entrance.brought(embedded) + added  # N D
        mask = state.sources.get("mask")
        visible = None if mask is None or bool(mask.all()) else mask[:, None, None]
        kept: dict[str, Tensor] = {}
        for i, layer in enumerate(self.layers):
            x, kept[str(i)] = self._attended(layer, x, state.rows[str(i)], turn)
            if layer.cross is not None:
                memory = (state.sources[f"{i}.keys"], state.sources[f"{i}.values"])
                x = self._crossed(layer.cross, x, memory, visible)
            x = self._widened(layer, x)
        return self.norm(x), kept

    def _attended(
        self, layer: Layer, x: Vectors, kept: Float[Tensor, "N G P d"], turn: Turn | None
    ) -> tuple[Vectors, Float[Tensor, "N G Q d"]]:
        rows, heads, pre = len(x), self.shape.heads, self.shape.pre
        qkv = layer.qkv.times(layer.around_self(x) if pre else x).view(rows, 1, 3 * heads, -1)  # N 1 3H d
        if turn is not None:
            qkv = torch.cat([turned(qkv[:, :, : 2 * heads], turn), qkv[:, :, 2 * heads :]], dim=2)
        qkv = qkv.transpose(1, 2)
        grown = appended(kept, qkv[:, heads:], None)
        found = F.scaled_dot_product_attention(qkv[:, :heads], grown[:, :heads], grown[:, heads:])  # N H 1 d
        x = layer.output.added(found.reshape(rows, -1), x)
        return (x if pre else layer.around_self(x)), grown

    def _crossed(
        self, cross: Cross, x: Vectors, memory: Remembered, visible: Bool[Tensor, "B 1 1 S"] | None
    ) -> Vectors:
        query = cross.query.times(cross.norm(x) if self.shape.pre else x)  # N D
        sources = len(memory[0])
        together = query.view(sources, len(x) // sources, self.shape.heads, -1).transpose(1, 2)  # B H K d
        found = looked_up(together, memory, visible).transpose(1, 2).reshape(len(x), -1)
        x = cross.output.added(found, x)
        return x if self.shape.pre else cross.norm(x)

    def _widened(self, layer: Layer, x: Vectors) -> Vectors:
        wide = layer.around_forward(x) if self.shape.pre else x
        if self.shape.activation == "swiglu":
            gate, value = layer.widen.times(wide).chunk(2, dim=-1)
            bent = F.silu(gate) * value
        elif self.shape.activation == "silu":
            bent = F.silu(layer.widen.times(wide))
        else:
            bent = layer.widen.times(wide, self.shape.activation)
        x = layer.narrow.added(bent, x)
        return x if self.shape.pre else layer.around_forward(x)

    def _place(self, place: int, like: Float[Tensor, "N E"]) -> tuple[Float[Tensor, "1 D"], Turn | None]:
        positions, width = self.entrance.positions, self.entrance.width
        while len(self._places) <= place:
            at = torch.tensor([[len(self._places)]])
            nothing = like.new_zeros(1, 1, width)
            turn = positions.turn(at, width // self.shape.heads, nothing, len(self._places) + 1)
            self._places.append((positions.added(nothing, at, len(self._places) + 1)[0], turn))
        return self._places[place]


def _normalising(norm: nn.LayerNorm) -> Norm:
    shape, weight, bias, eps = list(norm.normalized_shape), norm.weight, norm.bias, norm.eps

    def normalised(x: Vectors) -> Vectors:
        return torch.layer_norm(x, shape, weight, bias, eps)

    return normalised

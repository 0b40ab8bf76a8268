"""A foreign model's tensors put into a network of ours, each where it belongs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from seqloom.errors import SeqloomError
from seqloom.export.importers.foreign import Foreign
from seqloom.models.heads import Linear
from seqloom.models.model import EncoderDecoder
from seqloom.models.transformer import DecoderLayer, EncoderLayer, TransformerDecoder, TransformerEncoder
from seqloom.nn.frontends import Learned
from seqloom.shapes import Float, Tensor


def fill(network: EncoderDecoder, foreign: Foreign) -> None:
    """Copy every tensor; E_BUNDLE names one that has another shape, or that nothing here is made of."""
    filler = _Filler(foreign)
    encoder, decoder, head = network.encoder, network.decoder, network.head
    assert isinstance(encoder, TransformerEncoder)
    assert isinstance(decoder, TransformerDecoder)
    assert isinstance(head, Linear)
    with torch.no_grad():
        filler.text(network, head)
        for number, layer in enumerate(encoder.layers):
            assert isinstance(layer, EncoderLayer)
            filler.layer(layer, f"encoder.{number}")
        for number, layer in enumerate(decoder.layers):
            assert isinstance(layer, DecoderLayer)
            filler.layer(layer, f"decoder.{number}")
            filler.cross(layer, f"decoder.{number}.cross")
        for name, norm in (("encoder.norm", encoder.norm), ("decoder.norm", decoder.norm)):
            if isinstance(norm, nn.LayerNorm):
                filler.norm(norm, name)
    filler.refuse_unused()


class _Filler:
    def __init__(self, foreign: Foreign) -> None:
        self.foreign, self.where = foreign, f"{foreign.tool} model {foreign.name}"
        self.unused = dict.fromkeys(foreign.tensors)

    def text(self, network: EncoderDecoder, head: Linear) -> None:
        """Embeddings and output layer, rows in the order of our ids."""
        source, target = self.foreign.source.vocabulary, self.foreign.target.vocabulary
        self._copy(_table(network.target_embedding), target.moved(self._take("target.embedding")), "target.embedding")
        if not self.foreign.shared:
            self._copy(_table(network.source_embedding), source.moved(self._take("source.embedding")), "source")
        if not self.foreign.tied:
            self._copy(head.weight, target.moved(self._take("output.weight")), "output.weight")
        assert head.bias is not None
        bias = self.foreign.tensors.get("output.bias")
        self.unused.pop("output.bias", None)
        given = head.bias.new_zeros(len(target.pieces)) if bias is None else bias.flatten().float()
        self._copy(head.bias, target.biased(given), "output.bias")

    def layer(self, layer: EncoderLayer, name: str) -> None:
        attention = layer.self_attention
        self.linear(attention.qkv, [f"{name}.self.{part}" for part in ("query", "key", "value")])
        self.linear(attention.output, [f"{name}.self.output"])
        self.norm(layer.around_self.norm, f"{name}.self.norm")
        self.linear(layer.feedforward.widen, [f"{name}.forward.widen"])
        self.linear(layer.feedforward.narrow, [f"{name}.forward.narrow"])
        self.norm(layer.around_forward.norm, f"{name}.forward.norm")

    def cross(self, layer: DecoderLayer, name: str) -> None:
        attention = layer.cross_attention
        assert attention is not None
        self.linear(attention.query, [f"{name}.query"])
        self.linear(attention.kv, [f"{name}.key", f"{name}.value"])
        self.linear(attention.output, [f"{name}.output"])
        self.norm(layer.around_cross.norm, f"{name}.norm")

    def linear(self, linear: nn.Linear, names: Sequence[str]) -> None:
        """One product of ours may be several of theirs, one below the other; a bias that they lack is zero."""
        parts = [self._take(f"{name}.weight") for name in names]
        self._copy(linear.weight, torch.cat(parts), names[0])
        biases = [
            self._take(f"{name}.bias") if f"{name}.bias" in self.foreign.tensors else part.new_zeros(len(part))
            for name, part in zip(names, parts, strict=True)
        ]
        self._copy(linear.bias, torch.cat(biases), names[0])

    def norm(self, norm: nn.LayerNorm, name: str) -> None:
        self._copy(norm.weight, self._take(f"{name}.weight"), name)
        self._copy(norm.bias, self._take(f"{name}.bias"), name)

    def refuse_unused(self) -> None:
        if self.unused:
            names = [*self.unused]
            what = f"weights that nothing here is made of: {', '.join(names[:5])}"
            raise SeqloomError("E_BUNDLE", what, where=self.where)

    def _take(self, name: str) -> Float[Tensor, "..."]:
        if name not in self.foreign.tensors:
            raise SeqloomError("E_BUNDLE", f"the weights lack {name}", where=self.where)
        self.unused.pop(name, None)
        return self.foreign.tensors[name].float()

    def _copy(self, parameter: Float[Tensor, "..."], values: Float[Tensor, "..."], name: str) -> None:
        if parameter.shape != values.shape:
            what = f"{name} is {tuple(values.shape)}, expected {tuple(parameter.shape)}"
            raise SeqloomError("E_BUNDLE", what, where=self.where, fix="do the weights and the configuration belong?")
        if not bool(torch.isfinite(values).all()):
            raise SeqloomError("E_BUNDLE", f"not finite: {name}", where=self.where)
        parameter.copy_(values)


def _table(embedding: nn.Module) -> Float[Tensor, "V D"]:
    assert isinstance(embedding, Learned)
    return embedding.weight

"""A Transformer as CTranslate2 runs it: the same products under that library's names.

What stands around the layers becomes part of them, so that nothing is left to tell apart: an embedding's scale and the
projection behind it go into its table, a projection before the output matrix into that matrix. Sinusoidal positions
are written out, as learned ones are; rotary ones are a setting there as they are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.models.heads import Linear
from seqloom.models.model import EncoderDecoder
from seqloom.models.transformer import DecoderLayer, EncoderLayer, TransformerDecoder, TransformerEncoder
from seqloom.nn.entrance import Entrance, from_the_start
from seqloom.nn.feedforward import FeedForward
from seqloom.nn.frontends import Embedding
from seqloom.nn.multihead import CrossHeads, SelfHeads
from seqloom.nn.positions import Learned as LearnedPositions
from seqloom.shapes import Float, Tensor
from seqloom.specials import BOS, EOS, UNK

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

Spec = Any  # the library's specs have no types
PLACES = 4096  # that a table of sinusoidal positions is written for
FIX = "predict with the run itself; only Transformers with a linear output layer can be exported"


def places(network: Generator) -> tuple[int | None, int | None]:
    """The most tokens that an exported model reads and says, the special ones counted; None: any number."""
    encoder, decoder, _ = _parts(network)
    return _places(encoder.entrance), _places(decoder.entrance)


def write(
    network: Generator, vocabularies: tuple[Sequence[str], Sequence[str]], folder: Path, quantisation: str | None = None
) -> None:
    """The model's files in an existing folder. `vocabularies` are the pieces of source and target, by id."""
    spec = specification(network, vocabularies)
    spec.validate()
    spec.optimize(quantization=quantisation)
    spec.save(str(folder))


def specification(network: Generator, vocabularies: tuple[Sequence[str], Sequence[str]]) -> TransformerSpec:
    from ctranslate2.specs import TransformerSpec

    encoder, decoder, head = _parts(network)
    spec = TransformerSpec(_encoder(encoder), _decoder(decoder, head))
    source, target = vocabularies
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (target[i] for i in (UNK, BOS, EOS))
    spec.config.decoder_start_token = target[BOS]
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = encoder.epsilon
    return spec


def _parts(network: Generator) -> tuple[TransformerEncoder, TransformerDecoder, Linear]:
    """E_USAGE for what that library has no layers for."""
    if not isinstance(network, EncoderDecoder):
        raise _refused("a model of one part for source and target")
    if not isinstance(network.encoder, TransformerEncoder):
        raise _refused("an encoder that is no Transformer")
    if not isinstance(network.decoder, TransformerDecoder):
        raise _refused("a decoder that is no Transformer")
    if network.extras:
        raise _refused("extras with an encoder of their own")
    if type(network.head) is not Linear:
        raise _refused("an output layer that copies or has a hidden layer")
    return network.encoder, network.decoder, network.head


def _refused(what: str) -> SeqloomError:
    return SeqloomError("E_USAGE", f"CTranslate2 cannot run {what}", where="--to ctranslate2", fix=FIX)


def _encoder(encoder: TransformerEncoder) -> Spec:
    from ctranslate2.specs import transformer_spec

    layers = [layer for layer in encoder.layers if isinstance(layer, EncoderLayer)]
    spec = transformer_spec.TransformerEncoderSpec(len(layers), **_shape(layers, encoder.entrance))
    embedding = encoder.vectors.embedding
    assert isinstance(embedding, Embedding), "a model of tokens"
    _entrance(spec, spec.embeddings[0], encoder.entrance, embedding)
    _norm_at_the_end(spec, encoder.norm)
    for one, layer in zip(spec.layer, layers, strict=True):
        _self(one.self_attention, layer)
        _feedforward(one.ffn, layer)
    return spec


def _decoder(decoder: TransformerDecoder, head: Linear) -> Spec:
    from ctranslate2.specs import transformer_spec

    layers = [layer for layer in decoder.layers if isinstance(layer, DecoderLayer)]
    spec = transformer_spec.TransformerDecoderSpec(len(layers), **_shape(layers, decoder.entrance))
    assert isinstance(decoder.embedding, Embedding)
    _entrance(spec, spec.embeddings, decoder.entrance, decoder.embedding)
    _norm_at_the_end(spec, decoder.norm)
    for one, layer in zip(spec.layer, layers, strict=True):
        _self(one.self_attention, layer)
        _cross(one.attention, layer)
        _feedforward(one.ffn, layer)
    weight, hidden = head.weight, head.hidden
    spec.projection.weight = _plain(weight @ hidden.weight if isinstance(hidden, nn.Linear) else weight)
    if head.bias is not None:
        spec.projection.bias = _plain(head.bias)
    return spec


def _shape(layers: Sequence[EncoderLayer], entrance: Entrance) -> dict[str, object]:
    from ctranslate2.specs import common_spec

    first = layers[0]
    kinds = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "silu": common_spec.Activation.SWISH,
        "swiglu": common_spec.Activation.SWISH,
    }
    turns = {"rotary_dim": first.self_attention.size, "rotary_interleave": False} if entrance.positions.turns else {}
    return {
        "num_heads": first.self_attention.heads,
        "pre_norm": first.around_self.pre,
        "activation": kinds[first.feedforward.activation],
        "ffn_glu": first.feedforward.activation == "swiglu",
        **turns,
    }


def _places(entrance: Entrance) -> int | None:
    if entrance.positions.turns:
        return None
    return len(entrance.positions.weight) if isinstance(entrance.positions, LearnedPositions) else PLACES


def _entrance(spec: Spec, table: Spec, entrance: Entrance, embedding: Embedding) -> None:
    every = torch.arange(embedding.vocabulary)
    vectors = entrance.project(embedding(every[None])[0] * entrance.scale)  # V D
    spec.scale_embeddings = False
    table.weight = _plain(vectors)
    count = _places(entrance)
    if count is not None:
        nothing = vectors.new_zeros(1, count, vectors.shape[1])
        placed = entrance.positions.added(nothing, from_the_start(count, nothing.device), count)
        spec.position_encodings.encodings = _plain(placed[0])
    elif hasattr(spec, "position_encodings"):
        delattr(spec, "position_encodings")


def _norm_at_the_end(spec: Spec, norm: nn.Module) -> None:
    if isinstance(norm, nn.LayerNorm):
        _norm(spec.layer_norm, norm)


def _self(spec: Spec, layer: EncoderLayer) -> None:
    heads: SelfHeads = layer.self_attention
    _norm(spec.layer_norm, layer.around_self.norm)
    _linear(spec.linear[0], heads.qkv)
    _linear(spec.linear[1], heads.output)


def _cross(spec: Spec, layer: DecoderLayer) -> None:
    heads = layer.cross_attention
    assert isinstance(heads, CrossHeads)
    _norm(spec.layer_norm, layer.around_cross.norm)
    for one, linear in zip(spec.linear, (heads.query, heads.kv, heads.output), strict=True):
        _linear(one, linear)


def _feedforward(spec: Spec, layer: EncoderLayer) -> None:
    network: FeedForward = layer.feedforward
    _norm(spec.layer_norm, layer.around_forward.norm)
    if network.activation == "swiglu":
        gate, value = (part.chunk(2) for part in (network.widen.weight.detach(), network.widen.bias.detach()))
        spec.linear_0.weight, spec.linear_0.bias = _plain(gate[0]), _plain(value[0])
        spec.linear_0_noact.weight, spec.linear_0_noact.bias = _plain(gate[1]), _plain(value[1])
    else:
        _linear(spec.linear_0, network.widen)
    _linear(spec.linear_1, network.narrow)


def _linear(spec: Spec, linear: nn.Linear) -> None:
    spec.weight = _plain(linear.weight)
    if linear.bias is not None:
        spec.bias = _plain(linear.bias)


def _norm(spec: Spec, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _plain(norm.weight), _plain(norm.bias)


def _plain(tensor: Float[Tensor, "*d"]) -> Any:
    """Numbers of their own: what shares memory here need not there."""
    return tensor.detach().to("cpu", torch.float32).numpy().copy()

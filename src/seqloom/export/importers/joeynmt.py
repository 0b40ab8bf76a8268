"""A JoeyNMT Transformer, saved as safetensors in JoeyNMT's own environment (docs/howto/convert.md has the lines).

A folder with model.safetensors, JoeyNMT's config.yaml and its src_vocab.txt and trg_vocab.txt; source.spm and
target.spm where its texts were cut by sentencepiece. Without them texts are given, and come out, in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from seqloom import weights
from seqloom.config import read_yaml
from seqloom.errors import SeqloomError
from seqloom.export.importers.foreign import (
    SOURCE_MODEL,
    TARGET_MODEL,
    Foreign,
    Raw,
    Vocabulary,
    refused,
    renamed,
    text_side,
    usual_specials,
)
from seqloom.files import read_bounded
from seqloom.shapes import Float, Tensor

TOOL = "JoeyNMT"
CONFIG, WEIGHTS = "config.yaml", "model.safetensors"
VOCABULARIES = ("src_vocab.txt", "trg_vocab.txt")
MOST_BYTES = 100_000_000
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}


def is_one(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (CONFIG, WEIGHTS, *VOCABULARIES))


def read(folder: Path) -> Foreign:
    raw = read_yaml(folder / CONFIG)
    model, where = _part(raw, "model"), str(folder / CONFIG)
    encoder, decoder = _part(model, "encoder"), _part(model, "decoder")
    stack = _stack(encoder, where)
    if _stack(decoder, where) != stack:
        raise refused(TOOL, "encoder and decoder of other shapes", where)
    vocabularies = [_vocabulary(folder / name, _part(_part(raw, "data"), "special_symbols")) for name in VOCABULARIES]
    source = text_side(folder, SOURCE_MODEL, vocabularies[0])
    target = text_side(folder, TARGET_MODEL, vocabularies[1])
    shared = bool(model.get("tied_embeddings")) and source.model == target.model
    if shared:
        target = source
    tied = bool(model.get("tied_softmax"))
    layers = (_whole(encoder, "num_layers", 8), _whole(decoder, "num_layers", 8))
    found = weights.read(folder / WEIGHTS)
    pre = stack["norm"] == "pre"
    tensors = renamed(found, _modules(layers, pre), str(folder / WEIGHTS))
    for name, ours in (("src_embed.lut", "source.embedding"), ("trg_embed.lut", "target.embedding")):
        tensors[ours] = _tensor(found, name, folder)
    if shared:
        del tensors["source.embedding"]
    if not tied:
        tensors["output.weight"] = _tensor(found, "decoder.output_layer", folder)
    return Foreign(
        TOOL,
        folder.resolve().name,
        source,
        target,
        stack,
        layers,
        tensors,
        shared=shared,
        tied=tied,
        search=_search(_part(raw, "testing")),
    )


def _tensor(found: weights.Weights, name: str, folder: Path) -> Float[Tensor, "..."]:
    if f"{name}.weight" not in found:
        raise SeqloomError("E_BUNDLE", f"the weights lack {name}.weight", where=str(folder / WEIGHTS))
    return found[f"{name}.weight"]


def _part(raw: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = raw.get(key)
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}


def _whole(part: Mapping[str, object], key: str, default: int) -> int:
    value = part.get(key, default)
    return value if isinstance(value, int) else default


def _stack(part: Mapping[str, object], where: str) -> Raw:
    if part.get("type") != "transformer":
        raise refused(TOOL, f"type: {part.get('type', 'recurrent')}", where)
    activation = str(part.get("activation", "relu"))
    if activation not in ACTIVATIONS:
        raise refused(TOOL, f"activation: {activation}", where)
    if "layer_norm" not in part:  # what JoeyNMT then does differs between encoder and decoder
        raise refused(TOOL, "an encoder or decoder that does not say its layer_norm", where)
    if part.get("alpha", 1.0) != 1.0:
        raise refused(TOOL, f"alpha: {part['alpha']}", where)
    embeddings = _part(part, "embeddings")
    return {
        "width": _whole(part, "hidden_size", 512),
        "heads": _whole(part, "num_heads", 8),
        "feedforward": _whole(part, "ff_size", 2048),
        "activation": ACTIVATIONS[activation],
        "norm": str(part["layer_norm"]),
        "epsilon": 1e-6,
        "scale_embedding": bool(embeddings.get("scale", False)),
    }


def _vocabulary(path: Path, symbols: Mapping[str, object]) -> Vocabulary:
    pieces = read_bounded(path, MOST_BYTES).decode("utf-8").splitlines()
    usual = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return Vocabulary.named(pieces, usual_specials(*(str(symbols.get(k, v)) for k, v in usual.items())), str(path))


def _modules(layers: tuple[int, int], pre: bool) -> Iterator[tuple[str, str]]:
    attention = {"q_layer": "query", "k_layer": "key", "v_layer": "value", "output_layer": "output"}
    own = {"encoder": {"self": "src_src_att"}, "decoder": {"self": "trg_trg_att", "cross": "src_trg_att"}}
    norms = {
        "encoder": {"self": "layer_norm"},
        "decoder": {"self": "x_layer_norm", "cross": "dec_layer_norm"},
    }
    for (side, kinds), count in zip(own.items(), layers, strict=True):
        for number in range(count):
            theirs, ours = f"{side}.layers.{number}", f"{side}.{number}"
            for name, kind in kinds.items():
                for one, other in attention.items():
                    yield f"{theirs}.{kind}.{one}", f"{ours}.{name}.{other}"
                yield f"{theirs}.{norms[side][name]}", f"{ours}.{name}.norm"
            yield f"{theirs}.feed_forward.pwff_layer.0", f"{ours}.forward.widen"
            yield f"{theirs}.feed_forward.pwff_layer.3", f"{ours}.forward.narrow"
            yield f"{theirs}.feed_forward.layer_norm", f"{ours}.forward.norm"
        if pre:
            yield f"{side}.layer_norm", f"{side}.norm"


def _search(testing: Mapping[str, object]) -> Raw:
    size, alpha = _whole(testing, "beam_size", 1), testing.get("beam_alpha", -1)
    length: Raw = {"kind": "none"}
    if isinstance(alpha, (int, float)) and alpha > 0:
        length = {"kind": "gnmt", "alpha": float(alpha)}
    return {"strategy": {"kind": "beam", "size": max(1, size), "length": length}}

"""A JoeyNMT Transformer, saved as safetensors in JoeyNMT's own environment (docs/howto/convert.md has the lines).

A folder with model.safetensors, JoeyNMT's config.yaml and its src_vocab.txt and trg_vocab.txt; source.spm and
target.spm where its texts were cut by sentencepiece. Without them texts are given, and come out, in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from seqloom import weights
from seqloom.config import read_yaml
from seqloom.export.importers.foreign import (
    MOST_BEAM,
    MOST_LAYERS,
    SOURCE_MODEL,
    TARGET_MODEL,
    Foreign,
    Names,
    Raw,
    Vocabulary,
    listed,
    refused,
    renamed,
    text_side,
    usual_specials,
    weight,
    whole,
)

TOOL = "JoeyNMT"
CONFIG, WEIGHTS = "config.yaml", "model.safetensors"
VOCABULARIES = ("src_vocab.txt", "trg_vocab.txt")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}
NAMES = Names(
    {"encoder": "encoder.layers", "decoder": "decoder.layers"},
    {"q_layer": "query", "k_layer": "key", "v_layer": "value", "output_layer": "output"},
    {
        "encoder": {"self": ("src_src_att", "layer_norm")},
        "decoder": {"self": ("trg_trg_att", "x_layer_norm"), "cross": ("src_trg_att", "dec_layer_norm")},
    },
    ("feed_forward.pwff_layer.0", "feed_forward.pwff_layer.3", "feed_forward.layer_norm"),
)


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
    deep, high = (whole(part, "num_layers", 8, where, MOST_LAYERS) for part in (encoder, decoder))
    found, place = weights.read(folder / WEIGHTS), str(folder / WEIGHTS)
    tops = [(f"{side}.layer_norm", f"{side}.norm") for side in NAMES.stacks] if stack["norm"] == "pre" else []
    tensors = renamed(found, [*NAMES.modules((deep, high)), *tops], place)
    for name, ours in (("src_embed", "source.embedding"), ("trg_embed", "target.embedding")):
        tensors[ours] = weight(found, f"{name}.lut.weight", place)
    if shared:
        del tensors["source.embedding"]
    if not tied:
        tensors["output.weight"] = weight(found, "decoder.output_layer.weight", place)
    return Foreign(
        TOOL,
        folder.resolve().name,
        source,
        target,
        stack,
        (deep, high),
        tensors,
        shared=shared,
        tied=tied,
        search=_search(_part(raw, "testing"), where),
    )


def _part(raw: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = raw.get(key)
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}


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
        "width": whole(part, "hidden_size", 512, where),
        "heads": whole(part, "num_heads", 8, where),
        "feedforward": whole(part, "ff_size", 2048, where),
        "activation": ACTIVATIONS[activation],
        "norm": str(part["layer_norm"]),
        "epsilon": 1e-6,
        "scale_embedding": bool(embeddings.get("scale", False)),
    }


def _vocabulary(path: Path, symbols: Mapping[str, object]) -> Vocabulary:
    usual = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return Vocabulary.named(
        listed(path), usual_specials(*(str(symbols.get(k, v)) for k, v in usual.items())), str(path)
    )


def _search(testing: Mapping[str, object], where: str) -> Raw:
    size, alpha = whole(testing, "beam_size", 1, where, MOST_BEAM), testing.get("beam_alpha", -1)
    length: Raw = {"kind": "none"}
    if isinstance(alpha, (int, float)) and alpha > 0:
        length = {"kind": "gnmt", "alpha": float(alpha)}
    return {"strategy": {"kind": "beam", "size": size, "length": length}}

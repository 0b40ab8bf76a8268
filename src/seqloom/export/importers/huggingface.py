"""A Hugging Face Marian model: a folder with config.json, model.safetensors, source.spm, target.spm and vocab.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seqloom import weights, wording
from seqloom.errors import SeqloomError
from seqloom.export.importers.foreign import (
    MOST_BYTES,
    MOST_LAYERS,
    MOST_VOCABULARY,
    SOURCE_MODEL,
    TARGET_MODEL,
    Foreign,
    Names,
    Raw,
    Side,
    Vocabulary,
    refused,
    renamed,
    text_side,
    weight,
)
from seqloom.files import read_json
from seqloom.specials import BOS, EOS, PAD, UNK

TOOL = "Hugging Face Marian"
CONFIG, WEIGHTS, GENERATION = "config.json", "model.safetensors", "generation_config.json"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
FIX = "give the folder that save_pretrained wrote"
_LANGUAGE = re.compile(r">>.+<<")
_SELF = {"self": ("self_attn", "self_attn_layer_norm")}
NAMES = Names(
    {side: f"model.{side}.layers" for side in ("encoder", "decoder")},
    {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"},
    {"encoder": _SELF, "decoder": _SELF | {"cross": ("encoder_attn", "encoder_attn_layer_norm")}},
    ("fc1", "fc2", "final_layer_norm"),
)


class _Config(BaseModel):
    """What of config.json and generation_config.json is heeded."""

    model_config = ConfigDict(extra="ignore")
    model_type: str = ""
    d_model: int = Field(1024, ge=1)
    encoder_layers: int = Field(12, ge=1, le=MOST_LAYERS)
    decoder_layers: int = Field(12, ge=1, le=MOST_LAYERS)
    encoder_attention_heads: int = Field(16, ge=1)
    decoder_attention_heads: int = Field(16, ge=1)
    encoder_ffn_dim: int = Field(4096, ge=1)
    decoder_ffn_dim: int = Field(4096, ge=1)
    activation_function: str = "gelu"
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    max_position_embeddings: int = Field(1024, ge=2)
    eos_token_id: int = Field(0, ge=0, lt=MOST_VOCABULARY)
    pad_token_id: int = Field(58100, ge=0, lt=MOST_VOCABULARY)
    decoder_start_token_id: int = Field(58100, ge=0, lt=MOST_VOCABULARY)
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    max_length: int | None = None


def is_one(folder: Path) -> bool:
    """Is this folder one that Hugging Face's `save_pretrained` wrote?"""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def read(folder: Path) -> Foreign:
    """E_BUNDLE for what is no such folder, or a model of another kind."""
    config = _config(folder)
    if config.model_type != "marian":
        raise refused("Hugging Face", f"model_type {config.model_type!r}", str(folder / CONFIG))
    if config.activation_function not in ACTIVATIONS:
        raise refused(TOOL, f"activation_function {config.activation_function!r}", str(folder / CONFIG))
    for ours in ("attention_heads", "ffn_dim"):
        if getattr(config, f"encoder_{ours}") != getattr(config, f"decoder_{ours}"):
            raise refused(TOOL, f"{ours} of its own in the decoder", str(folder / CONFIG))
    source, target = _sides(folder, config)
    shared = config.share_encoder_decoder_embeddings and source.model == target.model
    found = weights.read(folder / WEIGHTS)
    layers = (config.encoder_layers, config.decoder_layers)
    tensors = renamed(found, NAMES.modules(layers), str(folder / WEIGHTS))
    tables = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "model.shared.weight")
    own = {name: found[name].float() for name in tables if name in found}
    if not own:
        raise SeqloomError("E_BUNDLE", "the weights have no embedding", where=str(folder / WEIGHTS), fix=FIX)
    together = own.get(tables[2], next(iter(own.values())))
    tensors["target.embedding"] = own.get(tables[1], together)
    if not shared:
        tensors["source.embedding"] = own.get(tables[0], together)
    if "final_logits_bias" in found:
        tensors["output.bias"] = found["final_logits_bias"]
    if not config.tie_word_embeddings:
        tensors["output.weight"] = weight(found, "lm_head.weight", str(folder / WEIGHTS))
    return Foreign(
        TOOL,
        folder.resolve().name,
        source,
        target,
        _stack(config),
        layers,
        tensors,
        shared=shared,
        tied=config.tie_word_embeddings,
        search=_search(config),
    )


def _config(folder: Path) -> _Config:
    raw = read_json(folder / CONFIG, MOST_BYTES, "a model's configuration", FIX)
    if (folder / GENERATION).is_file():
        more = read_json(folder / GENERATION, MOST_BYTES, "a configuration", FIX)
        raw |= {key: value for key, value in more.items() if value is not None}
    try:
        return _Config.model_validate(raw)
    except ValidationError as error:
        what = f"not a Marian configuration: {wording.first_problem(error)}"
        raise SeqloomError("E_BUNDLE", what, where=str(folder / CONFIG), fix=FIX) from None


def _stack(config: _Config) -> Raw:
    return {
        "width": config.d_model,
        "heads": config.encoder_attention_heads,
        "feedforward": config.encoder_ffn_dim,
        "activation": ACTIVATIONS[config.activation_function],
        "norm": "post",
        "positions": {"kind": "sinusoidal", "layout": "halves"},
        "scale_embedding": config.scale_embedding,
        "dropout": config.dropout,
    }


def _sides(folder: Path, config: _Config) -> tuple[Side, Side]:
    read_by = _vocabulary(folder / "vocab.json", config)
    separate = folder / "target_vocab.json"
    said_by = _vocabulary(separate, config) if separate.is_file() else read_by
    codes = [piece for piece in read_by.pieces if _LANGUAGE.fullmatch(piece)]
    source, target = (folder / name for name in (SOURCE_MODEL, TARGET_MODEL))
    for path in (source, target):
        if not path.is_file():
            raise SeqloomError("E_BUNDLE", "the sentencepiece model is missing", where=str(path), fix=FIX)
    one, other = text_side(folder, SOURCE_MODEL, read_by, codes), text_side(folder, TARGET_MODEL, said_by)
    return (one, one) if one.model == other.model and said_by is read_by else (one, other)


def _vocabulary(path: Path, config: _Config) -> Vocabulary:
    numbers = read_json(path, MOST_BYTES, "a vocabulary", FIX)
    if not numbers or len(numbers) > MOST_VOCABULARY or not _counted(numbers):
        what = f"not a vocabulary: pieces with numbers from 0 up to {MOST_VOCABULARY:,} are expected"
        raise SeqloomError("E_BUNDLE", what, where=str(path), fix=FIX)
    if "<unk>" not in numbers:
        raise SeqloomError("E_BUNDLE", "the vocabulary has no '<unk>'", where=str(path), fix=FIX)
    known = {int(str(number)): piece for piece, number in numbers.items()}
    last = max(*known, config.eos_token_id, config.decoder_start_token_id, config.pad_token_id)
    pieces = [known.get(number, f"<row {number}>") for number in range(last + 1)]
    unknown = int(str(numbers["<unk>"]))
    start, pad = config.decoder_start_token_id, config.pad_token_id
    specials = {UNK: unknown, EOS: config.eos_token_id}
    if start == pad:
        return Vocabulary(pieces, {**specials, BOS: start})
    return Vocabulary(pieces, {**specials, PAD: pad}, begins=start)


def _counted(numbers: Mapping[str, object]) -> bool:
    most = [number for number in numbers.values() if isinstance(number, int) and 0 <= number < MOST_VOCABULARY]
    return len(set(most)) == len(numbers) and "" not in numbers


def _search(config: _Config) -> Raw:
    """Its own beam: stopped early when the beam is full of endings, or when none that lives is better."""
    size = config.num_beams or 1
    most = (config.max_length or config.max_position_embeddings) - 2  # it counts the start and the end
    strategy: Raw = {
        "kind": "beam",
        "size": size,
        "length": {"kind": "power", "alpha": 1.0 if config.length_penalty is None else config.length_penalty},
    }
    strategy |= {"stop": "finished", "finish": size} if config.early_stopping is True else {"stop": "all"}
    limit = max(1, most)
    return {"strategy": strategy, "limits": {"max_length": limit, "extra": limit}}

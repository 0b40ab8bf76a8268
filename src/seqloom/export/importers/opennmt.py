"""An OpenNMT-py Transformer, saved as safetensors in its own environment (docs/howto/convert.md has the lines).

A folder with model.safetensors (generator included), options.json, src.vocab and tgt.vocab (a piece a line, in the
order of their ids); source.spm and target.spm where its texts were cut by sentencepiece. Its sources have no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seqloom import weights
from seqloom.export.importers.foreign import (
    MOST_BYTES,
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
from seqloom.files import read_json

TOOL = "OpenNMT-py"
OPTIONS, WEIGHTS = "options.json", "model.safetensors"
VOCABULARIES = ("src.vocab", "tgt.vocab")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
NAMES = Names(
    {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"},
    {"linear_query": "query", "linear_keys": "key", "linear_values": "value", "final_linear": "output"},
    {
        "encoder": {"self": ("self_attn", "layer_norm")},
        "decoder": {"self": ("self_attn", "layer_norm_1"), "cross": ("context_attn", "layer_norm_2")},
    },
    ("feed_forward.w_1", "feed_forward.w_2", "feed_forward.layer_norm"),
)
REST = (("encoder.layer_norm", "encoder.norm"), ("decoder.layer_norm", "decoder.norm"), ("generator", "output"))
POSITIONS: Mapping[str, Raw] = {
    "SinusoidalInterleaved": {"kind": "sinusoidal"},
    "SinusoidalConcat": {"kind": "sinusoidal", "layout": "halves", "reaching": True},
}
# What must be so, because seqloom has no layers for the other choices; OpenNMT-py's defaults.
EXPECTED: Mapping[str, tuple[object, object]] = {
    "encoder_type": ("transformer", "rnn"),
    "decoder_type": ("transformer", "rnn"),
    "position_encoding": (True, False),
    "max_relative_positions": (0, 0),
    "layer_norm": ("standard", "standard"),
    "parallel_residual": (False, False),
    "multiquery": (False, False),
    "num_kv": (0, 0),
    "copy_attn": (False, False),
    "generator_function": ("softmax", "softmax"),
    "num_experts": (0, 0),
    "self_attn_type": ("scaled-dot", "scaled-dot"),
}
ALIKE = {"scaled-dot-flash": "scaled-dot"}  # the same numbers by another kernel


def is_one(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (OPTIONS, WEIGHTS, *VOCABULARIES))


def read(folder: Path) -> Foreign:
    where = str(folder / OPTIONS)
    options = read_json(folder / OPTIONS, MOST_BYTES, "OpenNMT-py's options", "write them again")
    for key, (expected, default) in EXPECTED.items():
        value = options.get(key, default)
        if (ALIKE.get(value, value) if isinstance(value, str) else value) != expected:
            raise refused(TOOL, f"{key}: {value!r}", where)
    stack = _stack(options, where)
    names = usual_specials("<blank>", "<unk>", str(options.get("decoder_start_token", "<s>")), "</s>")
    read_by, said_by = (Vocabulary.named(listed(folder / name), names, name) for name in VOCABULARIES)
    source, target = text_side(folder, SOURCE_MODEL, read_by), text_side(folder, TARGET_MODEL, said_by)
    deep, high = (whole(options, key, 2, where, MOST_LAYERS) for key in ("enc_layers", "dec_layers"))
    found, place = weights.read(folder / WEIGHTS), str(folder / WEIGHTS)
    tensors = renamed(found, [*NAMES.modules((deep, high)), *REST], place)
    for side, ours in (("encoder", "source.embedding"), ("decoder", "target.embedding")):
        tensors[ours] = weight(found, f"{side}.embeddings.make_embedding.emb_luts.0.weight", place)
    return Foreign(
        TOOL,
        folder.resolve().name,
        source,
        target,
        stack,
        (deep, high),
        tensors,
        encoder={"reads_end": False},
        search={"strategy": {"kind": "beam", "size": 5}},
    )


def _stack(options: Mapping[str, object], where: str) -> Raw:
    activation = str(options.get("pos_ffn_activation_fn", "relu"))
    if activation not in ACTIVATIONS:
        raise refused(TOOL, f"pos_ffn_activation_fn: {activation}", where)
    positions = str(options.get("position_encoding_type", "SinusoidalInterleaved"))
    if positions not in POSITIONS:
        raise refused(TOOL, f"position_encoding_type: {positions}", where)
    epsilon = options.get("norm_eps", 1e-6)
    return {
        "width": whole(options, "enc_hid_size", whole(options, "hidden_size", 500, where), where),
        "heads": whole(options, "heads", 8, where),
        "feedforward": whole(options, "transformer_ff", 2048, where),
        "activation": activation,
        "norm": "pre",
        "epsilon": epsilon if isinstance(epsilon, float) else 1e-6,
        "positions": POSITIONS[positions],
    }

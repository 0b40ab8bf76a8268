"""An OpenNMT-py Transformer, saved as safetensors in its own environment (docs/howto/convert.md has the lines).

A folder with model.safetensors (generator included), options.json, src.vocab and tgt.vocab (a piece a line, in the
order of their ids); source.spm and target.spm where its texts were cut by sentencepiece. Its sources have no end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from seqloom import weights
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
from seqloom.files import read_bounded, read_json

TOOL = "OpenNMT-py"
OPTIONS, WEIGHTS = "options.json", "model.safetensors"
VOCABULARIES = ("src.vocab", "tgt.vocab")
MOST_BYTES = 100_000_000
ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
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
    read_by, said_by = (
        Vocabulary.named(read_bounded(folder / name, MOST_BYTES).decode("utf-8").splitlines(), names, name)
        for name in VOCABULARIES
    )
    source, target = text_side(folder, SOURCE_MODEL, read_by), text_side(folder, TARGET_MODEL, said_by)
    layers = (_whole(options, "enc_layers", 2), _whole(options, "dec_layers", 2))
    found = weights.read(folder / WEIGHTS)
    tensors = renamed(found, _modules(layers), str(folder / WEIGHTS))
    for side, ours in (("encoder", "source.embedding"), ("decoder", "target.embedding")):
        name = f"{side}.embeddings.make_embedding.emb_luts.0.weight"
        if name not in found:
            raise SeqloomError("E_BUNDLE", f"the weights lack {name}", where=str(folder / WEIGHTS))
        tensors[ours] = found[name].float()
    return Foreign(
        TOOL,
        folder.resolve().name,
        source,
        target,
        stack,
        layers,
        tensors,
        encoder={"reads_end": False},
        search={"strategy": {"kind": "beam", "size": 5}},
    )


def _whole(options: Mapping[str, object], key: str, default: int) -> int:
    value = options.get(key, default)
    return value if isinstance(value, int) else default


def _stack(options: Mapping[str, object], where: str) -> Raw:
    activation = str(options.get("pos_ffn_activation_fn", "relu"))
    if activation not in ACTIVATIONS:
        raise refused(TOOL, f"pos_ffn_activation_fn: {activation}", where)
    positions = str(options.get("position_encoding_type", "SinusoidalInterleaved"))
    if positions not in POSITIONS:
        raise refused(TOOL, f"position_encoding_type: {positions}", where)
    epsilon = options.get("norm_eps", 1e-6)
    return {
        "width": _whole(options, "enc_hid_size", _whole(options, "hidden_size", 500)),
        "heads": _whole(options, "heads", 8),
        "feedforward": _whole(options, "transformer_ff", 2048),
        "activation": activation,
        "norm": "pre",
        "epsilon": epsilon if isinstance(epsilon, float) else 1e-6,
        "positions": POSITIONS[positions],
    }


def _modules(layers: tuple[int, int]) -> Iterator[tuple[str, str]]:
    attention = {"linear_query": "query", "linear_keys": "key", "linear_values": "value", "final_linear": "output"}
    stacks = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
    norms = {
        "encoder": {"self": ("self_attn", "layer_norm")},
        "decoder": {"self": ("self_attn", "layer_norm_1"), "cross": ("context_attn", "layer_norm_2")},
    }
    for (side, stack), count in zip(stacks.items(), layers, strict=True):
        for number in range(count):
            theirs, ours = f"{stack}.{number}", f"{side}.{number}"
            for name, (kind, norm) in norms[side].items():
                for one, other in attention.items():
                    yield f"{theirs}.{kind}.{one}", f"{ours}.{name}.{other}"
                yield f"{theirs}.{norm}", f"{ours}.{name}.norm"
            yield f"{theirs}.feed_forward.w_1", f"{ours}.forward.widen"
            yield f"{theirs}.feed_forward.w_2", f"{ours}.forward.narrow"
            yield f"{theirs}.feed_forward.layer_norm", f"{ours}.forward.norm"
        yield f"{side}.layer_norm", f"{side}.norm"
    yield "generator", "output"

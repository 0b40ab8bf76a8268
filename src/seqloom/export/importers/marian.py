"""A Marian model as Marian itself saves it: an .npz of arrays, with its vocabularies beside it.

Names as in Marian's own code: `encoder_l1_self_Wq` (in, out), `encoder_l1_self_bq`, norms `..._ln_scale`, the settings
as YAML in the array `special:model.yml`. Its decoder begins with a vector of zeros rather than a token, its waves reach
the longest one, and layer norm adds 1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
import yaml

from seqloom.config import parse_yaml
from seqloom.errors import SeqloomError
from seqloom.export.importers.archives import Arrays, read_archive
from seqloom.export.importers.foreign import (
    MOST_BEAM,
    MOST_BYTES,
    MOST_LAYERS,
    MOST_VOCABULARY,
    SOURCE_MODEL,
    TARGET_MODEL,
    Foreign,
    Raw,
    Side,
    Vocabulary,
    refused,
    text_side,
    whole,
)
from seqloom.files import read_bounded, read_json
from seqloom.shapes import Float, Tensor
from seqloom.specials import EOS, UNK

TOOL = "Marian"
SETTINGS = "special:model.yml"
BOTH_MODEL = "vocab.spm"  # one sentencepiece model whose numbers are the ids
FIX = f"put beside it {SOURCE_MODEL} and {TARGET_MODEL} with vocab.json or vocab.yml, or {BOTH_MODEL} for both sides"
ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# What must be so, because seqloom has no layers for the other choices. A missing one is Marian's default.
EXPECTED: Mapping[str, tuple[object, object]] = {
    "type": ("transformer", "amun"),
    "transformer-ffn-depth": (2, 2),
    "transformer-decoder-autoreg": ("self-attention", "self-attention"),
    "transformer-train-position-embeddings": (False, False),
    "transformer-guided-alignment-layer": ("last", "last"),
    "transformer-tied-layers": ([], []),
    "transformer-no-projection": (False, False),
    "transformer-postprocess-emb": ("d", "d"),
    "lemma-dim-emb": (0, 0),
    "bert-train-type-embeddings": (True, True),
}


def is_one(path: Path) -> bool:
    return path.suffix == ".npz" or (path.is_dir() and len([*path.glob("*.npz")]) == 1)


def read(path: Path) -> Foreign:
    """The model in this file, or in the only .npz of this folder."""
    file = next(iter(path.glob("*.npz"))) if path.is_dir() else path
    arrays = read_archive(file)
    settings = _settings(arrays, str(file))
    for key, (expected, default) in EXPECTED.items():
        if settings.get(key, default) != expected:
            raise refused(TOOL, f"{key}: {settings.get(key, default)!r}", str(file))
    stack = _stack(settings, str(file))
    deep, high = (whole(settings, key, 1, str(file), MOST_LAYERS) for key in ("enc-depth", "dec-depth"))
    layers = (deep, high)
    source, target = _sides(file.parent)
    together = bool(settings.get("tied-embeddings-all") or settings.get("tied-embeddings-src"))
    shared = together and source is target
    tied = bool(settings.get("tied-embeddings-all") or settings.get("tied-embeddings"))
    reader = _Reader(arrays, str(file))
    tensors = dict(_layers(reader, layers, pre=stack["norm"] == "pre"))
    tensors["target.embedding"] = reader.matrix("Wemb" if together else "decoder_Wemb", transposed=False)
    if not shared:
        tensors["source.embedding"] = reader.matrix("Wemb" if together else "encoder_Wemb", transposed=False)
    if not tied:
        tensors["output.weight"] = reader.matrix("decoder_ff_logit_out_W")
    if "decoder_ff_logit_out_b" in arrays:
        tensors["output.bias"] = reader.vector("decoder_ff_logit_out_b")
    size = whole(settings, "beam-size", 12, str(file), MOST_BEAM)
    alpha = settings.get("normalize", 0.0)
    length = {"kind": "power", "alpha": float(alpha) if isinstance(alpha, (int, float)) else 0.0}
    search: Raw = {"strategy": {"kind": "beam", "size": size, "length": length, "stop": "all"}}
    name = file.resolve().stem
    return Foreign(TOOL, name, source, target, stack, layers, tensors, shared=shared, tied=tied, search=search)


class _Reader:
    def __init__(self, arrays: Arrays, where: str) -> None:
        self.arrays, self.where = arrays, where

    def matrix(self, name: str, transposed: bool = True) -> Float[Tensor, "o i"]:
        """Marian multiplies from the left, x W: here a matrix is (out, in)."""
        found = self._tensor(name)
        return found.t().contiguous() if transposed else found

    def vector(self, name: str) -> Float[Tensor, "o"]:
        return self._tensor(name).flatten()

    def _tensor(self, name: str) -> Float[Tensor, "..."]:
        if name not in self.arrays:
            raise SeqloomError("E_BUNDLE", f"the model lacks {name}", where=self.where)
        return torch.from_numpy(self.arrays[name].astype(np.float32))


def _layers(reader: _Reader, layers: tuple[int, int], pre: bool) -> Iterator[tuple[str, Float[Tensor, "..."]]]:
    before = "_pre" if pre else ""
    for side, count in zip(("encoder", "decoder"), layers, strict=True):
        for number in range(count):
            theirs, ours = f"{side}_l{number + 1}", f"{side}.{number}"
            kinds = {"self": "self"} | ({"context": "cross"} if side == "decoder" else {})
            for kind, name in kinds.items():
                for letter, part in zip("qkvo", ("query", "key", "value", "output"), strict=True):
                    yield f"{ours}.{name}.{part}.weight", reader.matrix(f"{theirs}_{kind}_W{letter}")
                    yield f"{ours}.{name}.{part}.bias", reader.vector(f"{theirs}_{kind}_b{letter}")
                yield from _norm(reader, f"{ours}.{name}.norm", f"{theirs}_{kind}_Wo_ln", before)
            for digit, part in ((1, "widen"), (2, "narrow")):
                yield f"{ours}.forward.{part}.weight", reader.matrix(f"{theirs}_ffn_W{digit}")
                yield f"{ours}.forward.{part}.bias", reader.vector(f"{theirs}_ffn_b{digit}")
            yield from _norm(reader, f"{ours}.forward.norm", f"{theirs}_ffn_ffn_ln", before)
        if pre:
            yield from _norm(reader, f"{side}.norm", f"{side}_top_ln", "")


def _norm(reader: _Reader, ours: str, theirs: str, behind: str) -> Iterator[tuple[str, Float[Tensor, "..."]]]:
    yield f"{ours}.weight", reader.vector(f"{theirs}_scale{behind}")
    yield f"{ours}.bias", reader.vector(f"{theirs}_bias{behind}")


def _settings(arrays: Arrays, where: str) -> Mapping[str, object]:
    if SETTINGS not in arrays:
        raise SeqloomError("E_BUNDLE", f"not a Marian model: it has no {SETTINGS}", where=where)
    text = arrays[SETTINGS].tobytes().rstrip(b"\0").decode("utf-8", "replace")
    raw = parse_yaml(text, f"{where}: {SETTINGS}")
    if not isinstance(raw, Mapping):
        raise SeqloomError("E_BUNDLE", "its settings are no mapping", where=where)
    return cast(Mapping[str, object], raw)


def _stack(settings: Mapping[str, object], where: str) -> Raw:
    activation = str(settings.get("transformer-ffn-activation", "swish"))
    if activation not in ACTIVATIONS:  # its gelu is an approximation of its own
        raise refused(TOOL, f"transformer-ffn-activation: {activation}", where)
    around = tuple(
        str(settings.get(f"transformer-{key}", default) or "")
        for key, default in (("preprocess", ""), ("postprocess", "dan"), ("postprocess-top", ""))
    )
    norms = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}
    if around not in norms:
        told = "transformer-preprocess, -postprocess and -postprocess-top"
        raise refused(TOOL, f"{told} of {', '.join(map(repr, around))}", where)
    return {
        "width": whole(settings, "dim-emb", 512, where),
        "heads": whole(settings, "transformer-heads", 8, where),
        "feedforward": whole(settings, "transformer-dim-ffn", 2048, where),
        "activation": ACTIVATIONS[activation],
        "norm": norms[around],
        "epsilon": 1e-6,
        "positions": {"kind": "sinusoidal", "layout": "halves", "reaching": True},
    }


def _sides(folder: Path) -> tuple[Side, Side]:
    if (folder / BOTH_MODEL).is_file():
        side = _by_sentencepiece(folder)
        return side, side
    if not all((folder / name).is_file() for name in (SOURCE_MODEL, TARGET_MODEL)):
        raise SeqloomError("E_BUNDLE", "the vocabularies are missing", where=str(folder), fix=FIX)
    vocabulary = _vocabulary(_listed(folder), str(folder))
    return text_side(folder, SOURCE_MODEL, vocabulary), text_side(folder, TARGET_MODEL, vocabulary)


def _by_sentencepiece(folder: Path) -> Side:
    from sentencepiece import SentencePieceProcessor

    model = read_bounded(folder / BOTH_MODEL, MOST_BYTES)
    try:
        processor = SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise SeqloomError("E_BUNDLE", "not a sentencepiece model", where=str(folder / BOTH_MODEL), fix=FIX) from None
    pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    return text_side(folder, BOTH_MODEL, _vocabulary(pieces, str(folder / BOTH_MODEL)))


def _listed(folder: Path) -> list[str]:
    """The pieces of vocab.json or vocab.yml, in the order of their numbers."""
    for name in ("vocab.json", "vocab.yml"):
        path = folder / name
        if not path.is_file():
            continue
        if name.endswith("json"):
            raw: object = read_json(path, MOST_BYTES, "a vocabulary", FIX)
        else:
            raw = _plain_mapping(read_bounded(path, MOST_BYTES).decode("utf-8", "replace"))
        if not isinstance(raw, Mapping) or not 0 < len(raw) <= MOST_VOCABULARY:
            raise SeqloomError("E_BUNDLE", "not a vocabulary: pieces with their numbers", where=str(path), fix=FIX)
        numbers = cast(Mapping[str, object], raw)
        if sorted(number for number in numbers.values() if isinstance(number, int)) != [*range(len(numbers))]:
            what = "the numbers of the pieces are not 0, 1, 2, ..."
            raise SeqloomError("E_BUNDLE", what, where=str(path), fix=FIX)
        return [str(piece) for piece, _ in sorted(numbers.items(), key=lambda item: cast(int, item[1]))]
    raise SeqloomError("E_BUNDLE", "no vocab.json or vocab.yml", where=str(folder), fix=FIX)


def _plain_mapping(text: str) -> dict[str, int]:
    """`"piece": 12` on every line, as Marian writes it. A line at a time: nothing can stand for more than it is."""
    found: dict[str, int] = {}
    for line in text.split("\n"):
        piece, colon, number = (part.strip() for part in line.rpartition(":"))
        if colon and number.isdecimal() and len(number) < 10:
            found[_scalar(piece)] = int(number)
    return found


def _scalar(text: str) -> str:
    """A piece as YAML writes it, in quotes or not."""
    if not text.startswith(('"', "'")):
        return text
    try:
        (scalar,) = yaml.safe_load(f"[{text}]")
    except (yaml.YAMLError, ValueError):
        raise SeqloomError("E_BUNDLE", f"no piece of a vocabulary: {text[:40]!r}", where="vocab.yml", fix=FIX) from None
    return str(scalar)


def _vocabulary(pieces: Sequence[str], where: str) -> Vocabulary:
    """Marian has an end and an unknown piece, and neither padding nor a start."""
    return Vocabulary.named(pieces, {UNK: "<unk>", EOS: "</s>"}, where)

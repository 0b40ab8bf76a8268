"""What a model of another tool is, in seqloom's words: sides of text, a Transformer's shape, and named tensors.

Every importer of this package ends in a `Foreign`; from there on no tool is told from another. Its tensors have names
of one kind, `encoder.0.self.query.weight`, whatever they were called before (`filling.py` knows what becomes of them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from seqloom.errors import SeqloomError
from seqloom.files import read_bounded
from seqloom.shapes import Float, Int, Tensor
from seqloom.specials import BOS, EOS, PAD, SPECIALS, UNK

Tensors = Mapping[str, Tensor]
Raw = dict[str, object]
IMPOSSIBLE = -1e9  # the logit of what the other tool cannot say: its probability is exactly 0 in float32
MOST_VOCABULARY = 2_000_000  # pieces
MOST_LAYERS, MOST_BEAM = 1_000, 1_000
MOST_BYTES = 100_000_000  # of a configuration, or of a vocabulary's file
SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"  # sentencepiece models beside the weights


@dataclass(frozen=True)
class Vocabulary:
    """Pieces in the order of the other tool's ids, and which of these ids mean what our special tokens mean."""

    pieces: Sequence[str]
    specials: Mapping[int, int]  # ours -> theirs; one that is missing they do not have
    begins: int | None = None  # outputs begin with this id, which means something else besides: BOS is a copy of it

    @classmethod
    def named(cls, pieces: Sequence[str], names: Mapping[int, str], where: str) -> Vocabulary:
        """Special tokens by their names; E_BUNDLE where the list has no unknown piece or no end."""
        known = {piece: number for number, piece in enumerate(pieces)}
        for special in (UNK, EOS):
            if names[special] not in known:
                what = f"the vocabulary has no {names[special]!r} ({SPECIALS[special]} here)"
                raise SeqloomError("E_BUNDLE", what, where=where, fix="give the vocabulary that the model has")
        return cls(pieces, {special: known[name] for special, name in names.items() if name in known})

    @property
    def ordinary(self) -> list[int]:
        """The ids of what texts are made of."""
        taken = {*self.specials.values()}
        return [number for number in range(len(self.pieces)) if number not in taken]

    @property
    def rows(self) -> list[int | None]:
        """For each of our ids the other tool's row that says it; None where it has none."""
        return [*(self.specials.get(special) for special in range(len(SPECIALS))), *self.ordinary]

    def listed(self) -> list[str]:
        """The ordinary pieces, in the order that our ids have."""
        return [self.pieces[number] for number in self.ordinary]

    def moved(self, matrix: Float[Tensor, "v *d"]) -> Float[Tensor, "V *d"]:
        """Rows of the other tool's matrix in our order; zeros where it has none."""
        rows = self.rows
        if self.begins is not None:
            rows[BOS] = self.begins
        return self._picked(matrix, rows, 0.0)

    def biased(self, bias: Float[Tensor, "v"]) -> Float[Tensor, "V"]:
        """The output layer's bias in our order; what the other tool has no word for cannot be said."""
        return self._picked(bias, self.rows, IMPOSSIBLE)

    @staticmethod
    def _picked(matrix: Float[Tensor, "v *d"], rows: Sequence[int | None], instead: float) -> Float[Tensor, "V *d"]:
        index: Int[Tensor, "V"] = torch.tensor([0 if row is None else row for row in rows])
        there = torch.tensor([row is not None for row in rows])
        moved = matrix[index].clone()
        moved[~there] = instead
        return moved


@dataclass(frozen=True)
class Side:
    """One side's text: how it is cut, and the pieces."""

    tokenizer: Raw
    vocabulary: Vocabulary
    model: bytes | None = None  # of sentencepiece


@dataclass(frozen=True)
class Foreign:
    """A model of another tool."""

    tool: str
    name: str
    source: Side
    target: Side
    stack: Raw  # settings that encoder and decoder have in common
    layers: tuple[int, int]  # of encoder and decoder
    tensors: Tensors
    shared: bool = False  # one embedding, and one tokenizer, for both sides
    tied: bool = False  # the output matrix is the target embedding
    encoder: Raw = field(default_factory=dict)  # settings of its own
    search: Raw = field(default_factory=dict)
    languages: Raw = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what a person should know of the conversion


@dataclass(frozen=True)
class Names:
    """What a tool calls the modules of a Transformer's layers."""

    stacks: Mapping[str, str]  # where the layers of encoder and decoder are
    attention: Mapping[str, str]  # what it calls query, key, value and output
    around: Mapping[str, Mapping[str, tuple[str, str]]]  # of each side, self and cross: the attention and its norm
    forward: tuple[str, str, str]  # the widening product, the narrowing one, and their norm

    def modules(self, layers: tuple[int, int]) -> Iterator[tuple[str, str]]:
        """Every module of the layers, by its own name and by ours."""
        for (side, stack), count in zip(self.stacks.items(), layers, strict=True):
            for number in range(count):
                theirs, ours = f"{stack}.{number}", f"{side}.{number}"
                for name, (attention, norm) in self.around[side].items():
                    for one, other in self.attention.items():
                        yield f"{theirs}.{attention}.{one}", f"{ours}.{name}.{other}"
                    yield f"{theirs}.{norm}", f"{ours}.{name}.norm"
                for one, other in zip(self.forward, ("widen", "narrow", "norm"), strict=True):
                    yield f"{theirs}.{one}", f"{ours}.forward.{other}"


def renamed(tensors: Tensors, modules: Iterable[tuple[str, str]], where: str) -> dict[str, Tensor]:
    """The tensors of modules under our names; E_BUNDLE lists weights that are missing. A bias may be."""
    found: dict[str, Tensor] = {}
    missing = []
    for theirs, ours in modules:
        if f"{theirs}.weight" not in tensors:
            missing.append(f"{theirs}.weight")
            continue
        for part in ("weight", "bias"):
            if f"{theirs}.{part}" in tensors:
                found[f"{ours}.{part}"] = tensors[f"{theirs}.{part}"].float()
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        what = f"the weights lack {', '.join(missing[:5])}{more}"
        raise SeqloomError("E_BUNDLE", what, where=where, fix="is it a Transformer of this tool, and whole?")
    return found


def weight(tensors: Tensors, name: str, where: str) -> Float[Tensor, "..."]:
    """One tensor by its own name; E_BUNDLE where it is missing."""
    if name not in tensors:
        raise SeqloomError("E_BUNDLE", f"the weights lack {name}", where=where)
    return tensors[name].float()


def whole(settings: Mapping[str, object], key: str, default: int, where: str, most: int = 1_000_000) -> int:
    """A size among a tool's settings; E_BUNDLE for one that no model has."""
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise SeqloomError(
            "E_BUNDLE", f"{key}: {str(value)[:40]!r}, and a number from 1 to {most:,} is expected", where=where
        )
    return value


def listed(path: Path) -> list[str]:
    """The pieces of a vocabulary's file, one a line; they may hold any character but the end of a line."""
    try:
        pieces = read_bounded(path, MOST_BYTES).decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise SeqloomError("E_BUNDLE", f"not UTF-8 at byte {error.start}", where=str(path)) from None
    if len(pieces) > MOST_VOCABULARY:
        what = f"{len(pieces):,} pieces, at most {MOST_VOCABULARY:,}"
        raise SeqloomError("E_BUNDLE", what, where=str(path))
    return [piece.removesuffix("\r") for piece in pieces]


def text_side(folder: Path, model: str, vocabulary: Vocabulary, symbols: Sequence[str] = ()) -> Side:
    """A side that is cut by the sentencepiece model of this name; without one it is given in pieces."""
    path = folder / model
    if not path.is_file():
        return Side({"kind": "symbols"}, vocabulary)
    from seqloom.data.sentencepieces import SentencePiece

    settings = SentencePiece.Settings(model=model, symbols=tuple(symbols))
    tokenizer = SentencePiece.read(settings, path, "E_BUNDLE")
    return Side(settings.model_dump(mode="json"), vocabulary, tokenizer.model)


def usual_specials(pad: str, unknown: str, begin: str, end: str) -> dict[int, str]:
    return {PAD: pad, UNK: unknown, BOS: begin, EOS: end}


def refused(tool: str, what: str, where: str) -> SeqloomError:
    """For a model of the tool that seqloom has no layers for."""
    return SeqloomError("E_BUNDLE", f"a {tool} model with {what} cannot be converted", where=where)

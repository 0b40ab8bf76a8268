"""`seqloom.convert("folder")`: a model that another tool trained becomes a bundle that says what it said.

Only files of numbers and text are read (safetensors, arrays without objects, JSON, YAML): nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqloom import bundle, weights
from seqloom.api.load import save_codecs
from seqloom.config import Plain, Settings, kind_of, render_yaml
from seqloom.data.codec import TextCodec
from seqloom.data.sentencepieces import SentencePiece
from seqloom.data.tokenizer import Tokenizer
from seqloom.data.tokenizers import TOKENIZERS
from seqloom.data.vocabulary import Vocabulary
from seqloom.errors import SeqloomError
from seqloom.export.importers import huggingface, joeynmt, marian, opennmt
from seqloom.export.importers.filling import fill
from seqloom.export.importers.foreign import Foreign, Raw, Side
from seqloom.models.model import EncoderDecoder
from seqloom.recipe import Recipe, recipe_from
from seqloom.wiring import build_model, joined_codecs, parameters

TOOLS: Mapping[str, tuple[Callable[[Path], bool], Callable[[Path], Foreign]]] = {
    "huggingface": (huggingface.is_one, huggingface.read),
    "joeynmt": (joeynmt.is_one, joeynmt.read),
    "opennmt": (opennmt.is_one, opennmt.read),
    "marian": (marian.is_one, marian.read),
}
FIX = "docs/howto/convert.md says which files each tool's model needs"


@dataclass(frozen=True)
class Converted:
    """The folder of the new bundle, and what it was made of."""

    folder: Path
    tool: str
    parameters: int
    vocabularies: tuple[int, int]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Plain]:
        source, target = self.vocabularies
        return {
            "folder": str(self.folder),
            "tool": self.tool,
            "parameters": self.parameters,
            "vocabularies": {"source": source, "target": target},
            "notes": list(self.notes),
        }


def convert(path: str | Path, output: str | Path | None = None, tool: str | None = None) -> Converted:
    """Write a folder with the bundle of another tool's model (default `runs/NAME`), to be used as a run is; `tool` is
    told from the files where it is not given."""
    place = Path(path)
    foreign = _reader(place, tool)(place)
    goal = Path(output) if output is not None else Path("runs") / foreign.name
    inner = goal / "bundle"  # as in a run: what is exported later stands beside it
    if goal.exists() and ((goal / bundle.RECIPE).exists() or not (inner / bundle.CARD).is_file()):  # a trained run, too
        what = "something else than a converted model stands here"
        raise SeqloomError("E_USAGE", what, where=str(goal), fix="name another folder with --output")
    recipe = recipe_of(foreign)
    source = _codec(recipe.source, foreign.source)
    target = source if recipe.model.one_vocabulary else _codec(recipe.target, foreign.target)
    codecs = joined_codecs(recipe, source, target)
    network = build_model(recipe, codecs)
    assert isinstance(network, EncoderDecoder)
    fill(network, foreign)
    count = parameters(network)
    bundle.save(
        inner,
        recipe=render_yaml(recipe),
        tensors=weights.of_model(network),
        extras=lambda folder: save_codecs(recipe, codecs, folder),
        about={"name": foreign.name, "parameters": count, "reason": f"converted from {foreign.tool}"},
    )
    sizes = (len(source.vocabulary), len(target.vocabulary))
    return Converted(goal, foreign.tool, count, sizes, _notes(foreign))


def _reader(place: Path, tool: str | None) -> Callable[[Path], Foreign]:
    if not place.exists():
        raise SeqloomError("E_FILE", "no such file or folder", where=str(place))
    if tool is not None:
        if tool not in TOOLS:
            raise SeqloomError("E_USAGE", f"no tool {tool!r}", where="--tool", fix=f"one of: {', '.join(TOOLS)}")
        return TOOLS[tool][1]
    for is_one, read in TOOLS.values():
        if is_one(place):
            return read
    raise SeqloomError("E_BUNDLE", "no model of a tool that is known", where=str(place), fix=FIX)


def recipe_of(foreign: Foreign) -> Recipe:
    """The recipe that such a model would have been trained by here. Where its data lies nobody knows."""
    encoder, decoder = foreign.layers
    embedding: Raw = {"kind": "learned", "width": foreign.stack["width"]}
    source = {"tokenizer": foreign.source.tokenizer, "normalise": "none"}
    raw: Raw = {
        "data": {"train": {"source": "train.source", "target": "train.target"}},
        "source": source,
        "target": source if foreign.shared else {"tokenizer": foreign.target.tokenizer, "normalise": "none"},
        "model": {
            "kind": "encoder_decoder",
            "source_embedding": embedding,
            "target_embedding": embedding,
            "shared": foreign.shared,
            "tied": foreign.tied,
            "encoder": {"kind": "transformer", "layers": encoder, **foreign.stack, **foreign.encoder},
            "decoder": {"kind": "transformer", "layers": decoder, **foreign.stack},
        },
        "training": {"steps": 1},
        "search": foreign.search,
    }
    return recipe_from(raw, f"the recipe of this {foreign.tool} model")


def _codec(settings: Settings, side: Side) -> TextCodec:
    assert isinstance(settings, TextCodec.Settings)
    tokenizer: Tokenizer
    if side.model is not None:
        tokenizer = SentencePiece(settings.tokenizer, side.model)
    else:
        tokenizer = TOKENIZERS[kind_of(settings.tokenizer)].train(settings.tokenizer, iter(()), 1)
    return TextCodec(settings, tokenizer, Vocabulary(side.vocabulary.listed()))


def _notes(foreign: Foreign) -> tuple[str, ...]:
    notes = [*foreign.notes]
    if foreign.source.model is None:
        notes.append("no sentencepiece models beside the weights: texts go in and come out in pieces, blanks between")
    elif not foreign.shared and foreign.source.vocabulary is foreign.target.vocabulary:
        notes.append("its one embedding serves two tokenizers; here each side has a copy")
    return tuple(notes)

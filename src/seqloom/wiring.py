"""From a recipe to its objects: codecs, network, task. The only place where the parts are wired together.

A recipe says which parts (`recipe.py`); sizes that only the data know come from the codecs. Files of given vectors and
weights are copied in here; no other file is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from seqloom import weights
from seqloom.config import kind_of
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs, Pair
from seqloom.data.source import SourceCodec
from seqloom.data.vectors import read_vectors
from seqloom.models.generator import Generator, Network
from seqloom.models.model import MODELS
from seqloom.nn.frontends import Embedding, Frontend
from seqloom.ranks.group import ALONE, Group
from seqloom.recipe import Recipe
from seqloom.runtime import check_room, seed_step
from seqloom.specials import SPECIALS
from seqloom.tasks.base import Task
from seqloom.tasks.carried import Carried
from seqloom.tasks.match import Match
from seqloom.tasks.transduce import Transduce


def joined_codecs(
    recipe: Recipe, source: SourceCodec, target: TextCodec, extras: Mapping[str, TextCodec] | None = None
) -> Codecs:
    """The codecs of all sides as the recipe uses them; that of a shared extra is the source's."""
    extras = {name: source.as_text() if extra.shared else (extras or {})[name] for name, extra in recipe.extras.items()}
    prefixes = [name for name, extra in recipe.extras.items() if kind_of(extra.use) == "prefix"]
    model = recipe.model
    return Codecs(
        source,
        target,
        extras,
        prefixes=prefixes,
        copies=model.copies,
        words=model.reads_words or recipe.task.source_noise.whole_words,
        labels=model.labels,
        in_place=model.in_place,
        by_words=model.reads_words,
        points=model.points,
        continues=model.continues,
        may_be_empty=model.may_be_empty,
        restores=recipe.task.restore or recipe.task.next_word,
    )


def build_model(recipe: Recipe, codecs: Codecs, given: int | None = None) -> Network:
    """The recipe's network for these vocabularies, weights drawn from the seed; E_MEMORY where it cannot fit.

    `given` is how many bytes of weights there are for it, where it is to hold those of a file.
    """
    sizes: dict[str, object] = {
        "source_vocabulary": codecs.source.size,
        "target_vocabulary": len(codecs.target.vocabulary),
    }
    if codecs.encoders:
        sizes["extras"] = {
            name: (recipe.extras[name].use, len(codecs.extras[name].vocabulary)) for name in codecs.encoders
        }
    check_room(lambda: MODELS.build(recipe.model, **sizes), given)
    seed_step(recipe.runtime.seed, 0, stream="weights")
    return MODELS.build(recipe.model, **sizes)


def start_from_vectors(recipe: Recipe, model: Network, codecs: Codecs) -> dict[str, float]:
    """Copy given word vectors into the embeddings; the share of each vocabulary that a file covers."""
    covered: dict[str, float] = {}
    for side, settings in recipe.model.embeddings.items():
        file = settings.model_dump().get("vectors")
        if file is not None:
            codec = codecs.target if side == "target" else codecs.source.as_text()
            covered[side] = _fill(model.embeddings()[side], codec, Path(str(file)))
    return covered


def start_from_weights(recipe: Recipe, model: Network) -> dict[str, int]:
    """Copy a person's safetensors files into the parts that name one; how many numbers each part got. E_BUNDLE lists
    names and shapes that are not the part's own."""
    copied: dict[str, int] = {}
    for name, settings in recipe.model.parts.items():
        file = settings.model_dump().get("weights")
        if file is not None:
            part = model.get_submodule(name)
            weights.restore(part, weights.read(Path(str(file))), f"model.{name}.weights: {file}")
            copied[name] = parameters(part)
    return copied


def _fill(embedding: Frontend, codec: TextCodec, file: Path) -> float:
    surfaces = [codec.tokenizer.surface(piece) for piece in codec.vocabulary.ordinary]
    found = read_vectors(file, set(surfaces), embedding.width)
    table = cast(Embedding, embedding).table  # no other front end is told of vectors
    with torch.no_grad():
        for row, surface in enumerate(surfaces, start=len(SPECIALS)):
            if surface in found:
                table[row] = torch.from_numpy(found[surface])
    return sum(surface in found for surface in surfaces) / max(1, len(surfaces))


AnyTask = Task[Any, Pair, Any]  # a task and its network are built of one recipe, and so fit each other


def build_task(recipe: Recipe, codecs: Codecs, teachers: Sequence[Generator] = (), ranks: Group = ALONE) -> AnyTask:
    """What is learned; `ranks` are for a task whose batches are learned together by all processes."""
    if recipe.model.ranks:
        return Match(ranks)
    read = codecs.target if recipe.task.source_noise.silent else codecs.source.as_text()  # only noise needs to know
    sizes = (read.vocabulary.spelled, codecs.target.vocabulary.spelled)
    carried = Carried() if recipe.batching.window is not None else None
    return Transduce(
        recipe.task,
        vocabularies=sizes,
        searching=recipe.search,
        decode=codecs.decode,
        teachers=teachers,
        carried=carried,
        by_words=recipe.model.reads_words,
    )


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())

"""The typed tree of one YAML file, and the only place where parts are wired together.

A `Recipe` says everything about a run: data, text, model, training, search, evaluation, machine. What is measured
when a run begins (threads, device, shares of a split) is written into the effective recipe and never measured again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, model_validator
from torch import nn

from seqloom.config import Kind, Settings, kind_of, override, read_yaml, validated
from seqloom.data.batching import Batching
from seqloom.data.codec import TextCodec
from seqloom.data.corpus import Limits as PairLimits
from seqloom.data.files import BadUtf8
from seqloom.data.readers import Dataset, files_of
from seqloom.data.tokenizers import Words
from seqloom.data.vectors import read_vectors
from seqloom.metrics import METRICS, Metric
from seqloom.models.generator import Generator, GeneratorSettings
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.nn.frontends import Embedding
from seqloom.runtime import Runtime, seed_step
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training.loop import Training

LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$", max_length=35)]
Share = Annotated[float, Field(gt=0.0, le=0.4)]


class Languages(Settings):
    """Codes of source and target, as the card and the server name them; `und` is undetermined."""

    source: LanguageCode = "und"
    target: LanguageCode = "und"


class Split(Settings):
    """What is held out of `train` where no file is given. Null: chosen from the size of the data, once."""

    dev: Share | None = None
    test: Share | None = None
    seed: int = Field(1, ge=0)


class Data(Settings):
    """Where the pairs are. Paths are relative to where the command is typed."""

    train: Dataset
    dev: Dataset | None = None
    test: Dataset | None = None
    split: Split = Split()
    limits: PairLimits = PairLimits()
    on_bad_utf8: BadUtf8 = "error"

    def files(self) -> dict[str, list[str]]:
        """The files of every set that is given."""
        sets = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: files_of(settings) for name, settings in sets.items() if settings is not None}


class Evaluating(Settings):
    """How outputs are judged. The first metric also says when an output is right (for confidences)."""

    metrics: Annotated[tuple[Annotated[Settings, Kind(METRICS)], ...], Field(min_length=1)] = (
        METRICS.settings("bleu"),
        METRICS.settings("chrf"),
    )
    right_at: float | None = None  # an output is right from this value of the first metric on; null: when perfect
    merge_sources: bool = False  # lines with the same source are one item with several references
    validate_examples: int = Field(500, ge=0)  # dev examples decoded greedily at each validation
    show: int = Field(3, ge=0)  # of these, how many are shown

    def build(self) -> list[Metric]:
        return [METRICS.build(metric) for metric in self.metrics]


class Recipe(Settings):
    """One run. `seqloom config` prints it with every default."""

    languages: Languages = Languages()
    data: Data
    source: TextCodec.Settings = TextCodec.Settings(tokenizer=Words.Settings())
    target: TextCodec.Settings = TextCodec.Settings(tokenizer=Words.Settings())
    model: Annotated[GeneratorSettings, Kind(MODELS)] = EncoderDecoder.Settings()
    task: Transduce.Settings = Transduce.Settings()
    batching: Batching = Batching()
    training: Training  # how long is for a person to say: steps or epochs
    search: SearchSettings = SearchSettings()
    evaluation: Evaluating = Evaluating()
    runtime: Runtime = Runtime()

    @model_validator(mode="after")
    def _sides_agree(self) -> Recipe:
        if self.model.one_vocabulary and self.source != self.target:
            raise ValueError("model.shared: one embedding needs one vocabulary; make `source` and `target` the same")
        known = ["nll", "perplexity", *map(kind_of, self.evaluation.metrics)]
        if self.training.metric not in known:
            raise ValueError(f"training.metric: {self.training.metric!r} is not measured; one of: {', '.join(known)}")
        if self.training.metric not in known[:2] and not self.evaluation.validate_examples:
            raise ValueError("training.metric: evaluation.validate_examples is 0, so nothing is decoded to measure it")
        return self

    def watched(self) -> Training:
        """The training settings with the direction of the watched metric made explicit."""
        kinds = {kind_of(metric): METRICS.build(metric).higher_is_better for metric in self.evaluation.metrics}
        if self.training.better != "auto" or self.training.metric not in kinds:
            return self.training
        return self.training.with_(better="higher" if kinds[self.training.metric] else "lower")


def load_recipe(path: Path, assignments: Sequence[str] = ()) -> Recipe:
    """The recipe of a YAML file, with `--set` applied; E_RECIPE lists all that is wrong with it."""
    return recipe_from(override(read_yaml(path), assignments), str(path))


def recipe_from(raw: Mapping[str, object], where: str) -> Recipe:
    return validated(Recipe, raw, where)


def same_recipe(one: Recipe, other: Recipe) -> list[str]:
    """What differs, as `key: value -> value`; nothing when they agree."""
    return list(_differences(one.model_dump(mode="json"), other.model_dump(mode="json"), ""))


def _differences(one: object, other: object, path: str) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [line for key in keys for line in _differences(one.get(key), other.get(key), f"{path}.{key}".strip("."))]
    return [] if one == other else [f"{path}: {one} -> {other}"]


# --- wiring ------------------------------------------------------------------------------------------------------


def build_model(recipe: Recipe, source: TextCodec, target: TextCodec) -> Generator:
    """The recipe's network for these vocabularies, weights drawn from the seed."""
    seed_step(recipe.runtime.seed, 0, stream="weights")
    return MODELS.build(
        recipe.model, source_vocabulary=len(source.vocabulary), target_vocabulary=len(target.vocabulary)
    )


def start_from_vectors(recipe: Recipe, model: Generator, source: TextCodec, target: TextCodec) -> dict[str, float]:
    """Copy given word vectors into the embeddings; the share of each vocabulary that a file covers."""
    covered: dict[str, float] = {}
    codecs = {"source": source, "target": target}
    for side, settings in recipe.model.embeddings.items():
        file = settings.model_dump().get("vectors")
        if file is not None:
            covered[side] = _fill(model.embeddings()[side], codecs[side], Path(str(file)))
    return covered


def _fill(embedding: Embedding, codec: TextCodec, file: Path) -> float:
    surfaces = [codec.tokenizer.surface(piece) for piece in codec.vocabulary.ordinary]
    found = read_vectors(file, set(surfaces), embedding.width)
    table = embedding.table
    first = len(codec.vocabulary) - len(surfaces)
    with torch.no_grad():
        for row, surface in enumerate(surfaces, start=first):
            if surface in found:
                table[row] = torch.from_numpy(found[surface])
    return sum(surface in found for surface in surfaces) / max(1, len(surfaces))


def build_task(recipe: Recipe, source: TextCodec, target: TextCodec) -> Transduce:
    sizes = (len(source.vocabulary), len(target.vocabulary))
    return Transduce(recipe.task, vocabularies=sizes, searching=recipe.search)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())

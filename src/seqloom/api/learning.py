"""Which tokens a run reads and writes: learned from its training pairs, or taken over from another run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from seqloom import runtime
from seqloom.api.datasets import Datasets
from seqloom.api.extension import extended
from seqloom.api.load import Opened, opened
from seqloom.config import kind_of
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import CODECS, Codecs
from seqloom.data.examples import Example
from seqloom.data.filters import refuse_nothing
from seqloom.data.source import SourceCodec, SourceSettings
from seqloom.data.tokenizers import TOKENIZERS
from seqloom.errors import SeqloomError
from seqloom.recipe import Recipe
from seqloom.wiring import joined_codecs

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Given:
    """What a run takes over from others."""

    start: Path | None = None  # a run whose weights and tokens to begin with (fine-tuning)
    codec: Path | None = None  # a folder of codecs
    tokens_of: Path | None = None  # a run whose target tokens a language model has, so that it can advise that run


@dataclass(frozen=True)
class Learning:
    """How the codecs of a new run are made."""

    recipe: Recipe
    datasets: Datasets
    given: Given
    tell: Tell

    def codecs(self) -> Codecs:
        """Learned from the training pairs; by the split's seed, so that runs of other seeds share their tokens."""
        recipe, data = self.recipe, self.datasets
        refuse_nothing(data.given(), data.tally, data.named("train"), recipe.model.may_be_empty)
        data.refuse_empty("train", data.train)
        if self.given.start is not None:
            return self._begun(begun_from(self.given.start, recipe), self.given.start)
        asked = recipe.training
        for key, wanted, missing in (
            ("take", asked.take, "run to take parts from"),
            ("extend_vocabulary", asked.extend_vocabulary, "vocabulary to extend"),
        ):
            if wanted:
                fix = "begin from a run (--from RUN), or leave it out"
                raise SeqloomError("E_RECIPE", f"there is no {missing}", where=f"training.{key}", fix=fix)
        if self.given.tokens_of is not None:
            said = begun_from(self.given.tokens_of, recipe)
            _check_same_tokens(recipe, said.recipe, self.given.tokens_of)
            return joined_codecs(recipe, said.codecs.target, said.codecs.target)
        self.tell("learning the vocabulary")
        extras, read = self._extras(), ["source", *recipe.shared_extras]
        if recipe.model.one_vocabulary:
            both = self._trained(recipe.source, *read, "target").as_text()
            return joined_codecs(recipe, both, both, extras)
        source = self._trained(recipe.source, *read)
        return joined_codecs(recipe, source, self._trained(recipe.target, "target").as_text(), extras)

    def _begun(self, first: Opened, start: Path) -> Codecs:
        """Those of the run to begin from, or with the pieces that only the new data have."""
        if self.recipe.training.take:
            return self._taken(first, start)
        _check_same_text(self.recipe, first.recipe, start)
        if not self.recipe.training.extend_vocabulary:
            return first.codecs
        return extended(self.recipe, first.codecs, self.datasets.train, self._extra)

    def _taken(self, first: Opened, start: Path) -> Codecs:
        """What is read is cut as the first run does it; what is said is learned from the data, as is every extra."""
        _check_same_text(self.recipe, first.recipe, start, ("source",))
        source = first.codecs.source
        if self.recipe.model.one_vocabulary:
            return joined_codecs(self.recipe, source, source.as_text(), self._extras())
        target = self._trained(self.recipe.target, "target").as_text()
        return joined_codecs(self.recipe, source, target, self._extras())

    def _trained(self, settings: SourceSettings, *sides: str) -> SourceCodec:
        last: list[Example] = []  # of which a text was given out

        tokenizer = TOKENIZERS[kind_of(self.recipe.target.tokenizer)]

        def texts() -> Iterator[str]:
            for one in self.datasets.train():
                last[:] = [one]
                named = {"source": one.source, "target": one.target, **one.extras}
                if "target" in sides and one.target.strip():
                    tokenizer.refuse(one.target, one.where)
                yield from (named[side] for side in sides)

        try:
            return CODECS[kind_of(settings)].train(settings, texts, self.recipe.data.split.seed)
        except SeqloomError as error:
            with last[0].told() if last else nullcontext():
                where = error.where or self.datasets.named("train")
                raise SeqloomError(error.code, error.what, where=where, fix=error.fix) from None

    def _extras(self) -> dict[str, TextCodec]:
        return {name: self._extra(name) for name, settings in self.recipe.extras.items() if not settings.shared}

    def _extra(self, name: str) -> TextCodec:
        return self._trained(self.recipe.extras[name], name).as_text()


def begun_from(start: Path, recipe: Recipe) -> Opened:
    """The run to begin from. Opening it sets this process up to predict, which is taken back."""
    first = opened(start, device="cpu")
    runtime.apply(recipe.runtime)
    return first


def _check_same_tokens(recipe: Recipe, other: Recipe, run: Path) -> None:
    """Only a language model has one side alone, and it must be cut as the other run's target is."""
    if not recipe.model.continues:
        what = "only a language model takes over the tokens of another run's targets"
        raise SeqloomError("E_USAGE", what, where=f"--tokens-of {run}", fix="--from RUN begins with a run's weights")
    mine, theirs = (one.target.model_dump(mode="json") for one in (recipe, other))
    if mine != theirs:
        what = f"target: {mine}, but that run has {theirs}"
        raise SeqloomError("E_RECIPE", what, where=f"--tokens-of {run}", fix="give `target` the same settings")


def _check_same_text(
    recipe: Recipe, first: Recipe, start: Path, sides: Sequence[str] = ("source", "target", "extras")
) -> None:
    """Weights go with the tokens they were trained on: a fine-tuned run uses the first one's codecs.

    Where vocabularies may grow, extras that are set before the source may be new: their tags are pieces like others.
    """
    mine, theirs = (one.model_dump(mode="json", include=set(sides)) for one in (recipe, first))
    if recipe.training.extend_vocabulary and "extras" in sides:
        new = [name for name in mine["extras"] if name not in theirs["extras"]]
        for name in new:
            if kind_of(recipe.extras[name].use) == "prefix":
                del mine["extras"][name]
    for side in sides:
        if mine[side] != theirs[side]:
            what, fix = f"{side}: {mine[side]}, but the run to begin from has {theirs[side]}", "the same settings"
            if side == "extras" and not theirs[side]:
                fix += " (extras with `use: prefix` may be new, with training.extend_vocabulary: true)"
            raise SeqloomError("E_RECIPE", what, where=str(start), fix=f"give `{side}` {fix}")

"""The typed tree of one YAML file, and what must agree in it. `wiring.py` makes objects of it.

A `Recipe` says everything about a run: data, text, model, training, search, evaluation, machine. What is measured
when a run begins (threads, device, shares of a split) is written into the effective recipe and never measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from seqloom import config
from seqloom.config import Kind, Settings, Table, kind_of, override, read_yaml, validated
from seqloom.data.batching import Batching
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import CODECS
from seqloom.data.examples import ITEMS, ExtraName
from seqloom.data.sets import Data
from seqloom.data.source import SourceSettings
from seqloom.data.tokenizers import TOKENIZERS, Symbols, Words
from seqloom.errors import nearest
from seqloom.metrics import METRICS, Metric
from seqloom.models.generator import GeneratorSettings
from seqloom.models.language import LanguageModel
from seqloom.models.memories import ExtraSource, SharedSource
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.runtime import Runtime
from seqloom.tasks.sources import TEXT, check_source, with_front_end
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training.loop import Training

LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$", max_length=35)]


class Languages(Settings):
    """Codes of source and target, as the card and the server name them; `und` is undetermined."""

    source: LanguageCode = "und"
    target: LanguageCode = "und"


class Evaluating(Settings):
    """How outputs are judged. The first metric also says when an output is right (for confidences)."""

    metrics: Annotated[tuple[Annotated[Settings, Kind(METRICS)], ...], Field(min_length=1)] = (
        METRICS.settings("bleu"),
        METRICS.settings("chrf"),
    )
    right_at: float | None = None  # an output is right from this value of the first metric on; null: when perfect
    merge_sources: bool = False  # lines with the same source are one item with several references
    among: int | None = Field(None, ge=2)  # rank each right text among so many, others drawn; null: among all there are
    validate_examples: int = Field(500, ge=0)  # dev examples decoded greedily at each validation
    show: int = Field(3, ge=0)  # of these, how many are shown

    def build(self) -> list[Metric]:
        return [METRICS.build(metric) for metric in self.metrics]


class Prefix:
    """An extra that stands before the source, as symbols that no text spells: every model can read it."""

    class Settings(config.Settings):
        kind: Literal["prefix"] = "prefix"


USES: Table[object] = Table("uses", {"prefix": Prefix, "encoder": ExtraSource, "shared": SharedSource})


class Extra(TextCodec.Settings):
    """A further source: how its text is cut, and how the model reads it.

    A shared one is another text of the source's kind: what is said of the source goes for it, and nothing else can.
    """

    tokenizer: Annotated[Settings, Kind(TOKENIZERS)] = Symbols.Settings(separator=ITEMS)
    use: Annotated[Settings, Kind(USES)] = Prefix.Settings()  # before the source, or by an encoder: own or shared

    @property
    def shared(self) -> bool:
        """Is it read by the source's own embedding and encoder?"""
        return kind_of(self.use) == "shared"

    def beside(self, source: SourceSettings) -> Extra:
        """These settings, with the source's for all that is not said of a shared one."""
        unsaid = TextCodec.Settings.model_fields.keys() - self.model_fields_set
        alike = self.shared and kind_of(source) == TEXT
        return self.with_(**{key: getattr(source, key) for key in unsaid}) if alike else self


class Recipe(Settings):
    """One run. `seqloom config` prints it with every default."""

    languages: Languages = Languages()
    data: Data
    source: Annotated[SourceSettings, Kind(CODECS)] = TextCodec.Settings(tokenizer=Words.Settings())
    target: TextCodec.Settings = TextCodec.Settings(tokenizer=Words.Settings())
    extras: Mapping[ExtraName, Extra] = {}  # further sources that the data have, by name
    model: Annotated[GeneratorSettings, Kind(MODELS)] = EncoderDecoder.Settings()
    task: Transduce.Settings = Transduce.Settings()
    batching: Batching = Batching()
    training: Training  # how long is for a person to say: steps or epochs
    search: SearchSettings = SearchSettings()
    evaluation: Evaluating = Evaluating()
    runtime: Runtime = Runtime()

    @model_validator(mode="before")
    @classmethod
    def _one_text(cls, raw: object) -> object:
        """A language model's source is a part of its text: what is said of the target goes for both."""
        model = raw.get("model") if isinstance(raw, Mapping) else None
        kind = model.get("kind") if isinstance(model, Mapping) else model
        if isinstance(raw, Mapping) and kind == LanguageModel.kind and "target" in raw:
            return {"source": raw["target"], **raw}
        return raw

    @model_validator(mode="before")
    @classmethod
    def _one_kind(cls, raw: object) -> object:
        """What the kind of source decides: where the data have it, and which front end reads it."""
        source = raw.get("source") if isinstance(raw, Mapping) else None
        kind = source.get("kind") if isinstance(source, Mapping) else source
        if not isinstance(raw, Mapping) or not isinstance(kind, str) or kind == TEXT or kind not in [*CODECS]:
            return raw
        data, chosen = raw.get("data"), cast(type[SourceSettings], CODECS.settings_class(kind))
        if isinstance(data, Mapping) and chosen.in_files:
            data = {"in_files": True, **data}
        try:
            settings = cast(SourceSettings, CODECS.settings(source))
        except ValueError:  # told where it is judged
            return {**raw, "data": data}
        return {**raw, "data": data, "model": with_front_end(raw.get("model"), settings)}

    @model_validator(mode="after")
    def _source_is_read(self) -> Recipe:
        check_source(self.source, self.model, self.task, self.extras)
        if self.data.in_files != self.source.in_files:
            raise ValueError("data.in_files: it is the kind of source that says so; leave it out")
        return self

    @field_validator("extras")
    @classmethod
    def _shared_are_read_alike(cls, extras: Mapping[str, Extra], known: ValidationInfo) -> Mapping[str, Extra]:
        source = known.data.get("source")  # nothing where it has problems of its own
        return extras if source is None else {name: extra.beside(source) for name, extra in extras.items()}

    @model_validator(mode="after")
    def _extras_agree(self) -> Recipe:
        given = self.data.sets["train"][0].extra_names
        if missing := [name for name in self.extras if name not in given]:
            fix = "say there where it stands (extras), or what it always is (constants)"
            raise ValueError(f"extras: data.train has no {missing[0]!r}; {fix}")
        if unread := [name for name in given if name not in self.extras]:
            raise ValueError(f"data.train: nobody reads {unread[0]!r}; add extras: {{{unread[0]}: {{use: prefix}}}}")
        for name, extra in self.extras.items():
            if kind_of(extra.use) != "prefix" and not self.model.takes_extras:
                raise ValueError(f"extras.{name}.use: a {kind_of(self.model)} model has no encoders; use: prefix")
            if extra.shared:
                self._check_shared(name, extra)
        return self

    def _check_shared(self, name: str, extra: Extra) -> None:
        for key in TextCodec.Settings.model_fields:
            if getattr(extra, key) != getattr(self.source, key):
                raise ValueError(f"extras.{name}.{key}: a shared extra is read as the source is; leave {key} out")
        if self.model.reads_words:
            only = "only the words of the first source are known, so its encoder reads no other"
            raise ValueError(f"extras.{name}.use: {only}; use: encoder, or another kind of model.encoder")

    @model_validator(mode="after")
    def _compared_are_there(self) -> Recipe:
        read = [name for name, extra in self.extras.items() if kind_of(extra.use) != "prefix"]
        asks = self.model.asked_by
        if asks is not None and asks not in read:
            which = (
                "it stands before the source" if asks in self.extras else f"no extra is called so{nearest(asks, read)}"
            )
            raise ValueError(f"model.decoder.query: {asks!r}: {which}; add extras: {{{asks}: {{use: shared}}}}")
        if self.model.compares and not read:
            fix = "add extras: {other: {use: shared}} and say in data where it stands"
            raise ValueError(f"model.decoder.compare: there is no second source with an encoder; {fix}")
        return self

    @property
    def shared_extras(self) -> list[str]:
        """The extras whose text, tokens and encoder are those of the source."""
        return [name for name, extra in self.extras.items() if extra.shared]

    @model_validator(mode="after")
    def _attention_is_there(self) -> Recipe:
        keys = ("guided_alignment", "coverage_loss", "doubly_stochastic")
        key = f"task.{next((key for key in keys if getattr(self.task, key)), keys[0])}"
        if self.task.watches and not self.model.attends:
            raise ValueError(
                f"{key}: this model has no attention over the source; use a decoder that has, or leave it out"
            )
        known = [one.model_dump().get("alignment") for one in self.data.sets["train"]]
        if self.task.guided_alignment and all(where is None for where in known):
            raise ValueError(f"{key}: data.train has no alignments; say there where they stand (alignment)")
        return self

    @model_validator(mode="after")
    def _ctc_is_there(self) -> Recipe:
        if self.task.ctc and not self.model.has_ctc:
            raise ValueError("task.ctc: the model has no such part; set model.ctc: true, or leave this out")
        if self.model.has_ctc and not self.task.ctc:
            raise ValueError("model.ctc: nothing trains it; set task.ctc, such as 0.3, or leave this out")
        if self.search.ctc and not self.model.has_ctc:
            raise ValueError("search.ctc: the model has no such part; train with model.ctc: true and task.ctc: 0.3")
        return self

    @model_validator(mode="after")
    def _labels_are_not_read(self) -> Recipe:
        if self.model.in_place and self.extras:
            raise ValueError("extras: a tag belongs to a word of the source, and there is none for further sources")
        if self.model.in_place and self.task.source_noise.moves:
            fix = "use replace or mask"
            raise ValueError(f"task.source_noise: drop, swap and span move the words that tags belong to; {fix}")
        if self.task.restore and not self.model.in_place:
            raise ValueError("task.restore: it asks for tokens in their places; set model.decoder: tags")
        if self.task.next_word and not self.model.in_place:
            raise ValueError("task.next_word: every place of the source is asked; set model.decoder: tags")
        if self.task.source_noise.whole_words and not self.model.in_place:
            raise ValueError("task.source_noise.whole_words: it is for task.restore with model.decoder: tags")
        if self.model.labels and (key := self.task.about_history):
            raise ValueError(f"task.{key}: it changes what a decoder reads of its output, and this one reads nothing")
        if self.model.points:
            self._check_pointing()
        return self

    def _check_pointing(self) -> None:
        """A span is of the source alone, and of its own text."""
        before = [name for name, extra in self.extras.items() if kind_of(extra.use) == "prefix"]
        if before:
            raise ValueError(f"extras.{before[0]}.use: a span is of the source alone; use: encoder, or shared")
        if self.extras and self.model.asked_by is None:
            raise ValueError(f"model.decoder.query: say which source asks: {', '.join(self.extras)}")
        if key := self.task.about_history or ("edit_temperature" if self.task.edit_temperature else None):
            raise ValueError(f"task.{key}: it changes tokens of the target, and those of a span stand in the source")

    @model_validator(mode="after")
    def _targets_fit(self) -> Recipe:
        kind, part = kind_of(self.target.tokenizer), self.model.parts.get("decoder")
        speaker = f"a {kind_of(self.model)} model" if part is None else f"a {kind_of(part)} decoder"
        if self.data.judgments == "mean" and not self.model.measures:
            raise ValueError("data.judgments: only numbers have a mean; use majority, each or first")
        if self.model.measures != (kind == "number"):
            what = "says numbers" if self.model.measures else "says no numbers"
            fix = "set target.tokenizer: number" if self.model.measures else "set model.decoder: number"
            raise ValueError(f"target.tokenizer: {speaker} {what}, and it is {kind}; {fix}")
        if "target" in self.model.may_be_empty and kind != "set":
            raise ValueError(f"target.tokenizer: {speaker} says sets of labels; set target.tokenizer: set")
        written = self.target.tokenizer.model_dump().get("separator")
        for metric in self.evaluation.metrics:
            read = metric.model_dump().get("separator", written)
            if kind == "set" and read != written:
                what = f"evaluation.metrics: {kind_of(metric)} looks for {read!r} between labels"
                raise ValueError(f"{what}, and target.tokenizer writes {written!r}; give both the same separator")
        return self

    @model_validator(mode="after")
    def _windows_fit(self) -> Recipe:
        flows = any(one.flows for sets in self.data.sets.values() for one in sets)
        if self.batching.window is None:
            if flows:
                raise ValueError("data: unit: stream is one long text, which is read in windows; set batching.window")
            return self
        if not self.model.continues:
            raise ValueError("batching.window: only a language model reads a text in windows; leave it out")
        if self.batching.tokens == "auto":
            raise ValueError("batching.tokens: auto is not for windows; say how many tokens a batch has")
        if key := self.task.about_whole_targets:
            raise ValueError(f"task.{key}: it needs whole texts, and batching.window cuts them; leave one of both out")
        if self.data.sets["train"][0].flows and not {"dev"} <= self.data.sets.keys():
            raise ValueError("data.dev: lines of one text cannot be held out one by one; give a file")
        return self

    @model_validator(mode="after")
    def _sides_agree(self) -> Recipe:
        if self.model.one_vocabulary and self.source != self.target:
            raise ValueError("model: it has one embedding, so one vocabulary; make `source` and `target` the same")
        if self.target.normalise == "nfd":
            raise ValueError("target.normalise: nfd is for what is read; outputs would be in loose parts; use nfc")
        sides = [side.model_dump(mode="json", exclude={"vocabulary"}) for side in (self.source, self.target)]
        if self.model.copies and sides[0] != sides[1]:
            same = "give `source` and `target` the same tokenizer, normalise and lowercase"
            raise ValueError(f"model.head: copy compares pieces of text; {same}")
        if self.model.copies and not self.task.source_noise.silent:
            raise ValueError("task.source_noise: a copy head points at source tokens, which noise would move")
        known = ["nll", "perplexity", *map(kind_of, self.evaluation.metrics)]
        if self.training.metric not in known:
            raise ValueError(f"training.metric: {self.training.metric!r} is not measured; one of: {', '.join(known)}")
        if self.training.metric not in known[:2] and not self.evaluation.validate_examples:
            raise ValueError("training.metric: evaluation.validate_examples is 0, so nothing is decoded to measure it")
        return self

    @model_validator(mode="after")
    def _lists_fit(self) -> Recipe:
        """What is for models that rank given texts, and what is not."""
        odd = [kind_of(one) for one in self.evaluation.metrics if not METRICS[kind_of(one)].of_lists]
        if not self.model.ranks:
            if self.evaluation.among is not None:
                raise ValueError("evaluation.among: only a dual model ranks given texts; leave it out")
            return self
        if odd:
            fix = "metrics: [recall_at, {kind: recall_at, k: 10}, mrr]"
            raise ValueError(f"evaluation.metrics: {odd[0]} judges one text, and a dual model ranks many; {fix}")
        if self.task != Transduce.Settings():
            raise ValueError("task: a dual model has one loss, cross-entropy among the texts of a batch; leave it out")
        if self.search != SearchSettings():
            raise ValueError("search: a dual model compares all candidates, and nothing is searched for; leave it out")
        if self.training.accumulate > 1:
            joined = "an example is held against those of its own batch, so accumulated batches are no larger one"
            raise ValueError(f"training.accumulate: {joined}; use larger batching.tokens")
        return self

    def with_teachers(self, change: Callable[[str], str]) -> Recipe:
        """The same recipe with its teachers' folders named otherwise."""
        task = self.task
        if task.teachers is None:
            return self
        teachers = task.teachers.with_(runs=tuple(map(change, task.teachers.runs)))
        return self.with_(task=task.with_(teachers=teachers))

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

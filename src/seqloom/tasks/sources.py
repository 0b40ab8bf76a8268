"""Which kinds of source (`data/source.py`) the parts of a recipe can read: said before any data are touched.

A kind that is not text has no tokens and no words, so whatever is about these is refused here, once for all kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from seqloom import config
from seqloom.config import kind_of
from seqloom.data.source import SourceSettings
from seqloom.models.generator import GeneratorSettings
from seqloom.nn.frontends import FRONTENDS
from seqloom.tasks.transduce import Transduce

TEXT = "text"
ENCODES = "encoder_decoder"  # the kind of model that has a front end of its own for what it reads


@runtime_checkable
class ExtraSettings(Protocol):
    """A further source, as far as it matters here."""

    @property
    def use(self) -> config.Settings: ...


def with_front_end(model: object, source: SourceSettings) -> object:
    """Raw settings of a model with parts that suit such a source, where they leave open which."""
    raw = {"kind": model or ENCODES} if model is None or isinstance(model, str) else model
    if not isinstance(raw, Mapping) or raw.get("kind", ENCODES) != ENCODES:
        return model
    fitting = next(name for name in FRONTENDS if FRONTENDS[name].reads == source.form)
    parts = {"source_embedding": {"kind": fitting}, **source.suits()}
    return {"kind": ENCODES, **raw, **{name: _completed(raw.get(name, {}), usual) for name, usual in parts.items()}}


def _completed(given: object, usual: Mapping[str, object]) -> object:
    """What is said of a part, and what is usual of it where another kind of it was not chosen."""
    given = {"kind": given} if isinstance(given, str) else given
    if not isinstance(given, Mapping) or given.get("kind", usual["kind"]) != usual["kind"]:
        return given
    return {**usual, **given}


def check_source(
    source: SourceSettings,
    model: GeneratorSettings,
    task: Transduce.Settings,
    extras: Mapping[str, ExtraSettings],
) -> None:
    """ValueError, beginning with the key, for a part that cannot read this kind of source."""
    kind, front = kind_of(source), model.embeddings.get("source")
    if kind != TEXT:
        _refuse_tokens(kind, model, task, extras)
    reads = TEXT if front is None else FRONTENDS[kind_of(front)].reads
    if reads != source.form:
        fitting = ", ".join(name for name in FRONTENDS if FRONTENDS[name].reads == source.form)
        told = "target_embedding" if front is None else f"source_embedding: {kind_of(front)}"
        raise ValueError(f"model.{told} reads {reads}, and the source is {kind}; use: {fitting}")
    if front is not None:
        _check_geometry(front, source)


def _check_geometry(front: config.Settings, source: SourceSettings) -> None:
    """A front end that repeats what the source's settings say must not say anything else."""
    for key, expected in source.suits().get("source_embedding", {}).items():
        if (found := front.model_dump().get(key)) != expected:
            fix = "it follows from the source; leave it out"
            raise ValueError(f"model.source_embedding.{key}: {found}, but the source has {expected}; {fix}")


def _refuse_tokens(
    kind: str, model: GeneratorSettings, task: Transduce.Settings, extras: Mapping[str, ExtraSettings]
) -> None:
    if model.one_vocabulary:
        fix = "use model.kind: encoder_decoder, and not shared"
        raise ValueError(f"source: {kind} have no vocabulary to share with a target; {fix}")
    if model.copies:
        raise ValueError(f"model.head: copy repeats tokens of the source, and {kind} are none; use linear or mlp")
    if model.reads_words:
        raise ValueError(f"model.encoder: it reads words by their letters, and the source is {kind}; use rnn")
    if task.next_word:
        raise ValueError(f"task.next_word: it asks for tokens of the source, and {kind} are none; leave it out")
    if task.restore or not task.source_noise.silent:
        raise ValueError(f"task.source_noise: it changes tokens of the source, and {kind} are none; leave it out")
    if task.guided_alignment:
        raise ValueError(f"task.guided_alignment: alignments name words of the source, and {kind} have none")
    for name, extra in extras.items():
        if kind_of(extra.use) != "encoder":
            raise ValueError(f"extras.{name}.use: it is text, and the source is {kind}; use: encoder")

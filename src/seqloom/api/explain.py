"""Why a model answers as it does: search under a watcher's eyes, then one forced pass over what it found."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from seqloom.api.options import Options
from seqloom.data.codecs import Encoded, Ids
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.nn.tape import Tape
from seqloom.probe.edits import Edits
from seqloom.probe.explain import Explanation, Forced, explained
from seqloom.probe.tree import Tree, Watcher
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.strategies import STRATEGIES

if TYPE_CHECKING:
    from seqloom.api.model import Model


@dataclass(frozen=True)
class Question:
    """What is to be explained: the answer to a text, or a target that somebody gave."""

    inputs: Inputs
    target: str | None = None
    edits: Edits | None = None
    likeliest: int = 5  # tokens that are named at every step


def explain(model: Model, question: Question, options: Options) -> Explanation:
    """E_USAGE for an empty text, and for several models as one; E_LONG for what is over the recipe's limits."""
    text, extras, encoded = read(model, question.inputs)
    tree, truncated = None, False
    if question.target is not None:
        said = given(model, question.inputs, question.target)
    else:
        found, tree = watched(model, encoded, options, question.edits)
        said, truncated = np.asarray(found.tokens, dtype=np.int64), found.truncated
    sources = model.sources([encoded])
    with model.precision():
        shown = explained(
            model.network,
            model.codecs,
            text,
            Forced(encoded, said),
            likeliest=question.likeliest,
            replace=None if question.edits is None else question.edits.replacements(model.network, sources),
        )
    return replace(shown, tree=tree, extras=extras, truncated=truncated)


def read(model: Model, inputs: Inputs, where: str = "") -> tuple[str, Mapping[str, str], Encoded]:
    """A text and its extras as the one model reads them whose inside is looked into."""
    if model.scorer is not None:
        what = "several models answer as one: there is no one inside to look into"
        raise SeqloomError("E_USAGE", what, fix="name one RUN")
    model.refuse_long([inputs], Options(on_long="skip"), where)  # of extras; what is said of sources is for files
    text, extras = model.codecs.texts(inputs, where)
    encoded = model.codecs.encode(inputs)
    if not (text.strip() and encoded.own) and not model.codecs.continues:  # a text may be gone on with from nothing
        raise SeqloomError("E_USAGE", "an empty text has nothing to explain", where=where, fix="give a TEXT")
    _refuse_long("source", encoded.own, model.recipe.data.limits.max_source, where)
    return text, extras, encoded


def given(model: Model, inputs: Inputs, target: str, where: str = "") -> Ids:
    """The tokens of an output that somebody gave."""
    ids: Ids = model.codecs.pair(inputs, target)[0].target
    _refuse_long("target", len(ids), model.recipe.data.limits.max_target, where)
    return ids


def _refuse_long(side: str, count: int, most: int, where: str) -> None:
    if count > most:
        what = f"a {side} of {count:,} tokens, the recipe's maximum is {most:,}"
        fix = f"shorten it, or train with a larger data.limits.max_{side}"
        raise SeqloomError("E_LONG", what, where=where, fix=fix)


def watched(model: Model, encoded: Encoded, options: Options, edits: Edits | None = None) -> tuple[Hypothesis, Tree]:
    """The best hypothesis of one source, and the tree of all that lived on the way to it."""
    watcher = Watcher(STRATEGIES.build(model.asking(options).strategy).normalisation)
    changed = {} if edits is None else edits.replacements(model.network, model.sources([encoded]))
    with Tape(replace=changed) if changed else nullcontext():
        best = model.search([encoded], options, observer=watcher)[0][0]
    return best, watcher.tree(best, lambda ids: model.codecs.said(ids, encoded.foreign))


def replaced(text: str, edit: str) -> str:
    """`OLD=NEW`: the word OLD, wherever it stands in the text, is NEW; where it is no word, that part of the text."""
    old, sign, new = edit.partition("=")
    words = text.split(" ")
    if not (old and sign) or old not in text:
        what = f"--replace {edit!r}: {old!r} does not stand in the text" if old and sign else f"--replace {edit!r}"
        raise SeqloomError("E_USAGE", what, fix="OLD=NEW, with a word of the text")
    if old in words:
        return " ".join(new if word == old else word for word in words if word != old or new)
    return text.replace(old, new)

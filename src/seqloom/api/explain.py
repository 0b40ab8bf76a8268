"""Why a model answers as it does: search under a watcher's eyes, then one forced pass over what it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from seqloom.api.options import Options
from seqloom.api.stream import certain_of, growing, pieces_of_text
from seqloom.batch import Tokens
from seqloom.data.codecs import Codecs, Encoded, Ids
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.nn.tape import Tape
from seqloom.probe.edits import Edits, Look
from seqloom.probe.explain import Explanation, Forced, explained
from seqloom.probe.tree import Tree, Watcher
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Walk
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import EOS, SPECIALS, UNK

if TYPE_CHECKING:
    from seqloom.api.model import Model


@dataclass(frozen=True)
class Question:
    """What is to be explained: the answer to a text, or a target that somebody gave."""

    inputs: Inputs
    target: str | None = None
    edits: Edits | None = None
    likeliest: int = 5  # tokens that are named at every step
    begin: tuple[str, ...] = ()  # tokens that the answer begins with, as explanations name them; <eos>: it ends there

    @property
    def is_over(self) -> bool:
        """Is all of the answer given?"""
        return self.begin[-1:] == (SPECIALS[EOS],)


@dataclass(frozen=True)
class Answered:
    """An explanation, and what it is of: one part of a text that is answered in parts (paragraphs, sentences)."""

    shown: Explanation
    hypothesis: Hypothesis | None  # None: nothing was searched for, all of its tokens were given
    begun: str  # how the tokens read that it had to begin with
    parts: tuple[str, ...]
    part: int


def explain(model: Model, question: Question, options: Options) -> Explanation:
    """E_USAGE for an empty text, and for several models as one; E_LONG for what is over the recipe's limits."""
    text, extras, encoded = read(model, question.inputs)
    if question.target is not None:
        said = given(model, question.inputs, question.target)
        return replace(_forced(model, question, text, Forced(encoded, said)), extras=extras)
    if question.is_over:
        return replace(_given(model, question, text, encoded), extras=extras)
    found, tree = watched(model, encoded, options, question.edits, question.begin)
    return replace(_found(model, question, text, encoded, found), tree=tree, extras=extras)


def refuse_late(question: Question, shown: Explanation) -> None:
    """E_USAGE where attention is to be put elsewhere at a step that the output does not have."""
    if late := late_looks(question, shown):
        with_end = ", its end included" if shown.ends else ""
        what = f"--attend {late[0]}: the output has {len(shown.output)} tokens{with_end}"
        raise SeqloomError("E_USAGE", what, fix=f"a STEP from 1 to {len(shown.output)}")


def late_looks(question: Question, shown: Explanation) -> list[Look]:
    """The edits that changed nothing, as the output ended before their step."""
    return [look for look in (question.edits or Edits()).looks if look.step > len(shown.output)]


def explained_while_said(model: Model, question: Question, options: Options, part: int = 0) -> Iterator[str | Answered]:
    """The answer in pieces as soon as they are certain, and at last why: nothing is searched for twice.

    A text that `predict` answers in parts is answered so here; the part of this number is the one that is explained.
    """
    assert question.target is None, "a given target is not searched for"
    _, extras, every = model.reader.read(question.inputs, options, "the text")
    spoken = [place for place, (text, _) in enumerate(every) if text.strip()]
    if part >= len(spoken):
        what = f"part {part}: the text has {len(spoken)} of them" if spoken else "an empty text has nothing to explain"
        raise SeqloomError("E_USAGE", what, fix="give a TEXT")
    answered: Answered | None = None
    texts = tuple(every[place][0] for place in spoken)
    for place, (text, gap) in enumerate(every):
        inputs = {**extras, "source": text}
        if place == spoken[part]:
            encoded = read(model, inputs)[2]
            if question.is_over:
                shown, found = replace(_given(model, question, text, encoded), extras=extras), None
                yield shown.answer
            else:
                walk = _Watched(model, encoded, options, question.edits, question.begin)
                yield from growing(model, encoded, walk.said())
                found, tree = walk.outcome()
                shown = replace(_found(model, question, text, encoded, found), tree=tree, extras=extras)
            begun = model.target.tokenizer.decode([*question.begin[: -1 if question.is_over else None]])
            answered = Answered(shown, found, begun, texts, part)
        elif text.strip():
            yield from pieces_of_text(model, model.codecs.encode(inputs), options)
        if gap:
            yield gap
    assert answered is not None
    yield answered


def _given(model: Model, question: Question, text: str, encoded: Encoded) -> Explanation:
    said = np.asarray(model.codecs.begun(question.begin[:-1], encoded), dtype=np.int64)
    return _forced(model, question, text, Forced(encoded, said))


def _found(model: Model, question: Question, text: str, encoded: Encoded, found: Hypothesis) -> Explanation:
    said = np.asarray(found.tokens, dtype=np.int64)
    return replace(_forced(model, question, text, Forced(encoded, said)), truncated=found.truncated)


def _forced(model: Model, question: Question, text: str, forced: Forced) -> Explanation:
    sources = model.sources([forced.encoded])
    with model.precision():
        return explained(
            model.network,
            model.codecs,
            text,
            forced,
            likeliest=question.likeliest,
            replace=None if question.edits is None else question.edits.replacements(model.network, sources),
        )


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
    """The tokens of an output that somebody gave, or that a set has (`where`), which may want what none can say."""
    pair, encoded = model.codecs.pair(inputs, target)
    ids: Ids = pair.target
    _refuse_long("target", len(ids), model.recipe.data.limits.max_target, where)
    if not where:
        _refuse_unsaid(model.codecs, encoded, ids, target)
    return ids


def _refuse_unsaid(codecs: Codecs, encoded: Encoded, ids: Ids, target: str) -> None:
    """E_USAGE for what can be no answer: no label or number it has, no part of its text, tags for other words."""
    words, what = codecs.words_read(encoded), ""
    if codecs.in_place and words != len(ids):
        what = f"{len(ids)} tags for {words} words"
    elif UNK in ids and codecs.points:
        what = "it does not stand in the text"
    elif UNK in ids and codecs.labels and not codecs.restores:
        what = "the model cannot say this"
    if what:
        raise SeqloomError("E_USAGE", f"--target {target!r}: {what}", fix="give an answer that training could have")


def _refuse_long(side: str, count: int, most: int, where: str) -> None:
    if count > most:
        what = f"a {side} of {count:,} tokens, the recipe's maximum is {most:,}"
        fix = f"shorten it, or train with a larger data.limits.max_{side}"
        raise SeqloomError("E_LONG", what, where=where, fix=fix)


def watched(
    model: Model, encoded: Encoded, options: Options, edits: Edits | None = None, begin: tuple[str, ...] = ()
) -> tuple[Hypothesis, Tree]:
    """The best hypothesis of one source, and the tree of all that lived on the way to it."""
    walk = _Watched(model, encoded, options, edits, begin)
    for _ in walk.said():
        pass
    return walk.outcome()


class _Watched:
    """One search that is taken step by step under a watcher's eyes; edits hold at every step, and for nobody else."""

    def __init__(
        self, model: Model, encoded: Encoded, options: Options, edits: Edits | None, begin: tuple[str, ...]
    ) -> None:
        self.model, self.encoded = model, encoded
        asking = model.asking(options)
        if begin and asking.prefix:
            raise SeqloomError("E_USAGE", "an output begins with tokens or with a prefix", fix="leave one of both out")
        begun = model.codecs.begun(begin or asking.prefix, encoded)
        wishes = replace(asking.wishes([begun], model.advised), prefixes=Tokens.pad([begun]) if begun else None)
        self._replaced = {} if edits is None else edits.replacements(model.network, model.sources([encoded]))
        self._watcher = Watcher(STRATEGIES.build(asking.strategy).normalisation)
        with model.precision(), self._tape():
            scorer = model.stepped(options, wishes.prefixes)
            self._walk = Walk(scorer, model.sources([encoded]), asking.strategy, wishes)

    def _tape(self) -> AbstractContextManager[object]:
        return Tape(replace=self._replaced) if self._replaced else nullcontext()

    def said(self) -> Iterator[tuple[list[int], bool]]:
        """After every step the tokens that are certain; between steps others may use the model."""
        while not self._walk.done:
            with self.model.precision(), self._tape():
                self._walk.step()
            self._watcher(self._walk.steps - 1, self._walk.frontier)
            if self.model.heed is not None:
                self.model.heed()
            if not self._walk.done:
                yield certain_of(self._walk), False
        yield list(self._best.tokens), True

    @property
    def _best(self) -> Hypothesis:
        return self._walk.hypotheses()[0][0]

    def outcome(self) -> tuple[Hypothesis, Tree]:
        best = self._best
        return best, self._watcher.tree(best, lambda ids: self.model.codecs.said(ids, self.encoded.foreign))


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

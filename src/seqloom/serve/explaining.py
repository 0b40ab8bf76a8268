"""Explanations over HTTP: what may be asked of one answer, and how it is told, at once or while it is made.

An answer is searched for once: its pieces are told while search goes on, and the same search is then explained and
diagnosed. `form: packed` is what pages draw (`probe/page.py`): a byte for each weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from pydantic import Field

from seqloom.api.diagnose import diagnose_answer
from seqloom.api.explain import Answered, Question, explain, explained_while_said, late_looks, refuse_late
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.config import Plain
from seqloom.data.examples import Example, Inputs
from seqloom.probe.edits import Edits, Look, Silence
from seqloom.probe.explain import Explanation
from seqloom.probe.glimpse import in_passing
from seqloom.probe.page import drawing, packed_answer
from seqloom.serve.asked import Asked, Text
from seqloom.web.refusals import Refusal

MOST_WEIGHTS = 1_000_000  # numbers of one explanation
MOST_EDITS = 1000


class Explaining(Asked):
    """A closer look: at the answer, or at what the model thinks of a given target."""

    model: str | None = None  # null: the first that is served
    target: str | None = None
    likeliest: int = Field(5, ge=1, le=100)
    begin: list[str] = Field(default_factory=list, max_length=MOST_EDITS)  # tokens that the answer begins with
    attend: list[str] = Field(default_factory=list, max_length=MOST_EDITS)  # STEP=POSITION: look there instead
    mask_heads: list[str] = Field(default_factory=list, max_length=MOST_EDITS)  # LAYER.HEAD
    reference: str | None = None  # what would be right: the answer is diagnosed beside it
    part: int = Field(0, ge=0)  # of a text that is answered in parts, the one to look at; only with stream
    form: Literal["plain", "packed"] = "plain"  # as `seqloom explain --json`, or as pages draw it
    stream: bool = False  # told while it is made, as server-sent events
    options: dict[str, object] = Field(default_factory=dict)

    @property
    def characters(self) -> int:
        """Of what was given besides the input."""
        return sum(map(len, (self.target or "", self.reference or "", *self.begin)))

    @property
    def edits(self) -> Edits:
        return Edits(tuple(map(Look.parse, self.attend)), tuple(map(Silence.parse, self.mask_heads)))

    def is_edited(self, options: Options) -> bool:
        """Is the answer another than the one that the model would give by itself?"""
        return bool(self.target is not None or self.begin or self.attend or self.mask_heads or options.prefix)


class ExplainRequest(Explaining):
    """A text to look at closely."""

    input: Text


class ExplainFile(Explaining):
    """The same of a file that is sent beside it; `extras` are further sources by name."""

    extras: dict[str, str] = Field(default_factory=dict)


class Looked:
    """One explanation of one model: worked out in the thread that answers."""

    def __init__(self, model: Model, asked: Explaining, options: Options, name: str | None = None) -> None:
        """`name`: how the client calls the file that is read."""
        self.model, self.asked, self.options, self.name = model, asked, options, name
        self.edits = asked.edits
        if asked.reference is not None and asked.is_edited(options):
            what = "reference: a diagnosis is of the answer that the model gives by itself"
            raise Refusal("E_VALUE", what, fix="leave the reference or the edits out")

    def steps(self, inputs: Inputs) -> Iterator[str | bytes]:
        """Pieces of the answer, then all of it as JSON."""
        question = self._question(inputs)
        if question.target is not None:
            yield self._written(question, explain(self.model, question, self.options), {})
            return
        for step in explained_while_said(self.model, question, self.options, self.asked.part):
            if isinstance(step, str):
                yield step
            else:
                parts: dict[str, Plain] = {} if self.name else {"parts": list(step.parts), "part": step.part}
                yield self._written(question, step.shown, {**self._judged(inputs, step), **parts})

    def whole(self, inputs: Inputs) -> bytes:
        """The explanation of a text as one source, however many sentences it has."""
        question = self._question(inputs)
        return self._written(question, explain(self.model, question, self.options), {})

    def _question(self, inputs: Inputs) -> Question:
        begin = tuple(self.asked.begin)
        return Question(inputs, self.asked.target, self.edits, self.asked.likeliest, begin)

    def _judged(self, inputs: Inputs, found: Answered) -> dict[str, Plain]:
        """How far to trust the answer, and what is wrong with it."""
        judged: dict[str, Plain] = {"confidence": None, "begun": found.begun}
        best = found.hypothesis
        if best is None:
            return judged
        if self.model.recipe.model.answers and not self.asked.is_edited(self.options):
            judged["confidence"] = self.model.calibration.confidence(best.log_prob, len(best.tokens))
        if self.asked.reference is not None:
            text, extras = self.model.codecs.texts(inputs)
            source = found.parts[found.part] if self.name is None else text
            example = Example(source, (self.asked.reference,), "request", 1, extras)
            told = diagnose_answer(self.model, example, best, self.options).as_dict()
            judged["diagnosis"] = {name: value for name, value in told.items() if name not in ("where", "source")}
        return judged

    def _written(self, question: Question, shown: Explanation, more: Mapping[str, Plain]) -> bytes:
        """An edit after the answer's end is refused; a page shows the answer all the same, and says so beside it."""
        named = shown if self.name is None else replace(shown, text=self.name)
        packed = self.asked.form == "packed"
        if not packed:
            refuse_late(question, shown)
        elif late := late_looks(question, shown):
            more = {**more, "late": [str(look) for look in late]}
        body = _packed(named) if packed else bounded(named).as_dict()
        told = {"model": self.model.name, **more, **({"answer": body, **drawing()} if packed else body)}
        return json.dumps(told, ensure_ascii=False, allow_nan=False).encode()


def _packed(shown: Explanation) -> dict[str, Plain]:
    """For a page. Of more weights than it could draw smoothly, only the mean of the last layer is sent."""
    if _weights(shown) <= MOST_WEIGHTS:
        return packed_answer(shown)
    few = replace(in_passing(shown), tree=shown.tree)
    return {**packed_answer(few), "glimpse": bool(len(shown.weights)), "weights_left_out": _weights(shown)}


def _weights(shown: Explanation) -> int:
    return shown.weights.size + shown.within_source.size + shown.within_output.size


def bounded(shown: Explanation) -> Explanation:
    """E_LIMIT for more numbers than one answer may hold."""
    if (count := _weights(shown)) > MOST_WEIGHTS:
        what = f"{count:,} weights, the limit is {MOST_WEIGHTS:,}"
        raise Refusal("E_LIMIT", what, fix="explain a shorter text, or ask for form: packed")
    return shown

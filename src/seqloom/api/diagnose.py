"""Diagnoses of a model's errors: every example is answered, and what is not right is told apart, sentence by sentence.

    for diagnosis in diagnose(model, examples):
        print(diagnosis.line)

Outputs and references are read by force with the options of the search, in batches. Attention is that of the last
layer, averaged over its heads; of an ensemble it is its first member's, and of models without it those fields are None.
A line that is answered in parts cannot be diagnosed: its reference is of the whole. `Diagnoses` is the table of many.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from statistics import fmean, median

import numpy as np

from seqloom.api.attended import LEAST, attended, covered
from seqloom.api.model import USUAL_ROWS, Model
from seqloom.api.options import Options
from seqloom.api.reading import CHUNK_LINES
from seqloom.config import Plain, kind_of
from seqloom.data.batching import in_order
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Encoded
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.metrics.base import Metric
from seqloom.metrics.rates import matches_any
from seqloom.probe.align import Picks
from seqloom.probe.diagnose import VERDICTS, Diagnosis, Side, Spoken, Verdict, Weights, barrier, counting, diagnosed
from seqloom.probe.forced import Forced, forced
from seqloom.probe.symptoms import KINDS, Kind
from seqloom.search.hypotheses import Hypothesis, Normalisation
from seqloom.search.strategies import STRATEGIES

BATCH_TOKENS = 4096  # of forced passes; each step weighs the whole vocabulary
WORST = 10


def diagnose(
    model: Model, examples: Iterable[Example], options: Options | None = None, chunk: int = CHUNK_LINES
) -> Iterator[Diagnosis]:
    """One diagnosis per example, in order. Unless `options` say otherwise, over-long sources are passed over."""
    chosen = options or Options(on_long="skip")
    if chosen.risk is not None:
        what = "risk: outputs are judged by samples, not by a score that a reference could have as well"
        raise SeqloomError("E_USAGE", what, fix="leave risk out")
    doctor = _Doctor(model, chosen.with_(n_best=1))
    iterator = iter(examples)
    while part := list(islice(iterator, chunk)):
        yield from doctor.diagnoses(part)


def diagnose_answer(model: Model, example: Example, hypothesis: Hypothesis, options: Options) -> Diagnosis:
    """The diagnosis of an answer that was found already, with these options."""
    doctor = _Doctor(model, options.with_(n_best=1))
    encoded = model.codecs.encode(example.inputs)
    return doctor.diagnosis(example, encoded, hypothesis)


# --- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Diagnoses:
    """All diagnoses of a test set, with the value of a metric for every output: the worst come first by it."""

    items: tuple[Diagnosis, ...]
    metric: str
    values: tuple[float, ...]
    higher_is_better: bool = True
    labels: bool = False  # outputs are labels: nothing is written, so nothing is left out or said twice

    @staticmethod
    def of(items: Sequence[Diagnosis], examples: Sequence[Example], metric: Metric, labels: bool = False) -> Diagnoses:
        rows = metric.statistics([item.output for item in items], [example.references for example in examples])
        values = tuple(metric.sentence_values(rows).tolist())
        return Diagnoses(tuple(items), metric.name, values, metric.higher_is_better, labels)

    @cached_property
    def verdicts(self) -> dict[Verdict, int]:
        """How many got each verdict; every verdict has its row."""
        found = Counter(item.verdict for item in self.items)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @cached_property
    def symptoms(self) -> dict[Kind, int]:
        """How many outputs show each symptom."""
        found = Counter(symptom.kind for item in self.items for symptom in item.symptoms)
        return {} if self.labels else {kind: found[kind] for kind in KINDS}

    @property
    def errors(self) -> int:
        """Outputs that were diagnosed and are not right."""
        return len(self.items) - self.verdicts["right"] - self.verdicts["passed over"]

    @property
    def barred(self) -> int:
        """Errors whose reference search could not have said, whatever the verdict."""
        return sum(bool(item.barred) for item in self.items if item.verdict != "passed over")

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The right token's rank where output and reference part, wherever the model has a name for it."""
        parts = [item.divergence for item in self.items if item.divergence is not None]
        return tuple(part.rank for part in parts if part.rank is not None)

    @property
    def mean_rank(self) -> float | None:
        return fmean(self.ranks) if self.ranks else None

    @property
    def median_rank(self) -> float | None:
        return float(median(self.ranks)) if self.ranks else None

    @property
    def mean_mass(self) -> float | None:
        """The mean share of attention that lay on the right token's source word; None without attention."""
        parts = [item.divergence for item in self.items if item.divergence is not None]
        masses = [part.gaze.mass for part in parts if part.gaze is not None]
        return fmean(masses) if masses else None

    def worst(self, count: int = WORST) -> list[tuple[Diagnosis, float]]:
        """Errors with the metric's value, the worst first; of equal ones that which the model is surest of."""
        sign = 1 if self.higher_is_better else -1
        wrong = [
            (item, value)
            for item, value in zip(self.items, self.values, strict=True)
            if item.verdict not in ("right", "passed over")
        ]
        return sorted(wrong, key=lambda pair: (sign * pair[1], -pair[0].gap))[:count]

    def as_dict(self, count: int = WORST) -> dict[str, Plain]:
        """Plain data for JSON: the table and the worst examples."""
        worst: list[Plain] = [{**item.as_dict(), "value": value} for item, value in self.worst(count)]
        return {
            "examples": len(self.items),
            "verdicts": _rows("verdict", self.verdicts, len(self.items)),
            "symptoms": _rows("symptom", self.symptoms, self.errors),
            "errors": self.errors,
            "barred": self.barred,
            "mean_rank": self.mean_rank,
            "median_rank": self.median_rank,
            "mean_mass": self.mean_mass,
            "metric": self.metric,
            "worst": worst,
        }


def _rows(name: str, counts: Mapping[Verdict, int] | Mapping[Kind, int], whole: int) -> list[Plain]:
    return [{name: label, "count": count, "share": count / max(1, whole)} for label, count in counts.items()]


# --- one chunk -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Answer:
    """What the model says to one example."""

    encoded: Encoded
    hypothesis: Hypothesis
    text: str


@dataclass(frozen=True)
class _Row:
    """One text to be read by force: an output or a reference, and whose."""

    place: int  # of the example
    text: str
    pieces: tuple[str, ...]
    tokens: tuple[int, ...]
    ended: bool
    is_output: bool


class _Doctor:
    """One model and one way to search."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        self.asking = model.asking(options)
        self.normalisation: Normalisation = STRATEGIES.build(self.asking.strategy).normalisation
        self.labels = model.recipe.model.labels
        self.most = model.recipe.data.limits.max_target
        reads_itself = kind_of(model.recipe.model.parts["decoder"]) == "transformer"
        self.picks = Picks(shift=reads_itself)  # whose weights tell where a word came from: see probe/align.py

    def diagnoses(self, examples: Sequence[Example]) -> list[Diagnosis]:
        """Answered, told right from wrong, and the wrong ones read by force beside their references."""
        found: dict[int, Diagnosis] = {}
        read: dict[int, Encoded] = {}
        for place, example in enumerate(examples):
            encoded = self.model.codecs.encode(example.inputs)
            if reason := self._passed_over(example, encoded):
                found[place] = _bare("passed over", example, "", reason)
            else:
                read[place] = encoded
        found |= self._told_apart(examples, self._answers(examples, read))
        return [replace(found[place], where=example.where) for place, example in enumerate(examples)]

    def diagnosis(self, example: Example, encoded: Encoded, hypothesis: Hypothesis) -> Diagnosis:
        """The same of one that was answered already."""
        told = self.model.prediction(example.source, {}, encoded, [hypothesis], self.options)
        return self._told_apart([example], {0: _Answer(encoded, hypothesis, told.text)})[0]

    def _told_apart(self, examples: Sequence[Example], answers: Mapping[int, _Answer]) -> dict[int, Diagnosis]:
        found: dict[int, Diagnosis] = {}
        wrong: list[int] = []
        for place, answer in answers.items():
            references = examples[place].references
            if matches_any(answer.text, [*references, *map(self.model.target.rewritten, references)]):
                found[place] = _bare("right", examples[place], answer.text)
            else:
                wrong.append(place)
        return found | self._compared(examples, {place: answers[place] for place in wrong})

    def _passed_over(self, example: Example, encoded: Encoded) -> str:
        _, _, parts = self.model.reader.read(example.inputs, self.options, example.where)
        if not parts:
            return "the source is longer than the recipe's maximum"
        if len(parts) > 1:
            return f"it is answered in {len(parts):,} parts, and its reference is of the whole"
        return "" if example.source.strip() and encoded.own else "the source is empty"

    def _source(self, example: Example) -> tuple[Side, list[str]]:
        """What was read as units, and its unknown pieces; what is no text has neither."""
        if self.model.recipe.data.in_files:
            length = self.model.codecs.source.length(example.source)
            return Side(example.shown, ("",) * length, (), (-1,) * length, words=False), []
        codec = self.model.source
        read = codec.tokens(example.source)
        source = _side(codec, example.source, read, codec.normalise(example.source))
        return source, [name for name, piece in zip(source.pieces, read, strict=True) if piece not in codec.vocabulary]

    def _answers(self, examples: Sequence[Example], read: Mapping[int, Encoded]) -> dict[int, _Answer]:
        """In the batches in which `Model.predict` answers."""
        places = list(read)
        lengths = np.array([read[place].length for place in places], dtype=np.int64)
        rows = self.options.rows(self.asking.strategy)
        tokens = max(1, self.options.batch_tokens * USUAL_ROWS // max(USUAL_ROWS, rows))
        answers = {}
        for batch in in_order(lengths, tokens, 1 if self.options.deterministic else None):
            chosen = [places[row] for row in batch]
            sources = [read[place] for place in chosen]
            hypotheses = self.model.search(sources, self.options)
            if self.options.coverage_penalty:
                hypotheses = covered(self.model, sources, hypotheses, self.options.coverage_penalty)
            for place, encoded, best in zip(chosen, sources, hypotheses, strict=True):
                told = self.model.prediction(examples[place].source, {}, encoded, best[:1], self.options)
                answers[place] = _Answer(encoded, best[0], told.text)
        return answers

    # --- by force ------------------------------------------------------------------------------------------------

    def _compared(self, examples: Sequence[Example], answers: Mapping[int, _Answer]) -> dict[int, Diagnosis]:
        rows = [row for place, answer in answers.items() for row in self._rows(place, examples[place], answer)]
        outputs: dict[int, Spoken] = {}
        references: dict[int, list[Spoken]] = {place: [] for place in answers}
        for row, spoken in zip(rows, self._spoken(rows, answers), strict=True):
            if row.is_output:
                outputs[row.place] = spoken
            else:
                references[row.place].append(spoken)
        found = {}
        for place, answer in answers.items():
            example = examples[place]
            if not references[place]:
                reason = f"the reference is longer than the recipe's maximum of {self.most:,} tokens"
                found[place] = _bare("out of reach", example, answer.text, reason)
                continue
            source, unknown = self._source(example)
            best = counting(references[place])
            found[place] = diagnosed(source, outputs[place], best, unknown, None if self.labels else self.picks)
        return found

    def _rows(self, place: int, example: Example, answer: _Answer) -> Iterator[_Row]:
        """The output, and every reference that the model could be trained on."""
        codecs, said = self.model.codecs, answer.hypothesis
        pieces = codecs.said(said.tokens, answer.encoded.foreign)
        yield _Row(place, answer.text, tuple(pieces), said.tokens, not said.truncated, is_output=True)
        for reference in example.references:
            pair, _ = codecs.pair(example.inputs, reference)
            if len(pair.target) <= self.most:
                tokens = tuple(pair.target.tolist())
                yield _Row(place, reference, tuple(self.model.target.tokens(reference)), tokens, True, is_output=False)

    def _spoken(self, rows: Sequence[_Row], answers: Mapping[int, _Answer]) -> list[Spoken]:
        read = [answers[row.place].encoded for row in rows]
        lengths = [max(encoded.length, len(row.tokens)) for encoded, row in zip(read, rows, strict=True)]
        found: dict[int, Spoken] = {}
        for batch in in_order(np.array(lengths, dtype=np.int64), BATCH_TOKENS):
            sources, chosen = [read[place] for place in batch], [rows[place] for place in batch]
            told = zip(self._forced(sources, chosen), self._weights(sources, chosen), strict=True)
            for place, (by_force, weights) in zip(batch, told, strict=True):
                found[int(place)] = self._judged(rows[place], read[place], by_force, weights)
        return [found[place] for place in range(len(rows))]

    def _forced(self, sources: Sequence[Encoded], rows: Sequence[_Row]) -> list[Forced]:
        model = self.model
        begun = [model.codecs.begun(self.asking.prefix, encoded) for encoded in sources]
        wishes = self.asking.wishes(begun, model.advised)
        scorer = model.stepped(self.options, wishes.prefixes)
        with model.precision():
            return forced(scorer, model.sources(sources), [row.tokens for row in rows], wishes)

    def _weights(self, sources: Sequence[Encoded], rows: Sequence[_Row]) -> Sequence[Weights | None]:
        if not self.model.network.attention_taps:
            return [None] * len(rows)
        said = [Hypothesis(row.tokens, (), 0.0, 0.0, truncated=not row.ended) for row in rows]
        return attended(self.model, sources, said)

    def _judged(self, row: _Row, encoded: Encoded, by_force: Forced, weights: Weights | None) -> Spoken:
        target = self.model.target
        spelled = self.model.codecs.decode(row.tokens, encoded.foreign)
        if row.is_output:
            side, barred = _side(target, row.text, row.pieces, spelled), ""
        else:
            side = _side(target, row.text, row.pieces, target.normalise(row.text))
            barred = barrier(by_force, side)
        score = by_force.score(self.normalisation)
        if self.options.coverage_penalty and weights is not None:
            score += self.options.coverage_penalty * float(np.log(weights.sum(0).clip(LEAST, 1.0)).sum())
        if not row.ended and not (by_force.allowed[-1] and by_force.phrases):
            score = -math.inf  # it could not have ended where it was cut off
        return Spoken(side, by_force, score, barred, row.ended, weights)


def _bare(verdict: Verdict, example: Example, output: str, reason: str = "") -> Diagnosis:
    """A verdict for which nothing was compared."""
    return Diagnosis(verdict, example.source, output, example.target, barred=reason)


def _side(codec: TextCodec, text: str, pieces: Sequence[str], spelled: str) -> Side:
    """A text beside its pieces; `spelled` is how these write it."""
    read = tuple(codec.tokenizer.surface(piece) for piece in pieces)
    if not codec.tokenizer.text_like:
        return Side(text, read, read, tuple(range(len(read))), words=False)
    units = tuple(re.findall(r"\S+", spelled))
    return Side(text, read, units, tuple(codec.tokenizer.words(pieces, spelled)))

"""`seqloom.evaluate("runs/x")`: decode a test set and judge it; or judge an output file of any tool in the same way.

Besides the metrics with their intervals: perplexity, score by source length, word accuracy by training frequency (of
labels: how well each is found), whether confidences keep their word, and speed. Nothing is printed here and no file is
written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from seqloom.api.diagnose import Diagnoses, diagnose
from seqloom.api.frequencies import TrainingWords
from seqloom.api.labelled import NO_TABLES, LabelTables, judges_of, refuse_unfit, seen
from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.api.testset import (
    MetricSpec,
    aligned,
    from_files,
    from_spec,
    has_sources,
    held_out,
    metrics_of,
    prepared,
    read_outputs,
)
from seqloom.config import Plain, kind_of
from seqloom.data.judgments import Agreement
from seqloom.data.readers import Example
from seqloom.metrics import Metric
from seqloom.metrics.breakdown import FrequencyRow
from seqloom.metrics.calibration import (
    Calibration,
    ReliabilityBin,
    correct_outputs,
    expected_calibration_error,
    reliability,
)
from seqloom.metrics.evaluation import Evaluation, Score, evaluate_outputs
from seqloom.metrics.perplexity import perplexity
from seqloom.metrics.significance import SEED
from seqloom.recipe import Recipe

LengthUnit = str  # words, tokens, frames


@dataclass(frozen=True)
class Confidence:
    """Do calibrated confidences keep their word? `criterion` says when an output counts as right."""

    criterion: str
    ece: float  # expected calibration error, 0 to 1
    mean: float  # of the confidences
    right: float  # share of outputs that are right
    bins: tuple[ReliabilityBin, ...]


@dataclass(frozen=True)
class Decoding:
    """What only a model at hand can tell: how it searched, how fast, how sure it was, where it gave up."""

    search: str
    seconds: float
    sentences_per_second: float
    tokens_per_second: float  # target tokens, the end included
    truncated: int  # outputs that the length limit cut off
    skipped: int  # sources that are empty, or longer than the recipe's maximum: their output is empty
    unknown: float  # share of source tokens that the vocabulary lacks
    confidence: Confidence


@dataclass(frozen=True)
class RunEvaluation:
    """The report on one system: a run, or an output file (then there is no `decoding`)."""

    name: str
    scores: Mapping[str, Score]  # by the word a person calls the metric by: "bleu", "BLEU-2"
    evaluation: Evaluation
    length_unit: LengthUnit
    outputs: tuple[str, ...]
    by_frequency: tuple[FrequencyRow, ...] | None = None  # None where training counts are not known, and of labels
    by_label: LabelTables | None = None  # None where outputs are no labels
    judges: Agreement | None = None  # where labels or numbers of some items have several judgments
    decoding: Decoding | None = None
    diagnosis: Diagnoses | None = None  # None where nobody asked for it
    predictions: tuple[Prediction, ...] = ()  # what the outputs are of, where a model gave them here
    ranked: str = ""  # of a run that ranks texts: among which, and how fast; nothing of others

    @property
    def sentences(self) -> int:
        return self.evaluation.sentences

    @property
    def predicted(self) -> bool:
        """Whether a model gave these outputs here; an output file was judged as it is."""
        return self.decoding is not None or bool(self.ranked)

    @property
    def perplexity(self) -> float | None:
        """exp of the mean negative log-probability of the (first) references, token by token, the end included."""
        return self.evaluation.perplexity

    def __getitem__(self, metric: str) -> float:
        """`report["bleu"]`."""
        return self.scores[metric].value

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON: outputs are left out, and a perplexity beyond all numbers is null."""
        plain = self.evaluation.as_dict()
        if self.perplexity is None or not math.isfinite(self.perplexity):
            plain["perplexity"] = None
        scores: list[Plain] = [{"metric": word, **asdict(score)} for word, score in self.scores.items()]
        rows = self.by_frequency
        return {
            "name": self.name,
            "predicted": self.predicted,
            **plain,
            "scores": scores,
            "length_unit": self.length_unit,
            "by_frequency": None if rows is None else [frequency_dict(row) for row in rows],
            **(NO_TABLES if self.by_label is None else self.by_label.as_dict()),
            "judges": None if self.judges is None else asdict(self.judges),
            "decoding": None if self.decoding is None else asdict(self.decoding),
            "diagnosis": None if self.diagnosis is None else self.diagnosis.as_dict(),
            **({"ranked": self.ranked} if self.ranked else {}),
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{score.name} {score.interval}" for score in self.scores.values())
        return f"RunEvaluation({self.name!r}, {self.sentences:,} sentences: {values})"


def frequency_dict(row: FrequencyRow) -> dict[str, Plain]:
    return {"label": row.label, **asdict(row), "precision": row.precision, "recall": row.recall, "f1": row.f1}


# --- judging -----------------------------------------------------------------------------------------------------


class Judge:
    """Judges any number of systems alike: by the same metrics, resamples, length unit and training counts.

    `model` lends these where it is given; outputs of other tools can be judged without any model.
    """

    def __init__(
        self,
        model: Model | None = None,
        metrics: Sequence[MetricSpec] | None = None,
        samples: int = 1000,
        seed: int = SEED,
    ) -> None:
        self.model, self.samples, self.seed = model, samples, seed
        self.recipe = None if model is None else model.recipe
        self.metrics: dict[str, Metric] = metrics_of(metrics, self.recipe)

    @cached_property
    def words(self) -> TrainingWords | None:
        """None where there is no model to tell what training saw, and where it says labels."""
        return None if self.model is None or self.model.recipe.model.labels else TrainingWords.of(self.model)

    def outputs(self, name: str, outputs: Sequence[str], examples: Sequence[Example]) -> RunEvaluation:
        """Outputs beside their examples, whoever wrote them."""
        references = [example.references for example in examples]
        unit, lengths = _lengths(examples, self.model)
        evaluation = evaluate_outputs(
            outputs, references, list(self.metrics.values()), lengths, self.samples, self.seed
        )
        return RunEvaluation(
            name=name,
            scores=dict(zip(self.metrics, evaluation.scores, strict=True)),
            evaluation=evaluation,
            length_unit=unit,
            outputs=tuple(outputs),
            by_frequency=None if self.words is None else self.words.accuracy(outputs, references),
            by_label=LabelTables.of(outputs, references, list(self.metrics.values()), self.model),
            judges=judges_of(examples, list(self.metrics.values()), self.model),
        )

    def run(
        self, model: Model, examples: Sequence[Example], options: Options | None = None, diagnosing: bool = False
    ) -> RunEvaluation:
        """What a model says to the examples, with all that only a model can tell; `diagnosing` searches once more."""
        options = options or Options(on_long="skip")
        refuse_unfit(model, examples)
        started_at = time.perf_counter()
        predictions = list(model.predict([example.inputs for example in examples], options))
        seconds = time.perf_counter() - started_at
        report = self.outputs(model.name, [prediction.text for prediction in predictions], examples)
        return replace(
            report,
            evaluation=replace(report.evaluation, perplexity=_perplexity(model, examples)),
            decoding=_decoding(model, options, examples, predictions, seconds),
            diagnosis=self._diagnosis(model, examples, options) if diagnosing else None,
            predictions=tuple(predictions),
        )

    def _diagnosis(self, model: Model, examples: Sequence[Example], options: Options) -> Diagnoses:
        """Each error by its cause; the worst are so by the first metric."""
        found, metric = list(diagnose(model, examples, options)), next(iter(self.metrics.values()))
        return Diagnoses.of(found, examples, metric, model.recipe.model.labels)


def evaluate(
    model: Model | str | Path,
    examples: Iterable[Example] | str | Path | None = None,
    options: Options | None = None,
    *,
    metrics: Sequence[MetricSpec] | None = None,
    samples: int = 1000,
    seed: int = SEED,
    diagnosing: bool = False,
) -> RunEvaluation:
    """Decode the examples (default: the recipe's test set) and judge the outputs (default: by the recipe's metrics).

    Examples may be the name of a data file, read as `seqloom evaluate --data` reads it. `samples` and `seed` are the
    bootstrap's. Unless `options` say otherwise, a source over the recipe's maximum is judged as an empty output.
    `diagnosing` tells search errors from model errors, sentence by sentence.
    """
    if isinstance(model, (str, Path)):
        model = load(model)
    if isinstance(examples, (str, Path)):
        chosen = from_spec(str(examples), model.recipe)
    else:
        chosen = held_out(model.recipe) if examples is None else list(examples)
    return Judge(model, metrics, samples, seed).run(model, prepared(chosen, model.recipe), options, diagnosing)


def evaluate_files(
    outputs: str | Path,
    references: Sequence[str | Path],
    source: str | Path | None = None,
    *,
    metrics: Sequence[MetricSpec] | None = None,
    samples: int = 1000,
    seed: int = SEED,
) -> RunEvaluation:
    """Judge the output file of any tool, line by line; by source length where the sources are given."""
    examples = from_files(None if source is None else str(source), [str(path) for path in references])
    lines, items = aligned(read_outputs(str(outputs)), examples, None, str(outputs))
    return Judge(None, metrics, samples, seed).outputs(Path(outputs).name, lines, items)


def _lengths(examples: Sequence[Example], model: Model | None) -> tuple[LengthUnit, list[int] | None]:
    """Words of natural text, tokens of anything else; None where the sources are not known."""
    if not has_sources(examples):
        return "words", None
    in_files = model is not None and model.recipe.data.in_files
    if model is None or model.codecs.source.natural or (model.recipe.model.in_place and not in_files):
        return "words", [len(example.source.split()) for example in examples]
    source = model.codecs.source
    return f"{source.unit}s", [source.length(example.source) for example in examples]


def _perplexity(model: Model, examples: Sequence[Example]) -> float:
    """By teacher forcing on the first reference of every pair that training would have accepted."""
    limits = model.recipe.data.limits
    pairs = [
        (example.inputs, example.target)
        for example in examples
        if model.codecs.source.length(example.source) <= limits.max_source
        and len(model.target.tokens(example.target)) <= limits.max_target
        and (not model.codecs.labels or seen(model, example.target))
    ]
    scores = model.score(pairs)
    return perplexity(-sum(score.log_prob for score in scores), sum(len(score.token_scores) for score in scores))


def _decoding(
    model: Model, options: Options, examples: Sequence[Example], predictions: Sequence[Prediction], seconds: float
) -> Decoding:
    read = sum(prediction.length for prediction in predictions)
    tokens = sum(len(prediction.token_scores) for prediction in predictions)
    return Decoding(
        search=describe_search(model.recipe, options),
        seconds=seconds,
        sentences_per_second=len(predictions) / max(seconds, 1e-9),
        tokens_per_second=tokens / max(seconds, 1e-9),
        truncated=sum(prediction.best.truncated for prediction in predictions),
        skipped=sum(prediction.skipped for prediction in predictions),
        unknown=sum(prediction.unknown * prediction.length for prediction in predictions) / max(1, read),
        confidence=_confidence(model, examples, predictions),
    )


def describe_search(recipe: Recipe, options: Options) -> str:
    """`greedy`, `beam 5`, `sample`: in two words how outputs were looked for."""
    strategy = options.searching(recipe.search).strategy
    size = strategy.model_dump().get("size")
    return kind_of(strategy) if size is None else f"{kind_of(strategy)} {size}"


# --- confidence --------------------------------------------------------------------------------------------------


def right_outputs(recipe: Recipe, outputs: Sequence[str], examples: Sequence[Example]) -> list[bool]:
    """Which outputs are right, as the recipe has it: by its first metric, from `evaluation.right_at` on."""
    metric = recipe.evaluation.build()[0]
    references = [example.references for example in examples]
    return [bool(right) for right in correct_outputs(metric, outputs, references, recipe.evaluation.right_at)]


def right_criterion(recipe: Recipe) -> str:
    """The same in words, for the card and the report."""
    threshold = recipe.evaluation.right_at
    name = recipe.evaluation.build()[0].name
    return name + (" perfect" if threshold is None else f" at {threshold:g} or better")


def calibrated(model: Model, examples: Sequence[Example]) -> Calibration:
    """Honest confidences for this model: fitted on its outputs for dev examples by the recipe's own search."""
    predictions = list(model.predict([e.inputs for e in examples], Options(split=False, on_long="skip")))
    return Calibration.fit(
        [prediction.best.log_prob for prediction in predictions],
        [len(prediction.tokens) for prediction in predictions],
        right_outputs(model.recipe, [prediction.text for prediction in predictions], examples),
        criterion=right_criterion(model.recipe),
    )


def _confidence(model: Model, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Confidence:
    """Over the outputs that the model gave; a source that was passed over made no promise."""
    answered = [(p, e) for p, e in zip(predictions, examples, strict=True) if not p.skipped]
    promised = [prediction.confidence for prediction, _ in answered]
    right = right_outputs(model.recipe, [p.text for p, _ in answered], [e for _, e in answered]) if answered else []
    return Confidence(
        criterion=right_criterion(model.recipe),
        ece=expected_calibration_error(promised, right),
        mean=sum(promised) / max(1, len(promised)),
        right=sum(right) / max(1, len(right)),
        bins=tuple(reliability(promised, right)),
    )

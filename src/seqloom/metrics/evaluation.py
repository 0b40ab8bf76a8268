"""One evaluation: outputs against references by several metrics, with intervals and by source length.

It takes plain strings, so that outputs of a run and files of other tools are judged alike. It reads and prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.metrics.base import Metric
from seqloom.metrics.breakdown import Bucket, length_buckets
from seqloom.metrics.significance import SEED, Interval, bootstrap


@dataclass(frozen=True)
class Score:
    """One metric's number with everything needed to trust it."""

    name: str
    value: float
    interval: Interval
    signature: str
    higher_is_better: bool

    def written(self, besides: str = "") -> dict[str, object]:
        """As result files have it; `besides` is what belongs to the signature and is no part of the metric."""
        low, high = self.interval.low, self.interval.high
        signature = f"{self.signature}|{besides}" if besides else self.signature
        return {"name": self.name, "value": self.value, "low": low, "high": high, "signature": signature}


@dataclass(frozen=True)
class Evaluation:
    """The result of judging `sentences` outputs. `perplexity` is the model's, where a model was at hand."""

    sentences: int
    scores: tuple[Score, ...]
    by_length: Mapping[str, Sequence[Bucket]] = field(default_factory=dict)
    perplexity: float | None = None

    def __getitem__(self, name: str) -> Score:
        """The score of that name: `evaluation["BLEU"]`."""
        return next(score for score in self.scores if score.name == name)

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON."""
        lengths: dict[str, Plain] = {
            name: [{"label": bucket.label, **asdict(bucket)} for bucket in buckets]
            for name, buckets in self.by_length.items()
        }
        return {
            "sentences": self.sentences,
            "perplexity": self.perplexity,
            "scores": [asdict(score) for score in self.scores],
            "by_length": lengths,
        }


def evaluate_outputs(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[Metric],
    lengths: Sequence[int] | None = None,
    samples: int = 1000,
    seed: int = SEED,
) -> Evaluation:
    """Judge outputs. `lengths` are the sources' lengths in words or tokens; without them there is no breakdown."""
    if not predictions and not references:
        raise SeqloomError("E_EMPTY", "no outputs to evaluate", fix="give at least one prediction and its reference")
    scores, by_length = [], {}
    for metric in metrics:
        statistics = metric.statistics(predictions, references)
        interval = bootstrap(metric, statistics, samples, seed)
        scores.append(Score(metric.name, interval.value, interval, metric.signature(), metric.higher_is_better))
        if lengths is not None:
            by_length[metric.name] = length_buckets(metric, statistics, lengths, samples=samples, seed=seed)
    return Evaluation(len(predictions), tuple(scores), by_length)

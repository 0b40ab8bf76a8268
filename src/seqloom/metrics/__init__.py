"""Metrics: additive statistics to scores, with intervals, tests, breakdowns and calibrated confidences."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from seqloom.config import Kind, Settings, Table, kind_of
from seqloom.metrics.answers import AnswerExact, AnswerF1
from seqloom.metrics.base import Metric
from seqloom.metrics.cider import CiderD
from seqloom.metrics.distinct import Distinct1, Distinct2
from seqloom.metrics.labels import Accuracy, LabelF1, MultiLabelF1, SetAccuracy
from seqloom.metrics.meteor import Meteor
from seqloom.metrics.nist import Nist
from seqloom.metrics.numbers import MeanSquaredError, Pearson, Spearman
from seqloom.metrics.ranking import RecallAt, ReciprocalRank
from seqloom.metrics.rates import CharacterErrorRate, Exact, PhonemeErrorRate, StringError, WordErrorRate
from seqloom.metrics.rouge import Rouge1, Rouge2, RougeBlank, RougeL
from seqloom.metrics.sacre import Bleu, Chrf, Ter
from seqloom.metrics.spans import SpanF1

METRICS: Table[Metric] = Table(
    "metrics",
    {
        "bleu": Bleu,
        "chrf": Chrf,
        "ter": Ter,
        "meteor": Meteor,
        "nist": Nist,
        "rouge_1": Rouge1,
        "rouge_2": Rouge2,
        "rouge_l": RougeL,
        "rouge": RougeBlank,
        "cider": CiderD,
        "distinct_1": Distinct1,
        "distinct_2": Distinct2,
        "exact": Exact,
        "string_error": StringError,
        "wer": WordErrorRate,
        "per": PhonemeErrorRate,
        "cer": CharacterErrorRate,
        "accuracy": Accuracy,
        "f1": LabelF1,
        "span_f1": SpanF1,
        "multilabel_f1": MultiLabelF1,
        "set_accuracy": SetAccuracy,
        "pearson": Pearson,
        "spearman": Spearman,
        "mse": MeanSquaredError,
        "recall_at": RecallAt,
        "mrr": ReciprocalRank,
        "answer_exact": AnswerExact,
        "answer_f1": AnswerF1,
    },
)


def _comparing(chosen: Settings) -> Settings:
    if not METRICS[kind_of(chosen)].compares:
        raise ValueError(f"{kind_of(chosen)} looks at outputs alone: it cannot say how like two texts are")
    return chosen


Likeness = Annotated[Settings, Kind(METRICS), AfterValidator(_comparing)]  # a metric that says how like two texts are

__all__ = ["METRICS", "Likeness", "Metric"]

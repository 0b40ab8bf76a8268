"""Metrics: additive statistics to scores, with intervals, tests, breakdowns and calibrated confidences."""

from __future__ import annotations

from seqloom.config import Table
from seqloom.metrics.base import Metric
from seqloom.metrics.meteor import Meteor
from seqloom.metrics.rates import CharacterErrorRate, Exact, PhonemeErrorRate, StringError, WordErrorRate
from seqloom.metrics.sacre import Bleu, Chrf, Ter

METRICS: Table[Metric] = Table(
    "metrics",
    {
        "bleu": Bleu,
        "chrf": Chrf,
        "ter": Ter,
        "meteor": Meteor,
        "exact": Exact,
        "string_error": StringError,
        "wer": WordErrorRate,
        "per": PhonemeErrorRate,
        "cer": CharacterErrorRate,
    },
)

__all__ = ["METRICS", "Metric"]

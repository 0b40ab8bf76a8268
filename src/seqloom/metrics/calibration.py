"""How confident to be in a whole output: a probability of being right that keeps its word.

A sequence model's own probability p = exp(log_prob) is rarely the share of such outputs that are right. On the dev
set a temperature T, a bias b and a length weight c are fitted to outcomes right (1) or wrong (0):

    confidence = sigmoid(logit(p) / T + b + c ln((1 + length) / (1 + typical))),   logit(p) = log p - log(1 - p)

where typical is the dev outputs' (geometric) mean length. T = 1, b = c = 0 is the model's own probability. T > 0, so
among outputs of one length the order by confidence is the order by log-probability. The fit is Platt's (1999)
logistic regression, by Newton's method, with a mild Gaussian prior around the model's own probability: it decides when
there is little data, and where all n outcomes are alike it keeps some doubt. (Platt's smoothed targets
would not do: with them a single wrong output of probability 0.02 raises confidence.) Nothing here ranks or changes
outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int
from pydantic import Field

from seqloom.config import Settings
from seqloom.errors import SeqloomError
from seqloom.metrics.base import Metric

CERTAIN = -1e-6  # the largest log-probability told apart from certainty
HOPELESS = -1e4  # the smallest: a model's -inf stays a number
PRIOR_MEAN = np.array([1.0, 0.0, 0.0])  # 1/T, b, c: the model's own probability
PRIOR_DEVIATION = np.array([1.0, 1.5, 1.0])
LARGEST_TEMPERATURE = 1000.0
NEWTON_STEPS = 100
DOUBT = 1e-12  # that is left in every confidence

Column = Float64[np.ndarray, "n"]
Numbers = Sequence[float] | Float[np.ndarray, "n"]
Lengths = Sequence[int] | Int[np.ndarray, "n"]
Outcomes = Sequence[bool] | Bool[np.ndarray, "n"]


class Calibration(Settings):
    """The fitted numbers; `model_dump()` and `Calibration.model_validate()` carry them to a bundle and back."""

    temperature: float = Field(1.0, gt=0)
    bias: float = 0.0
    length_weight: float = 0.0
    typical_length: float = Field(0.0, ge=0)
    examples: int = Field(0, ge=0, description="dev outputs it was fitted on; 0: the model's own probability")
    criterion: str = Field("exact match", description="when an output counted as right")

    @classmethod
    def fit(
        cls, log_probs: Numbers, lengths: Lengths, correct: Outcomes, criterion: str = "exact match"
    ) -> Calibration:
        """Fit to dev outputs: their summed log-probabilities, lengths in tokens, and whether each was right."""
        if not len(log_probs) == len(lengths) == len(correct):
            raise SeqloomError(
                "E_ALIGN", f"{len(log_probs)} log-probabilities, {len(lengths)} lengths, {len(correct)} outcomes"
            )
        right = np.asarray(correct, dtype=bool)
        typical = float(np.expm1(np.log1p(lengths).mean())) if len(lengths) else 0.0
        features = _features(log_probs, lengths, typical)
        inverse, bias, weight = _fit_logistic(features, right.astype(np.float64)).tolist()
        return cls(
            temperature=1 / inverse,
            bias=bias,
            length_weight=weight,
            typical_length=typical,
            examples=len(right),
            criterion=criterion,
        )

    def confidence(self, log_prob: float, length: int) -> float:
        """The probability that this output is right, strictly between 0 and 1. Asked for every output: no arrays."""
        bounded = HOPELESS if math.isnan(log_prob) else min(max(log_prob, HOPELESS), CERTAIN)
        logit = (bounded - math.log(-math.expm1(bounded))) / self.temperature + self.bias
        logit += self.length_weight * (math.log1p(length) - math.log1p(self.typical_length))
        unlikely = math.exp(-abs(logit))  # never too large for a float
        return min(max((unlikely if logit < 0 else 1.0) / (1 + unlikely), DOUBT), 1 - DOUBT)

    def confidences(self, log_probs: Numbers, lengths: Lengths) -> Column:
        """The same of many outputs."""
        features = _features(log_probs, lengths, self.typical_length)
        return _sigmoid(features @ np.array([1 / self.temperature, self.bias, self.length_weight]))


@dataclass(frozen=True)
class ReliabilityBin:
    """Outputs whose confidence lies between `low` and `high`: what was promised, and what came true (0 to 1)."""

    low: float
    high: float
    confidence: float
    accuracy: float
    count: int


def reliability(confidences: Numbers, correct: Outcomes, bins: int = 10) -> list[ReliabilityBin]:
    """Bins of equal width over [0, 1], lowest first; empty bins are left out."""
    promised, came_true = np.asarray(confidences, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if len(promised) != len(came_true):
        raise SeqloomError("E_ALIGN", f"{len(promised)} confidences, {len(came_true)} outcomes")
    where = np.minimum((promised * bins).astype(np.int64), bins - 1)
    rows = []
    for place in np.unique(where):
        inside = where == place
        rows.append(
            ReliabilityBin(
                low=float(place) / bins,
                high=float(place + 1) / bins,
                confidence=float(promised[inside].mean()),
                accuracy=float(came_true[inside].mean()),
                count=int(inside.sum()),
            )
        )
    return rows


def expected_calibration_error(confidences: Numbers, correct: Outcomes, bins: int = 10) -> float:
    """ECE = sum over bins of (share of outputs in the bin) x |accuracy - mean confidence|, from 0 (honest) to 1."""
    rows = reliability(confidences, correct, bins)
    total = sum(row.count for row in rows)
    return sum(row.count * abs(row.accuracy - row.confidence) for row in rows) / total if total else 0.0


def correct_outputs(
    metric: Metric, predictions: Sequence[str], references: Sequence[Sequence[str]], threshold: float | None = None
) -> Bool[np.ndarray, "n"]:
    """Which outputs count as right: those whose sentence value is as good as `threshold`; by default, perfect."""
    if threshold is None:
        threshold = 100.0 if metric.higher_is_better else 0.0
    values = metric.sentence_values(metric.statistics(predictions, references))
    slack = 1e-9  # sacrebleu's perfect BLEU is 100.00000000000004, or a hair less
    return values >= threshold - slack if metric.higher_is_better else values <= threshold + slack


def _features(log_probs: Numbers, lengths: Lengths, typical: float) -> Float64[np.ndarray, "n 3"]:
    """(logit(p), 1, ln of the relative length); exact also for p near 0 and near 1."""
    given = np.asarray(log_probs, dtype=np.float64)
    bounded = np.clip(np.nan_to_num(given, nan=HOPELESS), HOPELESS, CERTAIN)
    logits = bounded - np.log(-np.expm1(bounded))
    return np.stack([logits, np.ones_like(logits), np.log1p(lengths) - np.log1p(typical)], axis=1)


def _sigmoid(logits: Column) -> Column:
    """1 / (1 + e^-x) without overflow, kept a hair away from 0 and 1."""
    result: Column = np.clip(np.exp(-np.logaddexp(0.0, -logits)), DOUBT, 1 - DOUBT)
    return result


def _fit_logistic(features: Float64[np.ndarray, "n 3"], outcomes: Column) -> Float64[np.ndarray, "3"]:
    """The most probable (1/T, b, c). Convex, so holding 1/T at its bound and refitting the rest is exact."""
    free = np.array([True, True, True])
    weights = _newton(features, outcomes, PRIOR_MEAN.copy(), free)
    smallest = 1 / LARGEST_TEMPERATURE
    if weights[0] < smallest:  # likelier outputs were no better: confidence all but ignores the log-probability
        weights = _newton(features, outcomes, np.array([smallest, *weights[1:]]), np.array([False, True, True]))
    return weights


def _newton(
    features: Float64[np.ndarray, "n 3"],
    outcomes: Column,
    weights: Float64[np.ndarray, "3"],
    free: Bool[np.ndarray, "3"],
) -> Float64[np.ndarray, "3"]:
    """Damped Newton steps on the free weights until the loss falls no more."""
    x, precision = features[:, free], PRIOR_DEVIATION[free] ** -2.0
    loss = _loss(features, outcomes, weights)
    for _ in range(NEWTON_STEPS):
        chance = _sigmoid(features @ weights)
        gradient = x.T @ (chance - outcomes) + precision * (weights - PRIOR_MEAN)[free]
        curvature = (x * (chance * (1 - chance))[:, None]).T @ x + np.diag(precision)
        step = np.zeros(3)
        step[free] = np.linalg.solve(curvature, gradient)
        while (smaller := _loss(features, outcomes, weights - step)) > loss and np.abs(step).max() > 1e-12:
            step /= 2
        if loss - smaller < 1e-12 * (1 + abs(loss)):
            break
        weights, loss = weights - step, smaller
    return weights


def _loss(features: Float64[np.ndarray, "n 3"], outcomes: Column, weights: Float64[np.ndarray, "3"]) -> float:
    """Cross-entropy in nats, plus the prior."""
    logits = features @ weights
    cross_entropy = np.logaddexp(0.0, logits) - outcomes * logits
    return float(cross_entropy.sum() + 0.5 * (((weights - PRIOR_MEAN) / PRIOR_DEVIATION) ** 2).sum())

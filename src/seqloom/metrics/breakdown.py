"""Where a score comes from: by source length, by how often a word was seen in training, sentence by sentence.

Every part of a breakdown is a sum of the same additive rows, so parts and whole always agree. Nothing is printed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from seqloom.errors import SeqloomError
from seqloom.metrics.base import Metric, Statistics
from seqloom.metrics.significance import SEED, Interval, bootstrap, check_paired

FREQUENCY_EDGES = (0, 1, 2, 5, 10, 100, 1000)


def span_label(low: int, high: int | None) -> str:
    """`11-20`, `5`, or `61+` for a range without an end."""
    if high is None:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"


@dataclass(frozen=True)
class Bucket:
    """The score on the `count` sentences whose length lies from `low` to `high` (None: no upper end), both included."""

    low: int
    high: int | None
    count: int
    value: float
    interval: Interval

    @property
    def label(self) -> str:
        return span_label(self.low, self.high)


@dataclass(frozen=True)
class FrequencyRow:
    """Words seen `low` to `high` times in training: `wanted` in references, `produced` in outputs, `matched` in both.

    A word that stands twice in a reference and three times in the output is matched twice, sentence by sentence.
    """

    low: int
    high: int | None
    wanted: int
    produced: int
    matched: int

    @property
    def label(self) -> str:
        return span_label(self.low, self.high)

    @property
    def recall(self) -> float:
        """Share of wanted words that were produced, in %."""
        return 100.0 * self.matched / self.wanted if self.wanted else 0.0

    @property
    def precision(self) -> float:
        """Share of produced words that were wanted, in %."""
        return 100.0 * self.matched / self.produced if self.produced else 0.0

    @property
    def f1(self) -> float:
        together = self.wanted + self.produced
        return 200.0 * self.matched / together if together else 0.0


@dataclass(frozen=True)
class Wins:
    """How many sentences each system does better on."""

    a: int
    b: int
    ties: int


@dataclass(frozen=True)
class Difference:
    """Sentence `index` and what it is worth to each system; `difference` is b - a."""

    index: int
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a


def length_edges(lengths: Sequence[int]) -> tuple[int, ...]:
    """Upper ends of six buckets (a seventh is open): 10 to 60 for sentences, finer where sources are short.

    Spelling and dates would fall into one bucket otherwise. 99 % of the sources decide, so that one outlier does not.
    """
    longest = float(np.quantile(np.asarray(lengths), 0.99)) if len(lengths) else 0.0
    step = next((step for step in (2, 5) if longest <= 6 * step), 10)
    return tuple(range(step, 6 * step + 1, step))


def by_length(
    metric: Metric,
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    lengths: Sequence[int],
    edges: Sequence[int] | None = None,
) -> list[Bucket]:
    """The score by source length. `edges` are the buckets' upper ends; a last one is open; empty ones are left out."""
    return length_buckets(metric, metric.statistics(predictions, references), lengths, edges)


def length_buckets(
    metric: Metric,
    statistics: Statistics,
    lengths: Sequence[int],
    edges: Sequence[int] | None = None,
    samples: int = 1000,
    seed: int = SEED,
) -> list[Bucket]:
    """`by_length` of statistics that are already there."""
    if len(lengths) != len(statistics):
        raise SeqloomError("E_ALIGN", f"{len(statistics):,} outputs but {len(lengths):,} source lengths")
    ends = _checked(length_edges(lengths) if edges is None else edges)
    where = np.searchsorted(ends, np.asarray(lengths, dtype=np.int64), side="left")
    buckets = []
    for place, (low, high) in enumerate(_spans(ends)):
        rows = statistics[where == place]
        if len(rows):
            interval = bootstrap(metric, rows, samples, seed)
            buckets.append(Bucket(low, high, len(rows), interval.value, interval))
    return buckets


def word_accuracy_by_frequency(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    edges: Sequence[int] = FREQUENCY_EDGES,
) -> list[FrequencyRow]:
    """Are rare words produced when they are wanted? One row per bucket of training counts; `references` are tokens."""
    if len(predictions) != len(references):
        raise SeqloomError("E_ALIGN", f"{len(predictions):,} predictions but {len(references):,} references")
    spans = _spans(_checked(edges))
    totals = np.zeros((len(spans), 3), dtype=np.int64)  # wanted, produced, matched
    for output, reference in zip(predictions, references, strict=True):
        produced, wanted = Counter(output), Counter(reference)
        for word in produced.keys() | wanted.keys():
            row = int(np.searchsorted(edges, counts.get(word, 0), side="left"))
            totals[row] += (wanted[word], produced[word], min(wanted[word], produced[word]))
    return [FrequencyRow(low, high, *map(int, total)) for (low, high), total in zip(spans, totals, strict=True)]


def wins_and_losses(metric: Metric, stats_a: Statistics, stats_b: Statistics) -> Wins:
    """On how many sentences each system does better, by the metric's sentence value."""
    check_paired(stats_a, stats_b)
    gain = metric.sentence_values(stats_b) - metric.sentence_values(stats_a)
    gain = gain if metric.higher_is_better else -gain
    return Wins(a=int(np.sum(gain < 0)), b=int(np.sum(gain > 0)), ties=int(np.sum(gain == 0)))


def largest_differences(metric: Metric, stats_a: Statistics, stats_b: Statistics, count: int = 10) -> list[Difference]:
    """The sentences on which the systems differ most, largest first; sentences worth the same are left out."""
    check_paired(stats_a, stats_b)
    a, b = metric.sentence_values(stats_a), metric.sentence_values(stats_b)
    order = np.argsort(-np.abs(b - a), kind="stable")[:count]
    return [Difference(int(i), float(a[i]), float(b[i])) for i in order if a[i] != b[i]]


def _checked(edges: Sequence[int]) -> list[int]:
    ends = list(edges)
    if not ends or ends[0] < 0 or any(low >= high for low, high in pairwise(ends)):
        raise SeqloomError("E_USAGE", f"bucket ends must rise from 0 or more, got {ends}")
    return ends


def _spans(ends: Sequence[int]) -> list[tuple[int, int | None]]:
    """Ends -> (low, high) pairs: 10, 20 -> (0, 10), (11, 20), (21, None)."""
    lows = [0, *(end + 1 for end in ends)]
    return list(zip(lows, [*ends, None], strict=True))

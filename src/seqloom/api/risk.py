"""Minimum Bayes risk: of many samples, the output that the others agree with most, by any metric.

    utility(y) = mean over samples y' of metric(y, y')        (of an error rate r, 100 - min(r, 100))

A rate above 100 counts as 100: one short sample would otherwise speak against every longer output. Every sample counts
as often as it was drawn. `score` becomes the expected utility, from 0 to 100, and `log_prob` stays the model's. Nothing
here draws: the model's own search does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from seqloom.api.options import Options
from seqloom.config import kind_of
from seqloom.data.codecs import Encoded
from seqloom.metrics import METRICS, Metric
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.strategies import Sample

if TYPE_CHECKING:
    from seqloom.api.model import Model


def least_risk(model: Model, sources: Sequence[Encoded], options: Options) -> list[list[Hypothesis]]:
    """For every source all different candidates, the one of the highest expected utility first."""
    risk = options.risk
    assert risk is not None
    plain = options.with_(risk=None, n_best=1)
    chosen = options.strategy if options.strategy is not None and kind_of(options.strategy) == "sample" else None
    drawing = (chosen or Sample.Settings()).with_(samples=risk.samples)
    samples = model.search(sources, plain.with_(strategy=drawing, beam=None))
    others: list[list[Hypothesis]] = [[] for _ in sources]
    if risk.beam:
        others = model.search(sources, plain if chosen is None else plain.with_(strategy=None))
    metric = METRICS.build(risk.metric)
    return [
        _ranked(drawn, more, metric, [model.codecs.decode(one.tokens, encoded.foreign) for one in (*drawn, *more)])
        for drawn, more, encoded in zip(samples, others, sources, strict=True)
    ]


def _ranked(
    drawn: Sequence[Hypothesis], more: Sequence[Hypothesis], metric: Metric, texts: Sequence[str]
) -> list[Hypothesis]:
    """Candidates of one source; of equal utility the more probable first, then by their text."""
    candidates: dict[str, Hypothesis] = {}
    for text, hypothesis in zip(texts, (*drawn, *more), strict=True):
        known = candidates.get(text)
        if known is None or hypothesis.log_prob > known.log_prob:  # one text, spelled with other tokens
            candidates[text] = hypothesis
    evidence = list(dict.fromkeys(texts[: len(drawn)]))
    counts = np.array([list(texts[: len(drawn)]).count(text) for text in evidence], dtype=np.float64)
    utilities = agreements(metric, list(candidates), evidence) @ (counts / counts.sum())
    scored = [
        (text, replace(hypothesis, score=float(utility)))
        for (text, hypothesis), utility in zip(candidates.items(), utilities, strict=True)
    ]
    return [one for _, one in sorted(scored, key=lambda item: (-item[1].score, -item[1].log_prob, item[0]))]


def agreements(metric: Metric, candidates: Sequence[str], evidence: Sequence[str]) -> Float64[np.ndarray, "c e"]:
    """What each candidate is worth if each piece of evidence were right; the more the better, whatever the metric."""
    pairs = [(candidate, [reference]) for candidate in candidates for reference in evidence]
    rows = metric.statistics([candidate for candidate, _ in pairs], [references for _, references in pairs])
    values = metric.sentence_values(rows).reshape(len(candidates), len(evidence))
    return values if metric.higher_is_better else 100.0 - values.clip(max=100.0)

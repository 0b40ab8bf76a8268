"""Perplexity: how many equally likely choices a model hesitates between, per token."""

from __future__ import annotations

import math


def perplexity(nll_sum: float, count: float) -> float:
    """PP = P(w)^(-1/N) = exp(sum of -ln p / N); no tokens leave nothing to be perplexed about: 1.

    Above e^700 the number is infinite for every purpose, and is returned as such instead of raising.
    """
    if count <= 0:
        return 1.0
    mean = nll_sum / count
    return math.exp(mean) if mean < 700 else math.inf

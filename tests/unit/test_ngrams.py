"""Counts as a language model: it is a distribution, it does what its equation says, and the lectures' perplexities."""

from __future__ import annotations

import math
import random

import pytest

from seqloom.metrics.ngrams import DISCOUNT, NGrams
from seqloom.metrics.perplexity import perplexity

TEXTS = [[6, 7, 8], [6, 7, 7], [8, 6, 7]]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_after_any_history_sum_to_one(order: int) -> None:
    model = NGrams(TEXTS, order, vocabulary=12, start=2)
    for history in [(), (6,), (6, 7), (9, 9), (2, 2, 6), (8, 6, 7)]:
        assert sum(model.probability(token, history) for token in range(12)) == pytest.approx(1)


def test_a_bigram_by_hand() -> None:
    """After 6 stood 7 three times: c = 3, N = 1. Below: of the 7 different bigrams 2 end in 7 (after 6, after 7)."""
    model = NGrams(TEXTS, 2, vocabulary=12, start=2)
    bigrams = {(2, 6), (6, 7), (7, 8), (7, 7), (2, 8), (8, 6)}
    assert set(model.counts[2]) == bigrams
    below = (2 - DISCOUNT) / 6 + DISCOUNT * 3 / 6 / 12
    assert model.probability(7, (6,)) == pytest.approx((3 - DISCOUNT) / 3 + DISCOUNT / 3 * below)
    assert model.probability(8, (11,)) == pytest.approx((2 - DISCOUNT) / 6 + DISCOUNT * 3 / 6 / 12), "unknown history"


def test_log_prob_is_the_sum_of_its_steps() -> None:
    model = NGrams(TEXTS, 3, vocabulary=12, start=2)
    steps = [model.probability(6, (2, 2)), model.probability(7, (2, 6)), model.probability(9, (6, 7))]
    assert model.log_prob([6, 7, 9]) == pytest.approx(sum(map(math.log, steps)))


def test_longer_histories_know_more() -> None:
    rng = random.Random(1)
    texts = []
    for _ in range(300):
        first = rng.randrange(10)
        texts.append([6 + (first + i * (1 + first % 2)) % 10 for i in range(12)])
    judged = texts[:50]
    costs = [-sum(map(NGrams(texts, order, 20, 2).log_prob, judged)) for order in (1, 2, 3)]
    assert costs[0] > 1.5 * costs[1] > 1.5 * costs[2]


def test_the_lectures_perplexities() -> None:
    """Ten equal digits: 10. The operator: 'sales', 'service' and 'help' a quarter each, 30,000 names the last quarter.

    PP = P(w)^(-1/N), w having each as often as it is said: exp of the entropy, 3/4 ln 4 + 1/4 ln 120,000.
    """
    digits = NGrams([[6 + i for i in range(10)] * 50], 1, vocabulary=16, start=2)
    text = [6, 9, 15, 7]
    assert perplexity(-digits.log_prob(text), len(text)) == pytest.approx(10, rel=0.01)
    assert perplexity(30_000 * math.log(30_000), 30_000) == pytest.approx(30_000)
    cost = 3 / 4 * math.log(4) + 1 / 4 * math.log(4 * 30_000)
    assert perplexity(4 * cost, 4) == pytest.approx(52.6, abs=0.05)

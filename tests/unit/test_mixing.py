"""Mixed corpora: shares, temperature, and walks that see every pair before any pair again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.data.mixing import Mixture, shares_of
from seqloom.errors import SeqloomError


def test_given_shares_stand_and_the_rest_goes_by_size() -> None:
    assert shares_of([10, 20, 60], [0.6, None, None], None) == pytest.approx([0.6, 0.1, 0.3])
    assert shares_of([10, 20], [3.0, 1.0], None) == pytest.approx([0.75, 0.25]), "all given: relative"
    assert shares_of([10, 30], [None, None], None) == pytest.approx([0.25, 0.75])


def test_temperature_flattens() -> None:
    assert shares_of([100, 900], [None, None], 1.0) == pytest.approx([0.1, 0.9])
    assert shares_of([100, 900], [None, None], 2.0) == pytest.approx([10 / 40, 30 / 40])
    assert shares_of([100, 900], [None, None], 1e9) == pytest.approx([0.5, 0.5])


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    weights=st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
    epochs=st.integers(1, 6),
    seed=st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_epochs_hold_what_the_shares_say_and_no_pair_is_ahead(sizes, weights, epochs, seed) -> None:
    mixture = Mixture(sizes, weights[: len(sizes)])
    seen: Counter[int] = Counter()
    for epoch in range(epochs):
        drawn = mixture.draws(seed, epoch)
        assert abs(len(drawn) - sum(sizes)) <= len(sizes)
        seen.update(drawn.tolist())
    first = 0
    for size, share in zip(sizes, mixture.shares, strict=True):
        times = [seen[i] for i in range(first, first + size)]
        assert max(times) - min(times) <= 1, "every pair before any pair again"
        assert abs(sum(times) - epochs * share * sum(sizes)) <= 1
        first += size
    assert set(seen) <= set(range(sum(sizes)))


def test_the_same_epoch_is_the_same_and_others_differ() -> None:
    mixture = Mixture([50, 500], [0.5, 0.5])
    assert np.array_equal(mixture.draws(1, 3), mixture.draws(1, 3))
    assert not np.array_equal(mixture.draws(1, 3), mixture.draws(1, 4))
    assert not np.array_equal(mixture.draws(1, 3), mixture.draws(2, 3))
    passes = mixture.draws(1, 0)[:250].reshape(5, 50)
    assert len({tuple(one) for one in passes.tolist()}) == 5, "every pass is shuffled anew"
    small = mixture.draws(1, 0) < 50
    assert small.sum() == 275, "half of the epoch, though it has only 50 pairs"


def test_an_empty_corpus_is_named() -> None:
    with pytest.raises(SeqloomError) as caught:
        Mixture([5, 0], [0.5, 0.5])
    assert "corpus 2 of 2 has no pairs left" in caught.value.what
    assert caught.value.code == "E_EMPTY"

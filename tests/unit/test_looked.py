"""Links from attention whose every weight is known."""

from __future__ import annotations

import numpy as np
import pytest

from seqloom.errors import SeqloomError
from seqloom.metrics.links import Gold, read_links
from seqloom.probe.align import Looked, Picks, choices, tuned

# Source: two words, the first of two pieces; target: two words, the second of two pieces; then the end.
ROWS = [[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.1, 0.5, 0.4], [0.9, 0.05, 0.05]]


def looked(layers: list[list[list[list[float]]]] | None = None) -> Looked:
    weights = np.array(layers if layers is not None else [[ROWS]], dtype=np.float32)
    return Looked(weights, read=[0, 0, 1], said=[0, 1, 1])


def test_pieces_become_words() -> None:
    """A source word gets the sum over its pieces, a target word the mean over its own."""
    np.testing.assert_allclose(looked().by_words(Picks()), [[0.3, 0.7], [0.7, 0.3]], atol=1e-6)


def test_shifted_weights_are_those_of_the_step_that_reads_the_word() -> None:
    np.testing.assert_allclose(looked().by_words(Picks(shift=True)), [[0.8, 0.2], [0.775, 0.225]], atol=1e-6)


def test_the_largest_weight_or_all_above_a_share() -> None:
    assert looked().links(Picks()) == read_links("1-0 0-1", "")
    assert looked().links(Picks(threshold=0.3)) == read_links("0-0 1-0 0-1 1-1", "")
    assert looked().links(Picks(threshold=0.5)) == read_links("1-0 0-1", "")
    assert looked().links(Picks(threshold=1.0)) == frozenset()


def test_words_that_are_nowhere_get_no_link() -> None:
    """Blanks belong to no word; a row of nothing points nowhere; an empty side has no links."""
    blank = Looked(np.array([[[[0.9, 0.1], [0.0, 0.0], [1, 0]]]], np.float32), read=[-1, 0], said=[0, 1])
    assert blank.links(Picks()) == read_links("0-0", "")
    assert Looked(np.zeros((1, 1, 1, 2), np.float32), read=[0, 1], said=[]).links(Picks()) == frozenset()


def test_layers_and_heads_are_counted_from_1() -> None:
    other = [[0.9, 0.1, 0.0]] * 4
    two = looked([[ROWS, other], [other, other]])
    assert two.links(Picks(layer=1, head=1)) == read_links("1-0 0-1", "")
    assert two.links(Picks(layer=1, head=2)) == two.links(Picks()) == read_links("0-0 0-1", "")
    for picks in (Picks(layer=3), Picks(head=3), Picks(layer=0)):
        with pytest.raises(SeqloomError, match=r"has (layers|heads) 1 to 2"):
            two.links(picks)


def test_tuning_finds_the_head_that_people_would_have_drawn() -> None:
    other = [[0.9, 0.1, 0.0]] * 4
    two = looked([[other, other], [other, ROWS]])
    gold = read_links("1-0 0-1", "")
    picks, judged = tuned([two], [Gold(gold, gold)], Picks())
    assert (picks.layer, picks.head, picks.shift) == (2, 2, False)
    assert judged.aer == 0
    assert len(choices(two.weights.shape)) == 2 * 3 * 2
    assert "layer 2, head 2" in str(picks)

"""The in-batch loss by hand, what is no negative, and that a batch is never split."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch

from seqloom.batch import Batch, Source, Tokens
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.models.dual import DualEncoder
from seqloom.models.model import MODELS
from seqloom.shapes import Tensor
from seqloom.specials import EOS
from seqloom.tasks.base import Loss
from seqloom.tasks.match import Match, negatives
from seqloom.training.gradients import summed
from seqloom.training.loop import Training

QUERIES = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=torch.float64)
CANDIDATES = torch.tensor([[0.8, 0.6], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)


def tokens(*rows: list[int]) -> Tokens:
    return Tokens.pad([[*row, EOS] for row in rows])


def pairs(sources: list[list[int]], targets: list[list[int]], weights: list[float] | None = None) -> Batch:
    given = None if weights is None else torch.tensor(weights)
    return Batch({"source": tokens(*sources)}, tokens(*targets), weights=given)


APART = ([[6], [7], [8]], [[6, 7], [7], [8, 8]])


class Scripted(DualEncoder):
    """A dual encoder whose vectors are written down."""

    def __init__(self, temperature: float) -> None:
        settings = MODELS.settings({"kind": "dual", "temperature": temperature, "source_embedding": {"width": 2}})
        assert isinstance(settings, DualEncoder.Settings)
        super().__init__(settings, source_vocabulary=9, target_vocabulary=9)

    def queries(self, sources: Mapping[str, Source]) -> Tensor:
        return QUERIES

    def candidates(self, texts: Tokens) -> Tensor:
        return CANDIDATES


def loss_of(batch: Batch) -> Loss:
    return Match().loss(Scripted(0.5), batch, 1)


def by_hand(rows: list[tuple[int, list[int]]]) -> float:
    """-log of the right one's share, row by row: (right, all that it is held against)."""
    total = 0.0
    for row, (right, among) in enumerate(rows):
        shares = {j: math.exp(float(QUERIES[row] @ CANDIDATES[j]) / 0.5) for j in among}
        total -= math.log(shares[right] / sum(shares.values()))
    return total


def test_the_loss_is_the_cross_entropy_of_the_right_text_among_those_of_the_batch() -> None:
    """Row 0: similarities 0.8, 0 and 1, by 0.5: 1.6, 0 and 2. -log(e^1.6 / (e^1.6 + 1 + e^2)) = 0.991"""
    found = loss_of(pairs(*APART))
    row = -math.log(math.exp(1.6) / (math.exp(1.6) + 1 + math.exp(2)))
    assert abs(row - by_hand([(0, [0, 1, 2])])) < 1e-12
    everyone = [0, 1, 2]
    assert float(found.total) == pytest.approx(by_hand([(0, everyone), (1, everyone), (2, everyone)]), abs=1e-6)
    assert float(found.count) == 3
    assert float(found.nll) == float(found.total)


def test_what_equals_the_right_text_is_no_negative() -> None:
    """Targets 0 and 2 are the same text: neither is held against the other."""
    found = loss_of(pairs([[6], [7], [8]], [[6, 7], [7], [6, 7]]))
    assert float(found.total) == pytest.approx(by_hand([(0, [0, 1]), (1, [0, 1, 2]), (2, [1, 2])]), abs=1e-6)


def test_another_answer_to_the_same_source_is_no_negative() -> None:
    found = loss_of(pairs([[6], [7], [6]], APART[1]))
    assert float(found.total) == pytest.approx(by_hand([(0, [0, 1]), (1, [0, 1, 2]), (2, [1, 2])]), abs=1e-6)


def test_padding_does_not_hide_that_texts_are_the_same() -> None:
    """The same ids behind the mask or not: what is padded with is no part of a text."""
    ids = torch.tensor([[6, EOS, 0, 0], [6, EOS, 5, 7], [6, EOS, 6, EOS]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    batch = Batch({"source": tokens([6], [7], [8])}, Tokens(ids, mask))
    assert negatives(batch).tolist() == [[True, False, True], [False, True, True], [True, True, True]]


def test_an_example_of_weight_two_counts_twice() -> None:
    weighted = loss_of(pairs(*APART, weights=[2.0, 1.0, 0.0]))
    rows = [(0, [0, 1, 2]), (1, [0, 1, 2])]
    assert float(weighted.total) == pytest.approx(by_hand(rows) + by_hand(rows[:1]), abs=1e-6)
    assert float(weighted.count) == 3


def test_one_pair_alone_has_nothing_to_be_told_from() -> None:
    network = MODELS.build(MODELS.settings("dual"), source_vocabulary=9, target_vocabulary=9)
    assert isinstance(network, DualEncoder)
    assert float(Match().loss(network, pairs([[6]], [[7]]), 1).total.detach()) == 0.0


def test_predictions_are_the_rows_of_the_batch_in_order() -> None:
    assert Match().predict(Scripted(0.5), pairs(*APART)) == [[2, 0, 1], [1, 0, 2], [0, 1, 2]]


def test_a_batch_that_does_not_fit_is_refused_and_not_halved() -> None:
    calls = []

    def backward(batch: Batch) -> Loss:
        calls.append(len(batch))
        raise MemoryError

    with pytest.raises(SeqloomError, match="a batch of 3 examples does not fit") as error:
        summed(backward, [pairs(*APART)], lambda: None, Match.splits)
    assert error.value.code == "E_MEMORY"
    assert "batching.tokens" in error.value.fix
    assert calls == [3]
    assert validated(Training, {"steps": 1}, "test").accumulate == 1


def test_vectors_of_other_widths_cannot_be_compared() -> None:
    raw = {"kind": "dual", "sharing": "none", "projection": None, "encoder": {"kind": "bag", "width": 4}}
    settings = MODELS.settings({**raw, "target_encoder": {"kind": "bag", "width": 6}})
    with pytest.raises(SeqloomError, match="vectors of 4 and 6 numbers"):
        MODELS.build(settings, source_vocabulary=9, target_vocabulary=9)


@pytest.mark.parametrize("sharing", ["none", "encoder", "all"])
def test_settings_go_round(sharing: str) -> None:
    chosen = MODELS.settings({"kind": "dual", "sharing": sharing, "temperature": 0.1, "hidden": 3})
    assert MODELS.settings(chosen.model_dump(mode="json")) == chosen


def test_a_fixed_temperature_is_no_weight_and_a_learned_one_is() -> None:
    for learned in (False, True):
        settings = MODELS.settings({"kind": "dual", "learned_temperature": learned})
        network = MODELS.build(settings, source_vocabulary=9, target_vocabulary=9)
        assert ("log_temperature" in network.state_dict()) == learned

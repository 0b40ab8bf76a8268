"""Minimum-risk training: candidates, costs, the expected cost and its gradient, and that it falls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from seqloom.batch import Batch, Tokens
from seqloom.models.model import EncoderDecoder
from seqloom.runtime import seed_step
from seqloom.search.limits import Limits
from seqloom.specials import EOS
from seqloom.tasks.risk import ExpectedRisk, Risk, expected
from seqloom.tasks.transduce import SearchSettings, Transduce

FIRST, SECOND = 6, 7  # the two words of a language
VOCABULARY = 8
ONE_WORD = Limits(max_length=1, max_ratio=0, extra=1)


def decode(ids: Sequence[int]) -> str:
    return " ".join("xy"[token - FIRST] if token >= FIRST else f"<{token}>" for token in ids)


def network(dropout: float = 0.0) -> EncoderDecoder:
    raw = {
        "source_embedding": {"width": 4},
        "target_embedding": {"width": 4},
        "encoder": {"width": 6, "dropout": dropout},
        "decoder": {"kind": "luong", "width": 6, "dropout": dropout},
    }
    torch.manual_seed(1)
    settings = EncoderDecoder.Settings.model_validate(raw)
    return EncoderDecoder(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY).double()


def risk(**raw: object) -> ExpectedRisk:
    return ExpectedRisk(Risk.model_validate(raw), decode, ONE_WORD)


def batch(*pairs: tuple[list[int], list[int]]) -> Batch:
    sources, targets = zip(*pairs, strict=True)
    return Batch({"source": Tokens.pad([[*s, EOS] for s in sources])}, Tokens.pad([[*t, EOS] for t in targets]))


TWO = batch(([FIRST, SECOND], [FIRST]), ([SECOND], [SECOND]))


def test_the_gradient_of_the_expectation_is_the_papers() -> None:
    """d risk / d log P(y) = alpha q(y) (cost(y) - risk): an output dearer than the mean is made less likely."""
    torch.manual_seed(0)
    log_probs = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    costs = torch.rand(3, 5, dtype=torch.float64)
    real = torch.tensor([[True] * 5, [True, False, True, False, True], [True] + [False] * 4])
    value = expected(log_probs, costs, real, alpha=0.7)
    q = torch.where(real, (0.7 * log_probs.detach()).exp(), 0.0)
    q = q / q.sum(1, keepdim=True)
    torch.testing.assert_close(value.detach(), (q * costs).sum(1))
    value.sum().backward()
    torch.testing.assert_close(log_probs.grad, 0.7 * q * (costs - value.detach()[:, None]))


@pytest.mark.parametrize("alpha", [0.005, 1.0])
def test_with_every_output_among_the_samples_it_equals_enumeration(alpha: float) -> None:
    """At most one word, so there are four: nothing, UNK, x and y. Value and gradient agree."""
    model, whole = network(), risk(alpha=alpha, samples=400, metric="exact")
    outputs = [(), (1,), (FIRST,), (SECOND,)]
    seed_step(1, 1)
    found, _ = whole(model, TWO)
    for chosen in whole.candidates(model, TWO):
        assert sorted(chosen) == sorted(outputs)
    found.sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}

    model.zero_grad(set_to_none=True)
    total = torch.zeros((), dtype=torch.float64)
    for row, gold in enumerate((FIRST, SECOND)):
        source = {"source": TWO.sources["source"].rows(torch.tensor([row]))}
        log_probs = []
        for ids in outputs:
            forced = Batch(source, Tokens.pad([[*ids, EOS]]))
            log_probs.append(-model.nll(forced).sum())
        q = torch.stack([alpha * value for value in log_probs]).softmax(0)
        costs = torch.tensor([0.0 if ids == (gold,) else 1.0 for ids in outputs], dtype=torch.float64)
        total = total + (q * costs).sum()
    torch.testing.assert_close(found.sum(), total, atol=1e-10, rtol=0)
    total.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-10, rtol=0, msg=name)


def test_candidates_are_the_gold_target_and_other_samples_once() -> None:
    model = network(dropout=0.5)
    model.train()
    seed_step(1, 5)
    first = risk(samples=20).candidates(model, TWO)
    assert model.training
    assert [chosen[0] for chosen in first] == [(FIRST,), (SECOND,)]
    assert all(len(set(chosen)) == len(chosen) for chosen in first)
    torch.rand(9)  # what was drawn before does not matter, nor does the company of a source
    alone = risk(samples=20).candidates(model, TWO.rows(torch.tensor([1])))
    assert alone == first[1:]
    draws = []
    for step in range(8):
        seed_step(1, step)
        draws.append(risk(samples=1).candidates(model, TWO))
    assert any(draw != draws[0] for draw in draws)


@pytest.mark.parametrize(
    ("metric", "expected_costs"),
    [
        ("exact", [[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]),
        ("wer", [[0.0, 0.5, 1.0], [0.0, 1.0, 0.0]]),  # four wrong words of one are an error rate of 1, not of 4
    ],
)
def test_costs_lie_between_0_and_1(metric: str, expected_costs: list[list[float]]) -> None:
    x, y = FIRST, SECOND
    found = risk(metric=metric).costs([[(x, y), (x, x), ()], [(x,), (y, y, y, y)]], 3)
    assert found.tolist() == expected_costs


def test_chrf_is_a_cost_as_well() -> None:
    [found] = risk().costs([[(FIRST, SECOND), (FIRST, FIRST), (FIRST, SECOND)]], 3).tolist()
    assert found[0] == found[2] == 0
    assert 0 < found[1] < 1


def transduce(**raw: object) -> Transduce:
    settings = Transduce.Settings.model_validate({"risk": raw})
    searching = SearchSettings(limits=ONE_WORD)
    return Transduce(settings, vocabularies=(VOCABULARY, VOCABULARY), searching=searching, decode=decode)


def test_the_loss_is_risk_and_likelihood_by_their_weights_and_counts_tokens() -> None:
    model, weights = network(), torch.tensor([2.0, 0.5], dtype=torch.float64)
    weighted = Batch(TWO.sources, TWO.target, (), weights)
    seed_step(1, 1)
    costs, nll = risk(samples=4, metric="exact")(model, TWO)
    seed_step(1, 1)
    loss = transduce(samples=4, metric="exact", weight=3.0, nll=0.25).loss(model, weighted, 1)
    expected_total = 3.0 * (costs * weights * 2).sum() + 0.25 * (nll * weights).sum()  # two tokens each: a word, EOS
    torch.testing.assert_close(loss.total, expected_total)
    torch.testing.assert_close(loss.nll, (nll * weights).sum().detach())
    assert float(loss.count) == 5.0


def test_training_lowers_the_risk() -> None:
    """Without any likelihood in the loss: the metric alone teaches which of two words is wanted."""
    model, task = network(dropout=0.1), transduce(samples=6, metric="exact", alpha=1.0, nll=0.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    values = []
    for step in range(40):
        seed_step(1, step)
        loss = task.loss(model, TWO, step)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        values.append(float(loss.total.detach()) / float(loss.count))
    assert sum(values[-5:]) < 0.4 * sum(values[:5])
    model.eval()
    assert [h[0].tokens for h in task.predict(model, TWO)] == [(FIRST,), (SECOND,)]

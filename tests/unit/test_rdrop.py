"""R-Drop: two passes, one loss, as the equation has it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqloom.batch import Batch, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Head, State
from seqloom.models.model import EncoderDecoder
from seqloom.recipe import recipe_from
from seqloom.tasks import passes
from seqloom.tasks.rdrop import divergence
from seqloom.tasks.transduce import SearchSettings, Transduce
from toy_training import ToyBatches, ToyTask

BATCH = ToyTask().collate(ToyBatches(examples=6).examples)


def network(dropout: float, **decoder: object) -> EncoderDecoder:
    raw = {
        "source_embedding": {"width": 6},
        "target_embedding": {"width": 6},
        "encoder": {"width": 8, "dropout": dropout},
        "decoder": {"kind": "luong", "width": 8, "dropout": dropout, **decoder},
    }
    torch.manual_seed(1)
    settings = EncoderDecoder.Settings.model_validate(raw)
    return EncoderDecoder(settings, source_vocabulary=12, target_vocabulary=12).double()


def task(**raw: object) -> Transduce:
    return Transduce(Transduce.Settings.model_validate(raw), vocabularies=(12, 12), searching=SearchSettings())


def test_the_loss_is_the_papers_halved() -> None:
    """((nll_p + nll_q) + alpha * (KL(p || q) + KL(q || p)) / 2) / 2, summed over real tokens."""
    alpha, model, target = 3.0, network(0.3), BATCH.target
    assert target is not None
    torch.manual_seed(7)
    found = task(r_drop=alpha).loss(model, BATCH, 1)
    torch.manual_seed(7)
    both = model.head.log_probs(*model.forced(BATCH.twice()))
    p, q = (half[target.mask] for half in both.chunk(2))  # M V, other dropout each
    assert not torch.allclose(p, q)
    gold = target.ids[target.mask]
    nll = F.nll_loss(p, gold, reduction="sum") + F.nll_loss(q, gold, reduction="sum")
    kl = F.kl_div(q, p, reduction="sum", log_target=True) + F.kl_div(p, q, reduction="sum", log_target=True)
    torch.testing.assert_close(found.total, (nll + alpha * kl / 2) / 2)
    torch.testing.assert_close(found.nll, nll.detach() / 2)
    assert int(found.count) == BATCH.target_tokens


def test_without_dropout_it_is_the_plain_loss() -> None:
    model = network(0.0)
    for raw in ({}, {"label_smoothing": 0.2}):
        plain, doubled = (task(r_drop=alpha, **raw).loss(model, BATCH, 1).total for alpha in (0.0, 4.0))
        torch.testing.assert_close(doubled, plain)


def test_it_goes_with_scheduled_sampling_and_validation_is_plain() -> None:
    model = network(0.2)
    both = task(r_drop=1.0, sampling={"kind": "constant", "gold": 0.5})
    both.loss(model, BATCH, 1).total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    torch.testing.assert_close(both.loss(model, BATCH, 1).total, task().loss(model, BATCH, 1).total)


@pytest.mark.parametrize("decoder", [{}, {"context": {"recurrence": "attentional"}}], ids=["at once", "step by step"])
def test_in_chunks_it_is_the_same_with_the_same_gradient(
    decoder: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, results = network(0.3, **decoder), []
    assert BATCH.target is not None
    for cells in (passes.CHUNK_CELLS, 2 * 12 * BATCH.target.mask.shape[1]):  # all rows at once, or two at a time
        monkeypatch.setattr(passes, "CHUNK_CELLS", cells)
        model.zero_grad()
        torch.manual_seed(3)
        apart = divergence(model.head, [model.forced(BATCH), model.forced(BATCH)], BATCH.target, 12)
        apart.sum().backward()
        results.append((apart, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    (one, gradients), (other, others) = results
    torch.testing.assert_close(one, other)
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, msg=name)


def test_what_neither_pass_can_say_adds_nothing() -> None:
    class Closed(Head):
        def log_probs(self, features: torch.Tensor, state: State) -> torch.Tensor:
            return torch.cat([features.log_softmax(-1), torch.full_like(features[..., :1], -torch.inf)], -1)

        def losses(
            self, features: torch.Tensor, state: State, gold: Tokens, smoothing: float = 0.0
        ) -> tuple[torch.Tensor, torch.Tensor]:
            raise NotImplementedError

    features = [torch.randn(2, 3, 4, requires_grad=True) for _ in range(2)]
    target = Tokens(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool))
    apart = divergence(Closed(), [(features[0], State({})), (features[1], State({}))], target, 5)
    p, q = (part.log_softmax(-1).flatten(0, 1) for part in features)
    torch.testing.assert_close(apart, ((p.exp() - q.exp()) * (p - q)).sum(-1))
    apart.sum().backward()
    assert all(bool(torch.isfinite(part.grad).all()) for part in features if part.grad is not None)


def test_r_drop_without_a_likelihood_is_refused() -> None:
    raw = {"data": {"train": "x.tsv"}, "training": {"steps": 1}, "task": {"r_drop": 1, "risk": {"nll": 0}}}
    with pytest.raises(SeqloomError, match=r"r_drop: it is a part of the ordinary loss"):
        recipe_from(raw, "test")


def test_weights_reach_both_passes() -> None:
    model = network(0.0)
    weights = torch.arange(len(BATCH)).double()
    weighted = Batch(BATCH.sources, BATCH.target, BATCH.examples, weights)
    alone = [task().loss(model, BATCH.rows(torch.tensor([i])), 1).total for i in range(len(BATCH))]
    expected = sum(i * total for i, total in enumerate(alone))
    torch.testing.assert_close(task(r_drop=2.0).loss(model, weighted, 1).total, expected)

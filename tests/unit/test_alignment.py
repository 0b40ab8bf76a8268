"""Losses on where a model looks: guided alignment and coverage, from the same pass as the token's own loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Tokens
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.models.model import EncoderDecoder
from seqloom.nn.attention import drawn
from seqloom.recipe import Recipe
from seqloom.specials import EOS
from seqloom.tasks.alignment import guided, repeated, unevenness
from seqloom.tasks.transduce import SearchSettings, Transduce

V = 10
DECODERS: dict[str, dict[str, object]] = {
    "luong": {"kind": "luong", "width": 6, "attention": {"heads": 2}},
    "bahdanau": {"kind": "bahdanau", "width": 6, "attention": {"coverage": True}},
    "transformer": {"kind": "transformer", "width": 6, "heads": 2, "layers": 2, "dropout": 0.0},
    "monotonic": {"kind": "monotonic", "width": 6},
}
every_decoder = pytest.mark.parametrize("kind", DECODERS)


def network(kind: str, seed: int = 3, **decoder: object) -> EncoderDecoder:
    raw = {
        "source_embedding": {"width": 6},
        "target_embedding": {"width": 6},
        "encoder": {"width": 6},
        "decoder": {**DECODERS.get(kind, {"kind": kind}), **decoder},
    }
    torch.manual_seed(seed)
    model = EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=V, target_vocabulary=V)
    return model.double().train()


def task(**raw: object) -> Transduce:
    return Transduce(Transduce.Settings.model_validate(raw), vocabularies=(V, V), searching=SearchSettings())


def some_batch() -> Batch:
    """Two pairs; of the first one's second target token, and of the padding, no alignment is known."""
    alignment = torch.zeros(2, 3, 4)
    alignment[0, 0, 2], alignment[0, 2, 3] = 1.0, 1.0
    alignment[1, 0, :2], alignment[1, 1, 1] = 0.5, 1.0
    source, target = Tokens.pad([[6, 7, 8, EOS], [9, EOS]]), Tokens.pad([[7, 6, EOS], [8, EOS]])
    return Batch({"source": source}, target, alignment=alignment)


# --- the equations --------------------


def test_guided_alignment_is_a_cross_entropy_where_an_alignment_is_known() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.1, 0.9, 0.0]]])
    gold = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [0.5, 0.5]]])  # the memory goes on behind the source
    found = guided(weights, gold)
    wanted = -torch.tensor([[0.5, 1.0, 0.1 * 0.9]]).log() * torch.tensor([[1.0, 0.0, 0.5]])
    torch.testing.assert_close(found, wanted)


def test_weights_that_underflow_cost_much_and_not_infinity() -> None:
    weights = torch.tensor([[[1.0, 0.0]]], requires_grad=True)
    found = guided(weights, torch.tensor([[[0.0, 1.0]]]))
    assert found.isfinite().all()
    assert torch.autograd.grad(found.sum(), weights)[0].isfinite().all()


def test_an_encoder_that_shortens_the_source_cannot_be_guided() -> None:
    with pytest.raises(SeqloomError, match="3 source tokens became 2 positions"):
        guided(torch.ones(1, 1, 2) / 2, torch.ones(1, 1, 3) / 3)


def test_coverage_counts_what_was_attended_to_before() -> None:
    weights = torch.tensor([[[0.7, 0.3, 0.0], [0.5, 0.0, 0.5], [0.8, 0.1, 0.1]]])
    found = repeated(weights)  # past: (0, 0, 0), (0.7, 0.3, 0), (1.2, 0.3, 0.5)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.5, 1.0]]))


# --- in the task --------------------


def looked(model: EncoderDecoder, batch: Batch, layer: int = -1) -> Tensor:
    return model.attention(batch)[layer].mean(1)  # B T S


@every_decoder
def test_both_are_added_token_by_token_and_counts_stay(kind: str) -> None:
    model, batch = network(kind), some_batch()
    assert batch.target is not None
    assert batch.alignment is not None
    plain = task().loss(model, batch, step=1)
    both = task(guided_alignment=0.3, coverage_loss=0.7).loss(model, batch, step=1)
    weights, mask = looked(model, batch), batch.target.mask
    wanted = (0.3 * guided(weights, batch.alignment) + 0.7 * repeated(weights))[mask].sum()
    assert float(wanted) > 0.1
    torch.testing.assert_close(both.total - plain.total, wanted)
    torch.testing.assert_close(both.nll, plain.nll)
    assert int(both.count) == int(plain.count) == 5
    evaluated = task(guided_alignment=0.3, coverage_loss=0.7).loss(model.eval(), batch, step=1)
    torch.testing.assert_close(evaluated.total, plain.nll)  # validation is the plain loss


@every_decoder
def test_gradients_flow_from_the_same_pass(kind: str) -> None:
    """What guided alignment adds to the gradient is the gradient of the cross-entropy alone."""
    model, batch = network(kind), some_batch()
    assert batch.target is not None
    assert batch.alignment is not None
    parameters = list(model.parameters())

    def gradient(**raw: object) -> list[Tensor]:
        found = torch.autograd.grad(task(**raw).loss(model, batch, step=1).total, parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]

    with_, without = gradient(guided_alignment=1.0), gradient()
    added = [one - other for one, other in zip(with_, without, strict=True)]
    assert sum(bool(part.abs().max() > 1e-6) for part in added) > 5
    step = 1e-6
    before = guided(looked(model, batch), batch.alignment)[batch.target.mask].sum()
    with torch.no_grad():
        for parameter, direction in zip(parameters, added, strict=True):
            parameter.add_(direction, alpha=step)
    after = guided(looked(model, batch), batch.alignment)[batch.target.mask].sum()
    slope = sum(float(part.square().sum()) for part in added)
    assert float(after - before) / step == pytest.approx(slope, rel=1e-3)


def test_examples_weigh_in() -> None:
    model, batch, both = network("luong"), some_batch(), task(guided_alignment=0.3, coverage_loss=0.7)
    alone = [both.loss(model, batch.rows(torch.tensor([row])), step=1) for row in (0, 1)]
    weighted = both.loss(model, replace(batch, weights=torch.tensor([2.0, 0.5])), step=1)
    torch.testing.assert_close(weighted.total, 2 * alone[0].total + 0.5 * alone[1].total)


def test_steps_of_sampling_are_joined() -> None:
    """With every coin on gold, scheduled sampling's step-by-step pass has the weights of the one pass."""
    model, batch, both = network("luong"), some_batch(), task(guided_alignment=0.3, coverage_loss=0.7)
    forced = both.loss(model, batch, step=1)
    both.sampling.gold = lambda step: 1.0 - 1e-16  # type: ignore[method-assign]
    sampled = both.loss(model, batch, step=1)
    torch.testing.assert_close(sampled.total, forced.total)


def test_each_of_two_passes_is_looked_at() -> None:
    model, batch = network("luong", dropout=0.3), some_batch()
    losses = []
    for raw in ({}, {"coverage_loss": 1.0}):
        torch.manual_seed(5)
        losses.append(task(r_drop=1.0, **raw).loss(model, batch, step=1).total.detach())
    assert 0.01 < float(losses[1] - losses[0]) < 5.0


def test_a_layer_can_be_chosen() -> None:
    model, batch = network("transformer"), some_batch()
    assert batch.target is not None
    plain = task().loss(model, batch, step=1).total
    for layer in (1, 2):
        found = task(coverage_loss=1.0, attention_layer=layer).loss(model, batch, step=1).total - plain
        wanted = repeated(looked(model, batch, layer - 1))[batch.target.mask].sum()
        torch.testing.assert_close(found, wanted)
    with pytest.raises(SeqloomError, match="layer 3 of 2 that attend"):
        task(coverage_loss=1.0, attention_layer=3).loss(model, batch, step=1)


def test_a_batch_without_any_alignment_has_the_plain_loss() -> None:
    """As where two corpora are mixed and one has none."""
    model, batch = network("luong"), replace(some_batch(), alignment=None)
    found = task(guided_alignment=1.0).loss(model, batch, step=1)
    torch.testing.assert_close(found.total, task().loss(model, batch, step=1).total)


# --- refusals --------------------


@pytest.mark.parametrize("key", ["guided_alignment", "coverage_loss"])
def test_a_model_without_attention_is_refused(key: str) -> None:
    model = network("rnn", width=6)
    with pytest.raises(SeqloomError, match=rf"no attention over the source; task\.{key}; use a decoder") as refused:
        task(**{key: 0.5}).loss(model, some_batch(), step=1)
    assert refused.value.code == "E_RECIPE"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"attention_layer": 1}, "attention_layer: no guided_alignment, coverage_loss or doubly_stochastic asks"),
        ({"guided_alignment": 1.0, "source_noise": {"drop": 0.1}}, "guided_alignment: source_noise.drop"),
        ({"coverage_loss": -1.0}, "coverage_loss"),
    ],
)
def test_settings_that_do_not_fit_are_refused(raw: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        task(**raw)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            {"model": {"decoder": {"kind": "rnn"}}, "task": {"coverage_loss": 1}},
            "task.coverage_loss: this model has no",
        ),
        ({"task": {"guided_alignment": 1}}, "task.guided_alignment: data.train has no alignments"),
    ],
)
def test_recipes_that_do_not_fit_are_refused_before_anything_is_read(raw: dict[str, object], said: str) -> None:
    rest = {"data": {"train": "pairs.tsv"}, "training": {"steps": 1}}
    with pytest.raises(SeqloomError, match=said):
        validated(Recipe, {**rest, **raw}, "recipe.yaml")


# --- learning --------------------


def shifted_copies(rows: int, seed: int) -> Batch:
    """The target is the source; the alignment says that each token comes from the position behind its own."""
    words = torch.randint(6, V, (rows, 4), generator=torch.Generator().manual_seed(seed))
    whole = torch.cat([words, torch.full((rows, 1), EOS)], dim=1)
    tokens = Tokens(whole, torch.ones_like(whole, dtype=torch.bool))
    alignment = torch.eye(5).roll(1, dims=1).expand(rows, 5, 5)
    return Batch({"source": tokens}, tokens, alignment=alignment)


def share_on_gold(weight: float) -> float:
    """How much of the attention is where the alignments say, after a short training."""
    raw = {"encoder": {"width": 24}, "decoder": {"kind": "luong", "width": 24}}
    torch.manual_seed(2)
    model = EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=V, target_vocabulary=V)
    learns, optimiser = task(guided_alignment=weight), torch.optim.Adam(model.parameters(), 0.01)
    for step in range(60):
        loss = learns.loss(model, shifted_copies(16, step), step)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    batch = shifted_copies(32, seed=1_000)
    assert batch.alignment is not None
    return float((looked(model.eval(), batch) * batch.alignment).sum(-1).mean())


def test_attention_learns_a_given_alignment_and_not_without() -> None:
    assert share_on_gold(1.0) > 0.8
    assert share_on_gold(0.0) < 0.4


def test_doubly_stochastic_attention_asks_for_one_look_in_all() -> None:
    """Columns of row 1 sum to 1.5 and 0.5: 0.25 + 0.25, at its last token; of row 2, one step, to 1 and nothing."""
    weights = torch.tensor([[[0.9, 0.1], [0.6, 0.4]], [[1.0, 0.0], [0.5, 0.5]]], dtype=torch.float64)
    said = torch.tensor([[True, True], [True, False]])
    assert unevenness(weights, said).flatten().tolist() == pytest.approx([0, 0.5, 0, 0])


def test_sampled_attention_looks_at_one_place_and_lets_gradients_through() -> None:
    torch.manual_seed(3)
    scores = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64).repeat(4000, 1).requires_grad_()
    weights = torch.softmax(scores, -1)[:, None, None]
    looked = drawn(weights)
    assert set(looked.detach().flatten().tolist()) <= {0.0, 1.0}
    assert torch.allclose(looked.detach().sum(-1), torch.ones(4000, 1, 1, dtype=torch.float64))
    assert torch.allclose(looked.detach().mean((0, 1, 2)), weights[0, 0, 0].detach(), atol=0.03)
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    passed = torch.autograd.grad((looked * values).sum(), scores, retain_graph=True)[0]
    assert torch.allclose(passed, torch.autograd.grad((weights * values).sum(), scores)[0])

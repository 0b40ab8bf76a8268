"""Law 8: float64 gradcheck of every score, cell, composition, attention and head loss; parity with torch.nn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cases import (
    TABLE_CASES,
    Case,
    build,
    close,
    close_trees,
    entry,
    every,
    fresh,
    gradients,
    randomised,
    some_batch,
    some_tokens,
)
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.nn import functional as F

from seqloom.batch import Batch, Tokens
from seqloom.models import heads
from seqloom.models.contracts import Head, State
from seqloom.models.heads import HEADS
from seqloom.nn.attention import Attention, AttentionSettings, SelfAttention
from seqloom.nn.layers import COMPOSITIONS
from seqloom.nn.recurrent import CELLS, Cell
from seqloom.nn.scores import SCORES, Additive

FEATURES, VOCABULARY = 3, 8


def some(*shape: int, seed: int = 0) -> Tensor:
    tensor = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return tensor.requires_grad_()


def checked(module: nn.Module, call: Callable[..., Tensor | tuple[Tensor, ...]], *inputs: Tensor) -> None:
    """Gradcheck with respect to the inputs and to every parameter of `module`; `call` runs it with those in place."""
    names = [name for name, _ in module.named_parameters()]
    parameters = [parameter.detach().clone().requires_grad_() for parameter in module.parameters()]

    def run(*everything: Tensor) -> Tensor | tuple[Tensor, ...]:
        given = dict(zip(names, everything[len(inputs) :], strict=True))
        return functional_call(
            _Calling(module, call), {f"module.{n}": p for n, p in given.items()}, everything[: len(inputs)]
        )

    found = run(*inputs, *parameters)
    total = sum(part.square().sum() for part in ((found,) if isinstance(found, Tensor) else found))
    reached = torch.autograd.grad(total, (*inputs, *parameters), allow_unused=True)
    assert all(gradient is not None and gradient.any() for gradient in reached), "gradcheck of a constant says nothing"
    assert gradcheck(run, (*inputs, *parameters))


class _Calling(nn.Module):
    """`functional_call` replaces parameters during `forward` only; this makes any use of a module its forward."""

    def __init__(self, module: nn.Module, call: Callable[..., Tensor | tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.call(*inputs)


# --- gradcheck --------------------


@every(SCORES)
def test_scores(kind: str) -> None:
    score = randomised(SCORES.build(entry(SCORES, kind), query=3, key=3))
    checked(score, lambda query, memory: score(query, score.keys(memory)), some(4, 2, 3), some(2, 3, 3, seed=1))


def test_coverage() -> None:
    score = randomised(Additive(Additive.Settings(), query=3, key=3, coverage=True))
    inputs = (some(4, 1, 3), some(2, 3, 3, seed=1), some(4, 3, seed=2))
    checked(score, lambda query, memory, past: score(query, score.keys(memory), past), *inputs)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
@every(CELLS)
def test_cells(kind: str, steps: int, ragged: bool) -> None:
    cell = randomised(CELLS.build(entry(CELLS, kind), inputs=2, size=3))
    lengths = torch.tensor([min(2, steps), 0, steps]) if ragged else None
    state = [some(3, 3, seed=seed) for seed in range(len(cell.parts))]

    def run(x: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        outputs, final = cell(x, parts, lengths)
        if lengths is not None:  # outputs behind a row's end are nobody's business
            outputs = outputs[torch.arange(steps) < lengths[:, None]]
        return outputs, *final

    checked(cell, run, some(3, steps, 2, seed=9), *state)


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_elman_activations(activation: str) -> None:
    cell = randomised(CELLS.build(CELLS.settings({"kind": "elman", "activation": activation}), inputs=2, size=3))
    checked(cell, lambda x, h: cell(x, (h,))[0], some(2, 3, 2), some(2, 3, seed=1))


@pytest.mark.parametrize("other", [3, 2])
@every(COMPOSITIONS)
def test_compositions(kind: str, other: int) -> None:
    composition = randomised(COMPOSITIONS.build(entry(COMPOSITIONS, kind), main=3, other=other))
    found = composition(some(2, 3), some(2, other))
    assert found.shape == (2, composition.width)
    checked(composition, composition, some(2, 3), some(2, other, seed=1))


@pytest.mark.parametrize(
    "raw",
    [
        *({"score": kind} for kind in SCORES),
        {"score": "dot", "keys": "linear", "queries": "relu", "values": "linear"},
        {"score": "scaled_dot", "heads": 2, "split": False},
        {"score": "additive", "heads": 2, "merge": "mean", "keys": "relu"},
        {"score": "bilinear", "split": True, "heads": 2, "values": "linear"},
    ],
    ids=str,
)
def test_attention(raw: dict[str, object]) -> None:
    memory = 8 if raw.get("split") else 4
    attention = randomised(Attention(AttentionSettings.model_validate(raw), query=4, memory=memory))
    mask = torch.tensor([[True, True, False], [True, False, False]])
    checked(
        attention,
        lambda query, states: attention(query, attention.prepare(states, mask)),
        some(4, 2, 4),
        some(2, 3, memory, seed=1),
    )


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention(causal: bool) -> None:
    layer = randomised(SelfAttention(SelfAttention.Settings(causal=causal), width=3))
    mask = torch.tensor([[True, True, True], [True, True, False]])
    checked(layer, lambda states: layer(states, mask), some(2, 3, 3))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@every(HEADS)
def test_head_losses(kind: str, smoothing: float) -> None:
    head = _head(kind)
    gold = some_tokens((2, 1), VOCABULARY)
    features, state = _features(kind, 2, 2), State({})
    if HEADS[kind].copies:  # the weights over three positions, the gold token among them or not
        features = torch.cat([features, some(2, 2, 3, seed=1).softmax(-1)], dim=-1).detach().requires_grad_()
        copies = torch.stack([torch.full((2,), -1), gold.ids[:, 0], torch.full((2,), VOCABULARY)], dim=1)
        state = State({}, {"copies": copies, "extras": torch.ones(2, 1, dtype=torch.bool)})
    checked(head, lambda features: head.losses(features, state, gold, smoothing), features)


@pytest.mark.parametrize("case", TABLE_CASES, ids=str)
def test_whole_models(case: Case) -> None:
    """The loss of a tiny batch along a random direction of all parameters: one number, every path through the model."""
    model = fresh(case)  # of its own: functional_call leaves its mark on torch's RNN modules
    batch = some_batch((2, 1), (2, 1), case)
    names, values = zip(*model.named_parameters(), strict=True)
    directions = [
        torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(3)) for value in values
    ]

    def along(distance: Tensor) -> Tensor:
        moved = {n: v.detach() + distance * d for n, v, d in zip(names, values, directions, strict=True)}
        calling = _Calling(model, lambda: model.losses(batch, smoothing=0.1)[0])
        return functional_call(calling, {f"module.{name}": value for name, value in moved.items()}, ())

    assert gradcheck(along, (torch.zeros((), dtype=torch.float64, requires_grad=True),))


# --- heads --------------------


def _head(kind: str, tied: nn.Parameter | None = None) -> Head:
    width = VOCABULARY if HEADS[kind].repeats else FEATURES
    return randomised(HEADS.build(entry(HEADS, kind), features=width, vocabulary=VOCABULARY, tied=tied))


def _features(kind: str, rows: int, steps: int) -> Tensor:
    """Some features: of a decoder that speaks, log-probabilities."""
    if not HEADS[kind].repeats:
        return some(rows, steps, FEATURES)
    return some(rows, steps, VOCABULARY).log_softmax(-1).detach().requires_grad_()


@pytest.mark.parametrize("tied", [False, True])
@every(HEADS)
def test_nll_is_the_log_probability_of_gold(kind: str, tied: bool) -> None:
    if tied and HEADS[kind].repeats:
        pytest.skip("there is no output matrix to tie")
    head = _head(kind, nn.Parameter(torch.empty(VOCABULARY, FEATURES + 1)) if tied else None)
    features, gold = _features(kind, 3, 4), some_tokens((2, 4, 1), VOCABULARY)
    chosen = head.log_probs(features, State({})).gather(-1, gold.ids[..., None]).squeeze(-1)
    close(head.nll(features, State({}), gold), -chosen * gold.mask)
    minimised, nll = head.losses(features, State({}), gold)
    assert torch.equal(minimised, nll)
    assert minimised.shape == (7,)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@every(HEADS)
def test_label_smoothing_is_that_of_torch(kind: str, smoothing: float) -> None:
    head = _head(kind)
    features, gold = _features(kind, 3, 4), some_tokens((2, 4, 1), VOCABULARY)
    minimised, nll = head.losses(features, State({}), gold, smoothing)
    logits = head.log_probs(features, State({}))[gold.mask]  # log-softmax of a log-softmax is itself
    wanted = F.cross_entropy(logits, gold.ids[gold.mask], reduction="none", label_smoothing=smoothing)
    close(minimised, wanted)
    close(nll, F.cross_entropy(logits, gold.ids[gold.mask], reduction="none"))


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@every(HEADS)
def test_chunks_equal_the_whole_with_their_gradients(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    head, features, gold = _head(kind), _features(kind, 3, 4), some_tokens((2, 4, 1), VOCABULARY)

    def outcome() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        minimised, nll = head.losses(features, State({}), gold, 0.1)
        wrt_features = torch.autograd.grad(minimised.sum(), features, retain_graph=True)[0]
        return minimised, nll, {"features": wrt_features, **gradients(head, minimised.sum())}

    whole = outcome()
    monkeypatch.setattr(heads, "CHUNK_CELLS", rows * VOCABULARY)
    chunked = outcome()
    close(chunked[0], whole[0])
    close(chunked[1], whole[1])
    close_trees(chunked[2], whole[2])


@every(HEADS)
def test_nothing_is_computed_for_padding(kind: str) -> None:
    head, gold = _head(kind), some_tokens((2, 4, 1), VOCABULARY)
    features = _features(kind, 3, 4).detach().masked_fill(~gold.mask[..., None], torch.nan).requires_grad_()
    minimised, _ = head.losses(features, State({}), gold, 0.1)
    minimised.sum().backward()
    assert minimised.isfinite().all()
    assert not features.grad[~gold.mask].any()  # type: ignore[index]


# --- backpropagation through time --------------------


@every(CELLS)
def test_per_step_gradients_of_shared_weights_sum_to_the_gradient(kind: str) -> None:
    """Unrolled with weights of its own at every step, a network has per-step gradients; shared, their sum."""
    steps = 4
    cell = randomised(CELLS.build(entry(CELLS, kind), inputs=2, size=3))
    x, weigh = some(2, steps, 2).detach(), some(2, steps, 3, seed=1).detach()
    start = tuple(torch.zeros(2, 3, dtype=torch.float64) for _ in cell.parts)
    outputs, _ = cell(x, start)
    expected = gradients(cell, (outputs * weigh).sum())
    copies = [{n: p.detach().clone().requires_grad_() for n, p in cell.named_parameters()} for _ in range(steps)]
    state, loss = start, torch.zeros((), dtype=torch.float64)
    for t in range(steps):
        output, state = functional_call(cell, copies[t], (x[:, t : t + 1], state))
        loss = loss + (output[:, 0] * weigh[:, t]).sum()
    close(loss, (outputs * weigh).sum())
    loss.backward()
    for name, total in expected.items():
        per_step = [copy[name].grad for copy in copies]
        close(torch.stack(per_step).sum(0), total, name)  # type: ignore[arg-type]
        assert sum(bool(part.any()) for part in per_step) >= steps - 1, name  # type: ignore[union-attr]


@every(CELLS)
def test_a_cell_is_its_step_repeated(kind: str) -> None:
    cell: Cell = randomised(CELLS.build(entry(CELLS, kind), inputs=2, size=3))
    x, state = some(2, 4, 2), tuple(some(2, 3, seed=seed) for seed in range(len(cell.parts)))
    outputs, final = cell(x, state)
    for t in range(4):
        state = cell.step(x[:, t], state)
        close(outputs[:, t], state[0])
    for part, wanted in zip(final, state, strict=True):
        close(part, wanted)


def test_gradients_of_a_batch_are_the_sum_of_those_of_its_parts() -> None:
    model, batch = build(TABLE_CASES[0]), some_batch()

    def found(part: Batch) -> dict[str, Tensor]:
        return gradients(model, model.losses(part, smoothing=0.1)[0].sum())

    parts = [found(batch.rows(torch.tensor(rows))) for rows in ([0, 2], [1], [3])]
    whole = found(batch)
    close_trees({name: sum(part[name] for part in parts) for name in whole}, whole)


def test_padding_with_gold_ids_of_any_kind_is_no_term() -> None:
    head, gold = _head("linear"), some_tokens((2, 4), VOCABULARY)
    features = some(2, 4, FEATURES)
    other = Tokens(torch.where(gold.mask, gold.ids, 5), gold.mask)
    assert torch.equal(head.nll(features, State({}), gold), head.nll(features, State({}), other))

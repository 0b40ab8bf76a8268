"""Poolings against their formulas; padding, batch, gradients and tape of every kind, with a query and without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from seqloom.errors import SeqloomError
from seqloom.models.contracts import Encoder, Memory
from seqloom.models.pooling import POOLINGS, AttentionPooling, Pooling
from seqloom.models.tables import ENCODERS
from seqloom.nn.scores import SCORES
from seqloom.nn.tape import Tape

WIDTH, QUERY = 4, 3
LENGTHS = (3, 1, 4, 2)
CASES: list[tuple[dict[str, object], int | None]] = [
    *(({"kind": kind}, None) for kind in POOLINGS),
    *(
        ({"kind": "attention", "score": score, "heads": heads}, query)
        for score in SCORES
        for heads in (1, 2)
        for query in (None, QUERY)
    ),
]
every_case = pytest.mark.parametrize(("raw", "query"), CASES, ids=str)


def some_encoder() -> Encoder:
    settings = ENCODERS.settings({"kind": "rnn", "width": WIDTH, "layers": 2})
    return ENCODERS.build(settings, embedding=None, frames=2)


def build(raw: dict[str, object], query: int | None = None) -> Pooling:
    pooling = POOLINGS.build(POOLINGS.settings(raw), encoder=some_encoder(), query=query)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in pooling.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return pooling.double()


def some_memory(lengths: tuple[int, ...] = LENGTHS) -> Memory:
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(len(lengths), max(lengths), WIDTH, dtype=torch.float64, generator=generator)
    h, c = torch.randn(2, len(lengths), WIDTH, dtype=torch.float64, generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Memory(states.masked_fill(~mask[..., None], 0.0), mask, ((c, c), (h, c)))


def some_query(width: int | None, rows: int = len(LENGTHS)) -> Tensor | None:
    generator = torch.Generator().manual_seed(3)
    return None if width is None else torch.randn(rows, width, dtype=torch.float64, generator=generator)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)


# --- formulas --------------------


@torch.no_grad()
def test_last_mean_and_max() -> None:
    memory = some_memory()
    rows = [memory.states[row, :length] for row, length in enumerate(LENGTHS)]
    close(build({"kind": "last"})(memory), memory.summary[-1][0])
    close(build({"kind": "mean"})(memory), torch.stack([row.mean(0) for row in rows]))
    close(build({"kind": "max"})(memory), torch.stack([row.amax(0) for row in rows]))


@torch.no_grad()
def test_attention_without_a_query_is_that_of_yang() -> None:
    """alpha = softmax(v . tanh(W s + b)), where b holds what the learned vector adds."""
    pooling, memory = build({"kind": "attention"}), some_memory()
    score = pooling.score  # type: ignore[union-attr]
    bias = score.key.bias + score.query.weight @ pooling.learned[0]  # type: ignore
    hidden = torch.tanh(memory.states @ score.key.weight.T + bias)  # type: ignore
    found = pooling(memory)
    for row, length in enumerate(LENGTHS):
        alpha = (hidden[row, :length] @ score.vector.weight[0]).softmax(0)  # type: ignore
        close(found[row], alpha @ memory.states[row, :length])


@torch.no_grad()
def test_attention_by_a_query_is_its_score() -> None:
    """Two heads with a dot product: [c_1; c_2], c_h = sum_t softmax(P_h q . s_t) s_t."""
    pooling, memory, query = (
        build({"kind": "attention", "score": "dot", "heads": 2}, QUERY),
        some_memory(),
        some_query(3),
    )
    assert isinstance(pooling, AttentionPooling)
    assert pooling.project is not None
    assert query is not None
    found = pooling(memory, query)
    for row, length in enumerate(LENGTHS):
        states = memory.states[row, :length]
        for head, projection in enumerate(pooling.project.weight.chunk(2)):
            alpha = (states @ (projection @ query[row])).softmax(0)
            close(found[row, head * WIDTH : (head + 1) * WIDTH], alpha @ states)


@every_case
@torch.no_grad()
def test_the_width_is_what_it_says(raw: dict[str, object], query: int | None) -> None:
    pooling = build(raw, query)
    assert pooling(some_memory(), some_query(query)).shape == (len(LENGTHS), pooling.width)


@torch.no_grad()
def test_another_query_looks_elsewhere() -> None:
    pooling, memory, query = build({"kind": "attention"}, QUERY), some_memory(), some_query(QUERY)
    assert query is not None
    found, other = pooling(memory, query), pooling(memory, query.flip(0))
    assert not torch.allclose(found[0], other[0])
    close(found[1], other[1])  # one position: whatever is asked, there is nothing else to look at


@pytest.mark.parametrize("kind", ["last", "mean", "max"])
def test_a_query_that_nobody_reads_is_refused(kind: str) -> None:
    with pytest.raises(SeqloomError, match=r"E_RECIPE.*reads no query.*pooling: attention"):
        build({"kind": kind}, QUERY)


# --- laws --------------------


def outcome(pooling: Pooling, memory: Memory, query: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """What is pooled, and the gradients of the real states, the query and the parameters."""
    memory = replace(memory, states=memory.states.clone().requires_grad_())
    inputs = [memory.states, *pooling.parameters(), *([] if query is None else [query.requires_grad_()])]
    pooled = pooling(memory, query)
    if not pooled.requires_grad:
        return pooled, []
    wrt = torch.autograd.grad(pooled.square().sum(), inputs)
    assert not wrt[0][~memory.mask].any()  # exactly zero, and not NaN
    return pooled, [wrt[0][memory.mask], *wrt[1:]]


@every_case
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, 1e30])
def test_nothing_behind_the_mask_matters(raw: dict[str, object], query: int | None, junk: float) -> None:
    pooling, memory = build(raw, query), some_memory()
    expected, wanted = outcome(pooling, memory, some_query(query))
    for columns in (0, 2):
        more = (0, 0, 0, columns)
        mask = torch.nn.functional.pad(memory.mask, (0, columns))
        states = torch.nn.functional.pad(memory.states, more).masked_fill(~mask[..., None], junk)
        pooled, found = outcome(pooling, replace(memory, states=states, mask=mask), some_query(query))
        close(pooled, expected)
        for one, other in zip(found, wanted, strict=True):
            close(one, other)


@every_case
@torch.no_grad()
def test_a_batch_equals_each_alone(raw: dict[str, object], query: int | None) -> None:
    pooling, memory, asked = build(raw, query), some_memory(), some_query(query)
    together = pooling(memory, asked)
    for row, length in enumerate(LENGTHS):
        part = slice(row, row + 1)
        summary = tuple(tuple(state[part] for state in layer) for layer in memory.summary)
        alone = Memory(memory.states[part, :length], memory.mask[part, :length], summary)
        close(pooling(alone, None if asked is None else asked[part])[0], together[row])


@every_case
def test_a_source_with_nothing_in_it_gives_zeros_and_disturbs_no_other(
    raw: dict[str, object], query: int | None
) -> None:
    pooling, memory, asked = build(raw, query), some_memory((3, 0)), some_query(query, 2)
    pooled, gradients = outcome(pooling, memory, asked)
    assert raw["kind"] == "last" or not pooled[1].any()
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_case
def test_gradients(raw: dict[str, object], query: int | None) -> None:
    pooling, memory, asked = build(raw, query), some_memory((3, 2)), some_query(query, 2)

    def run(states: Tensor, top: Tensor, *rest: Tensor) -> Tensor:
        pooled: Tensor = pooling(
            replace(memory, states=states, summary=((top,),)), rest[0] if asked is not None else None
        )
        return pooled

    inputs = [memory.states, memory.summary[-1][0], *([] if asked is None else [asked]), *pooling.parameters()]
    assert gradcheck(run, [tensor.requires_grad_() for tensor in inputs])


@every_case
@torch.no_grad()
def test_weights_are_a_distribution_and_observed_or_not_the_same(raw: dict[str, object], query: int | None) -> None:
    pooling, memory, asked = build(raw, query), some_memory(), some_query(query)
    silent = pooling(memory, asked)
    with Tape(*pooling.pooling_taps) as tape:
        assert torch.equal(pooling(memory, asked), silent)
    assert pooling.pooling_taps == (("pooling.weights",) if raw["kind"] == "attention" else ())
    for name in pooling.pooling_taps:
        (weights,) = tape.steps(name)
        assert weights.shape == (len(LENGTHS), raw.get("heads", 1), max(LENGTHS))
        close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=torch.float64))
        assert not weights.masked_select(~memory.mask[:, None].expand_as(weights)).any()

        def first(weights: Tensor, step: int) -> Tensor:
            return torch.nn.functional.one_hot(torch.zeros(weights.shape[:2], dtype=torch.long), weights.shape[2]).to(
                weights
            )

        with Tape(replace={name: first}):
            close(pooling(memory, asked)[:, :WIDTH], memory.states[:, 0])


@torch.no_grad()
def test_weights_are_float32_at_least() -> None:
    pooling, memory = build({"kind": "attention"}).float(), some_memory()
    memory = replace(memory, states=memory.states.float())
    with torch.autocast("cpu", dtype=torch.bfloat16), Tape("pooling.weights") as tape:
        pooling(memory)
    assert tape.steps("pooling.weights")[0].dtype == torch.float32

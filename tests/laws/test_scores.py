"""Score functions and the attention built on them, against the equations of the lectures, position by position."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from cases import close, entry, every, randomised
from torch import Tensor

from seqloom.errors import SeqloomError
from seqloom.models.rnn import DecoderAttention
from seqloom.nn import scores
from seqloom.nn.attention import Attention, AttentionSettings, SelfAttention
from seqloom.nn.scores import SCORES, Additive, Bilinear, Dot, ScaledDot, ScoreFunction

SOURCES, HYPOTHESES, STEPS, PLACES, WIDTH = 2, 3, 2, 4, 4
ROWS = SOURCES * HYPOTHESES


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def score_of(kind: str, **sizes: int) -> ScoreFunction:
    return randomised(SCORES.build(entry(SCORES, kind), **({"query": WIDTH, "key": WIDTH} | sizes)))


def by_hand(score: ScoreFunction, h: Tensor, s: Tensor) -> Tensor:
    """The equation for one query h and one memory state s."""
    if type(score) is Dot:
        return h @ s
    if type(score) is ScaledDot:
        return h @ s / math.sqrt(len(s))
    if type(score) is Bilinear:
        return h @ score.weight.weight @ s
    assert type(score) is Additive, "write the new score's equation here"
    joined = torch.cat([score.query.weight, score.key.weight], dim=1)  # W of W [h; s]
    return score.vector.weight[0] @ score.activation(joined @ torch.cat([h, s]) + score.key.bias)


@every(SCORES)
def test_scores_are_those_of_the_equation(kind: str) -> None:
    score, query, memory = score_of(kind), some(ROWS, STEPS, WIDTH), some(SOURCES, PLACES, WIDTH, seed=1)
    found = score(query, score.keys(memory))
    assert found.shape == (ROWS, STEPS, PLACES)
    for row, step, place in product(range(ROWS), range(STEPS), range(PLACES)):
        close(found[row, step, place], by_hand(score, query[row, step], memory[row // HYPOTHESES, place]))


@pytest.mark.parametrize(
    ("activation", "phi"), [("tanh", torch.tanh), ("relu", torch.relu), ("sigmoid", torch.sigmoid)]
)
def test_additive_with_every_phi_and_any_width(activation: str, phi: object) -> None:
    score = randomised(Additive(Additive.Settings(activation=activation, width=7), query=3, key=5))
    assert score.activation is phi
    query, memory = some(1, 1, 3), some(1, 1, 5, seed=1)
    assert score.keys(memory).shape[-1] == 7
    close(score(query, score.keys(memory))[0, 0, 0], by_hand(score, query[0, 0], memory[0, 0]))


@every(SCORES)
def test_hypotheses_share_keys_as_if_they_were_copied(kind: str) -> None:
    score, query = score_of(kind), some(ROWS, STEPS, WIDTH)
    keys = score.keys(some(SOURCES, PLACES, WIDTH, seed=1))
    close(score(query, keys), score(query, keys.repeat_interleave(HYPOTHESES, dim=0)))


@every(SCORES)
def test_a_score_depends_on_one_query_and_one_position(kind: str) -> None:
    """So that a permutation of the memory permutes the scores, and a step alone scores as among others."""
    score, query, memory = score_of(kind), some(SOURCES, STEPS, WIDTH), some(SOURCES, PLACES, WIDTH, seed=1)
    whole, order = score(query, score.keys(memory)), torch.tensor([2, 0, 3, 1])
    close(score(query, score.keys(memory[:, order])), whole[..., order])
    close(score(query[:, 1:], score.keys(memory)), whole[:, 1:])


def test_additive_in_pieces_equals_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    score, query = score_of("additive"), some(ROWS, STEPS, WIDTH)
    keys = score.keys(some(SOURCES, PLACES, WIDTH, seed=1))
    whole = score(query, keys)
    for cells in (1, 2 * SOURCES * PLACES * WIDTH, 4 * SOURCES * PLACES * WIDTH + 1):
        monkeypatch.setattr(scores, "ADDITIVE_CELLS", cells)
        close(score(query, keys), whole)


def test_additive_with_coverage_reads_the_past_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """v^T phi(W [h; s] + w_c past_s + b); in pieces as whole, and without a past as if there had been none."""
    score = randomised(Additive(Additive.Settings(), query=WIDTH, key=WIDTH, coverage=True))
    query, memory, past = some(ROWS, 1, WIDTH), some(SOURCES, PLACES, WIDTH, seed=1), some(ROWS, PLACES, seed=2).abs()
    joined = torch.cat([score.query.weight, score.key.weight], dim=1)
    for cells in (scores.ADDITIVE_CELLS, 1, 2 * SOURCES * PLACES * WIDTH):
        monkeypatch.setattr(scores, "ADDITIVE_CELLS", cells)
        found = score(query, score.keys(memory), past)
        for row, place in product(range(ROWS), range(PLACES)):
            h, s = query[row, 0], memory[row // HYPOTHESES, place]
            inner = joined @ torch.cat([h, s]) + score.key.bias + score.coverage.weight[:, 0] * past[row, place]
            close(found[row, 0, place], score.vector.weight[0] @ torch.tanh(inner))
    close(score(query, score.keys(memory), torch.zeros_like(past)), score(query, score.keys(memory)))


@every(SCORES)
def test_only_a_score_that_reads_the_past_can_be_built_for_it(kind: str) -> None:
    if SCORES[kind].reads_past:
        return
    with pytest.raises(ValueError, match="coverage: only an additive score reads it"):
        DecoderAttention.model_validate({"score": kind, "coverage": True})


@pytest.mark.parametrize("kind", ["dot", "scaled_dot"])
def test_a_dot_product_of_different_widths_is_refused_with_the_way_out(kind: str) -> None:
    with pytest.raises(SeqloomError, match=r"3 and 5.*attention\.keys") as refused:
        SCORES.build(SCORES.settings(kind), query=3, key=5)
    assert refused.value.code == "E_RECIPE"


# --- attention --------------------


def attention(query: int = WIDTH, memory: int = WIDTH, **raw: object) -> Attention:
    return randomised(Attention(AttentionSettings.model_validate(raw), query=query, memory=memory))


def test_bilinear_equals_dot_with_linear_queries_and_keys() -> None:
    """h^T W s with W = W_q^T W_k is (W_q h) . (W_k s)."""
    linear = attention(score="dot", queries="linear", keys="linear", memory=6)
    bilinear = attention(score="bilinear", memory=6)
    with torch.no_grad():
        bilinear.scores[0].weight.weight.copy_(linear.query.weight.t() @ linear.key.weight)
    query, memory, mask = some(ROWS, STEPS, WIDTH), some(SOURCES, PLACES, 6, seed=1), torch.ones(SOURCES, PLACES) > 0
    close(bilinear(query, bilinear.prepare(memory, mask)), linear(query, linear.prepare(memory, mask)))


@pytest.mark.parametrize("heads", [1, 2])
def test_scaled_dot_divides_by_the_root_of_the_width_per_head(heads: int) -> None:
    scaled = attention(score="scaled_dot", heads=heads)
    plain = attention(score="dot", heads=heads)
    query, memory, mask = some(2, 1, WIDTH), some(2, PLACES, WIDTH, seed=1), torch.ones(2, PLACES) > 0
    shrunk = query / math.sqrt(WIDTH / heads)
    close(scaled(query, scaled.prepare(memory, mask)), plain(shrunk, plain.prepare(memory, mask)))


OPTIONS = [
    {"score": score, "keys": keys, "queries": queries, "values": values, "split": split, "heads": heads, "merge": merge}
    for number, (score, keys, queries, values, split, (heads, merge)) in enumerate(
        product(
            SCORES,
            ("identity", "linear", "relu"),
            ("identity", "linear", "relu"),
            ("identity", "linear"),
            (False, True),
            ((1, "concat"), (2, "concat"), (2, "mean")),
        )
    )
    if number % 5 == 0  # 5 divides no factor: every level meets every other
]


@pytest.mark.parametrize("raw", OPTIONS, ids=lambda raw: ",".join(map(str, raw.values())))
def test_contexts_are_those_of_the_equation(raw: dict[str, object]) -> None:
    """alpha = softmax(score(query, key)), context = sum alpha value, one row, step and head at a time."""
    module = attention(memory=WIDTH * (2 if raw["split"] else 1), **raw)
    query = some(ROWS, STEPS, WIDTH)
    memory = some(SOURCES, PLACES, WIDTH * (2 if raw["split"] else 1), seed=1)
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    found = module(query, module.prepare(memory, mask))
    for row, step in product(range(ROWS), range(STEPS)):
        states = memory[row // HYPOTHESES][mask[row // HYPOTHESES]]
        close(found[row, step], context_by_hand(module, query[row, step], states))


def context_by_hand(module: Attention, query: Tensor, states: Tensor) -> Tensor:
    half = states.shape[-1] // 2
    keys_from, values_from = (states[:, :half], states[:, half:]) if module.split else (states, states)
    keys, asked, values = module.key(keys_from), module.query(query), module.value(values_from)
    size, slice_ = keys.shape[-1] // module.heads, values.shape[-1] // module.heads
    contexts = []
    for head, score in enumerate(module.scores):
        here = slice(head * size, (head + 1) * size)
        alpha = torch.stack([by_hand(score, asked[here], key[here]) for key in keys]).softmax(0)
        seen = values if module.merge == "mean" else values[:, head * slice_ : (head + 1) * slice_]
        contexts.append(sum(weight * value for weight, value in zip(alpha, seen, strict=True)))
    return torch.stack(contexts).mean(0) if module.merge == "mean" else torch.cat(contexts)


def test_hard_attention_looks_at_the_best_position_and_only_at_prediction() -> None:
    soft, hard = attention(score="dot"), attention(score="dot", hard=True)
    query, memory = some(2, STEPS, WIDTH), some(2, PLACES, WIDTH, seed=1)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    prepared = hard.prepare(memory, mask)
    best = (query @ memory.transpose(1, 2)).masked_fill(~mask[:, None], -torch.inf).argmax(-1)
    found = hard.eval()(query, prepared)
    for row, step in product(range(2), range(STEPS)):
        assert torch.equal(found[row, step], memory[row, best[row, step]])
    close(hard.train()(query, prepared), soft(query, prepared))


@pytest.mark.parametrize("causal", [False, True])
@every(SCORES)
def test_self_attention_adds_each_elements_context(kind: str, causal: bool) -> None:
    layer = randomised(SelfAttention(SelfAttention.Settings(score=entry(SCORES, kind), causal=causal), width=WIDTH))
    states = some(1, PLACES, WIDTH)
    mask = torch.tensor([[True, True, True, False]])
    found = layer(states, mask)
    for place in range(3):
        seen = states[0, : place + 1] if causal else states[0, :3]
        context = context_by_hand(layer.attention, states[0, place], seen)
        close(found[0, place], states[0, place] + layer.project(context))
    assert not found[0, 3].any()


@pytest.mark.parametrize(
    ("raw", "memory", "said"),
    [
        ({"heads": 3}, 4, "3 heads do not divide"),
        ({"heads": 3, "keys": "linear", "queries": "linear"}, 6, "3 heads do not divide"),
        ({"split": True}, 5, "odd width 5"),
    ],
)
def test_impossible_widths_are_refused(raw: dict[str, object], memory: int, said: str) -> None:
    with pytest.raises(SeqloomError, match=said):
        attention(memory=memory, **raw)

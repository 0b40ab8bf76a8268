"""Every entry of every table trains and searches in bf16, near to what it does in float32."""

from __future__ import annotations

import pytest
import torch
from cases import EXTRA_CASES, JOINT_CASES, STACK_CASES, TABLE_CASES, Case, fresh, gradients, some_batch

from seqloom.batch import Batch, Tokens
from seqloom.models.generator import Generator
from seqloom.runtime import Precision, autocast
from seqloom.search.limits import Limits
from seqloom.search.loop import search
from seqloom.search.strategies import Beam
from seqloom.specials import EOS

CPU = torch.device("cpu")
ROUNDED = 0.15  # nats of a token's loss, at most; bf16 keeps three digits, and a softmax of sharp scores few of them
every_kind = pytest.mark.parametrize("case", TABLE_CASES + STACK_CASES + EXTRA_CASES + JOINT_CASES, ids=str)


def loss(model: Generator, case: Case, precision: Precision) -> torch.Tensor:
    with autocast(CPU, precision):
        return model.losses(some_batch(case=case, dtype=torch.float32), smoothing=0.1)[0]


@every_kind
def test_losses_are_near_and_gradients_reach_the_same_parameters(case: Case) -> None:
    model = fresh(case, torch.float32)
    exact, rounded = loss(model, case, "float32"), loss(model, case, "bf16")
    assert rounded.dtype == torch.float32
    assert float((rounded - exact).abs().max().detach()) < ROUNDED
    wide, narrow = gradients(model, exact.sum()), gradients(model, rounded.sum())
    for name, gradient in wide.items():
        assert narrow[name].dtype == torch.float32, name
        assert bool(narrow[name].isfinite().all()), name
        assert bool(narrow[name].any()) == bool(gradient.any()), name


@every_kind
def test_search_finds_what_float32_thinks_about_as_likely(case: Case) -> None:
    model, batch = fresh(case, torch.float32), some_batch(case=case, dtype=torch.float32)
    with autocast(CPU, "bf16"):
        found = search(model, batch.sources, Beam.Settings(size=3), limits=Limits(max_length=8))
    best = [hypotheses[0] for hypotheses in found]
    ended = torch.tensor([not hypothesis.truncated for hypothesis in best])
    forced = Batch(batch.sources, Tokens.pad([[*hypothesis.tokens, EOS] for hypothesis in best]))
    with torch.no_grad():
        expected = -model.nll(forced).sum(1)
    lengths = torch.tensor([len(hypothesis.tokens) + 1 for hypothesis in best])
    apart = (torch.tensor([hypothesis.log_prob for hypothesis in best]) - expected).abs() / lengths
    assert not bool((apart[ended] > ROUNDED).any())

"""R-Drop and minimum risk work with every kind of model: what they compute is what plain passes say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import EXTRA_CASES, JOINT_CASES, STACK_CASES, TABLE_CASES, TARGET_VOCABULARY, Case, close, fresh, some_batch

from seqloom.batch import Batch, Tokens
from seqloom.models.generator import Generator
from seqloom.runtime import seed_step
from seqloom.search.limits import Limits
from seqloom.specials import EOS
from seqloom.tasks.risk import ExpectedRisk, Risk, expected
from seqloom.tasks.transduce import SearchSettings, Transduce

every_kind = pytest.mark.parametrize("case", TABLE_CASES + STACK_CASES + EXTRA_CASES + JOINT_CASES, ids=str)


def task(**raw: object) -> Transduce:
    settings = Transduce.Settings.model_validate(raw)
    return Transduce(settings, vocabularies=(12, TARGET_VOCABULARY), searching=SearchSettings())


@every_kind
def test_without_dropout_r_drop_is_the_plain_loss(case: Case) -> None:
    model = fresh(case).train()
    if any(isinstance(module, torch.nn.Dropout) and module.p for module in model.modules()):
        pytest.skip("this case is about dropout")
    batch = some_batch(case=case)
    plain, doubled = (task(label_smoothing=0.1, r_drop=alpha).loss(model, batch, 1) for alpha in (0.0, 3.0))
    close(doubled.total, plain.total)


@every_kind
def test_candidates_side_by_side_score_as_each_alone(case: Case) -> None:
    """One pass over B x K rows on memories of B: law 4, for the pass that the risk is made of."""
    model: Generator = fresh(case)
    batch = some_batch(case=case)
    risk = ExpectedRisk(Risk(samples=3, alpha=0.7), lambda ids: " ".join(map(str, ids)), Limits(max_length=5))
    seed_step(1, 1)
    costs, nll = risk(model, batch)
    close(nll, model.eval().nll(batch).sum(1))
    candidates = risk.candidates(model, batch)
    model.eval()
    for row, chosen in enumerate(candidates):
        alone = replace(batch, target=None, examples=()).rows(torch.tensor([row] * len(chosen)))
        forced = Batch(alone.sources, Tokens.pad([[*ids, EOS] for ids in chosen]))
        log_probs = -model.nll(forced).sum(1)[None]  # 1 K
        judged = risk.costs([chosen], len(chosen)).double()
        close(expected(log_probs, judged, torch.ones_like(judged, dtype=torch.bool), 0.7)[0], costs[row].detach())
    costs.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)

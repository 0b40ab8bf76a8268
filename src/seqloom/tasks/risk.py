"""Minimum-risk training (Shen et al. 2016): the loss is the metric itself, expected over what the model would say.

risk(x) = sum over y of q(y) cost(y),  q(y) = P(y given x)^alpha / sum over y' of P(y' given x)^alpha

y runs over the gold target and samples of the model, each counted once. The cost is 1 - the metric's score of the
sentence, or its error rate, between 0 and 1. It needs text, which the task brings as a callable: nothing here knows a
tokenizer. Samples depend on (seed, step, source) alone, so split and joined batches draw the same (law 11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from pydantic import Field

from seqloom import config
from seqloom.batch import Batch, Tokens
from seqloom.metrics import METRICS, Likeness
from seqloom.models.generator import Generator, shifted
from seqloom.search.limits import Limits
from seqloom.search.loop import search
from seqloom.search.strategies import Sample
from seqloom.shapes import Bool, Float, Tensor
from seqloom.specials import EOS

Decode = Callable[[Sequence[int]], str]  # target ids without EOS -> text
Ids = tuple[int, ...]


class Risk(config.Settings):
    """loss = `weight` * risk + `nll` * the ordinary loss; both per target token, so that long sentences weigh more."""

    metric: Likeness = METRICS.settings("chrf")
    samples: int = Field(default=8, ge=1, le=100_000)  # drawn from the model for every source; equal ones count once
    alpha: float = Field(default=0.005, gt=0)  # below 1, q is flatter than the model: unlikely samples still teach
    weight: float = Field(default=1.0, gt=0)
    nll: float = Field(default=0.1, ge=0)  # of the ordinary loss, which keeps the model to real targets


class ExpectedRisk:
    """The expected cost of every source of a batch, differentiable through q."""

    def __init__(self, settings: Risk, decode: Decode, limits: Limits) -> None:
        self.settings, self.decode, self.limits = settings, decode, limits
        self.metric = METRICS.build(settings.metric)

    def __call__(self, model: Generator, batch: Batch) -> tuple[Float[Tensor, "B"], Float[Tensor, "B"]]:
        """(expected cost, nll of the gold target) of every source."""
        candidates = self.candidates(model, batch)
        most = max(map(len, candidates))
        device = next(iter(batch.sources.values())).mask.device
        costs = self.costs(candidates, most).to(device)
        # Every source gets as many rows as the richest has candidates; its gold target fills the rest and counts once.
        padded = [[*chosen, *([chosen[0]] * (most - len(chosen)))] for chosen in candidates]
        real = torch.tensor([[k < len(chosen) for k in range(most)] for chosen in candidates], device=device)  # B K
        tokens = Tokens.pad([[*ids, EOS] for chosen in padded for ids in chosen]).to(device)  # N T
        features, state = model.read(shifted(tokens).ids, model.start(batch.sources, most))
        log_probs = -model.head.nll(features, state, tokens).sum(1).view(-1, most)  # B K
        return expected(log_probs, costs, real, self.settings.alpha), -log_probs[:, 0]

    def candidates(self, model: Generator, batch: Batch) -> list[list[Ids]]:
        """The gold target first, then every other sample once; drawn without dropout."""
        assert batch.target is not None
        strategy = Sample.Settings(samples=self.settings.samples, seed=torch.initial_seed())  # the step's own seed
        training = model.training
        model.eval()
        try:
            drawn = search(model, batch.sources, strategy, limits=self.limits)
        finally:
            model.train(training)
            torch.clear_autocast_cache()  # weights that search has cast know no gradient
        lengths = (batch.target.lengths - 1).tolist()
        gold = [tuple(ids[:length]) for ids, length in zip(batch.target.ids.tolist(), lengths, strict=True)]
        return [
            list(dict.fromkeys([wanted, *(hypothesis.tokens for hypothesis in hypotheses)]))
            for wanted, hypotheses in zip(gold, drawn, strict=True)
        ]

    def costs(self, candidates: Sequence[Sequence[Ids]], most: int) -> Float[Tensor, "B K"]:
        """Between 0 (as good as gold) and 1, each candidate judged against the first; 0 where there is none."""
        texts = [self.decode(ids) for chosen in candidates for ids in chosen]
        golds = [[self.decode(chosen[0])] for chosen in candidates for _ in chosen]
        scores = self.metric.sentence_values(self.metric.statistics(texts, golds)) / 100
        flat = iter(np.clip(1 - scores if self.metric.higher_is_better else scores, 0.0, 1.0).tolist())
        rows = [[next(flat) for _ in chosen] for chosen in candidates]
        return torch.tensor([[*row, *([0.0] * (most - len(row)))] for row in rows])


def expected(
    log_probs: Float[Tensor, "B K"], costs: Float[Tensor, "B K"], real: Bool[Tensor, "B K"], alpha: float
) -> Float[Tensor, "B"]:
    """sum of q * cost over the real candidates, q a softmax of alpha * log P among them."""
    q = torch.softmax((alpha * log_probs).masked_fill(~real, -torch.inf), dim=1)
    return (q * costs.to(q.dtype)).sum(1)

"""Heads: features to log-probabilities over the vocabulary, the output layer linear or an MLP."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from seqloom import config
from seqloom.batch import Tokens
from seqloom.config import Table
from seqloom.models.contracts import Head, State
from seqloom.nn.tape import tap
from seqloom.shapes import Features, Float, Int, LogProbs, Tensor

CHUNK_CELLS = 1 << 25  # logits beyond this many cells never exist whole: made, used and made again in the backward pass


class Linear(Head):
    """log softmax(W x + b), x the features; W may be the target embedding (tied)."""

    class Settings(config.Settings):
        kind: Literal["linear"] = "linear"
        bias: bool = True

    def __init__(self, settings: Settings, *, features: int, vocabulary: int, tied: nn.Parameter | None = None) -> None:
        super().__init__()
        width = features if tied is None else tied.shape[1]
        self.hidden = self.hidden_layer(features, width)
        self.weight = nn.Parameter(torch.empty(vocabulary, width)) if tied is None else tied
        if tied is None:
            nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if settings.bias else None

    def hidden_layer(self, features: int, width: int) -> nn.Module:
        """What stands between features and output matrix: nothing, or a projection where a tied width differs."""
        return nn.Identity() if features == width else nn.Linear(features, width, bias=False)

    def logits(self, features: Float[Tensor, "*r D"]) -> Float[Tensor, "*r V"]:
        return tap("logits", F.linear(self.hidden(features), self.weight, self.bias))

    def log_probs(self, features: Features, state: State) -> LogProbs:
        return torch.log_softmax(self.logits(features), dim=-1)

    def losses(
        self, features: Features, state: State, gold: Tokens, smoothing: float = 0.0
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        real, ids = features[gold.mask], gold.ids[gold.mask]  # M D, M
        rows = max(1, CHUNK_CELLS // self.weight.shape[0])
        if len(ids) <= rows:
            return self._chunk(real, ids, smoothing)
        pairs = [
            checkpoint(self._chunk, part, part_ids, smoothing, use_reentrant=False)
            for part, part_ids in zip(torch.split(real, rows), torch.split(ids, rows), strict=True)
        ]
        return torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])

    def _chunk(self, features: Float[Tensor, "M D"], gold: Int[Tensor, "M"], smoothing: float) -> tuple[Tensor, Tensor]:
        logits = self.logits(features)
        nll = F.cross_entropy(logits, gold, reduction="none")
        if not smoothing:
            return nll, nll
        # (1 - e) nll + e * (mean over the vocabulary of -log p) = nll + e * (gold's logit - mean logit)
        spread = logits.gather(1, gold[:, None]).squeeze(1) - logits.mean(1)
        return nll + smoothing * spread, nll


class Mlp(Linear):
    """log softmax(W tanh(U x + c) + b): one hidden layer before the output matrix."""

    class Settings(config.Settings):
        kind: Literal["mlp"] = "mlp"
        bias: bool = True

    def hidden_layer(self, features: int, width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, width), nn.Tanh())


HEADS: Table[Head] = Table("heads", {"linear": Linear, "mlp": Mlp})

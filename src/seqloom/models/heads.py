"""Heads: features to log-probabilities over the vocabulary; the output layer linear or an MLP, copying or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from seqloom import config
from seqloom.batch import Tokens
from seqloom.config import Table
from seqloom.models.contracts import Head, State
from seqloom.models.copying import Pointer, positions
from seqloom.nn.crossentropy import smoothed_cross_entropy
from seqloom.nn.layers import cells, exact
from seqloom.nn.packed import linear
from seqloom.nn.tape import tap
from seqloom.shapes import Features, Float, Int, LogProbs, Tensor
from seqloom.specials import UNK

CHUNK_CELLS = 1 << 25  # logits beyond this many cells never exist whole: made, used and made again in the backward pass


class Linear(Head):
    """log softmax(W x + b), x the features; W may be the target embedding (tied)."""

    multiplies = True  # by its weight: see `nn/packed.py`

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
        return tap("logits", linear(self.hidden(features), self.weight, self.bias))

    def log_probs(self, features: Features, state: State) -> LogProbs:
        return torch.log_softmax(exact(self.logits(features)), dim=-1)

    def losses(
        self, features: Features, state: State, gold: Tokens, smoothing: float = 0.0
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        real, ids = gold.real(features), gold.real(gold.ids)  # M D, M
        rows = max(1, cells(CHUNK_CELLS, real) // self.weight.shape[0])
        if len(ids) <= rows:
            return self._chunk(real, ids, smoothing)
        pairs = [
            checkpoint(self._chunk, part, part_ids, smoothing, use_reentrant=False, preserve_rng_state=False)
            for part, part_ids in zip(torch.split(real, rows), torch.split(ids, rows), strict=True)
        ]
        return torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])

    def _chunk(self, features: Float[Tensor, "M D"], gold: Int[Tensor, "M"], smoothing: float) -> tuple[Tensor, Tensor]:
        return smoothed_cross_entropy(exact(self.logits(features)), gold, smoothing)


class Mlp(Linear):
    """log softmax(W tanh(U x + c) + b): one hidden layer before the output matrix."""

    class Settings(config.Settings):
        kind: Literal["mlp"] = "mlp"
        bias: bool = True

    def hidden_layer(self, features: int, width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(features, width), nn.Tanh())


class Copy(Linear):
    """Says a word of the vocabulary or copies one from the source, as a gate decides (See 2017; `models/copying.py`).

    Features are [h; a]: the decoder's D features and its weights over the memory. Label smoothing stays with what is
    generated, (1 - e) nll + e * (mean over V of -log p_gen): it neither moves the gate nor spreads the pointer.
    """

    copies = True

    class Settings(config.Settings):
        kind: Literal["copy"] = "copy"
        bias: bool = True

    def __init__(self, settings: Settings, *, features: int, vocabulary: int, tied: nn.Parameter | None = None) -> None:
        super().__init__(Linear.Settings(bias=settings.bias), features=features, vocabulary=vocabulary, tied=tied)
        self.pointer = Pointer(features)
        self.features = features

    def _parts(self, features: Float[Tensor, "*r F"]) -> tuple[Float[Tensor, "*r D"], Float[Tensor, "*r S"]]:
        return features[..., : self.features], features[..., self.features :]

    def log_probs(self, features: Features, state: State) -> LogProbs:
        own, weights = self._parts(features)
        generated = super().log_probs(own, state)
        return self.pointer(generated, own, weights, state) if "copies" in state.sources else generated

    def losses(
        self, features: Features, state: State, gold: Tokens, smoothing: float = 0.0
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        own, weights = self._parts(features)
        if "copies" not in state.sources:
            return super().losses(own, state, gold, smoothing)
        spoken = gold.ids < self.weight.shape[0]
        minimised, generated = super().losses(own, state, replace(gold, ids=gold.ids.where(spoken, UNK)), smoothing)
        copies = gold.real(positions(state, weights)[:, None].expand(weights.shape))  # M S
        ids = (gold.real(gold.ids), gold.real(spoken))
        nll = -self.pointer.gold(-generated, gold.real(own), gold.real(weights), copies, ids)
        if not smoothing:
            return nll, nll
        # minimised - (1 - e) generated is the smoothing alone, whatever word stood in for a gold that is only copied
        return minimised + (1 - smoothing) * (nll - generated), nll


class Repeat(Head):
    """What the decoder said: for a decoder whose features are log-probabilities already."""

    repeats = True

    class Settings(config.Settings):
        kind: Literal["none"] = "none"

    def __init__(self, settings: Settings, *, features: int, vocabulary: int, tied: nn.Parameter | None = None) -> None:
        super().__init__()
        assert features == vocabulary, "these features are no log-probabilities"
        assert tied is None, "there is no output matrix to tie"

    def log_probs(self, features: Features, state: State) -> LogProbs:
        return tap("logits", features)

    def losses(
        self, features: Features, state: State, gold: Tokens, smoothing: float = 0.0
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        log_probs = tap("logits", gold.real(features))  # M V
        nll = -log_probs.gather(1, gold.real(gold.ids)[:, None]).squeeze(1)
        if not smoothing:
            return nll, nll
        possible = log_probs > -torch.inf
        mean = log_probs.where(possible, 0.0).sum(1) / possible.sum(1)
        return (1 - smoothing) * nll - smoothing * mean, nll


HEADS: Table[Head] = Table("heads", {"linear": Linear, "mlp": Mlp, "copy": Copy, "none": Repeat})

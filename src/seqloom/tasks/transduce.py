"""Sequence to sequence: cross-entropy with teacher forcing, and the remedies for exposure bias.

loss = sum over t of -log P(y_t given y_<t, x). What the decoder reads as y_<t is the `history`: gold, noisy, or its
own predictions. What it must say is the target: gold, or an edited draw of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field

from seqloom import config
from seqloom.batch import BOS, Batch, Tokens
from seqloom.config import Kind
from seqloom.data.batching import collate_pairs
from seqloom.data.corpus import Pair
from seqloom.models.generator import Generator
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import STRATEGIES, Beam
from seqloom.shapes import Float, Int, Tensor
from seqloom.tasks.base import Loss, Task
from seqloom.tasks.noise import Noise, edited, noisy
from seqloom.tasks.sampling import SAMPLING, Constant, Schedule


class SearchSettings(config.Settings):
    """How outputs are looked for, unless a command says otherwise."""

    strategy: Annotated[config.Settings, Kind(STRATEGIES)] = Beam.Settings()
    limits: Limits = Limits()


class Transduce(Task[Generator, Pair, list[Hypothesis]]):
    """Encoder-decoder training and prediction."""

    class Settings(config.Settings):
        kind: Literal["transduce"] = "transduce"
        label_smoothing: float = Field(0.0, ge=0.0, lt=1.0)
        sampling: Annotated[config.Settings, Kind(SAMPLING)] = Constant.Settings()
        sampling_pick: Literal["argmax", "sample"] = "argmax"  # how the decoder's own prediction is drawn
        history: Noise = Noise()  # on what the decoder reads; `drop` is word dropout
        edit_temperature: float = Field(0.0, ge=0.0)  # > 0: learn sampled edited targets
        source_noise: Noise = Noise()

    def __init__(self, settings: Settings, *, vocabularies: tuple[int, int], searching: SearchSettings) -> None:
        self.settings = settings
        self.source_vocabulary, self.target_vocabulary = vocabularies
        self.sampling: Schedule = SAMPLING.build(settings.sampling)
        self.searching = searching

    def collate(self, examples: Sequence[Pair]) -> Batch:
        return collate_pairs(examples)

    def loss(self, model: Generator, batch: Batch, step: int) -> Loss:
        assert batch.target is not None
        if not model.training:
            return _summed(*model.losses(batch), batch.target)
        settings = self.settings
        batch = self._noisy_source(batch)
        target = batch.target
        assert target is not None
        if settings.edit_temperature:
            target = edited(target, settings.edit_temperature, self.target_vocabulary)
            batch = replace(batch, target=target)
        gold = self.sampling.gold(step)
        if gold < 1.0:
            return _summed(*self._sampled(model, batch, gold), target)
        history = noisy(target, settings.history, self.target_vocabulary, remove=False)
        return _summed(*model.losses(batch, history, settings.label_smoothing), target)

    def _noisy_source(self, batch: Batch) -> Batch:
        noise = self.settings.source_noise
        if noise.silent:
            return batch
        sources = dict(batch.sources)
        for name, source in batch.sources.items():
            assert isinstance(source, Tokens), "source noise is for tokens"
            sources[name] = noisy(source, noise, self.source_vocabulary, remove=True)
        return replace(batch, sources=sources)

    def _sampled(self, model: Generator, batch: Batch, gold: float) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        """Step by step: each input is gold with probability `gold`, else what the model just predicted."""
        assert batch.target is not None
        target = batch.target
        history = noisy(target, self.settings.history, self.target_vocabulary, remove=False)
        state = model.start(batch.sources, 1)
        last = torch.full_like(target.ids[:, 0], BOS)
        coins = torch.rand(target.ids.shape).to(target.ids.device) < gold
        features = []
        for t in range(target.ids.shape[1]):
            feature, state = model.decoder(last[:, None], state)
            features.append(feature)
            with torch.no_grad():
                own = self._pick(model.head.log_probs(feature.detach(), state)[:, 0])
            last = torch.where(coins[:, t], history.ids[:, t], own)
        return model.head.losses(torch.cat(features, dim=1), state, target, self.settings.label_smoothing)

    def _pick(self, log_probs: Float[Tensor, "N W"]) -> Int[Tensor, "N"]:
        if self.settings.sampling_pick == "argmax":
            return log_probs.argmax(-1)
        return torch.multinomial(log_probs.exp(), 1)[:, 0]

    def predict(self, model: Generator, batch: Batch) -> list[list[Hypothesis]]:
        return search(model, batch.sources, self.searching.strategy, limits=self.searching.limits)


def _summed(minimised: Float[Tensor, "M"], nll: Float[Tensor, "M"], target: Tokens) -> Loss:
    return Loss(minimised.sum(), target.mask.sum(), nll.detach().sum())

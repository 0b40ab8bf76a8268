"""How long training will take on this machine, by a few steps on made-up pairs of the right size."""

from __future__ import annotations

import math
import time

import numpy as np
import torch

from seqloom import runtime
from seqloom.api.init import Choices
from seqloom.data.batching import collate_pairs
from seqloom.data.codecs import Ids, Pair
from seqloom.models.generator import Generator
from seqloom.models.model import MODELS
from seqloom.recipe import Recipe
from seqloom.runtime import Runtime
from seqloom.specials import SPECIALS
from seqloom.tasks.transduce import Transduce
from seqloom.training.optim import OPTIMISERS

PATIENCE = 3.0  # seconds that may go into it


def estimated_seconds(recipe: Recipe, choices: Choices, tries: int = 3) -> float:
    """Seconds that training will take here, by the quickest of a few steps on made-up pairs of the right size.

    Validation is left out, and whatever else this machine is busy with.
    """
    device = runtime.apply(Runtime(device=recipe.runtime.device, threads=recipe.runtime.threads))
    sizes = (choices.source.vocabulary, choices.target.vocabulary)
    network = MODELS.build(recipe.model, source_vocabulary=sizes[0], target_vocabulary=sizes[1]).to(device)
    assert isinstance(network, Generator), "only such are drafted"
    task = Transduce(recipe.task, vocabularies=sizes, searching=recipe.search)
    optimiser = OPTIMISERS.build(recipe.training.optimiser, model=network)
    batch = collate_pairs(_made_up(choices, sizes)).to(device)

    def step() -> None:
        network.zero_grad()
        loss = task.loss(network, batch, 1)
        (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
        optimiser.step(1.0)
        if device.type == "cuda":
            torch.cuda.synchronize()

    step()  # the first one pays for setting up
    quickest, spent = math.inf, 0.0
    while tries and spent < PATIENCE:
        started_at = time.monotonic()
        step()
        elapsed = time.monotonic() - started_at
        quickest, spent, tries = min(quickest, elapsed), spent + elapsed, tries - 1
    return quickest * choices.steps


def _made_up(choices: Choices, vocabularies: tuple[int, int]) -> list[Pair]:
    """A batch of pairs of about the right lengths; of tags as many as words, of a text no source."""
    source, target = (max(1, round(side.mean)) for side in (choices.source, choices.target))
    if choices.task == "language":
        source, target = 0, choices.window or target
    rows = max(1, choices.sizes.batch // (max(source, target) + (choices.window is None)))
    words = None
    if choices.task == "tags":
        words = np.arange(source) * target // source  # every letter's word; where letters are fewer, tags are as well
        target = int(words[-1]) + 1
    rng = np.random.default_rng(1)

    def drawn(size: int, length: int) -> Ids:
        return rng.integers(len(SPECIALS), max(size, len(SPECIALS) + 1), length)

    return [
        Pair(drawn(vocabularies[0], source), drawn(vocabularies[1], target), row, words=words) for row in range(rows)
    ]

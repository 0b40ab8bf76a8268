"""Which word came from which: attention over tokens, read as links between words.

A row of weights belongs to one target token, a column to one source token. Pieces become words by summing over the
source's pieces (a word is looked at as much as all its parts) and averaging over the target's. Then each target word is
linked to the source word that it looked at most, or to all that got a share of at least `threshold`.

The weights that chose a token are those of the step before it was read. In a Transformer the step that reads it often
tells better where it came from (Chen et al. 2020); `shift` takes that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Float64

from seqloom.errors import SeqloomError
from seqloom.metrics.links import Gold, Judged, Links


@dataclass(frozen=True)
class Picks:
    """Whose weights are believed: a layer (None: the last), a head of it (None: all, averaged), of which step."""

    layer: int | None = None
    head: int | None = None
    shift: bool = False
    threshold: float | None = None  # None: the one that was looked at most

    def __str__(self) -> str:
        layer = "the last layer" if self.layer is None else f"layer {self.layer}"
        head = "mean of the heads" if self.head is None else f"head {self.head}"
        step = ", of the step that reads the word" if self.shift else ""
        share = "" if self.threshold is None else f", shares from {self.threshold:g}"
        return f"{layer}, {head}{step}{share}"


@dataclass(frozen=True)
class Looked:
    """The weights of one pair: of every layer and head, for each target token and the end, over the source's tokens."""

    weights: Float32[np.ndarray, "L H E S"]  # E = T + 1
    read: Sequence[int]  # S: the word that each source token is a part of; -1: none
    said: Sequence[int]  # T

    def by_words(self, picks: Picks) -> Float64[np.ndarray, "t s"]:
        """How much each target word looked at each source word."""
        layer = self._layer(picks)
        mean = (layer.mean(0) if picks.head is None else self._head(layer, picks.head)).astype(np.float64)  # E S
        rows = mean[1:] if picks.shift else mean[:-1]  # T S
        said, read = _membership(self.said), _membership(self.read)  # t T, s S
        pieces = np.maximum(said.sum(1, keepdims=True), 1)
        found: Float64[np.ndarray, "t s"] = (said / pieces) @ rows @ read.T
        return found

    def links(self, picks: Picks) -> Links:
        weights = self.by_words(picks)
        if not weights.size:
            return frozenset()
        if picks.threshold is not None:
            return frozenset((int(i), int(j)) for j, i in np.argwhere(weights >= picks.threshold))
        return frozenset((int(i), j) for j, i in enumerate(weights.argmax(1)) if weights[j, i] > 0)

    def _layer(self, picks: Picks) -> Float32[np.ndarray, "H E S"]:
        count = len(self.weights)
        if picks.layer is not None and not 1 <= picks.layer <= count:
            raise SeqloomError("E_USAGE", f"layer {picks.layer}: this model has layers 1 to {count}")
        chosen: Float32[np.ndarray, "H E S"] = self.weights[-1 if picks.layer is None else picks.layer - 1]
        return chosen

    def _head(self, layer: Float32[np.ndarray, "H E S"], head: int) -> Float32[np.ndarray, "E S"]:
        if not 1 <= head <= len(layer):
            raise SeqloomError("E_USAGE", f"head {head}: this layer has heads 1 to {len(layer)}")
        chosen: Float32[np.ndarray, "E S"] = layer[head - 1]
        return chosen


def choices(shape: tuple[int, ...]) -> list[Picks]:
    """All that can be believed of weights with so many layers and heads."""
    layers, heads = shape[:2]
    single = [*range(1, heads + 1)] if heads > 1 else []
    return [
        Picks(layer, head, shift)
        for layer in range(1, layers + 1)
        for head in (None, *single)
        for shift in (False, True)
    ]


def tuned(looked: Sequence[Looked], gold: Sequence[Gold], wishes: Picks) -> tuple[Picks, Judged]:
    """The layer, head and step whose links come nearest to people's; of equal ones the first."""

    def judged(picks: Picks) -> Judged:
        return Judged.total(Judged.of(one.links(picks), truth) for one, truth in zip(looked, gold, strict=True))

    every = [replace(picks, threshold=wishes.threshold) for picks in choices(looked[0].weights.shape)]
    results = {picks: judged(picks) for picks in every}
    best = min(results, key=lambda picks: results[picks].aer)
    return best, results[best]


def _membership(words: Iterable[int]) -> Float64[np.ndarray, "w n"]:
    """One row per word, one column per token: 1 where the token is a part of the word."""
    places = np.asarray(list(words), dtype=np.int64)
    count = int(places.max(initial=-1)) + 1
    members: Float64[np.ndarray, "w n"] = (places[None] == np.arange(count)[:, None]).astype(np.float64)
    return members

"""Does a message want a short reply? A feed-forward model on embeddings of n-grams."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from seqloom import config


@dataclass(frozen=True)
class Point:
    """What one threshold gives: of those that get suggestions how many want them, of those that want them how many."""

    threshold: float
    precision: float
    recall: float
    share: float  # of all messages that get suggestions


@dataclass(frozen=True)
class Curve:
    """Area under the ROC curve, and precision against recall from the highest threshold to the lowest."""

    auc: float
    points: tuple[Point, ...]


class Trigger:
    """P(a short reply is wanted | message), and the threshold above which suggestions are made."""

    class Settings(config.Settings):
        precision: float = 0.8  # aimed at when the threshold is chosen
        # sizes and training: more keys follow

    threshold: float

    @classmethod
    def fit(cls, messages: list[str], wanted: list[bool], settings: Settings | None = None, seed: int = 1) -> Self:
        """Learn from prepared texts; the threshold is chosen on messages that are held out of the training."""
        raise NotImplementedError

    def probability(self, texts: list[str]) -> list[float]:
        raise NotImplementedError

    def curve(self, messages: list[str], wanted: list[bool]) -> Curve:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path) -> Self:
        raise NotImplementedError

"""Scheduled sampling: how often the decoder reads the gold token rather than its own prediction (Bengio 2015).

`gold(step)` is the probability of gold at an update. Constant 1 is teacher forcing, constant 0 is free running.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from seqloom import config
from seqloom.config import Table

Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class Schedule(ABC):
    @abstractmethod
    def gold(self, step: int) -> float:
        """The probability that a decoder input is gold at update `step`."""


class Constant(Schedule):
    class Settings(config.Settings):
        kind: Literal["constant"] = "constant"
        gold: Probability = 1.0

    def __init__(self, settings: Settings) -> None:
        self.share = settings.gold

    def gold(self, step: int) -> float:
        return self.share


class LinearDecay(Schedule):
    """max(least, 1 - step / steps)"""

    class Settings(config.Settings):
        kind: Literal["linear"] = "linear"
        steps: int = Field(10_000, ge=1)
        least: Probability = 0.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def gold(self, step: int) -> float:
        return max(self.settings.least, 1 - step / self.settings.steps)


class Exponential(Schedule):
    """k^step, k < 1"""

    class Settings(config.Settings):
        kind: Literal["exponential"] = "exponential"
        k: float = Field(0.9999, gt=0.0, lt=1.0)
        least: Probability = 0.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def gold(self, step: int) -> float:
        return max(self.settings.least, self.settings.k**step)


class InverseSigmoid(Schedule):
    """k / (k + exp(step / k)), k >= 1"""

    class Settings(config.Settings):
        kind: Literal["inverse_sigmoid"] = "inverse_sigmoid"
        k: float = Field(2_000.0, ge=1.0)
        least: Probability = 0.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def gold(self, step: int) -> float:
        k = self.settings.k
        exponent = min(step / k, 700.0)  # beyond it exp overflows, and the share is zero long before
        return max(self.settings.least, k / (k + math.exp(exponent)))


SAMPLING: Table[Schedule] = Table(
    "sampling schedules",
    {"constant": Constant, "linear": LinearDecay, "exponential": Exponential, "inverse_sigmoid": InverseSigmoid},
)

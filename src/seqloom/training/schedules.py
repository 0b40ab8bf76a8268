"""Learning-rate schedules, each a table row with its own settings.

A schedule is a factor on the optimiser's learning rate, which is the peak: a pure function of the step, counted from
1. Only `plateau` remembers anything, two numbers that go into the checkpoint. No schedule reads a clock.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from seqloom.config import Settings, Table

Share = Annotated[float, Field(ge=0, le=1)]


class ScheduleSettings(Settings):
    """What every schedule has: `warmup` steps in which the rate grows evenly from nearly nothing to its peak."""

    warmup: int = Field(default=0, ge=0)


class Schedule:
    """`factor(step)` multiplies the learning rate; `observe` hears of each validation."""

    has_end: ClassVar[bool] = False  # True: its shape depends on how many steps the run will have

    def __init__(self, settings: ScheduleSettings) -> None:
        self.warmup = settings.warmup

    def factor(self, step: int) -> float:
        """The share of the peak rate at this step: even growth during warm-up, then the schedule's own shape."""
        if step < self.warmup:
            return step / self.warmup
        return self._after_warmup(step)

    def _after_warmup(self, step: int) -> float:
        return 1.0

    def observe(self, improved: bool) -> None:
        """Hear whether a validation improved on the best so far."""

    def state(self) -> dict[str, float]:
        return {}

    def load(self, state: dict[str, float]) -> None:
        """Continue from what `state` returned."""


class Constant(Schedule):
    """The peak rate throughout."""

    class Settings(ScheduleSettings):
        kind: Literal["constant"] = "constant"

    def __init__(self, settings: Settings, *, steps: int | None) -> None:
        super().__init__(settings)


class InverseSqrt(Schedule):
    """sqrt(warmup / step): Vaswani et al. (2017), with the peak as the learning rate instead of a formula of D."""

    class Settings(ScheduleSettings):
        kind: Literal["inverse_sqrt"] = "inverse_sqrt"
        warmup: int = Field(default=1000, ge=1)

    def __init__(self, settings: Settings, *, steps: int | None) -> None:
        super().__init__(settings)

    def _after_warmup(self, step: int) -> float:
        return math.sqrt(self.warmup / step)


class Cosine(Schedule):
    """Half a cosine from the peak to `min` of it at `steps` (by default the run's), and `min` from there on."""

    class Settings(ScheduleSettings):
        kind: Literal["cosine"] = "cosine"
        min: Share = 0.0
        steps: int | None = Field(default=None, ge=1)

    has_end = True

    def __init__(self, settings: Settings, *, steps: int | None) -> None:
        super().__init__(settings)
        end = settings.steps or steps
        assert end is not None, "the loop knows how many steps there will be"
        self.end, self.min = end, settings.min

    def _after_warmup(self, step: int) -> float:
        done = min(1.0, (step - self.warmup) / max(1, self.end - self.warmup))
        return self.min + (1.0 - self.min) * 0.5 * (1.0 + math.cos(math.pi * done))


class Step(Schedule):
    """Multiply by `factor` every `every` steps, counted from `start` or the end of warm-up, whichever is later."""

    class Settings(ScheduleSettings):
        kind: Literal["step"] = "step"
        every: int = Field(ge=1)
        factor: float = Field(default=0.5, gt=0, le=1)
        start: int = Field(default=0, ge=0)

    def __init__(self, settings: Settings, *, steps: int | None) -> None:
        super().__init__(settings)
        self.settings = settings

    def _after_warmup(self, step: int) -> float:
        since = max(0, step - max(self.settings.start, self.warmup))
        return self.settings.factor ** (since // self.settings.every)


class Plateau(Schedule):
    """Multiply by `factor`, but not below `min`, when more than `patience` validations in a row did not improve."""

    class Settings(ScheduleSettings):
        kind: Literal["plateau"] = "plateau"
        factor: float = Field(default=0.5, gt=0, lt=1)
        patience: int = Field(default=0, ge=0)
        min: Share = 0.01

    def __init__(self, settings: Settings, *, steps: int | None) -> None:
        super().__init__(settings)
        self.settings = settings
        self.level = 1.0
        self.bad = 0

    def _after_warmup(self, step: int) -> float:
        return self.level

    def observe(self, improved: bool) -> None:
        self.bad = 0 if improved else self.bad + 1
        if self.bad > self.settings.patience:
            self.level = max(self.settings.min, self.level * self.settings.factor)
            self.bad = 0

    def state(self) -> dict[str, float]:
        return {"level": self.level, "bad": self.bad}

    def load(self, state: dict[str, float]) -> None:
        self.level, self.bad = state["level"], int(state["bad"])


SCHEDULES: Table[Schedule] = Table(
    "schedules",
    {"constant": Constant, "inverse_sqrt": InverseSqrt, "cosine": Cosine, "step": Step, "plateau": Plateau},
)

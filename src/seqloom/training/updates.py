"""One update after another: gradients become steps, unless something is not finite.

On a CPU every step is looked at before its update. A GPU would stand still for the look, so there the device itself
decides: a step that is not finite changes nothing, and where it is to end the run, none after it does either. What it
measured is read when somebody asks, all steps at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from seqloom.shapes import Tensor
from seqloom.tasks.base import Loss
from seqloom.training import gradients
from seqloom.training.gradients import Measured
from seqloom.training.state import TrainState

MOST_UNREAD = 200  # steps


@dataclass(frozen=True)
class Taken:
    """A step that was taken, or refused because it was not finite."""

    step: int
    tokens: int  # of its targets
    measured: Measured


class Updates(ABC):
    """What a step's gradient does to the weights."""

    def __init__(self, state: TrainState, clip: float | None) -> None:
        self.state, self.clip = state, clip

    @abstractmethod
    def take(self, step: int, tokens: int, loss: Loss) -> None:
        """Update the weights by the gradients they have, or leave them as they are."""

    @abstractmethod
    def read(self, wait: bool) -> list[Taken]:
        """Steps that were not read yet, in order: all of them if `wait`, else what is known without waiting."""

    def _gradients(self) -> list[Tensor]:
        found = (parameter.grad for parameter in self.state.optimiser.parameters.values())
        return [gradient for gradient in found if gradient is not None]

    def _average(self, step: int) -> None:
        if self.state.ema is not None:
            self.state.ema.update(step)


class Watched(Updates):
    """Every step is looked at, then made."""

    def __init__(self, state: TrainState, clip: float | None) -> None:
        super().__init__(state, clip)
        self._taken: list[Taken] = []

    def take(self, step: int, tokens: int, loss: Loss) -> None:
        found, scaler = self._gradients(), self.state.scaler
        if scaler is not None:
            scaler.unscale(found)
        measured = gradients.measure(loss, found)
        self._taken.append(Taken(step, tokens, measured))
        if measured.finite:
            gradients.scale(found, measured, self.clip)
            self.state.optimiser.step(self.state.schedule.factor(step))
            self._average(step)
            if scaler is not None:
                scaler.went_well()

    def read(self, wait: bool) -> list[Taken]:
        taken, self._taken = self._taken, []
        return taken


class Trusted(Updates):
    """The device decides. With `ends`, no step is made after one that was refused."""

    def __init__(self, state: TrainState, clip: float | None, *, ends: bool) -> None:
        super().__init__(state, clip)
        self.ends = ends
        self._steps: list[tuple[int, int]] = []  # and the tokens of each
        self._numbers: list[Tensor] = []
        self._refused: Tensor | None = None

    def take(self, step: int, tokens: int, loss: Loss) -> None:
        found = self._gradients()
        numbers = gradients.numbers(loss, found)  # 4
        refused = ~torch.isfinite(numbers).all()
        if self.ends:
            refused = self._refused = refused if self._refused is None else refused | self._refused
        _, _, count, norm = numbers.unbind()
        divisor = torch.where(count == 0, 1.0, count)
        if self.clip is not None:
            divisor = torch.maximum(divisor, norm / self.clip)  # norm / divisor is at most clip
        self.state.optimiser.step(self.state.schedule.factor(step), divisor=divisor, refused=refused.float())
        self._average(step)
        self._steps.append((step, tokens))
        self._numbers.append(numbers)

    def read(self, wait: bool) -> list[Taken]:
        if not self._steps or not (wait or len(self._steps) >= MOST_UNREAD):
            return []
        rows = torch.stack(self._numbers).tolist()
        taken = [Taken(*step, gradients.measured(row)) for step, row in zip(self._steps, rows, strict=True)]
        self._steps, self._numbers = [], []
        return taken


def updates(state: TrainState, clip: float | None, device: torch.device, *, ends: bool) -> Updates:
    """The kind that suits: a loss scaler must know of every step, and few optimisers can be told to refuse one."""
    if device.type == "cuda" and state.scaler is None and state.optimiser.can_refuse:
        return Trusted(state, clip, ends=ends)
    return Watched(state, clip)

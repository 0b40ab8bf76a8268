"""Optimisers, each a table row with its own settings.

The optimisers are torch's, in their fused form where there is one; this file gives their state names, so that a
checkpoint is plain named tensors. Weight decay spares biases, norms and embeddings: pulling those to zero regularises
nothing, and rare words would fade between their occurrences. Schedules are in `schedules.py`; clipping is the loop's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import singledispatch
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from seqloom import config, weights
from seqloom.config import Table
from seqloom.nn.frontends import Embedding
from seqloom.nn.positions import Positions
from seqloom.shapes import Tensor
from seqloom.training.schedules import SCHEDULES, Schedule

__all__ = ["OPTIMISERS", "SCHEDULES", "Optimiser", "Schedule"]

Rate = Annotated[float, Field(gt=0, le=1e38)]  # of float32; a rate that is merely wild is found out in training
Beta = Annotated[float, Field(ge=0, lt=1)]


Group = dict[str, object]  # what torch calls a parameter group: {"params": ..., "weight_decay": ...}


class OptimiserSettings(config.Settings):
    """What every optimiser has: a learning rate, and a weight decay that biases, norms and embeddings are spared."""

    lr: Rate
    weight_decay: float = Field(default=0.0, ge=0)


class Optimiser(ABC):
    """A torch optimiser over a model's trainable parameters, whose state is `parameter/slot` -> tensor."""

    def __init__(self, settings: OptimiserSettings, *, model: nn.Module) -> None:
        self.parameters = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        self.lr = settings.lr
        self.inner = self._build(_groups(model, settings.weight_decay))

    @abstractmethod
    def _build(self, groups: list[Group]) -> torch.optim.Optimizer: ...

    @property
    def can_refuse(self) -> bool:
        """Can the device be told to leave everything as it is? torch's fused kernels can, for the sake of fp16."""
        return bool(self.inner.defaults.get("fused"))

    def step(self, factor: float, *, divisor: Tensor | None = None, refused: Tensor | None = None) -> None:
        """One update at `factor` times the learning rate, the gradients divided, unless `refused` is 1."""
        for group in self.inner.param_groups:
            group["lr"] = self.lr * factor
        if divisor is not None or refused is not None:
            assert self.can_refuse, "only fused kernels divide and refuse"
            self.inner.grad_scale, self.inner.found_inf = divisor, refused  # type: ignore[attr-defined]
        self.inner.step()

    def state(self) -> dict[str, Tensor]:
        """Everything the next update depends on besides parameters and gradients, not copied."""
        return {
            f"{name}/{slot}": value
            for name, parameter in self.parameters.items()
            for slot, value in self.inner.state.get(parameter, {}).items()
            if value is not None
        }

    def load(self, state: Mapping[str, Tensor], where: str) -> None:
        """Continue from a saved state. E_BUNDLE when it belongs to other parameters."""
        slots = {key: key.rpartition("/") for key in state}
        weights.compare(
            {}, {key: state[key] for key, (name, _, _) in slots.items() if name not in self.parameters}, where
        )
        vectors = {key: self.parameters[name] for key, (name, _, _) in slots.items() if state[key].dim()}
        weights.compare(vectors, {key: state[key] for key in vectors}, where)
        self.inner.state.clear()
        for key, (name, _, slot) in slots.items():
            self.inner.state[self.parameters[name]][slot] = self._placed(state[key], self.parameters[name])

    def _placed(self, value: Tensor, parameter: nn.Parameter) -> Tensor:
        """A copy where torch keeps it: moments in the parameter's own layout, which fused kernels rely on."""
        if value.shape == parameter.shape and value.dim():
            return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
        fused = bool(self.inner.defaults.get("fused"))  # fused kernels count steps on the device, the others on the CPU
        return value.to(parameter.device if fused else "cpu", copy=True)


@singledispatch
def looked_up(module: nn.Module) -> Iterable[nn.Parameter]:
    """A module's own parameters of which a batch uses single rows: what an embedding is made of."""
    return ()


@looked_up.register(nn.Embedding)
@looked_up.register(Embedding)
@looked_up.register(Positions)
def _(module: nn.Module) -> Iterable[nn.Parameter]:
    return module.parameters(recurse=False)


def _groups(model: nn.Module, weight_decay: float) -> list[Group]:
    embeddings = {parameter for module in model.modules() for parameter in looked_up(module)}
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            (spared if parameter.dim() < 2 or parameter in embeddings else decayed).append(parameter)
    groups: list[Group] = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


class Adam(Optimiser):
    """Kingma and Ba (2015). Its weight decay is an L2 term in the gradient; `adamw` is mostly what is wanted."""

    class Settings(OptimiserSettings):
        kind: Literal["adam"] = "adam"
        lr: Rate = 1e-3
        betas: tuple[Beta, Beta] = (0.9, 0.999)
        epsilon: Rate = 1e-8

    def __init__(self, settings: Settings, *, model: nn.Module) -> None:
        self.settings = settings
        super().__init__(settings, model=model)

    def _build(self, groups: list[Group]) -> torch.optim.Optimizer:
        return torch.optim.Adam(groups, lr=self.lr, betas=self.settings.betas, eps=self.settings.epsilon, fused=True)


class AdamW(Optimiser):
    """Loshchilov and Hutter (2019): Adam whose weight decay is not scaled by the gradient's history."""

    class Settings(OptimiserSettings):
        kind: Literal["adamw"] = "adamw"
        lr: Rate = 1e-3
        betas: tuple[Beta, Beta] = (0.9, 0.999)
        epsilon: Rate = 1e-8
        weight_decay: float = Field(default=0.01, ge=0)

    def __init__(self, settings: Settings, *, model: nn.Module) -> None:
        self.settings = settings
        super().__init__(settings, model=model)

    def _build(self, groups: list[Group]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.settings.betas, eps=self.settings.epsilon, fused=True)


class Adagrad(Optimiser):
    """Duchi et al. (2011): the learning rate of each weight falls with the sum of its squared gradients."""

    class Settings(OptimiserSettings):
        kind: Literal["adagrad"] = "adagrad"
        lr: Rate = 0.1
        initial: float = Field(default=0.1, ge=0)  # of the sum
        epsilon: Rate = 1e-10

    def __init__(self, settings: Settings, *, model: nn.Module) -> None:
        self.settings = settings
        super().__init__(settings, model=model)

    def _build(self, groups: list[Group]) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(
            groups, lr=self.lr, initial_accumulator_value=self.settings.initial, eps=self.settings.epsilon
        )


class Adadelta(Optimiser):
    """Zeiler (2012): a step in the unit of the weights. Bahdanau et al. (2015) trained with it."""

    class Settings(OptimiserSettings):
        kind: Literal["adadelta"] = "adadelta"
        lr: Rate = 1.0
        rho: Beta = 0.95
        epsilon: Rate = 1e-6

    def __init__(self, settings: Settings, *, model: nn.Module) -> None:
        self.settings = settings
        super().__init__(settings, model=model)

    def _build(self, groups: list[Group]) -> torch.optim.Optimizer:
        return torch.optim.Adadelta(groups, lr=self.lr, rho=self.settings.rho, eps=self.settings.epsilon)


class Sgd(Optimiser):
    """Stochastic gradient descent, with momentum (heavy ball, or Nesterov's) when `momentum` is not 0."""

    class Settings(OptimiserSettings):
        kind: Literal["sgd"] = "sgd"
        lr: Rate = 0.1
        momentum: Beta = 0.0
        nesterov: bool = False

        @model_validator(mode="after")
        def _nesterov_needs_momentum(self) -> Sgd.Settings:
            if self.nesterov and self.momentum == 0:
                raise ValueError("nesterov: true needs a momentum above 0")
            return self

    def __init__(self, settings: Settings, *, model: nn.Module) -> None:
        self.settings = settings
        super().__init__(settings, model=model)

    def _build(self, groups: list[Group]) -> torch.optim.Optimizer:
        momentum, nesterov = self.settings.momentum, self.settings.nesterov
        return torch.optim.SGD(groups, lr=self.lr, momentum=momentum, nesterov=nesterov, fused=True)


OPTIMISERS: Table[Optimiser] = Table(
    "optimisers", {"adam": Adam, "adamw": AdamW, "adagrad": Adagrad, "adadelta": Adadelta, "sgd": Sgd}
)

"""Means of weights: over checkpoints (at the end) and over steps (all along, the EMA).

Sums are float64, so that the order of checkpoints does not matter to the result. Nothing here picks checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from seqloom import weights
from seqloom.shapes import Tensor


def average(files: Sequence[Path], allow_nonfinite: bool = False) -> dict[str, Tensor]:
    """The mean of several weight files of one architecture; E_BUNDLE when names or shapes differ.

    Tensors of integers are no quantities to average: the last file's stand.
    """
    assert files, "there is nothing to average"
    sums: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    for path in files:
        found = weights.read(path, allow_nonfinite=allow_nonfinite)
        if last:
            weights.compare(last, found, str(path))
        last = found
        for name, tensor in last.items():
            wide = tensor.to(torch.float64)
            sums[name] = sums[name] + wide if name in sums else wide
    return {
        name: (sums[name] / len(files)).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in last.items()
    }


class Ema:
    """An exponential moving average of the trainable weights: average <- d * average + (1 - d) * weights.

    d is min(decay, (1 + t) / (10 + t)) after t updates, so that the random start is soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}  # the live ones
        self.averages = {name: tensor.clone() for name, tensor in self.weights.items()}

    def update(self, updates: int) -> None:
        """Take in the weights after the update with this number."""
        share = 1.0 - min(self.decay, (1 + updates) / (10 + updates))
        torch._foreach_lerp_(list(self.averages.values()), list(self.weights.values()), share)

    def load(self, averages: Mapping[str, Tensor], where: str) -> None:
        weights.compare(self.averages, averages, where)
        for name, tensor in self.averages.items():
            tensor.copy_(averages[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model wears the averages inside the block, and its own weights, bit for bit, afterwards."""
        own = {name: tensor.clone() for name, tensor in self.weights.items()}
        for name, tensor in self.weights.items():
            tensor.copy_(self.averages[name])
        try:
            yield
        finally:
            for name, tensor in self.weights.items():
                tensor.copy_(own[name])

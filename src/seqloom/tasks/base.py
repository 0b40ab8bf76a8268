"""The contract between a task and the training loop: a sum with a count, and nothing is divided here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from torch import nn

from seqloom.batch import Batch
from seqloom.shapes import Float, Real, Tensor
from seqloom.tasks.carried import Carried

M = TypeVar("M", bound=nn.Module)
E = TypeVar("E")
P = TypeVar("P")


@dataclass(frozen=True)
class Loss:
    """`total` is what is minimised, summed over `count` tokens; `nll` is the plain negative log-likelihood's sum.

    Where examples have weights, all three are weighted sums: sum w_i loss_i, sum w_i tokens_i, sum w_i nll_i. Their
    quotients are weighted means, of accumulated and split batches as of joined ones (law 11).
    """

    total: Float[Tensor, ""]
    count: Real[Tensor, ""]
    nll: Float[Tensor, ""]


class Task(ABC, Generic[M, E, P]):
    """What is learned: how examples become a batch, a batch a loss, and a batch predictions."""

    splits: ClassVar[bool] = True  # is the loss of a batch the sum of its parts' losses? (law 11)
    carried: Carried | None = None  # what a window of a text leaves to the next, where texts are read in windows

    @abstractmethod
    def collate(self, examples: Sequence[E]) -> Batch: ...

    @abstractmethod
    def loss(self, model: M, batch: Batch, step: int) -> Loss:
        """Loss of one batch. `step` is the update it belongs to (schedules of scheduled sampling need it).

        Randomness comes from torch's default generator, which the loop seeds from (seed, step, rank).
        """

    def obstacle(self, model: M) -> str | None:
        """Why the loss cannot be recorded and replayed; None where it computes the same tensors for every batch.

        What draws on the host, asks the device for a value or depends on the step must not be recorded.
        """
        return "this task is not known to compute alike for every batch"

    def slower(self, model: M) -> str | None:
        """What training could do faster with other settings, for the log; None where there is nothing to say."""
        return None

    @abstractmethod
    def predict(self, model: M, batch: Batch) -> list[P]: ...

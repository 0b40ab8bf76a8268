"""The processes that train one model, as the training loop sees them: what is summed, said and decided together.

`Group` is a group of one, in which nothing has to be said: every sum is its own. `Several` is the real thing. All
processes call the same methods in the same order. Gradients are summed by torch.distributed (gloo for a CPU, NCCL for
GPUs); what must work before that, or when it has failed, goes by way of the meeting place, a key-value store. Nothing
that comes from another process is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import nn

from seqloom.errors import SeqloomError
from seqloom.ranks.share import WHOLE, Share
from seqloom.shapes import Tensor

T = TypeVar("T")


class Group:
    """One process, alone."""

    rank, size = 0, 1

    @property
    def leads(self) -> bool:
        """Does this process prepare, write and talk? One of a group does."""
        return self.rank == 0

    def share(self, batches: int, *, rows_only: bool = False) -> Share:
        """What this process computes of steps of so many batches."""
        return WHOLE

    def share_of_batches(self) -> Share:
        """What this process computes where whole batches are dealt out."""
        return WHOLE

    # --- at the start and the end --------------------------------------------------------------------------------

    def together(self, work: Callable[[], T]) -> T:
        """Do it everywhere; where it fails for one, it fails for all, with that one's error."""
        return work()

    def common(self, error: SeqloomError) -> BaseException:
        """What to raise where all ranks have found an error: rank 0 says it, and all end with its code."""
        return error

    def gather(self, text: str) -> list[str]:
        """What every rank has to say, in order. For short texts and rare occasions."""
        return [text]

    def tell(self, key: str, text: str) -> None:
        """Rank 0 lets the others know that something is done."""

    def told(self, key: str) -> str:
        """Wait until rank 0 has told it."""
        raise AssertionError("who is alone waits for nobody")

    def connect(self, device: torch.device, timeout: float) -> None:
        """Be ready to sum tensors on this device; a rank that is silent for `timeout` seconds counts as lost."""

    def disconnect(self) -> None:
        """No more tensors are summed; each rank may go on alone."""

    def at_step(self, step: int | None) -> None:
        """Where this process stands; None where it prepares or finishes."""

    # --- in every step -------------------------------------------------------------------------------------------

    def sum_gradients(self, parameters: Sequence[nn.Parameter], *, all_there: bool) -> None:
        """Every gradient becomes the sum over all ranks. `all_there`: no rank lacks one."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, where the values are."""
        return values

    def vote(self, reason: str | None) -> str | None:
        """Why to stop, if any rank was asked to: the same answer on all ranks."""
        return reason

    def rows(self, count: int) -> range:
        """The rows that this process computes of a batch that all have; none, where there are fewer than processes."""
        return range(self.rank, count, self.size)

    def whole(self, own: Tensor, count: int) -> Tensor:
        """The vectors of all rows of such a batch, each computed by its rank; gradients find their way back."""
        return own

    # --- now and then --------------------------------------------------------------------------------------------

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sums of plain numbers."""
        return list(values)

    def texts(self, mine: Sequence[str]) -> list[list[str]]:
        """The texts of every rank, in order."""
        return [list(mine)]

    def values(self, mine: Mapping[str, float]) -> dict[str, float]:
        """Rank 0's values, everywhere: what is decided by them is decided alike."""
        return dict(mine)

    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Rank 0's tensors, in place, everywhere."""

    def join_rows(self, tensors: Sequence[Tensor]) -> None:
        """Tensors of which each rank knows the rows of its share become whole, in place, everywhere."""


ALONE = Group()

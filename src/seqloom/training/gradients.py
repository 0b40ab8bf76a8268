"""The gradient of a group of batches as if they were one, within the memory there is.

Losses are sums; their gradients add up in `.grad`, and one division by the summed count makes accumulated, split and
joined batches equal (law 11). A batch that does not fit is cut in two. Nothing here updates a weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from seqloom.batch import Batch
from seqloom.errors import SeqloomError
from seqloom.shapes import Float, Tensor
from seqloom.tasks.base import Loss
from seqloom.training.phases import phase

Backward = Callable[[Batch], Loss]  # leaves the gradient of a batch's summed loss in `.grad`, and returns the sums


@dataclass(frozen=True)
class Measured:
    """One step in numbers: sums over its target tokens, and the norm of the mean gradient."""

    loss: float
    nll: float
    count: float  # what the sums are divided by: tokens, each weighted like its example
    norm: float
    finite: bool


class UnsplitError(SeqloomError):
    """A batch does not fit into memory, and its loss is not the sum of its parts'."""

    def __init__(self, batch: Batch) -> None:
        what = f"a batch of {len(batch):,} examples does not fit into memory, and its examples are learned together"
        super().__init__("E_MEMORY", what, where="batching", fix="lower batching.tokens or batching.sentences")


class TooLargeError(SeqloomError):
    """A single example does not fit into memory; `example` is its number, for whoever knows its line."""

    def __init__(self, example: int | None) -> None:
        self.example = example
        name = "a single example" if example is None else f"example {example}"
        fix = "lower data.limits.max_source and max_target, or make the model smaller"
        super().__init__("E_MEMORY", f"{name} does not fit into memory", where=name, fix=fix)


def summed(backward: Backward, group: Sequence[Batch], begin: Callable[[], None], splits: bool = True) -> Loss:
    """Leave the gradient of the group's summed loss in `.grad`, and return the sums.

    `begin` clears gradients and seeds the step. When a batch does not fit, its halves take its place and the group
    begins anew: a backward pass that failed midway has already added to some gradients. E_MEMORY when a single
    example does not fit, or a batch that a task never splits.
    """
    parts = list(group)
    while True:
        begin()
        sums: list[Loss] = []
        for number, part in enumerate(parts):
            loss = _within_memory(backward, part)
            if loss is None:
                if not splits:
                    raise UnsplitError(part)
                parts[number : number + 1] = _halves(part)
                break
            sums.append(loss)
        else:
            if not sums:  # all of it is computed elsewhere
                return Loss(torch.zeros(()), torch.zeros(()), torch.zeros(()))
            return Loss(
                torch.stack([loss.total for loss in sums]).sum(),
                torch.stack([loss.count for loss in sums]).sum(),
                torch.stack([loss.nll for loss in sums]).sum(),
            )


def plain(loss_of: Callable[[Batch], Loss], scale: float = 1.0) -> Backward:
    """Forward and back. The gradient is that of `scale` times the loss, the sums are not scaled."""

    def backward(batch: Batch) -> Loss:
        with phase("forward"):
            loss = loss_of(batch)
        with phase("backward"):
            (loss.total * scale).backward()  # type: ignore[no-untyped-call]
        return Loss(loss.total.detach(), loss.count, loss.nll.detach())

    return backward


def _within_memory(backward: Backward, batch: Batch) -> Loss | None:
    """One batch forward and back; None when memory ran out, with everything it held let go."""
    try:
        return backward(batch)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    if torch.cuda.is_available():  # outside the handler: the exception's frames kept the tensors alive until here
        torch.cuda.empty_cache()
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Torch names the GPU's failure by type, but the CPU's only in words."""
    words = ("DefaultCPUAllocator: can't allocate", "DefaultCPUAllocator: not enough memory")
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(word in str(error) for word in words)


def _halves(batch: Batch) -> list[Batch]:
    size = len(batch)
    if size <= 1:
        raise TooLargeError(batch.examples[0] if batch.examples else None)
    rows = torch.arange(size)
    return [batch.rows(rows[: size // 2]), batch.rows(rows[size // 2 :])]


def clear(parameters: Iterable[nn.Parameter], *, in_place: bool) -> None:
    """Forget all gradients; in place where a graph has written down where they are."""
    kept = list(parameters)
    for parameter in kept:
        if not in_place:
            parameter.grad = None
        elif parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if in_place:
        torch._foreach_zero_([parameter.grad for parameter in kept if parameter.grad is not None])


def measure(loss: Loss, gradients: list[Tensor]) -> Measured:
    """Read the step's numbers from the device, all in one go."""
    return measured(numbers(loss, gradients).tolist())


def numbers(loss: Loss, gradients: list[Tensor]) -> Float[Tensor, "4"]:
    """Loss, nll, count and the norm of the gradient: sums, where they were computed."""
    norm = torch.nn.utils.get_total_norm(gradients)
    return torch.stack([value.to(loss.total) for value in (loss.total, loss.nll, loss.count, norm)])


def measured(read: Sequence[float]) -> Measured:
    """What these four say of a step."""
    total, nll, count, length = read
    if not all(math.isfinite(value) for value in (total, nll, count, length)):
        return Measured(total, nll, 0.0, length, finite=False)
    return Measured(total, nll, count, length / (count or 1.0), finite=True)


def scale(gradients: list[Tensor], measured: Measured, clip: float | None) -> None:
    """From the gradient of the sum to that of the mean per token, shortened to `clip` when it is longer."""
    factor = 1.0 / (measured.count or 1.0)  # all examples may weigh nothing
    if clip is not None and measured.norm > clip:
        factor *= clip / measured.norm
    torch._foreach_mul_(gradients, factor)


def first_nonfinite(parameters: Iterable[tuple[str, nn.Parameter]]) -> str | None:
    """The name of the first parameter whose gradient is not finite."""
    for name, parameter in parameters:
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
            return name
    return None

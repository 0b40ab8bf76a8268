"""`batching.tokens: auto`: how many tokens a batch should hold for this data, and can hold on this machine.

The smaller of a preset for the number of pairs and what fits the memory, halved from the preset until the longest
examples fit. A GPU is asked by trying; a CPU, where running out of memory ends the process, by counting what one
example keeps for its backward pass. What is found is for the effective recipe: nobody measures twice (law 10).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from seqloom import runtime
from seqloom.batch import Batch
from seqloom.shapes import Tensor
from seqloom.tasks.base import Loss
from seqloom.training.gradients import is_out_of_memory

# Upper bound of the number of pairs -> tokens of a batch: small batches learn more from little data.
PRESETS = ((3_000, 1024), (30_000, 2048), (300_000, 4096), (3_000_000, 8192), (math.inf, 16384))
LEAST = 64  # tokens; a longer example stands alone in its batch whatever the budget is
SPARE = 0.1  # of a GPU's memory that is left to fragments
SHARE = 0.5  # of the free main memory that a batch may take
WORKING = 2  # a backward pass needs about as much again as was kept for it
STATES = 4  # gradients, two moments and an average, each as large as the parameters

LossOf = Callable[[Batch], Loss]
Longest = Callable[[int], Batch]  # the hardest batch of a budget: the longest examples it holds


def preset(pairs: int) -> int:
    """Tokens of a batch for so many pairs."""
    return next(tokens for bound, tokens in PRESETS if pairs < bound)


def fitting(model: nn.Module, loss_of: LossOf, longest: Longest, pairs: int) -> int:
    """The budget for a model on its device. Leaves no gradients, and weights as they were."""
    model.train()
    device = next(model.parameters()).device
    fits = _tried(model, loss_of, longest) if device.type == "cuda" else _counted(model, loss_of, longest)
    tokens = preset(pairs)
    while tokens > LEAST and not fits(tokens):
        tokens //= 2
    return tokens


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


# --- a GPU -------------------------------------------------------------------------------------------------------


def _tried(model: nn.Module, loss_of: LossOf, longest: Longest) -> Callable[[int], bool]:
    """Does a whole pass fit beside what an optimiser will hold?"""

    def fits(tokens: int) -> bool:
        device = next(model.parameters()).device
        total = torch.cuda.get_device_properties(device).total_memory
        try:
            held = torch.empty(round(STATES * _size(model) + SPARE * total), dtype=torch.uint8, device=device)
            loss_of(longest(tokens)).total.backward()  # type: ignore[no-untyped-call]
            del held
            return True
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        finally:
            model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()  # outside the handler: the exception's frames kept the tensors alive until here
        return False

    return fits


# --- a CPU -------------------------------------------------------------------------------------------------------


def _counted(model: nn.Module, loss_of: LossOf, longest: Longest) -> Callable[[int], bool]:
    """Would it fit, if every token kept as much as those of one small batch do?"""
    free = runtime.free_memory()
    batch = longest(LEAST)
    cells = max(part.mask.numel() for part in (*batch.sources.values(), *([batch.target] if batch.target else ())))
    kept = WORKING * kept_bytes(model, loss_of, batch) / cells
    return lambda tokens: free is None or tokens * kept + STATES * _size(model) <= SHARE * free


def kept_bytes(model: nn.Module, loss_of: LossOf, batch: Batch) -> int:
    """What autograd keeps of a batch for the backward pass, parameters not counted, every storage once."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of(batch)
    del loss
    return sum(sizes.values())

"""Matrices of a model that will only be asked, on a CPU: packed for thin products, or kept in 8 bits.

The products of decoding are thin: a few rows, one per hypothesis, against a whole matrix. With the matrix packed once,
in the layout that oneDNN's kernels read, they are two to three times as fast as torch's own, and give the same numbers
up to rounding. In 8 bits they are faster again, and a little less exact:

    W ~ diag(s) Q,  Q = round(W / s), s_o = max |W_o| / 127 of each output o      once
    x ~ t q,        q = round(x / t), t = max |x| / 127 of each row x             at every product
    x W^T ~ t s (q Q^T), the product in whole numbers

A row depends on no other row, so that outputs depend on their source alone (law 4). The copy serves where no gradient
is wanted; all else, training too, uses the weights themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.shapes import Float, Int, Tensor

PACKED = "seqloom_packed"  # the attribute of a weight that holds its other form
Bias = Float[Tensor, "O"] | None
Then = Literal["none", "relu", "gelu"]  # what may follow a product
MOST = 127  # of a whole number in 8 bits, either sign


@dataclass(frozen=True)
class Packed:
    """A matrix (O I) in the kernels' own layout."""

    weight: Tensor

    @staticmethod
    def of(weight: Float[Tensor, "O I"]) -> Packed:
        return Packed(torch.ops.mkldnn._reorder_linear_weight(weight, None))

    def times(self, x: Float[Tensor, "*r I"], bias: Bias, then: Then = "none") -> Float[Tensor, "*r O"]:
        exact = "none" if then == "gelu" else ""  # gelu itself, not the one by tanh
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self.weight, bias, then, [], exact)
        return product

    def added(self, x: Float[Tensor, "*r I"], bias: Bias, other: Float[Tensor, "*r O"]) -> Float[Tensor, "*r O"]:
        total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self.weight, bias, "add")
        return total


@dataclass(frozen=True)
class Rounded:
    """A matrix (O I) in 8 bits, transposed, and what one step of each output is worth."""

    weight: Int[Tensor, "I O"]
    steps: Float[Tensor, "O"]

    @staticmethod
    def of(weight: Float[Tensor, "O I"]) -> Rounded:
        steps = _steps(weight)
        return Rounded((weight / steps).round_().to(torch.int8).t().contiguous(), steps[:, 0])

    def times(self, x: Float[Tensor, "*r I"], bias: Bias, then: Then = "none") -> Float[Tensor, "*r O"]:
        rows = x.flatten(0, -2)
        steps = _steps(rows)
        whole = torch._int_mm((rows / steps).round_().to(torch.int8), self.weight)
        product = whole.to(torch.float32).mul_(steps).mul_(self.steps)
        if bias is not None:
            product.add_(bias)
        if then != "none":
            product = product.relu_() if then == "relu" else F.gelu(product)
        return product.view(*x.shape[:-1], -1)

    def added(self, x: Float[Tensor, "*r I"], bias: Bias, other: Float[Tensor, "*r O"]) -> Float[Tensor, "*r O"]:
        return self.times(x, bias).add_(other)


@runtime_checkable
class Flattening(Protocol):
    """A module that has a shorter way once all of its matrices have another form."""

    def lay_flat(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Product:
    """x W^T + b by the other form of W, and what is done to it in the same go. For those who know that there is one."""

    form: Packed | Rounded
    bias: Bias

    @staticmethod
    def of(layer: nn.Linear) -> Product:
        form = getattr(layer.weight, PACKED)
        assert isinstance(form, (Packed, Rounded))
        return Product(form, layer.bias)

    def times(self, x: Float[Tensor, "*r I"], then: Then = "none") -> Float[Tensor, "*r O"]:
        return self.form.times(x, self.bias, then)

    def added(self, x: Float[Tensor, "*r I"], other: Float[Tensor, "*r O"]) -> Float[Tensor, "*r O"]:
        """x W^T + b + other."""
        return self.form.added(x, self.bias, other)


def _steps(rows: Float[Tensor, "n I"]) -> Float[Tensor, "n 1"]:
    """What 1 is worth in each row; a row of zeros has any."""
    return (rows.abs().amax(1, keepdim=True) / MOST).clamp_(min=torch.finfo(torch.float32).tiny)


def linear(
    x: Float[Tensor, "*r I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, "O"] | None
) -> Float[Tensor, "*r O"]:
    """x W^T + b, by another form of W where there is one and nobody wants a gradient."""
    other = getattr(weight, PACKED, None)
    if other is None or torch.is_grad_enabled() or x.dtype != torch.float32 or not x.numel():
        return F.linear(x, weight, bias)
    if isinstance(other, Packed) and x.numel() == x.shape[-1]:  # one row: nothing is gained
        return F.linear(x, weight, bias)
    assert isinstance(other, (Packed, Rounded))
    return other.times(x, bias)


def is_packed(weight: Tensor) -> bool:
    """Has this weight another form, and is it wanted now?"""
    return hasattr(weight, PACKED) and not torch.is_grad_enabled()


def pack(network: nn.Module, int8: bool = False) -> None:
    """Give every matrix of a network on the CPU that will only be asked its other form; 8 bits are never left out."""
    if not _possible(int8):
        if int8:
            raise SeqloomError("E_EXTRA", "this torch has no products in 8 bits", fix="another torch, or no int8")
        return
    for module in network.modules():
        if isinstance(module, nn.RNNBase):  # its kernels read the weights; single steps are made of products
            for name, weight in module.named_parameters():
                if name.startswith("weight_"):
                    _give(weight, int8)
        elif isinstance(module, nn.Linear) or getattr(module, "multiplies", False):
            matrix = module.weight
            if isinstance(matrix, Tensor) and _give(matrix, int8) and isinstance(module, nn.Linear):
                module.forward = partial(linear, weight=matrix, bias=module.bias)  # type: ignore[method-assign]
    for module in network.modules():
        if isinstance(module, Flattening) and _all_given(module):
            module.lay_flat()


def _give(weight: Tensor, int8: bool) -> bool:
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return False
    with torch.no_grad():
        setattr(weight, PACKED, (Rounded if int8 else Packed).of(weight.detach()))
    return True


def _all_given(module: nn.Module) -> bool:
    return all(hasattr(part.weight, PACKED) for part in module.modules() if isinstance(part, nn.Linear))


def _possible(int8: bool = False) -> bool:
    """Is this torch one with such kernels? They are torch's own, but not promised to stay."""
    if int8:
        return hasattr(torch, "_int_mm")
    kernels = ("_linear_pointwise", "_reorder_linear_weight")
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and all(hasattr(torch.ops.mkldnn, name) for name in kernels)

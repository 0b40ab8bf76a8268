"""Tensors of a model on disk: safetensors, checked on the way in.

Size and checksum are compared before anything is read, names and shapes before anything is copied into a model, and
values that are not finite are refused. Nothing here is pickle, and nothing here knows what a checkpoint or bundle is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as _serialise
from torch import nn

from seqloom.errors import SeqloomError
from seqloom.files import file_error, sha256_file
from seqloom.shapes import Tensor

Weights = Mapping[str, Tensor]


def of_model(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by name, not copied; a tied tensor stands once, under its first name."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def copied(tensors: Weights) -> dict[str, Tensor]:
    """Copies on the CPU that later training does not change."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def to_bytes(tensors: Weights) -> bytes:
    """The safetensors file as bytes: written by us, so that a full disk is an error of ours and not of the library."""
    return _serialise({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def read(
    path: Path, *, size: int | None = None, checksum: str | None = None, allow_nonfinite: bool = False
) -> dict[str, Tensor]:
    """Tensors of a safetensors file whose size and sha256 are as promised; E_BUNDLE says what is wrong otherwise."""
    try:
        found = path.stat().st_size if path.is_file() or not path.exists() else 0  # a pipe or a device holds nothing
    except FileNotFoundError:
        promise = "" if size is None else f", expected {size:,} bytes"
        raise SeqloomError("E_BUNDLE", f"the weight file is missing{promise}", where=str(path)) from None
    except OSError as error:
        raise file_error(error, path, "read") from None
    if found == 0 or (size is not None and found != size):
        promise = "more than 0" if size is None else f"{size:,}"
        raise SeqloomError("E_BUNDLE", f"expected {promise} bytes, found {found:,}", where=str(path), fix=_FIX)
    if checksum is not None and sha256_file(path) != checksum:
        raise SeqloomError("E_BUNDLE", "the contents changed: sha256 differs", where=str(path), fix=_FIX)
    try:
        tensors = load_file(path)
    except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a type of numbers that torch does not have
        what = f"not a whole safetensors file of {found:,} bytes: {error}"
        raise SeqloomError("E_BUNDLE", what, where=str(path), fix=_FIX) from None
    except OSError as error:
        raise file_error(error, path, "read") from None
    if not allow_nonfinite:
        _refuse_nonfinite(tensors, str(path))
    return tensors


_FIX = "use another checkpoint, or copy the file again"


def _refuse_nonfinite(tensors: Weights, where: str) -> None:
    # As float32, which is what they become: it has less room than float64. Others are no weights (`compare` says so).
    numbers = {name: tensor.float() for name, tensor in tensors.items() if tensor.is_floating_point()}
    bad = [name for name, tensor in numbers.items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        what = f"not finite: {_listed(bad)}"
        raise SeqloomError("E_BUNDLE", what, where=where, fix="--allow-nonfinite reads it all the same")


def compare(expected: Weights, found: Weights, where: str) -> None:
    """Equal names, shapes and kinds of numbers, or E_BUNDLE that lists missing, extra and wrong ones."""
    problems: list[str] = []
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    wrong = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
    ]
    odd = [
        f"{name} {str(found[name].dtype).removeprefix('torch.')}"
        for name, tensor in expected.items()
        if name in found and found[name].is_floating_point() != tensor.is_floating_point()
    ]
    listed = (("missing", missing), ("extra", extra), ("wrong shape", wrong), ("wrong kind of numbers", odd))
    for word, names in listed:
        if names:
            problems.append(f"{word}: {_listed(names)}")
    if problems:
        what = "the weights are not of this architecture: " + "; ".join(problems)
        raise SeqloomError("E_BUNDLE", what, where=where, fix="use the recipe and vocabularies they were trained with")


def restore(model: nn.Module, tensors: Weights, where: str) -> None:
    """Copy the tensors into the model, all or none."""
    own = of_model(model)
    compare(own, tensors, where)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _listed(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

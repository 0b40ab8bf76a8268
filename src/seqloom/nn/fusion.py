"""Fused kernels: `torch.compile` for the few functions whose many small kernels are worth it.

A function marked `@fusible` runs as written, unless somebody switched fusion on (`fusing()`, around training on a GPU)
and no tape listens: then torch compiles it once for all shapes and calls what came out. Compiled code knows no tapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import torch
from torch import nn
from torch.fx.experimental import _config as symbolic_shapes

from seqloom.errors import SeqloomError
from seqloom.nn.tape import playing

P = ParamSpec("P")
T = TypeVar("T")

_fusing: ContextVar[str | None] = ContextVar("seqloom_fusing", default=None)


@contextmanager
def fusing(backend: str = "inductor") -> Iterator[None]:
    """Inside, fusible functions run compiled. Backends other than torch's own are for tests.

    Lengths that are equal in the first batch will not stay so: torch is told that, and only inside, because whoever
    makes graphs in the same process (`export/onnx.py`) is served by the contrary.
    """
    token = _fusing.set(backend)
    try:
        with any_sizes(distinct=True):
            yield
    finally:
        _fusing.reset(token)


@contextmanager
def any_sizes(*, distinct: bool) -> Iterator[None]:
    """Inside, torch takes sizes that are equal where it looks first as `distinct`, or else as one and the same."""
    before = symbolic_shapes.use_duck_shape
    symbolic_shapes.use_duck_shape = not distinct
    try:
        yield
    finally:
        symbolic_shapes.use_duck_shape = before


def compiling() -> bool:
    """Is this being compiled? What only serves tapes is left out then, and with it what is called differently in every
    layer: all layers of a kind share one compiled function."""
    return torch.compiler.is_compiling()


def has_fusible(model: nn.Module) -> bool:
    """Is there anything to compile? Not where layers are computed again in the backward pass, outside of `fusing`."""
    modules = list(model.modules())
    if any(getattr(module, "checkpointing", False) for module in modules):
        return False
    return any(getattr(type(module).forward, "is_fusible", False) for module in modules)


def fusible(function: Callable[P, T]) -> Callable[P, T]:
    """Marks a function of tensors that may be compiled: it asks nothing that only the device knows."""
    compiled: dict[str, Callable[P, T]] = {}  # by backend

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        backend = _fusing.get()
        if backend is None or playing():
            return function(*args, **kwargs)
        if backend not in compiled:
            compiled[backend] = torch.compile(function, dynamic=True, backend=backend)
        try:
            return compiled[backend](*args, **kwargs)
        except RuntimeError as error:
            refusal = _refusal(error)
            if refusal is None:
                raise
            raise refusal from error

    call.is_fusible = True  # type: ignore[attr-defined]
    return call


def _refusal(error: RuntimeError) -> SeqloomError | None:
    """What the user can do, where it was compiling that failed."""
    from torch._dynamo.exc import BackendCompilerFailed  # imported by whoever compiles, and slowly

    if not isinstance(error, BackendCompilerFailed):
        return None
    reason = " ".join(str(error).split("\n\n")[0].split())
    fix = "install a C compiler (gcc), or set runtime.compile: auto"
    return SeqloomError("E_EXTRA", f"torch could not compile a layer: {reason}", where="runtime.compile", fix=fix)

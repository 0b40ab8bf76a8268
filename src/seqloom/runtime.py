"""The machine: device, threads, precision, memory and seeds.

Randomness is a function of (seed, step, rank, stream) and never of what ran before: that is why resuming needs no
stored generator states (law 10). This file chooses nothing by a clock and reads no files but two of `/proc`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.overrides import TorchFunctionMode

from seqloom import __version__
from seqloom.config import Settings
from seqloom.errors import SeqloomError

Precision = Literal["auto", "float32", "bf16", "fp16"]
MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))  # here; many more cannot be started, and torch then dies of it
LARGE = 500_000  # parameters
_NARROW: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Runtime(Settings):
    """Where and how exactly to compute. `threads: null` leaves the choice to torch."""

    device: str = "auto"  # auto | cpu | cuda | cuda:1 | mps
    threads: int | None = Field(default=None, ge=1, le=4096)
    seed: int = Field(default=1, ge=0, lt=2**63)
    # Of products and recurrences in training; weights, sums and losses are always float32, and so is prediction unless
    # it is asked for something else. auto: bf16 for all but small models on a CPU that has instructions for it
    precision: Precision = "auto"
    tf32: bool = True  # in training on a GPU: float32 products of 10 bits. Prediction always uses all 23
    # On a GPU. auto: training steps become CUDA graphs where they can. fused: and torch compiles Transformer layers,
    # for a minute or two before the first steps
    compile: Literal["auto", "fused", "never"] = "auto"
    # Where several processes train one model: seconds without a sign of life after which one of them counts as lost
    timeout: float = Field(default=120.0, ge=2, le=86_400)
    deterministic: bool = False  # on a GPU: only algorithms that repeat bit for bit, at a price. The CPU always does


def apply(runtime: Runtime) -> torch.device:
    """Make this process compute as told, and return the device. Call it before the first tensor operation.

    Denormal numbers are flushed to zero first: worker threads inherit that from the thread that starts the pool, and
    a decayed Adam moment or LSTM gate that turns denormal would otherwise slow a CPU many times over.
    """
    torch.set_flush_denormal(True)
    check_threads(runtime.threads)
    if runtime.threads is not None:
        torch.set_num_threads(runtime.threads)
    device = find_device(runtime.device)
    check_precision(runtime.precision, device)
    deterministic = runtime.deterministic or device.type == "cpu"
    if device.type == "cuda" and runtime.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS may not repeat itself
    # On a CPU the one thing this changes is that scattered additions (the backward pass of indexing) run in order.
    # `use_deterministic_algorithms` says the same, and tells torch's compiler too, which takes over a second to import.
    torch.set_deterministic_debug_mode("default" if not deterministic else "warn" if device.type == "cpu" else "error")
    # A debugging aid that costs a pass over every buffer.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = runtime.deterministic
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if runtime.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = runtime.tf32
        torch.backends.cuda.enable_cudnn_sdp(False)  # it makes a plan for every new shape, slowly
    return device


def check_threads(threads: int | None) -> None:
    """E_RECIPE for more threads than this machine can use. Another machine may: a recipe is read wherever it goes."""
    if threads is not None and threads > MOST_THREADS:
        fix = f"at most {MOST_THREADS} here, or null to leave it to torch"
        raise SeqloomError(
            "E_RECIPE", f"{threads:,} threads on {os.cpu_count()} cores", where="runtime.threads", fix=fix
        )


def has_bf16(device: torch.device) -> bool:
    """Has this device instructions for bf16? A CPU without them needs more than twice as long as in float32."""
    if device.type == "cpu":
        has = torch.cpu.get_capabilities()
        return bool(has.get("avx512_bf16") or has.get("amx_bf16"))
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def fastest(device: torch.device, parameters: int) -> Precision:
    """What `auto` means for a model of so many parameters: in small ones changing types costs more than products gain.

    On a GPU float32 products are fast already (tf32), and a recipe may ask for less.
    """
    return "bf16" if device.type == "cpu" and has_bf16(device) and parameters >= LARGE else "float32"


_ANYWHERE = "auto or float32 run everywhere"


def check_precision(precision: Precision, device: torch.device) -> None:
    """E_RECIPE where this device cannot train in this precision."""
    if precision == "fp16" and device.type != "cuda":
        what = f"precision fp16 needs a CUDA device, this is {device.type}"
        raise SeqloomError("E_RECIPE", what, where="runtime.precision", fix=_ANYWHERE)
    if precision == "bf16" and device.type == "cpu" and torch.cpu.get_capabilities().get("avx512_f") is False:
        what = "precision bf16 needs a CPU with AVX-512, or a GPU"  # there are no kernels for recurrences on others
        raise SeqloomError("E_RECIPE", what, where="runtime.precision", fix=_ANYWHERE)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Inside, products run in this precision. A device without fp16 computes in float32 what was trained in fp16."""
    narrow = _NARROW.get(precision)
    if narrow is None or (precision == "fp16" and device.type != "cuda"):
        return nullcontext()
    return torch.autocast(device.type, dtype=narrow)


def find_device(name: str) -> torch.device:
    """The device of that name; `auto` takes a GPU when there is one. E_USAGE when it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SeqloomError("E_USAGE", f"no such device: {name!r}", where="device", fix=_DEVICES) from None
    there = {
        "cpu": device.index in (None, 0),
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(device.type, False):
        raise SeqloomError("E_USAGE", f"device {name!r} is not available here", where="device", fix=_DEVICES)
    return device


_DEVICES = "use auto, cpu, cuda or cuda:N"


def derived_seed(seed: int, step: int, rank: int = 0, stream: str = "train") -> int:
    """63 bits that depend on all four and on nothing else; streams keep training, validation and so on apart."""
    key = f"{seed}/{step}/{rank}/{stream}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


def seed_step(seed: int, step: int, rank: int = 0, stream: str = "train") -> np.random.Generator:
    """Seed torch's default generators for one step, and return a numpy generator for what torch does not draw.

    `torch.manual_seed` would do, but for every device that is not yet in use it keeps a note with three stack traces:
    0.4 ms a step, and memory that is never given back.
    """
    derived = derived_seed(seed, step, rank, stream)
    torch.default_generator.manual_seed(derived)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(derived)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(derived)
    return np.random.default_rng(derived)


def seeded_random(seed: int, step: int, rank: int = 0, stream: str = "train") -> random.Random:
    """The same for plain Python; shuffles and samples of the data use it. Touches no global state."""
    return random.Random(derived_seed(seed, step, rank, stream))


def describe() -> dict[str, str | int]:
    """What this ran on, for cards and benchmarks: versions, processor, threads."""
    found: dict[str, str | int] = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "seqloom": __version__,
    }
    for package in ("torch", "numpy", "safetensors", "sentencepiece", "sacrebleu"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(0)
        found["gpus"] = torch.cuda.device_count()
    return found


class _Shapes(TorchFunctionMode):
    """Inside, tensors have a shape and nothing else; first values are not drawn (torch loads for a second to do so)."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func.__name__.endswith(("normal_", "uniform_")):
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


SLACK = 100_000_000  # bytes that a recipe may ask for beyond the weights there are, before anything is made


def check_room(build: Callable[[], nn.Module], given: int | None = None) -> None:
    """E_MEMORY where the weights of a model do not fit in main memory: by their shapes, before they are made.

    `given` are the bytes of the weights that it is built for: E_BUNDLE where it would take far more than there are.
    """
    room = free_memory()
    try:
        with torch.device("meta"), _Shapes():
            needed = sum(parameter.nbytes for parameter in build().parameters())
    except RuntimeError as error:
        if "overflow" not in str(error).lower():  # what cannot be made of shapes alone is made as it is
            return
        needed = 2**63  # torch counts in 64 bits
    if given is not None and needed > given + SLACK:
        what = f"the recipe asks for {needed / 1e9:,.1f} GB of weights, and there are {given / 1e9:,.3f} GB"
        raise SeqloomError("E_BUNDLE", what, where="model", fix="use the recipe that the weights were trained with")
    if needed > (2**63 - 1 if room is None else room):
        size = "more than can be counted" if needed == 2**63 else f"{needed / 1e9:,.1f} GB"
        free = "" if room is None else f", and {room / 1e9:,.1f} GB of memory are free"
        fix = "make the model smaller: width, layers or vocabulary"
        raise SeqloomError("E_MEMORY", f"the weights take {size}{free}", where="model", fix=fix)


def free_memory() -> int | None:
    """Bytes of main memory that could still be used, where the system tells."""
    try:
        for line in Path("/proc/meminfo").read_text(errors="replace").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

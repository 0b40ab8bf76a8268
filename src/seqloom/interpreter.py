"""What the interpreter does beside the work: memory it gives back, garbage it looks for, threads it lets wait.

glibc gives large blocks back as soon as they are free and gets them again page by page, which costs a CPU an eighth of
a batched prediction and more of a training step. This changes the whole process, so only commands ask for it:
predictions of the library may run in a process that is somebody else's.

Every so often Python looks through all objects for cycles that nobody holds, and torch alone brings some 200,000: one
look can take as long as a batch of predictions, and a GPU waits meanwhile. What a prediction makes has no cycles.

A thread that waits for a GPU lets others have the interpreter and gets it back after their turn, which may be Python's
5 ms: longer than what the GPU does meanwhile. Nothing heavy is imported here.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # as malloc.h numbers them
ALL = -1
SOME = 1 << 30  # bytes
TURN = 2e-4  # seconds that a thread may keep the interpreter to itself, where Python's 5 ms are a whole training step


def keep_memory(most: int) -> None:
    """Keep up to so many free bytes at the heap's end, or ALL. Where the C library is not glibc, nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, most), (_TOP_PAD, 64 << 20)):
            mallopt(option, value)


@contextmanager
def without_collector() -> Iterator[None]:
    """Inside, no cycles are looked for; for work that is soon done and makes none."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


@contextmanager
def short_turns() -> Iterator[None]:
    """Inside, a thread that a device calls back has the interpreter at once, whatever another is at."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def settle() -> None:
    """What is there now stays: it is never looked through again. For a process of our own, once it is set up."""
    gc.freeze()

"""Freed memory is kept, not given back to the system: a training step or a search wants the same blocks again at once.

glibc gives large blocks back as soon as they are free and gets them again page by page, which costs a CPU an eighth of
a batched prediction and more of a training step. This changes the whole process, so only commands ask for it:
predictions of the library may run in a process that is somebody else's. Nothing heavy is imported here.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # as malloc.h numbers them
ALL = -1
SOME = 1 << 30  # bytes


def keep_memory(most: int) -> None:
    """Keep up to so many free bytes at the heap's end, or ALL. Where the C library is not glibc, nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, most), (_TOP_PAD, 64 << 20)):
            mallopt(option, value)

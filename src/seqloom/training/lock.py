"""One process per run folder.

The lock is the kernel's (`flock`) and dies with its process, so a stale one cannot exist; the number in the file
only tells a person whom to look for.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from seqloom.errors import SeqloomError
from seqloom.files import file_error


class RunLock:
    """`with RunLock(folder):` makes the folder if need be and refuses (E_LOCKED) when another process holds it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".lock"
        self._file: int | None = None

    def __enter__(self) -> RunLock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise file_error(error, self.path, "lock the run folder") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode("ascii", errors="replace").strip() or "unknown"
            os.close(file)
            what = f"process {holder} works on this run"
            fix = "wait for it or stop it, or train into another folder with --run"
            raise SeqloomError("E_LOCKED", what, where=str(self.path.parent), fix=fix) from None
        except OSError as error:
            os.close(file)
            raise file_error(error, self.path, "lock the run folder") from None
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:  # the file stays: removing it would let two processes lock two files of one name
            os.close(self._file)
            self._file = None

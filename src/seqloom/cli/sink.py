"""Where a command's data goes: stdout, or a file that in the end is whole or absent."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from seqloom.files import file_error, sync_folder


def same_file(output: Path | None, source: str | Path) -> bool:
    """Whether a command would write to the regular file that it reads. `-` is stdin or stdout, and None is stdout."""
    try:
        written = os.fstat(1) if output is None or str(output) == "-" else os.stat(output)
        read = os.fstat(0) if str(source) == "-" else os.stat(source)
    except (OSError, ValueError):  # nothing is there yet, or nothing that has a name
        return False
    return stat.S_ISREG(read.st_mode) and os.path.samestat(written, read)


class Sink:
    """`with Sink(path) as out: out.write(text)`. None and `-` are stdout.

    A regular file is written under a temporary name beside it and renamed when the block ends well. Devices and pipes
    are written straight, and so is what another program has opened (/dev/stdout, /dev/fd/3): nothing replaces them.
    """

    def __init__(self, path: Path | None) -> None:
        self.goal = None if path is None or str(path) == "-" else path
        self._temporary: Path | None = None
        self._file: BinaryIO = sys.stdout.buffer

    def __enter__(self) -> Sink:
        if self.goal is None:
            return self
        try:
            if str(self.goal).startswith(("/dev/", "/proc/")) or (self.goal.exists() and not self.goal.is_file()):
                self._file = self.goal.open("ab")
            else:
                self.goal = Path(os.path.realpath(self.goal))
                self._temporary = self.goal.with_name(f".{self.goal.name}.{os.getpid()}.tmp")
                self._file = self._temporary.open("wb")
        except OSError as error:
            raise file_error(error, self.goal) from None
        return self

    def write(self, text: str, flush: bool = False) -> None:
        """Add text, in UTF-8. An error of stdout goes up as it is: a closed pipe is no fault."""
        try:
            self._file.write(text.encode("utf-8", errors="surrogateescape"))
            if flush:
                self._file.flush()
        except OSError as error:
            if self.goal is None:
                raise
            raise file_error(error, self.goal) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.goal is None:
            if kind is None:
                self._file.flush()
            return
        try:
            if kind is None:
                self._keep(self.goal)
        except OSError as problem:
            raise file_error(problem, self.goal) from None
        finally:
            with suppress(OSError):
                self._file.close()
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)

    def _keep(self, goal: Path) -> None:
        self._file.flush()
        if self._temporary is not None:
            os.fsync(self._file.fileno())
            self._temporary.replace(goal)
            sync_folder(goal.parent)

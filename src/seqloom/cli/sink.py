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


class Sink:
    """`with Sink(path) as out: out.write(text)`. None and `-` are stdout; devices and pipes are written straight.

    A regular file is written under a temporary name beside it and renamed when the block ends well.
    """

    def __init__(self, path: Path | None) -> None:
        self.goal = None if path is None or str(path) == "-" else Path(os.path.realpath(path))
        self._temporary: Path | None = None
        self._file: BinaryIO = sys.stdout.buffer

    def __enter__(self) -> Sink:
        if self.goal is None:
            return self
        try:
            if self.goal.exists() and not stat.S_ISREG(self.goal.stat().st_mode):
                self._file = self.goal.open("wb")
            else:
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

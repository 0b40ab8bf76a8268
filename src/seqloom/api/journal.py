"""Answers noted down while a long job makes them, so that a job that was cut off goes on where it stopped.

One file: a stamp that says what the job is, then a JSON line per answer, in order. A file of another job is begun
anew; a line that was torn by the cut is dropped. When the job is done, the journal goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from seqloom.errors import SeqloomError
from seqloom.files import file_error

FLUSH_EVERY = 256  # answers


class Journal:
    """`with journal: journal.add(answer)`; `done` says how many answers are there already."""

    def __init__(self, path: Path, stamp: str) -> None:
        self.path = path
        self._stamp = json.dumps({"job": sha256(stamp.encode()).hexdigest()}).encode() + b"\n"
        self.done, self._size = self._found()
        self._file: BinaryIO | None = None

    def _found(self) -> tuple[int, int]:
        """Whole lines of this very job, and the bytes they take, the stamp's included."""
        try:
            with self.path.open("rb") as file:
                if file.readline() != self._stamp:
                    return 0, 0
                done, size = 0, len(self._stamp)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    done, size = done + 1, size + len(line)
                return done, size
        except FileNotFoundError:
            return 0, 0
        except OSError as error:
            raise file_error(error, self.path, "read") from None

    def __enter__(self) -> Journal:
        try:
            self._file = self.path.open("r+b" if self._size else "wb")
            self._file.truncate(self._size)
            self._file.seek(self._size)
            if not self._size:
                self._file.write(self._stamp)
        except OSError as error:
            raise file_error(error, self.path) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as problem:
                raise file_error(problem, self.path) from None

    def add(self, answer: str | None) -> None:
        assert self._file is not None, "only inside a with block"
        try:
            self._file.write(json.dumps(answer).encode() + b"\n")
            self.done += 1
            if self.done % FLUSH_EVERY == 0:
                self._file.flush()
        except OSError as error:
            raise file_error(error, self.path) from None

    def answers(self) -> Iterator[str | None]:
        """All of them, in order; E_BUNDLE where somebody changed the file."""
        with self.path.open("rb") as file:
            file.readline()
            for number, line in enumerate(file, start=2):
                try:
                    answer = json.loads(line)
                except (ValueError, RecursionError):
                    answer = 0
                if answer is not None and not isinstance(answer, str):
                    fix = "delete it and begin anew"
                    raise SeqloomError("E_BUNDLE", "not an answer", where=f"{self.path}:{number}", fix=fix)
                yield answer

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

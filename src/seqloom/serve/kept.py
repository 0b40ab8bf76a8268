"""What was loaded from a folder and is served, and is loaded anew when the folder holds something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
Mark = tuple[int, ...]  # of files: when each was written, its size, its place on disk


class Reloadable(Protocol):
    """What a server watches, whatever it is."""

    @property
    def changed(self) -> bool: ...

    def reload(self) -> None: ...


class Kept(Generic[T]):
    """One of them. `opened` loads it, `marked` tells one state of its folder from the next, or says None."""

    def __init__(self, path: Path, opened: Callable[[Path], T], marked: Callable[[Path], Mark | None]) -> None:
        self.path = path
        self._opened, self._marked = opened, marked
        self._mark = marked(path)
        self.loaded = opened(path)

    @property
    def changed(self) -> bool:
        """Does the folder hold another than the one that was loaded, or refused?"""
        return self._marked(self.path) not in (None, self._mark)

    def reload(self) -> None:
        """Put what the folder holds now in its place. Where that is nothing good, all stays as it is.

        What was refused is not tried again until it changes.
        """
        self._mark = self._marked(self.path)
        self.loaded = self._opened(self.path)


def mark_of(*files: Path) -> Mark | None:
    """Of these files together; None where one is missing."""
    try:
        found = [file.stat() for file in files]
    except OSError:
        return None
    return tuple(part for one in found for part in (one.st_mtime_ns, one.st_size, one.st_ino))

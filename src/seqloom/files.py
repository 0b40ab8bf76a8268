"""Files that are whole or absent: atomic writes, checksums and bounded reads.

A write goes to a temporary name beside its goal, is forced to disk, and is renamed; whatever fails, the old file
stays and the temporary one goes. Nothing here knows what is in a file, and nothing here imports torch.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from seqloom.errors import SeqloomError

_TEMPORARY = re.compile(r"\.(.+)\.\d+(?:-[0-9a-f]+)?\.tmp")
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def file_error(error: OSError, path: Path | str, verb: str = "write") -> SeqloomError:
    """The refusal for an operating system's error: E_DISK when space is the reason, E_FILE otherwise."""
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return SeqloomError(
            "E_DISK", f"cannot {verb}: {reason}", where=str(path), fix="free some space, then run again"
        )
    fix = "open it, or name a file" if error.errno == errno.EBADF else ""
    return SeqloomError("E_FILE", f"cannot {verb}: {reason}", where=str(path), fix=fix)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Checksum of a file, read in pieces."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise file_error(error, path, "read") from None


def read_bounded(path: Path, limit: int) -> bytes:
    """A whole file of at most `limit` bytes; E_BUNDLE when it is missing, larger or no file, before it is read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe waits for ever, a device has no end
            raise SeqloomError("E_BUNDLE", "not a regular file", where=str(path), fix="put a file in its place")
        if found.st_size > limit:
            raise SeqloomError("E_BUNDLE", f"{found.st_size:,} bytes, expected at most {limit:,}", where=str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise SeqloomError("E_BUNDLE", "the file is missing", where=str(path)) from None
    except OSError as error:
        raise file_error(error, path, "read") from None


def read_json(path: Path, limit: int, what: str, fix: str) -> dict[str, object]:
    """A JSON mapping that seqloom wrote, named `what` in the E_BUNDLE for a file that holds anything else."""
    data = read_bounded(path, limit)
    try:
        raw = json.loads(data, parse_float=_finite, parse_constant=_finite)
        json.dumps(raw, ensure_ascii=False).encode("utf-8")  # halves of characters could not be shown
        if not isinstance(raw, dict):
            raise ValueError("expected a mapping")
    except (ValueError, RecursionError):
        raise SeqloomError("E_BUNDLE", f"not {what} ({len(data):,} bytes)", where=str(path), fix=fix) from None
    return raw


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def atomic_write(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: afterwards it holds all of it, or what it held before."""
    with atomic_file(path) as file:
        file.write(data)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write, which becomes `path` when the block ends well and vanishes when it does not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")  # also in containers: all are 1
    try:
        if path.exists() and not path.is_file():  # a rename would put a file in the place of a device or a pipe
            what = "not a regular file, and a regular file would take its place"
            raise SeqloomError("E_FILE", what, where=str(path), fix="name another")
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise file_error(error, path) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, which becomes `path` when the block ends well and vanishes when it does not.

    A folder that already stands at `path` is replaced. Two renames are needed for that; `recover_folder` undoes the
    first when a power cut fell between them, and is called here and by whoever opens such a folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    retired = _retired(path)
    try:
        recover_folder(path)
        if path.exists() and not path.is_dir():
            raise SeqloomError("E_FILE", "a file stands where a folder should go", where=str(path), fix="name another")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        yield temporary
        _sync_tree(temporary)
        if path.exists():
            path.rename(retired)
        temporary.rename(path)
        sync_folder(path.parent)
        shutil.rmtree(retired, ignore_errors=True)
    except OSError as error:
        raise file_error(error, path) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):
            recover_folder(path)


def recover_folder(path: Path) -> None:
    """Put back a folder whose replacement was cut short, and drop one whose replacement arrived."""
    retired = _retired(path)
    if not retired.exists():
        return
    if path.exists():
        shutil.rmtree(retired, ignore_errors=True)
    else:
        retired.rename(path)


def sweep(folder: Path, names: Collection[str] | None = None) -> None:
    """Remove what processes that were killed left of files and folders of these names; None: of any.

    For whoever knows that nobody else writes them now.
    """
    for path in folder.glob(".*.tmp"):
        name = _TEMPORARY.fullmatch(path.name)
        if name is None or (names is not None and name[1] not in names):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _retired(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _sync_tree(folder: Path) -> None:
    for inner, _, names in os.walk(folder):
        for name in names:
            with (Path(inner) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(inner))


def sync_folder(folder: Path) -> None:
    """Force a folder's list of names to disk, so that a rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot; they need not
            raise
    finally:
        os.close(descriptor)

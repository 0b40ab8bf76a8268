"""Archives of arrays that NumPy wrote (.npz), read without trusting them.

Of each array the header is read first; one that holds Python objects, or tells of more bytes than there are, is
refused before its contents are looked at. So nothing is unpickled, and nothing is made larger than the file.
"""

from __future__ import annotations

import io
import zipfile
from math import prod
from pathlib import Path
from tokenize import TokenError

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from seqloom.errors import SeqloomError
from seqloom.files import file_error

MOST_BYTES = 16_000_000_000  # of all arrays together
MOST_ARRAYS = 20_000
MAX_HEADER = 10_000  # bytes
FIX = "copy the file again"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

Arrays = dict[str, npt.NDArray[np.generic]]


def read_archive(path: Path) -> Arrays:
    """Every array by its name; E_BUNDLE for what is no such archive, E_FILE where nothing can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if len(members) > MOST_ARRAYS or size > MOST_BYTES:
                what = f"{len(members):,} arrays of {size:,} bytes; at most {MOST_ARRAYS:,} of {MOST_BYTES:,} are read"
                raise SeqloomError("E_BUNDLE", what, where=str(path))
            if any(member.compress_size * 1100 + 1000 < member.file_size for member in members):  # deflate's limit
                raise SeqloomError("E_BUNDLE", "an archive that lies about its sizes", where=str(path), fix=FIX)
            return {member.filename.removesuffix(".npy"): _array(archive, member, path) for member in members}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError):
        raise SeqloomError("E_BUNDLE", "not a whole archive of arrays (.npz)", where=str(path), fix=FIX) from None
    except OSError as error:
        raise file_error(error, path, "read") from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> npt.NDArray[np.generic]:
    where = f"{path}: {member.filename}"
    data = archive.read(member)
    file = io.BytesIO(data)
    try:
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format")
        shape, by_columns, dtype = _HEADERS[version](file, max_header_size=MAX_HEADER)
    except (ValueError, EOFError, SyntaxError, TypeError, TokenError, RecursionError, MemoryError, OverflowError):
        raise SeqloomError("E_BUNDLE", "not a NumPy array", where=where, fix=FIX) from None
    if dtype.hasobject or dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise SeqloomError("E_BUNDLE", f"it holds {dtype}; only numbers are read", where=where)
    if len(data) - file.tell() != prod(shape) * dtype.itemsize:
        what = f"{len(data) - file.tell():,} bytes, but its header tells of {prod(shape) * dtype.itemsize:,}"
        raise SeqloomError("E_BUNDLE", what, where=where, fix=FIX)
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if by_columns else "C")

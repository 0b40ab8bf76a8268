"""Arrays in files that NumPy wrote (.npy), read without trusting them: the header alone decides what is looked at.

A .npy file may hold pickled Python objects; such a file is refused by its header, before a byte of its contents is
read. What is read is bounded, whole, numeric and finite. This file knows nothing of models or recipes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from seqloom.data.source import check_file
from seqloom.errors import SeqloomError
from seqloom.files import file_error

SUFFIX = ".npy"
MAX_FRAMES, MAX_FEATURES = 1_000_000, 65_536  # of one file; more is no sequence that a model could read
MAX_HEADER = 10_000  # bytes
_ZIP = b"PK\x03\x04"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
SAVED = "numpy.save('x.npy', x) with x of (time, features)"

Values = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Header:
    """What a file says of its array: frames S, features F, and where and how its numbers lie."""

    path: str
    frames: int
    features: int
    dtype: np.dtype[np.generic]
    by_columns: bool
    offset: int

    @classmethod
    def read(cls, path: str) -> Header:
        """E_FILE where nothing can be read; E_DATA for what is no array of numbers of (time, features)."""
        found = check_file(path)
        try:
            with open(path, "rb") as file:
                shape, by_columns, dtype = cls._parsed(path, file)
                offset = file.tell()
        except OSError as error:
            raise file_error(error, path, "read") from None
        _check_kind(path, dtype)
        header = cls(path, *_checked_shape(path, shape), dtype, by_columns, offset)
        expected = offset + header.frames * header.features * dtype.itemsize
        if found.st_size != expected:
            what = f"{found.st_size:,} bytes, but its header tells of {expected:,}"
            raise SeqloomError(
                "E_DATA", what, where=path, fix="the file was not written or copied whole: write it again"
            )
        return header

    @staticmethod
    def _parsed(path: str, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
        start = file.read(len(_ZIP))
        file.seek(0)
        if start == _ZIP:
            fix = "save each array by itself: numpy.save instead of numpy.savez"
            raise SeqloomError("E_DATA", "an archive of arrays (.npz), not one array", where=path, fix=fix)
        try:
            version = npy.read_magic(file)
            if version not in _HEADERS:
                raise ValueError(f"version {version} of the format")
            return _HEADERS[version](file, max_header_size=MAX_HEADER)
        except (ValueError, EOFError, SyntaxError, TypeError, TokenError, RecursionError, MemoryError, OverflowError):
            raise SeqloomError("E_DATA", "not a NumPy array (.npy)", where=path, fix=f"write it with {SAVED}") from None

    def values(self) -> Values:
        """The numbers as float32; E_DATA for one that is not finite."""
        order: Literal["F", "C"] = "F" if self.by_columns else "C"
        shape = (self.frames, self.features)
        try:
            mapped = np.memmap(self.path, self.dtype, "r", self.offset, shape, order)
            with np.errstate(over="ignore"):
                values = np.array(mapped, dtype=np.float32, order="C")  # a copy: the file is closed again
        except (OSError, ValueError) as error:
            raise file_error(OSError(str(error)), self.path, "read") from None
        if not np.isfinite(values).all():
            frame, feature = np.argwhere(~np.isfinite(values))[0].tolist()
            what = f"{values[frame, feature]} at frame {frame}, feature {feature} (counted from 0)"
            fix = "every number must be finite in float32: mend the features, or take the line out of the list"
            raise SeqloomError("E_DATA", what, where=self.path, fix=fix)
        return values


def _check_kind(path: str, dtype: np.dtype[np.generic]) -> None:
    if dtype.hasobject:
        what, fix = "it holds Python objects, which are never read", "save numbers: numpy.save('x.npy', x.astype('f4'))"
        raise SeqloomError("E_DATA", what, where=path, fix=fix)
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        what = f"its numbers are {dtype}; float16, float32, float64 and integers are read"
        raise SeqloomError("E_DATA", what, where=path, fix="save it as x.astype('float32')")


def _checked_shape(path: str, shape: tuple[int, ...]) -> tuple[int, int]:
    told = f"an array of shape {shape}"
    if len(shape) != 2:
        fix = "one feature only: x[:, None]" if len(shape) == 1 else "reshape it to two dimensions"
        raise SeqloomError("E_DATA", f"{told}, but (time, features) is expected", where=path, fix=fix)
    frames, features = shape
    if frames < 1 or features < 1:
        what = f"an empty array: {frames} frames of {features} features"
        raise SeqloomError("E_DATA", what, where=path, fix="take the line out of the list, or write the file again")
    if frames > MAX_FRAMES or features > MAX_FEATURES:
        what = f"{told}: at most {MAX_FRAMES:,} frames of {MAX_FEATURES:,} features are read"
        fix = "is it (features, time)? then save x.T" if features > MAX_FEATURES else "cut it into shorter sequences"
        raise SeqloomError("E_DATA", what, where=path, fix=fix)
    return frames, features


def files_in(place: str) -> list[str] | None:
    """The array that a file is, or those of a folder in the order of their names; None for anything else."""
    path = Path(place)
    if not path.is_dir():
        return [place] if place.endswith(SUFFIX) else None
    found = sorted(str(one) for one in path.iterdir() if one.name.endswith(SUFFIX))
    if not found:
        what = f"the folder holds no {SUFFIX} files"
        raise SeqloomError("E_FILE", what, where=place, fix=f"write them with {SAVED}")
    return found

"""Bytes in and out of files: plain, gzip or a pipe; lines with their numbers and offsets.

Only "\\n" and "\\r\\n" end a line: a U+2028 inside a sentence is a character. Everything streams in constant memory.
This file refuses to guess: bytes that are not UTF-8, or an archive that breaks off, are errors that say where.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from seqloom.errors import SeqloomError
from seqloom.files import file_error

CHUNK = 1 << 18
MAX_LINE_BYTES = 64 << 20  # one line; longer ones are dropped while they are read
STDIN = "-"
_MAGIC = b"\x1f\x8b"  # what gzip files begin with

BadUtf8 = Literal["error", "skip", "replace"]
Tally = Counter[str]  # what was skipped or mended while reading: "bad_utf8", "line_too_long"


@dataclass(frozen=True)
class RawLine:
    """One line without its end; `data` is None when it was longer than MAX_LINE_BYTES."""

    number: int
    offset: int  # of its first byte, in the uncompressed file
    data: bytes | None


@dataclass(frozen=True)
class Part:
    """Some whole lines of a file: where they begin, counted in lines (from 1) and in uncompressed bytes (from 0)."""

    first: int
    lines: int
    offset: int
    size: int  # bytes


def shown(path: str) -> str:
    """How a path is named in messages."""
    return "<stdin>" if path == STDIN else path


def resolved(path: str, base: Path | None) -> str:
    """A path relative to `base` (the recipe's folder); stdin and absolute paths stay."""
    return path if path == STDIN or base is None else str(base / path)


def read_error(path: str, error: OSError | ValueError) -> SeqloomError:
    """The operating system's refusal as ours. ValueError: a NUL in the path."""
    return file_error(error if isinstance(error, OSError) else OSError(str(error)), shown(path), "read")


# --- reading -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(path: str) -> Iterator[io.BufferedIOBase]:
    """A binary stream from a path or stdin, which stays open."""
    if path == STDIN:
        yield cast(io.BufferedIOBase, sys.stdin.buffer)
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115 (closed below; the errors of opening are ours, those of the body not)
    except (OSError, ValueError) as error:
        raise read_error(path, error) from None
    with stream:
        yield stream


def pieces(stream: io.BufferedIOBase, path: str) -> Iterator[bytes]:
    """What is left of a stream as it is; what fails here is the reading."""
    try:
        while piece := stream.read1(CHUNK):
            yield piece
    except OSError as error:
        raise read_error(path, error) from None


def chunks(path: str) -> Iterator[bytes]:
    """The content of a file in pieces, uncompressed when it begins with gzip's magic bytes, whatever its name."""
    with opened(path) as stream:
        try:
            first = stream.read(2)
            if first == _MAGIC:
                yield from _gunzip(first, stream, path)
                return
            yield first
            while chunk := stream.read1(CHUNK):  # what is there: a person may be typing
                yield chunk
        except OSError as error:
            raise read_error(path, error) from None


def span(path: str, offset: int, size: int) -> Iterator[bytes]:
    """So many bytes of a file's uncompressed content; a plain file is read from there on, an archive from its start."""
    with opened(path) as stream:
        try:
            packed = stream.read(2) == _MAGIC
            if not packed:
                stream.seek(offset)
                while size > 0 and (chunk := stream.read(min(CHUNK, size))):
                    size -= len(chunk)
                    yield chunk
                return
        except OSError as error:
            raise read_error(path, error) from None
    for chunk in chunks(path):
        some = chunk[offset : offset + size]
        offset, size = max(0, offset - len(chunk)), size - len(some)
        if some:
            yield some
        if size == 0:
            return


def _gunzip(first: bytes, stream: io.BufferedIOBase, path: str) -> Iterator[bytes]:
    """Every member of a gzip stream, with checksums verified and each step's output bounded."""

    def broken(why: str) -> SeqloomError:
        what = f"not a whole gzip file: it {why}, after {lines:,} whole line{'' if lines == 1 else 's'}"
        fix = "the file is damaged or was not copied whole: fetch it again"
        return SeqloomError("E_GZIP", what, where=f"{shown(path)}, byte {offset:,}", fix=fix)

    member = zlib.decompressobj(wbits=31)  # 31: a gzip header, and its checksum is checked
    pending = first
    offset = lines = 0  # compressed bytes taken and lines given so far
    while True:
        if not pending:
            pending = stream.read1(CHUNK)
            if not pending:
                if not member.eof:
                    raise broken("ends too early")
                return
        if member.eof:  # zeros may pad the end of a member; anything else must be a further member
            padding = len(pending) - len(pending.lstrip(b"\0"))
            offset, pending = offset + padding, pending[padding:]
            if not pending:
                continue
            if not pending.startswith(_MAGIC[: len(pending)]):
                raise broken("goes on with something else")
            member = zlib.decompressobj(wbits=31)
        before = member.copy()
        try:
            data = member.decompress(pending, CHUNK * 4)
        except zlib.error:
            taken, whole = _salvaged(before, pending)
            offset, lines = offset + taken, lines + whole
            raise broken("is corrupt") from None
        rest = member.unused_data if member.eof else member.unconsumed_tail
        offset, pending = offset + len(pending) - len(rest), rest
        lines += data.count(b"\n")
        if data:
            yield data


def _salvaged(member: zlib._Decompress, data: bytes) -> tuple[int, int]:
    """How many bytes of corrupt data can still be read, and how many lines end in them."""
    lines = 0
    for taken in range(len(data)):
        try:
            lines += member.decompress(data[taken : taken + 1]).count(b"\n")
        except zlib.error:
            return taken, lines
    return len(data), lines


def raw_lines(path: str, part: Part | None = None) -> Iterator[RawLine]:
    """Lines as bytes, a leading byte order mark dropped. A line over the cap keeps its number and loses its data."""
    number, offset = (1, 0) if part is None else (part.first, part.offset)
    parts: list[bytes] = []  # of the line that is still open
    size = 0
    for chunk in chunks(path) if part is None else span(path, part.offset, part.size):
        *ended, rest = chunk.split(b"\n")
        for data in ended:
            yield _raw_line(number, offset, parts, size, data)
            number, offset = number + 1, offset + size + len(data) + 1
            parts, size = [], 0
        size += len(rest)
        if size <= MAX_LINE_BYTES:
            parts.append(rest)
        else:
            parts.clear()
    if size:
        yield _raw_line(number, offset, parts, size, b"")


def _raw_line(number: int, offset: int, parts: list[bytes], size: int, last: bytes) -> RawLine:
    if size + len(last) > MAX_LINE_BYTES:
        return RawLine(number, offset, None)
    data = b"".join([*parts, last]) if parts else last
    if number == 1 and data.startswith(b"\xef\xbb\xbf"):
        data, offset = data[3:], offset + 3
    return RawLine(number, offset, data.removesuffix(b"\r"))


def decoded(line: RawLine, path: str, on_bad_utf8: BadUtf8, tally: Tally) -> str | None:
    """The text of a line, or None where it is to be skipped (and counted)."""
    if line.data is None:
        tally["line_too_long"] += 1
        return None
    try:
        return line.data.decode("utf-8")
    except UnicodeDecodeError as error:
        if on_bad_utf8 == "error":
            raise _bad_utf8(line, path, error.start) from None
        tally["bad_utf8"] += 1
        return None if on_bad_utf8 == "skip" else line.data.decode("utf-8", errors="replace")


def _bad_utf8(line: RawLine, path: str, start: int) -> SeqloomError:
    assert line.data is not None
    utf16 = line.number == 1 and line.data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return SeqloomError(
        "E_UTF8",
        f"byte 0x{line.data[start]:02X} is not UTF-8" + (" (the file looks like UTF-16)" if utf16 else ""),
        where=f"{shown(path)}:{line.number}, byte offset {line.offset + start:,}",
        fix="convert the file (iconv -t utf-8)",
    )


@contextlib.contextmanager
def mending(remedy: str) -> Iterator[None]:
    """Add the caller's own way to skip or mend lines to the error of one that is not UTF-8."""
    try:
        yield
    except SeqloomError as error:
        if error.code != "E_UTF8" or not error.fix:
            raise
        raise SeqloomError(error.code, error.what, where=error.where, fix=f"{error.fix}, or {remedy}") from None


# --- files as they lie on disk -----------------------------------------------------------------------------------


def is_regular(path: str) -> bool:
    """Whether a path can be read again from its start: not stdin, not a pipe, not a device."""
    if path == STDIN:
        return False
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError) as error:
        raise read_error(path, error) from None

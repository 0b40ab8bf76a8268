"""Encoded pairs on disk, memory-mapped: a corpus larger than memory is shuffled exactly, by index.

A corpus is a folder of raw arrays (ids end to end, and where each sequence ends) and one JSON that describes them.
It is written once, whole or not at all, and never changed. Texts are kept only where sampled tokenisation needs them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import BinaryIO, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from seqloom import config
from seqloom.batch import UNK
from seqloom.data.codec import MAX_CHARACTERS, TextCodec
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, file_error

FORMAT = 1
Ids = npt.NDArray[np.integer]
Lengths = npt.NDArray[np.int64]
SIDES = ("source", "target")


class Limits(config.Settings):
    """Which pairs are worth training on. Lengths are in tokens, EOS not counted."""

    max_source: int = Field(default=512, ge=1)
    max_target: int = Field(default=512, ge=1)
    max_ratio: float | None = Field(default=None, ge=1.0)  # the longer side over the shorter


@dataclass(frozen=True)
class Pair:
    """One encoded example; `index` is its place in the corpus."""

    source: Ids
    target: Ids
    index: int


@dataclass
class Counts:
    """What became of every example that was read: kept, or skipped by exactly one filter."""

    read: int = 0
    kept: int = 0
    empty_source: int = 0
    empty_target: int = 0
    long_source: int = 0
    long_target: int = 0
    ratio: int = 0
    source_tokens: int = 0  # of the kept pairs
    target_tokens: int = 0
    source_unknown: int = 0
    target_unknown: int = 0

    FILTERS: ClassVar = ("empty_source", "empty_target", "long_source", "long_target", "ratio")

    @property
    def skipped(self) -> dict[str, int]:
        """Count per filter, in the order they are applied."""
        return {name: getattr(self, name) for name in self.FILTERS}


class Corpus:
    """`corpus[i]` is the i-th kept pair. Nothing is loaded but what is asked for."""

    def __init__(self, folder: Path, description: Mapping[str, object]) -> None:
        self.folder = folder
        self.fingerprint = str(description["fingerprint"])  # sha256 of all ids and lengths
        self.keeps_text = bool(description["keep_text"])
        sizes = description["sizes"]
        assert isinstance(sizes, dict)

        def array(name: str, dtype: str) -> npt.NDArray[np.integer]:
            return _mapped(folder / name, np.dtype(dtype), int(sizes[name]))

        self._ids = [array(f"{side}.ids", str(description["dtype"])) for side in SIDES]
        self._offsets = [array(f"{side}.offsets", "<i8") for side in SIDES]
        self._lines = array("lines", "<i8")
        kept = SIDES if self.keeps_text else ()
        self._texts = [array(f"{side}.text", "u1") for side in kept]
        self._text_offsets = [array(f"{side}.text.offsets", "<i8") for side in kept]

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """A corpus that was built before; every file must still have its size."""
        path = folder / "corpus.json"
        try:
            description = json.loads(path.read_text("utf-8"))
            if not isinstance(description, dict) or description.get("format") != FORMAT:
                raise ValueError(f"format {FORMAT} is expected")
            return cls(folder, description)
        except OSError as error:
            raise file_error(error, path, "read") from None
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            fix = "delete the folder; it is built again from the data"
            raise SeqloomError("E_BUNDLE", f"the corpus is damaged: {error}", where=str(folder), fix=fix) from None

    @classmethod
    def build(
        cls,
        examples: Iterable[Example],
        source: TextCodec,
        target: TextCodec,
        folder: Path,
        limits: Limits,
        keep_text: bool = False,
    ) -> tuple[Corpus, Counts]:
        """Encode, filter and write in one pass; the first reference is the target. E_EMPTY if none is left."""
        counts = Counts()
        size = max(len(source.vocabulary), len(target.vocabulary))
        writer = _Writer(folder, "<u2" if size <= 1 << 16 else "<i4", keep_text)
        try:
            for example in examples:
                ids = _encoded(example, source, target, limits, counts)
                if ids is not None:
                    writer.add(ids, example)
            if not counts.kept:
                raise _nothing_kept(counts)
            writer.finish()
        except OSError as error:
            raise file_error(error, folder) from None
        finally:
            writer.clean()
        return cls.open(folder), counts

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Pair:
        source, target = (
            ids[offsets[index] : offsets[index + 1]] for ids, offsets in zip(self._ids, self._offsets, strict=True)
        )
        return Pair(source, target, index)

    def lengths(self) -> tuple[Lengths, Lengths]:
        """Tokens of every source and of every target, EOS not counted."""
        source, target = (np.diff(offsets).astype(np.int64) for offsets in self._offsets)
        return source, target

    def line(self, index: int) -> int:
        """The line of the data file that a pair came from."""
        return int(self._lines[index])

    def text(self, index: int) -> tuple[str, str]:
        """Source and target as they were read, where `keep_text` was asked for."""
        assert self.keeps_text, "the corpus was built without its texts"
        source, target = (
            data[offsets[index] : offsets[index + 1]].tobytes().decode("utf-8")
            for data, offsets in zip(self._texts, self._text_offsets, strict=True)
        )
        return source, target

    def resampled(self, pair: Pair, source: TextCodec, target: TextCodec, rng: Random) -> Pair:
        """The same pair cut into other pieces (BPE dropout), as the rng decides."""
        texts = self.text(pair.index)
        ids = [np.asarray(codec.encode_sampled(text, rng)) for codec, text in zip((source, target), texts, strict=True)]
        return Pair(ids[0], ids[1], pair.index)


def _mapped(path: Path, dtype: np.dtype[np.integer], size: int) -> npt.NDArray[np.integer]:
    found = path.stat().st_size
    if found != size:
        raise ValueError(f"{path.name} has {found:,} bytes, {size:,} are expected")
    return np.memmap(path, dtype=dtype, mode="r")


def _encoded(
    example: Example, source: TextCodec, target: TextCodec, limits: Limits, counts: Counts
) -> tuple[list[int], list[int]] | None:
    """The ids of a pair, or None where a filter skips it; either way it is counted once."""
    counts.read += 1
    verdict = _cheap_verdict(example)
    if verdict is None:
        ids = source.encode(example.source), target.encode(example.target)
        verdict = _verdict(len(ids[0]), len(ids[1]), limits)
    if verdict is not None:
        setattr(counts, verdict, getattr(counts, verdict) + 1)
        return None
    counts.kept += 1
    counts.source_tokens += len(ids[0])
    counts.target_tokens += len(ids[1])
    counts.source_unknown += ids[0].count(UNK)
    counts.target_unknown += ids[1].count(UNK)
    return ids


def _cheap_verdict(example: Example) -> str | None:
    """Blank texts are empty, and enormous ones are long: nobody needs to tokenize them to know."""
    for side, text in zip(SIDES, (example.source, example.target), strict=True):
        if len(text) > MAX_CHARACTERS:
            return f"long_{side}"
        if not text or text.isspace():
            return f"empty_{side}"
    return None


def _verdict(source: int, target: int, limits: Limits) -> str | None:
    """The first filter that these lengths fail, if any."""
    if not source:
        return "empty_source"
    if not target:
        return "empty_target"
    if source > limits.max_source:
        return "long_source"
    if target > limits.max_target:
        return "long_target"
    if limits.max_ratio is not None and max(source, target) > limits.max_ratio * min(source, target):
        return "ratio"
    return None


def _nothing_kept(counts: Counts) -> SeqloomError:
    skipped = ", ".join(f"{name} {count:,}" for name, count in counts.skipped.items())
    what = f"of {counts.read:,} pairs none is left ({skipped})" if counts.read else f"there are no pairs ({skipped})"
    return SeqloomError("E_EMPTY", what, fix="check the file and the limits")


class _Writer:
    """Writes the arrays into a temporary neighbour of `folder` and moves it there when all is well."""

    def __init__(self, folder: Path, dtype: str, keep_text: bool) -> None:
        self.folder, self.dtype, self.keep_text = folder, dtype, keep_text
        self.temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        self.digest = hashlib.sha256()
        self.files: dict[str, BinaryIO] = {}
        self.ends: dict[str, int] = {}
        names = [f"{side}.{kind}" for side in SIDES for kind in (("ids", "text") if keep_text else ("ids",))]
        try:
            shutil.rmtree(self.temporary, ignore_errors=True)
            self.temporary.mkdir(parents=True)
            for name in [*names, *map(_offsets_name, names), "lines"]:
                self.files[name] = open(self.temporary / name, "wb")  # noqa: SIM115 (closed by `clean`)
            for name in names:
                self.ends[name] = 0
                self.files[_offsets_name(name)].write(_int64(0))
        except OSError as error:
            self.clean()
            raise file_error(error, folder) from None

    def add(self, ids: tuple[list[int], list[int]], example: Example) -> None:
        for side, tokens in zip(SIDES, ids, strict=True):
            data = np.asarray(tokens, dtype=self.dtype).tobytes()
            self.digest.update(_int64(len(tokens)) + data)
            self._append(f"{side}.ids", data, len(tokens))
        if self.keep_text:
            for side, text in zip(SIDES, (example.source, example.target), strict=True):
                encoded = text.encode("utf-8")
                self._append(f"{side}.text", encoded, len(encoded))
        self.files["lines"].write(_int64(example.line))

    def _append(self, name: str, data: bytes, items: int) -> None:
        self.files[name].write(data)
        self.ends[name] += items
        self.files[_offsets_name(name)].write(_int64(self.ends[name]))

    def finish(self) -> None:
        """Everything to disk, then the description, then the name."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        description = {
            "format": FORMAT,
            "dtype": self.dtype,
            "keep_text": self.keep_text,
            "fingerprint": self.digest.hexdigest(),
            "sizes": {name: file.tell() for name, file in self.files.items()},
        }
        atomic_write(self.temporary / "corpus.json", json.dumps(description, indent=1).encode())
        if self.folder.exists():
            shutil.rmtree(self.folder)
        os.replace(self.temporary, self.folder)

    def clean(self) -> None:
        """Close the files; remove what was not finished."""
        for file in self.files.values():
            with contextlib.suppress(OSError):
                file.close()
        shutil.rmtree(self.temporary, ignore_errors=True)


def _offsets_name(name: str) -> str:
    """`source.ids` has its offsets in `source.offsets`, `source.text` in `source.text.offsets`."""
    return name.removesuffix(".ids") + ".offsets"


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little")

"""Encoded pairs on disk, memory-mapped: a corpus larger than memory is shuffled exactly, by index.

A corpus is a folder of raw arrays (ids end to end, and where each sequence ends) and one JSON that describes them.
It is written once, whole or not at all, and never changed. Texts are kept only where sampled tokenisation needs them.
What becomes of an example before it is written is `filters.py`'s; how pairs are drawn from it is `batching.py`'s.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from seqloom import wording
from seqloom.data.codecs import Codecs, Ids, Pair
from seqloom.data.columns import Columns, Ragged, picked
from seqloom.data.examples import Example, links_of, pharaoh
from seqloom.data.filters import Counts, Limits, encoded, nothing_kept
from seqloom.data.source import Read
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, file_error, read_json

__all__ = ["Corpus", "Counts", "Ids", "Lengths", "Limits", "Pair"]

FORMAT = 2
FRAMES = "source.frames"
Lengths = npt.NDArray[np.int64]


class _Description(BaseModel):
    """What `corpus.json` must hold."""

    format: Literal[2]
    dtype: Literal["<u2", "<i4"]  # of ids
    keep_text: bool
    features: int | None = None  # F, where sources are frames: their numbers stand where ids would
    extras: list[str]  # those with an encoder of their own
    corpora: list[int]  # pairs of each of several mixed corpora, which stand one after the other
    fingerprint: str  # sha256 of all that a pair holds
    sizes: dict[str, int]  # bytes of every file

    @property
    def read(self) -> str:
        """The file of what is read of sources."""
        return "source.ids" if self.features is None else FRAMES

    def needed(self) -> set[str]:
        """The files that every pair is read from."""
        sides = ["source", "target", *(f"extra.{name}" for name in self.extras)]
        texts = ["source.text", "target.text"] if self.keep_text else []
        ids = [f"{side}.ids" for side in sides if side != "source"]
        return {"lines", self.read, *ids, *texts, *(f"{name}.offsets" for name in (*sides, *texts))}


class Corpus:
    """`corpus[i]` is the i-th kept pair. Nothing is loaded but what is asked for."""

    def __init__(self, folder: Path, description: _Description) -> None:
        self.folder = folder
        self.fingerprint, self.keeps_text = description.fingerprint, description.keep_text
        self.extras, self.sizes = description.extras, tuple(description.corpora)
        self.features = description.features
        if missing := description.needed() - description.sizes.keys():
            raise ValueError(f"sizes: {min(missing)} is missing")
        self._arrays = {
            name: _mapped(folder / name, _dtype(name, description.dtype), size)
            for name, size in description.sizes.items()
            if "/" not in name
        }
        if sum(self.sizes) != len(self):
            raise ValueError(f"corpora: {len(self):,} pairs are expected")

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """A corpus that was built before; every file must still have its size."""
        path, fix = folder / "corpus.json", "delete the folder; it is built again from the data"
        raw = read_json(path, 1_000_000, "a corpus's description", fix)
        try:
            return cls(folder, _Description.model_validate(raw))
        except OSError as error:
            raise file_error(error, path, "read") from None
        except ValueError as error:  # pydantic's own is one
            what = wording.first_problem(error) if isinstance(error, ValidationError) else str(error)
            raise SeqloomError("E_BUNDLE", f"the corpus is damaged: {what}", where=str(path), fix=fix) from None

    @classmethod
    def build(
        cls, examples: Iterable[Example], codecs: Codecs, folder: Path, limits: Limits, keep_text: bool = False
    ) -> tuple[Corpus, Counts]:
        """Encode, filter and write in one pass; the first reference is the target. E_EMPTY if none is left.

        Examples of several corpora come one corpus after the other.
        """
        counts = Counts()
        writer = _Writer(folder, codecs, keep_text)
        try:
            for example in examples:
                pair = encoded(example, codecs, limits, counts)
                if pair is not None:
                    writer.add(pair, example)
            if not counts.kept:
                raise nothing_kept(counts)
            writer.finish()
        except OSError as error:
            raise file_error(error, folder) from None
        finally:
            writer.clean()
        return cls.open(folder), counts

    def __len__(self) -> int:
        return len(self._arrays["lines"])

    def __getitem__(self, index: int) -> Pair:
        weights = self._arrays.get("weights")
        return Pair(
            self._read(index),
            self._slice("target.ids", "target", index),
            index,
            {name: self._slice(f"extra.{name}.ids", f"extra.{name}", index) for name in self.extras},
            self._slice("copies", "source", index) if "copies" in self._arrays else None,
            1.0 if weights is None else float(weights[index]),
            self._links(index),
            self._slice("words", "source", index) if "words" in self._arrays else None,
        )

    @cached_property
    def columns(self) -> Columns | None:
        """All pairs in long arrays; None where they hold more than ids and weights."""
        if self.features is not None or "copies" in self._arrays or "words" in self._arrays or self.has_links:
            return None

        def side(name: str) -> Ragged:
            return Ragged(np.asarray(self._arrays[f"{name}.ids"]), np.asarray(self._arrays[f"{name}.offsets"]))

        weights = self._arrays.get("weights")
        return Columns(
            side("source"),
            side("target"),
            np.arange(len(self)),
            {name: side(f"extra.{name}") for name in self.extras},
            None if weights is None else np.asarray(weights, dtype=np.float64),
        )

    def pick(self, rows: npt.NDArray[np.int64]) -> Sequence[Pair]:
        """These pairs, ready to be put side by side."""
        return picked(self if self.columns is None else self.columns, rows)

    def _read(self, index: int) -> Read:
        """S, or S F of frames."""
        if self.features is None:
            return self._slice("source.ids", "source", index)
        first, last = (int(self._arrays["source.offsets"][i]) * self.features for i in (index, index + 1))
        return np.asarray(self._arrays[FRAMES][first:last]).reshape(-1, self.features)

    def _slice(self, name: str, side: str, index: int) -> Ids:
        offsets = self._arrays[f"{side}.offsets"]
        return self._arrays[name][offsets[index] : offsets[index + 1]]

    def _links(self, index: int) -> Ids | None:
        """None where nothing is known of the pair: an alignment has one link at least."""
        if not self.has_links:
            return None
        links = self._slice("alignment.ids", "alignment", index)
        return links.reshape(-1, 2) if len(links) else None

    def lengths(self) -> tuple[Lengths, Lengths]:
        """Tokens of every source (all that is read, the ends of extras counted) and of every target; EOS not."""
        source, target = (np.diff(self._arrays[f"{side}.offsets"]).astype(np.int64) for side in ("source", "target"))
        for name in self.extras:
            source = source + np.diff(self._arrays[f"extra.{name}.offsets"]) + 1
        return source, target

    @property
    def has_links(self) -> bool:
        return "alignment.ids" in self._arrays

    def line(self, index: int) -> int:
        """The line of the data file that a pair came from."""
        return int(self._arrays["lines"][index])

    def text(self, index: int) -> tuple[str, str]:
        """Source and target as they were read, where `keep_text` was asked for."""
        assert self.keeps_text, "the corpus was built without its texts"
        return self._text("source", index), self._text("target", index)

    def _text(self, name: str, index: int) -> str:
        return self._slice(f"{name}.text", f"{name}.text", index).tobytes().decode("utf-8")

    def resampled(self, pair: Pair, codecs: Codecs, rng: Random) -> Pair:
        """The same pair cut into other pieces (BPE dropout), as the rng decides."""
        source, target = self.text(pair.index)
        extras = {name: self._text(f"extra.{name}", pair.index) for name in codecs.extras}
        links = None
        if pair.links is not None:
            links = links_of(self._text("alignment", pair.index), source, target, f"pair {pair.index}")
        new, _ = codecs.pair({"source": source, **extras}, target, pair.index, links, (pair.source, rng))
        return replace(new, weight=pair.weight)

    def varied(self, pair: Pair, codecs: Codecs, rng: Random) -> Pair:
        """The same pair with its source changed as training may see it, and its target cut anew where that samples."""
        source = codecs.source.varied(pair.source, rng)
        if not codecs.target.samples:
            return replace(pair, source=source)
        said = np.array(codecs.target.encode_sampled(self.text(pair.index)[1], rng), dtype=np.int64)
        return replace(pair, source=source, target=said)


def _mapped(path: Path, dtype: np.dtype[np.generic], size: int) -> npt.NDArray[Any]:
    found = path.stat().st_size
    if found != size:
        raise ValueError(f"{path.name} has {found:,} bytes, {size:,} are expected")
    if not size:  # nothing can be mapped: every sequence of this side is empty
        return np.zeros(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _dtype(name: str, ids: str) -> np.dtype[np.generic]:
    """How the numbers of a file are written; `ids` are those of vocabularies."""
    if name.endswith(".offsets") or name == "lines":
        return np.dtype("<i8")
    if name.endswith(".text"):
        return np.dtype("u1")
    return np.dtype(
        {"weights": "<f4", FRAMES: "<f4", "copies": "<i4", "words": "<i4", "alignment.ids": "<i4"}.get(name, ids)
    )


class _Writer:
    """Writes the arrays into a temporary neighbour of `folder` and moves it there when all is well."""

    def __init__(self, folder: Path, codecs: Codecs, keep_text: bool) -> None:
        self.folder, self.keep_text = folder, keep_text
        self.extras = codecs.encoders
        size = max(codec.size for codec in (codecs.source, codecs.target, *codecs.extras.values()))
        self.features: int | None = None
        self.dtype = "<u2" if size <= 1 << 16 and not codecs.copies else "<i4"  # a copied id has no bound
        self.temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        self.digest = hashlib.sha256()
        self.files: dict[str, BinaryIO] = {}
        self.dtypes: dict[str, np.dtype[np.generic]] = {}
        self.ends: dict[str, int] = {}
        self.count = 0  # pairs
        self.kept: Counter[int] = Counter()  # by corpus
        try:
            shutil.rmtree(self.temporary, ignore_errors=True)
            self.temporary.mkdir(parents=True)
        except OSError as error:
            self.clean()
            raise file_error(error, folder) from None

    def add(self, pair: Pair, example: Example) -> None:
        self._add_read(pair.source)
        self._append("target.ids", "target", pair.target)
        for name in self.extras:
            self._append(f"extra.{name}.ids", f"extra.{name}", pair.extras[name])
        if pair.copies is not None:
            self._write("copies", pair.copies)
        if pair.words is not None:
            self._write("words", pair.words)
        if pair.links is not None or "alignment.ids" in self.files:
            links = np.zeros(0, np.int64) if pair.links is None else pair.links.flatten()
            self._append("alignment.ids", "alignment", links)
        if example.weight != 1 or "weights" in self.files:
            self._write("weights", np.array([example.weight]), first=1.0)
        if self.keep_text:
            self._add_texts(example)
        self._file("lines").write(_int64(example.line))
        self.count += 1
        self.kept[example.corpus] += 1

    def _add_read(self, read: Read) -> None:
        """What is read: ids, or frames, whose ends are counted in frames."""
        if read.ndim == 1:
            self._append("source.ids", "source", read)
            return
        self.features = read.shape[1]
        self._append(FRAMES, "source", read.reshape(-1), len(read))

    def _add_texts(self, example: Example) -> None:
        texts = {"source": example.source, "target": example.target, "alignment": pharaoh(example.links or ())}
        for name, text in (texts | {f"extra.{name}": text for name, text in example.extras.items()}).items():
            self._append(f"{name}.text", f"{name}.text", np.frombuffer(text.encode("utf-8"), np.uint8))

    def _append(self, name: str, side: str, items: npt.NDArray[np.generic], length: int | None = None) -> None:
        """One more sequence of a `length` (by default as many as its items). A side that begins late was empty for all
        pairs before."""
        self._write(name, items)
        self.ends[name] = end = self.ends.get(name, 0) + (len(items) if length is None else length)
        offsets = f"{side}.offsets"
        if offsets not in self.files:
            self._file(offsets).write(_int64(0) * (self.count + 1))
        self.files[offsets].write(_int64(end))

    def _write(self, name: str, items: npt.NDArray[np.generic], first: float | None = None) -> None:
        """Append numbers to a file; one that begins late has `first` for every pair before."""
        if name not in self.files:
            self._file(name)
            if first is not None:
                self.files[name].write(np.full(self.count, first, self.dtypes[name]).tobytes())
        data = items.astype(self.dtypes[name]).tobytes()
        self.files[name].write(data)
        if not name.endswith(".text"):
            self.digest.update(_int64(len(items)) + data)

    def _file(self, name: str) -> BinaryIO:
        """The file of this name, made when it is first written to."""
        if name not in self.files:
            self.dtypes[name] = _dtype(name, self.dtype)
            self.files[name] = open(self.temporary / name, "wb")  # noqa: SIM115 (closed by `clean`)
        return self.files[name]

    def finish(self) -> None:
        """Everything to disk, then the description, then the name."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        description = {
            "format": FORMAT,
            "dtype": self.dtype,
            "keep_text": self.keep_text,
            "features": self.features,
            "extras": self.extras,
            "corpora": [self.kept[number] for number in range(max(self.kept) + 1)],
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


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little")

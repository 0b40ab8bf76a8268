"""Do the sources of a dataset name files? Of which kind, how long they are, and which of them cannot be read.

`init` and `check` look with these eyes, before there is a recipe that says what a source is. Names are judged by their
ends; only files that a list names are opened, and no more of them than it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from seqloom.config import kind_of
from seqloom.data.codecs import CODECS
from seqloom.data.examples import Example
from seqloom.data.frames import FramesCodec
from seqloom.data.images import SUFFIXES
from seqloom.data.sound import SoundCodec
from seqloom.data.source import SourceSettings, check_file, in_folder
from seqloom.errors import SeqloomError

FileKind = Literal["frames", "pixels", "sound"]
ENDS: dict[FileKind, tuple[str, ...]] = {
    "frames": FramesCodec.suffixes,
    "pixels": SUFFIXES,
    "sound": SoundCodec.suffixes,
}
WHAT: dict[FileKind, str] = {"frames": "arrays (.npy)", "pixels": "pictures", "sound": "sounds"}
LOOKED_AT = 500  # sources; all of them must name such files
OPENED = 20  # files, to learn how long they are


@dataclass(frozen=True)
class Files:
    """What sources name: files of one kind, and how many positions a model reads of one, about."""

    kind: FileKind
    settings: SourceSettings
    mean: float
    longest: int  # of those that were opened


def file_kind(sample: Sequence[Example]) -> FileKind | None:
    """The kind of files that all sources name; None where they are texts."""
    names = [example.source.strip().lower() for example in sample[:LOOKED_AT] if example.source.strip()]
    found = (kind for kind, ends in ENDS.items() if names and all(name.endswith(ends) for name in names))
    return next(found, None)


def opened(kind: FileKind, sample: Sequence[Example]) -> Files:
    """A look into some of the files, spread over the sample; E_FILE or E_DATA names the first that cannot be read."""
    settings = cast(SourceSettings, CODECS.settings({"kind": kind, **SHAPES.get(kind, {})}))
    named = [example for example in sample if example.source.strip()]
    some = named[:: max(1, len(named) // OPENED)][:OPENED]
    lengths = []
    for example in some:
        path = in_folder(example.source, example.file)
        with example.told():
            codec = CODECS[kind_of(settings)].train(settings, lambda path=path: iter([path]), 1)  # type: ignore[misc]
            lengths.append(codec.length(path))
    return Files(kind, settings, sum(lengths) / len(lengths), max(lengths))


SHAPES: dict[FileKind, dict[str, object]] = {"pixels": {"size": 64, "region": 8}, "sound": {"stack": 2}}


def unreadable(example: Example) -> str:
    """Why the file that a source names cannot be read; empty where it can."""
    try:
        if example.source.strip():
            check_file(in_folder(example.source, example.file))
    except SeqloomError as error:
        return f"{error.what}: {error.where}"
    return ""

"""Do the sources of a dataset name files? Of which kind, how long they are, and which of them cannot be read.

`init` and `check` look with these eyes, before there is a recipe that says what a source is. Names are judged by their
ends; only files that a list names are opened, and no more of them than it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from seqloom.config import kind_of
from seqloom.data.arrays import Header
from seqloom.data.clips import Clip
from seqloom.data.codecs import CODECS
from seqloom.data.examples import Example
from seqloom.data.frames import FramesCodec
from seqloom.data.images import SUFFIXES, check_picture
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
ONE: dict[FileKind, str] = {"frames": "an array", "pixels": "a picture", "sound": "a sound"}
BEGINNING = 4096  # bytes by which text is known
ALL, EVERY = 1000, 50  # files whose contents `check` decodes: the first ones, and then one in so many


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
        placed = replace(example, source=in_folder(example.source, example.file), name=example.source)
        with placed.told():
            codec = CODECS[kind_of(settings)].train(settings, lambda path=placed.source: iter([path]), 1)  # type: ignore[misc]
            lengths.append(codec.length(placed.source))
    return Files(kind, settings, sum(lengths) / len(lengths), max(lengths))


SHAPES: dict[FileKind, dict[str, object]] = {"pixels": {"size": 64, "region": 8}, "sound": {"stack": 2}}


def refuse_other_kind(place: str, reads: str) -> None:
    """E_DATA for a picture, a sound or an array, by its name, where a run reads another kind; texts may be named so."""
    kind = next((kind for kind, ends in ENDS.items() if place.lower().endswith(ends)), None)
    if kind is None or kind == reads or (reads == "text" and _is_text(place)):
        return
    wanted = WHAT.get(cast(FileKind, reads), "texts")
    what = f"this run reads {wanted}, and this is {ONE[kind]} by its name"
    raise SeqloomError("E_DATA", what, where=place, fix=f"give {wanted}, or a run that reads {WHAT[kind]}")


def _is_text(place: str) -> bool:
    """By its beginning."""
    try:
        with open(place, "rb") as file:
            file.read(BEGINNING).decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    except OSError:
        return True  # whoever reads it will say what is wrong
    return True


class Opening:
    """Opens the files that sources name, to tell which of them cannot be read.

    Of every file the head is looked at. Contents are decoded of the first ones, and then of every so many: `decoded`
    of `seen`. What needs a package that is not here is looked at by its name alone, and `missing` says so.
    """

    def __init__(self, kind: FileKind, max_seconds: float | None = None) -> None:
        self.kind = kind
        settings = cast(SourceSettings, CODECS.settings({"kind": kind, **SHAPES.get(kind, {})}))
        self._settings = settings if max_seconds is None else settings.model_copy(update={"max_seconds": max_seconds})
        self.seen = self.decoded = 0
        self.missing = ""

    def unreadable(self, example: Example) -> str:
        """Why the file that a source names cannot be read; empty where it can."""
        if not example.source.strip():
            return ""
        path = in_folder(example.source, example.file)
        self.seen += 1
        try:
            check_file(path)
            self._open(path)
        except SeqloomError as error:
            if error.code != "E_EXTRA":
                return f"{error.what}: {error.where}"
            self.missing = f"{error.what}; {error.fix}"
        return ""

    def _open(self, path: str) -> None:
        if self.missing:
            return
        if self.seen <= ALL or self.seen % EVERY == 0:
            CODECS[self.kind].train(self._settings, lambda: iter([path]), 1)
            self.decoded += 1
        elif self.kind == "pixels":
            check_picture(path)
        elif self.kind == "sound":
            Clip.read(path, cast(SoundCodec.Settings, self._settings).max_seconds)
        else:
            Header.read(path)

    def told(self) -> str:
        """How much was looked at."""
        if self.missing:
            return f"{self.seen:,} {WHAT[self.kind]} are there, and none was opened: {self.missing}"
        part = "" if self.decoded == self.seen else f", {self.decoded:,} of them to their end"
        return f"{self.seen:,} {WHAT[self.kind]} opened{part}"

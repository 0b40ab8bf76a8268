"""Sources that are pictures or sounds: looked at when a study is made, and sent to its page as they were then.

A file is known to the study by its path and its hash, so that nothing else is ever sent in its place. Its contents, not
its name, tell what it is; what browsers do not know is sent as PNG or WAV. Raters name items, never files.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from seqloom.data import images
from seqloom.data.clips import Clip
from seqloom.data.examples import Example
from seqloom.data.source import check_file
from seqloom.errors import SeqloomError
from seqloom.files import file_error
from seqloom.rate.plan import MOST_BYTES, Media, Type

MOST_SECONDS = 600.0
PICTURES: dict[str, Type] = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "BMP": "image/bmp"}
SOUNDS: dict[str, Type] = {"WAV": "audio/wav", "FLAC": "audio/flac", "OGG": "audio/ogg", "MP3": "audio/mpeg"}
Kind = Literal["picture", "sound"]


def media_of(example: Example, kind: Kind) -> Media:
    """The file of an example's source, looked at; E_FILE or E_DATA with its line where raters could not be shown it."""
    path = example.source
    with example.told():
        size = check_file(path).st_size
        if size > MOST_BYTES:
            what = f"a file of {size:,} bytes: at most {MOST_BYTES:,} are shown"
            raise SeqloomError("E_DATA", what, where=path, fix="make it smaller, or take it out of the list")
        known, usual = _looked_at(path, kind)
        mark = hashlib.sha256(_read(path, MOST_BYTES)).hexdigest()
    caption = ", ".join(example.extras.values())
    return Media(
        kind=kind,
        path=str(Path(path).resolve()),
        size=size,
        sha256=mark,
        type=known or usual,
        converted=known is None,
        caption=caption,
    )


def located(example: Example, place: str) -> Example:
    """The same example with the place of the file that it names."""
    return replace(example, source=place, name=example.source)


def content(media: Media) -> bytes:
    """What the page is sent. E_FILE or E_DATA where the file is not the one of the study any more."""
    check_file(media.path)
    found = _read(media.path, media.size)
    if len(found) != media.size or hashlib.sha256(found).hexdigest() != media.sha256:
        raise SeqloomError("E_DATA", "the file changed since the study was made", where=media.path)
    if not media.converted:
        return found
    if media.kind == "picture":
        return images.as_png(media.path)
    return Clip.read(media.path, MOST_SECONDS).as_wav()


def _looked_at(path: str, kind: Kind) -> tuple[Type | None, Type]:
    """What it is, where browsers know that, and what it would be sent as otherwise."""
    if kind == "picture":
        images.check_picture(path)
        return PICTURES.get(images.still_format(path)), "image/png"
    clip = Clip.read(path, MOST_SECONDS)
    return SOUNDS.get(clip.form) if clip.is_plain else None, "audio/wav"


def _read(path: str, most: int) -> bytes:
    """One byte more than it may have, so that a file that grew is noticed."""
    try:
        with open(path, "rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise file_error(error, path, "read") from None


def kind_by(source: str | None) -> Kind | None:
    """What raters are shown of a kind of source: nothing but its text, or its name, of most."""
    return cast("dict[str | None, Kind]", {"pixels": "picture", "sound": "sound"}).get(source)

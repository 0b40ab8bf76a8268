"""Files that clients send, for runs that read pictures, sound or arrays.

A form has two parts: `request`, what would be the JSON body without the input, and `file`. The file lies in a folder of
its own under a name of ours while it is read, and is gone afterwards; what a client calls it is shown and never opened.
Decoders look at heads before they decode (`data/images.py`, `data/clips.py`, `data/arrays.py`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from seqloom.errors import SeqloomError
from seqloom.web.refusals import Refusal

MOST_NAME = 80  # characters of a file's name that are told
OF_FILES = ("E_DATA", "E_FILE", "E_LONG")


@dataclass(frozen=True)
class Upload:
    """A file as it was sent, and what was asked beside it."""

    name: str
    content: bytes = field(repr=False)
    request: str

    @contextmanager
    def on_disk(self) -> Iterator[str]:
        """The path of the file, as long as it is needed; what is wrong with it is told by the client's name."""
        with tempfile.TemporaryDirectory(prefix="seqloom-upload-") as folder:
            place = Path(folder) / f"file{_suffix(self.name)}"
            place.write_bytes(self.content)
            try:
                yield str(place)
            except SeqloomError as error:
                if error.code not in OF_FILES:
                    raise
                code = "E_LONG" if error.code == "E_LONG" else "E_DATA"
                raise SeqloomError(code, error.what, where=self.name, fix="send another file") from None


async def received(request: Request, most: int) -> Upload:
    """The two parts of a form; E_MALFORMED where it is another."""
    try:
        form = await request.form(max_files=1, max_fields=1, max_part_size=most)
    except Refusal:
        raise
    except HTTPException as error:
        raise Refusal("E_MALFORMED", f"not a form that can be read: {error.detail}", fix="/docs shows which") from None
    try:
        sent, asked = form.get("file"), form.get("request", "{}")
        if not isinstance(sent, UploadFile) or not isinstance(asked, str):
            raise Refusal("E_MALFORMED", "a form with the parts 'request' and 'file' is expected", fix="/docs shows it")
        return Upload(_told(sent.filename or ""), await sent.read(), asked)
    finally:
        await form.close()


def _told(name: str) -> str:
    """The last part of a name, without what no terminal or page should see."""
    last = PurePath(name.replace("\\", "/")).name
    return "".join(letter for letter in last if letter.isprintable())[:MOST_NAME] or "the file"


def _suffix(name: str) -> str:
    """Some decoders go by it."""
    suffix = PurePath(name).suffix.lower()
    return suffix if suffix[1:].isalnum() and suffix.isascii() and len(suffix) <= 6 else ""

"""Cards: what a folder that seqloom wrote says of itself, and the only word that is taken for it.

A card names the files of its folder with size and sha256. It is read bounded, as JSON of a known form; what it says of
a file is compared with the file before the file is used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from seqloom import wording
from seqloom.errors import SeqloomError
from seqloom.files import read_json, sha256_file

MOST_BYTES = 16_000_000
MOST_FILES = 1_000


class File(BaseModel):
    """What a card says of a file."""

    model_config = ConfigDict(extra="forbid")
    size: int
    sha256: str


class Card(BaseModel):
    """What every card holds; a kind of card says what else, and what it is called."""

    model_config = ConfigDict(extra="forbid")
    NAME: ClassVar[str]  # of what it is the card: "a bundle"
    FORMAT: ClassVar[int] = 1  # the newest that is known
    format: int
    files: dict[str, File]


C = TypeVar("C", bound=Card)


def read(path: Path, kind: type[C], fix: str) -> C:
    """A card of this kind; E_FORMAT where a newer seqloom wrote it, E_BUNDLE where it is none."""
    raw = read_json(path, MOST_BYTES, f"a card of {kind.NAME}", fix)
    if isinstance(version := raw.get("format"), int) and version > kind.FORMAT:
        newer = f" needs seqloom >= {str(raw['seqloom'])[:40]}" if "seqloom" in raw else f", known up to {kind.FORMAT}"
        what = f"{kind.NAME} of format {wording.shown(version)}{newer}"
        raise SeqloomError("E_FORMAT", what, where=str(path), fix="upgrade seqloom")
    try:
        card = kind.model_validate(raw)
    except ValidationError as error:
        what = f"not a card of {kind.NAME}: {wording.first_problem(error)}"
        raise SeqloomError("E_BUNDLE", what, where=str(path), fix=fix) from None
    if len(card.files) > MOST_FILES:
        raise SeqloomError("E_BUNDLE", f"{len(card.files):,} files, at most {MOST_FILES:,}", where=str(path), fix=fix)
    for name in card.files:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
            what = f"the card names a file outside its folder: {name!r}"
            raise SeqloomError("E_BUNDLE", what, where=str(path), fix=fix)
    return card


def listed_files(folder: Path) -> dict[str, dict[str, int | str]]:
    """Every file of a folder with its size and sha256, as a card names them."""
    named = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256_file(path)}
        for path in named
    }


def written(card: Card) -> bytes:
    """A card as its file."""
    return json.dumps(card.model_dump(mode="json"), ensure_ascii=False, indent=1, allow_nan=False).encode()


def check_files(folder: Path, card: Card, fix: str, needs: Sequence[str] = ()) -> None:
    """E_BUNDLE for a file of the card that is not as it says or is not there, and for a card without what it needs."""
    for name in needs:
        if name not in card.files:
            raise SeqloomError("E_BUNDLE", f"the card names no {name}", where=str(folder), fix=fix)
    for name, file in card.files.items():
        check_file(folder, name, file, fix)


def check_file(folder: Path, name: str, file: File, fix: str) -> None:
    """E_BUNDLE for a file that is not as its card says, or is no file of this folder."""
    path = folder / name
    if path.resolve() != folder.resolve() / name:
        what, copy = "a link; the folder holds its files itself", "put a copy in the place of the link"
        raise SeqloomError("E_BUNDLE", what, where=str(path), fix=copy)
    if not path.is_file():
        raise SeqloomError("E_BUNDLE", f"missing; expected {file.size:,} bytes", where=str(path), fix=fix)
    size = path.stat().st_size
    if size != file.size:
        raise SeqloomError("E_BUNDLE", f"expected {file.size:,} bytes, found {size:,}", where=str(path), fix=fix)
    if sha256_file(path) != file.sha256:
        raise SeqloomError("E_BUNDLE", "the contents changed: sha256 differs", where=str(path), fix=fix)

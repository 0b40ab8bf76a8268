"""A trained model on disk: weights, effective recipe, tokenizers and vocabularies, and a card.

`card.json` names every file with its size and sha256; what it does not name is not read, and nothing read is pickle
or evaluated. A bundle is written whole or not at all.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from seqloom import __version__, weights, wording
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, read_bounded, read_json, recover_folder, sha256_file
from seqloom.shapes import Tensor

FORMAT = 1
CARD, RECIPE, WEIGHTS = "card.json", "recipe.yaml", "weights.safetensors"
_MAX_CARD_BYTES = 16_000_000
_MAX_FILES = 1_000


class File(BaseModel):
    """What a card says of a file."""

    model_config = ConfigDict(extra="forbid")
    size: int
    sha256: str


class _About(BaseModel):
    """What readers of a card rely on, where it stands there; a trainer may write more."""

    model_config = ConfigDict(extra="allow")
    name: str = ""
    languages: dict[str, str] = {}
    parameters: int = 0
    data: dict[str, File] = {}
    machine: dict[str, str | int] = {}
    validation: dict[str, float] = {}
    calibration: dict[str, int | float | str] = {}
    sentences_per_line: float = 1.0
    reason: str = ""


class _Card(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: int
    seqloom: str
    files: dict[str, File]
    about: _About


@dataclass(frozen=True)
class Bundle:
    """An opened bundle whose files are all there and unchanged."""

    folder: Path
    about: Mapping[str, object]  # languages, data, scores, calibration, machine: what the trainer wrote
    seqloom: str
    files: Mapping[str, int]  # name -> size

    def recipe_text(self) -> str:
        path = self.folder / RECIPE
        try:
            return read_bounded(path, _MAX_CARD_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            raise SeqloomError("E_BUNDLE", f"not UTF-8 at byte {error.start}", where=str(path), fix=FIX) from None

    def weights(self, allow_nonfinite: bool = False) -> dict[str, Tensor]:
        return weights.read(self.folder / WEIGHTS, allow_nonfinite=allow_nonfinite)


def save(
    folder: Path,
    *,
    recipe: str,
    tensors: weights.Weights,
    extras: Callable[[Path], None],
    about: Mapping[str, Plain],
) -> None:
    """Write a bundle; `extras` fills the same folder with tokenizers and vocabularies."""
    with atomic_folder(folder) as new:
        (new / RECIPE).write_text(recipe, encoding="utf-8")
        (new / WEIGHTS).write_bytes(weights.to_bytes(tensors))
        extras(new)
        card = {"format": FORMAT, "seqloom": __version__, "files": listed_files(new), "about": _finite(about)}
        (new / CARD).write_text(json.dumps(card, ensure_ascii=False, indent=1, allow_nan=False), encoding="utf-8")


def listed_files(folder: Path) -> dict[str, dict[str, Plain]]:
    """Every file of a folder with its size and sha256, as a card names them."""
    named = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256_file(path)}
        for path in named
    }


def _finite(about: Mapping[str, Plain]) -> dict[str, Plain]:
    """Without the numbers that JSON cannot hold, such as the perplexity of a model that learned nothing."""
    told = {key: _finite(value) if isinstance(value, Mapping) else value for key, value in about.items()}
    return {key: value for key, value in told.items() if not isinstance(value, float) or math.isfinite(value)}


def open_bundle(folder: Path) -> Bundle:
    """Check a bundle's card and every file it names; E_BUNDLE or E_FORMAT says what is wrong."""
    recover_folder(folder)
    card = _read_card(folder / CARD)
    for name in card.files:
        _check_name(folder, name)
    for name, file in card.files.items():
        check_file(folder, name, file)
    _refuse_strangers(folder, card)
    for name in (RECIPE, WEIGHTS):
        if name not in card.files:
            raise SeqloomError("E_BUNDLE", f"the card names no {name}", where=str(folder / CARD), fix=FIX)
    sizes = {name: file.size for name, file in card.files.items()}
    return Bundle(folder, card.about.model_dump(exclude_unset=True), card.seqloom, sizes)


def _read_card(path: Path) -> _Card:
    if not path.exists():
        fix = "give a run folder or the bundle inside it; 'seqloom train RECIPE' makes one"
        raise SeqloomError("E_BUNDLE", "no bundle here: card.json is missing", where=str(path.parent), fix=fix)
    raw = read_json(path, _MAX_CARD_BYTES, "a bundle's card", FIX)
    if isinstance(version := raw.get("format"), int) and version > FORMAT:
        what = f"bundle format {wording.shown(version)} needs seqloom >= {str(raw.get('seqloom', '?'))[:40]}"
        raise SeqloomError("E_FORMAT", what, where=str(path), fix="upgrade seqloom")
    try:
        card = _Card.model_validate(raw)
    except ValidationError as error:
        what = f"not a bundle's card: {wording.first_problem(error)}"
        raise SeqloomError("E_BUNDLE", what, where=str(path), fix=FIX) from None
    if len(card.files) > _MAX_FILES:
        raise SeqloomError("E_BUNDLE", f"{len(card.files):,} files, at most {_MAX_FILES:,}", where=str(path), fix=FIX)
    return card


def _refuse_strangers(folder: Path, card: _Card) -> None:
    """Nothing in the bundle's folders is a link, and nothing that could be read there is unknown to the card."""
    for inner, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(inner, name)
            if path.is_symlink():
                what = "a link; a bundle holds its files itself"
                raise SeqloomError("E_BUNDLE", what, where=str(path), fix="put a copy in the place of the link")
            known = path.relative_to(folder).as_posix() in card.files or Path(inner) == folder
            if name in names and not known and not name.startswith("."):
                raise SeqloomError("E_BUNDLE", "a file that the card does not name", where=str(path), fix=FIX)


def _check_name(folder: Path, name: str) -> None:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
        raise SeqloomError("E_BUNDLE", f"the card names a file outside the bundle: {name!r}", where=str(folder / CARD))


FIX = "copy the bundle again, or train again"


def check_file(folder: Path, name: str, file: File, fix: str = FIX) -> None:
    """E_BUNDLE for a file that is not as its card says."""
    path = folder / name
    if not path.is_file():
        raise SeqloomError("E_BUNDLE", f"missing; expected {file.size:,} bytes", where=str(path), fix=fix)
    size = path.stat().st_size
    if size != file.size:
        raise SeqloomError("E_BUNDLE", f"expected {file.size:,} bytes, found {size:,}", where=str(path), fix=fix)
    if sha256_file(path) != file.sha256:
        raise SeqloomError("E_BUNDLE", "the contents changed: sha256 differs", where=str(path), fix=fix)

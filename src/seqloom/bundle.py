"""A trained model on disk: weights, effective recipe, tokenizers and vocabularies, and a card.

`card.json` names every file with its size and sha256; what it does not name is not read, and nothing read is pickle
or evaluated. A bundle is written whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from seqloom import __version__, weights
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, read_bounded, recover_folder, sha256_file
from seqloom.shapes import Tensor

FORMAT = 1
CARD, RECIPE, WEIGHTS = "card.json", "recipe.yaml", "weights.safetensors"
_MAX_CARD_BYTES = 16_000_000
_MAX_FILES = 1_000


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int
    sha256: str


class _Card(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: int
    seqloom: str
    files: dict[str, _File]
    about: dict[str, object]


@dataclass(frozen=True)
class Bundle:
    """An opened bundle whose files are all there and unchanged."""

    folder: Path
    about: Mapping[str, object]  # languages, data, scores, calibration, machine: what the trainer wrote
    seqloom: str
    files: Mapping[str, int]  # name -> size

    def recipe_text(self) -> str:
        return read_bounded(self.folder / RECIPE, _MAX_CARD_BYTES).decode("utf-8")

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
        named = sorted(path for path in new.rglob("*") if path.is_file())
        files = {
            path.relative_to(new).as_posix(): {"size": path.stat().st_size, "sha256": sha256_file(path)}
            for path in named
        }
        card = {"format": FORMAT, "seqloom": __version__, "files": files, "about": about}
        (new / CARD).write_text(json.dumps(card, ensure_ascii=False, indent=1, allow_nan=False), encoding="utf-8")


def open_bundle(folder: Path) -> Bundle:
    """Check a bundle's card and every file it names; E_BUNDLE or E_FORMAT says what is wrong."""
    recover_folder(folder)
    card = _read_card(folder / CARD)
    for name, file in card.files.items():
        _check_file(folder, name, file)
    for name in (RECIPE, WEIGHTS):
        if name not in card.files:
            raise SeqloomError("E_BUNDLE", f"the card names no {name}", where=str(folder / CARD))
    sizes = {name: file.size for name, file in card.files.items()}
    return Bundle(folder, card.about, card.seqloom, sizes)


def _read_card(path: Path) -> _Card:
    if not path.exists():
        fix = "give a run folder or the bundle inside it; 'seqloom train RECIPE' makes one"
        raise SeqloomError("E_BUNDLE", "no bundle here: card.json is missing", where=str(path.parent), fix=fix)
    data = read_bounded(path, _MAX_CARD_BYTES)
    try:
        raw = json.loads(data)
        if isinstance(raw, dict) and isinstance(raw.get("format"), int) and raw["format"] > FORMAT:
            what = f"bundle format {raw['format']} needs seqloom >= {raw.get('seqloom', '?')}"
            raise SeqloomError("E_FORMAT", what, where=str(path), fix="upgrade seqloom")
        card = _Card.model_validate(raw)
    except (ValueError, RecursionError, ValidationError) as error:
        what = f"not a bundle's card ({len(data):,} bytes): {str(error).splitlines()[0]}"
        raise SeqloomError("E_BUNDLE", what, where=str(path)) from None
    if len(card.files) > _MAX_FILES:
        raise SeqloomError("E_BUNDLE", f"{len(card.files):,} files, at most {_MAX_FILES:,}", where=str(path))
    return card


def _check_file(folder: Path, name: str, file: _File) -> None:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name:
        raise SeqloomError("E_BUNDLE", f"the card names a file outside the bundle: {name!r}", where=str(folder / CARD))
    path = folder / name
    if path.is_symlink() or not path.is_file():
        found = "a link" if path.is_symlink() else "missing"
        raise SeqloomError("E_BUNDLE", f"{found}; expected {file.size:,} bytes", where=str(path))
    size = path.stat().st_size
    if size != file.size:
        raise SeqloomError("E_BUNDLE", f"expected {file.size:,} bytes, found {size:,}", where=str(path), fix=_FIX)
    if sha256_file(path) != file.sha256:
        raise SeqloomError("E_BUNDLE", "the contents changed: sha256 differs", where=str(path), fix=_FIX)


_FIX = "copy the bundle again, or train again"

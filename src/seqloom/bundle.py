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
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from seqloom import __version__, cards, weights
from seqloom.cards import Card, File, listed_files
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, read_bounded, recover_folder
from seqloom.shapes import Tensor

CARD, RECIPE, WEIGHTS = "card.json", "recipe.yaml", "weights.safetensors"
MOST_RECIPE_BYTES = 16_000_000
FIX = "copy the bundle again, or train again"


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


class BundleCard(Card):
    """The card of a bundle."""

    NAME = "a bundle"
    seqloom: str
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
            return read_bounded(path, MOST_RECIPE_BYTES).decode("utf-8")
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
        card = {
            "format": BundleCard.FORMAT,
            "seqloom": __version__,
            "files": listed_files(new),
            "about": _finite(about),
        }
        (new / CARD).write_text(json.dumps(card, ensure_ascii=False, indent=1, allow_nan=False), encoding="utf-8")


def _finite(about: Mapping[str, Plain]) -> dict[str, Plain]:
    """Without the numbers that JSON cannot hold, such as the perplexity of a model that learned nothing."""
    told = {key: _finite(value) if isinstance(value, Mapping) else value for key, value in about.items()}
    return {key: value for key, value in told.items() if not isinstance(value, float) or math.isfinite(value)}


def open_bundle(folder: Path) -> Bundle:
    """Check a bundle's card and every file it names; E_BUNDLE or E_FORMAT says what is wrong."""
    recover_folder(folder)
    if not (folder / CARD).exists():
        fix = "give a run folder or the bundle inside it; 'seqloom train RECIPE' makes one"
        raise SeqloomError("E_BUNDLE", "no bundle here: card.json is missing", where=str(folder), fix=fix)
    card = cards.read(folder / CARD, BundleCard, FIX)
    cards.check_files(folder, card, FIX, needs=(RECIPE, WEIGHTS))
    _refuse_strangers(folder, card)
    sizes = {name: file.size for name, file in card.files.items()}
    return Bundle(folder, card.about.model_dump(exclude_unset=True), card.seqloom, sizes)


def _refuse_strangers(folder: Path, card: BundleCard) -> None:
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

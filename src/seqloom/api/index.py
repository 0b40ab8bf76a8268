"""An index: the texts that a dual encoder may answer with, and their vectors, computed once.

A folder of its own, `RUN/index` unless another is named: `candidates.txt` (one text per line), `vectors.safetensors`,
and `card.json`, which names both with size and sha256 and the weights they were computed by. One that other weights
made is refused: its vectors would be compared with those of another model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from seqloom import __version__, weights, wording
from seqloom.bundle import CARD, File, check_file, listed_files
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, read_bounded, read_json, recover_folder
from seqloom.search.nearest import Nearest, nearest_of
from seqloom.shapes import Float, Tensor

FOLDER, TEXTS, VECTORS = "index", "candidates.txt", "vectors.safetensors"
FORMAT = 1
_MOST_CARD_BYTES = 1_000_000


class _Card(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: int
    seqloom: str
    weights: str  # sha256 of the weights that computed the vectors
    files: dict[str, File]


@dataclass(frozen=True)
class Index:
    """Texts and their vectors, in the same order."""

    texts: tuple[str, ...]
    vectors: Float[Tensor, "N D"]

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def nearest(self) -> Nearest:
        return nearest_of(self.vectors)

    def save(self, folder: Path, computed_by: str) -> None:
        """Write it, whole or not at all; `computed_by` is the sha256 of the weights."""
        if folder.is_dir() and any(folder.iterdir()) and not is_index(folder):
            what = "this folder holds something else than an index"
            raise SeqloomError("E_USAGE", what, where=str(folder), fix="name another")
        with atomic_folder(folder) as new:
            (new / TEXTS).write_text("".join(f"{text}\n" for text in self.texts), encoding="utf-8", newline="\n")
            (new / VECTORS).write_bytes(weights.to_bytes({"vectors": self.vectors}))
            card = {"format": FORMAT, "seqloom": __version__, "weights": computed_by, "files": listed_files(new)}
            (new / CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")

    @staticmethod
    def load(folder: Path, computed_by: str, again: str) -> Index:
        """Read it; E_BUNDLE where it is damaged, or of other weights than `computed_by`. `again` makes a new one."""
        recover_folder(folder)
        if not is_index(folder):
            raise SeqloomError("E_BUNDLE", "there is no index of candidates here", where=str(folder), fix=again)
        card = _read_card(folder / CARD, again)
        if card.weights != computed_by:
            what = "the index is of other weights than the run has now"
            raise SeqloomError("E_BUNDLE", what, where=str(folder), fix=again)
        for name in (TEXTS, VECTORS):
            if name not in card.files:
                raise SeqloomError("E_BUNDLE", f"the card names no {name}", where=str(folder / CARD), fix=again)
            check_file(folder, name, card.files[name], again)
        try:
            text = read_bounded(folder / TEXTS, card.files[TEXTS].size).decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"not UTF-8 at byte {error.start}"
            raise SeqloomError("E_BUNDLE", what, where=str(folder / TEXTS), fix=again) from None
        tensors = weights.read(folder / VECTORS)
        texts, vectors = tuple(text.split("\n")[:-1]), tensors.get("vectors")
        if vectors is None or vectors.dim() != 2 or len(vectors) != len(texts):
            raise SeqloomError("E_BUNDLE", "texts and vectors are not as many", where=str(folder), fix=again)
        return Index(texts, vectors)


def _read_card(path: Path, again: str) -> _Card:
    raw = read_json(path, _MOST_CARD_BYTES, "an index's card", again)
    if isinstance(version := raw.get("format"), int) and version > FORMAT:
        what = f"index format {wording.shown(version)} needs seqloom >= {str(raw.get('seqloom', '?'))[:40]}"
        raise SeqloomError("E_FORMAT", what, where=str(path), fix="upgrade seqloom")
    try:
        return _Card.model_validate(raw)
    except ValidationError as error:
        what = f"not an index's card: {wording.first_problem(error)}"
        raise SeqloomError("E_BUNDLE", what, where=str(path), fix=again) from None


def is_index(folder: Path) -> bool:
    return (folder / CARD).is_file() and (folder / VECTORS).is_file()


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, on one line, in the order of their first appearance; blank ones are none."""
    flat = (" ".join(text.splitlines()).strip() for text in texts)
    return tuple(dict.fromkeys(text for text in flat if text))

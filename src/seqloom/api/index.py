"""An index: the texts that a dual encoder may answer with, and their vectors, computed once.

A folder of its own, `RUN/index` unless another is named: `candidates.txt` (one text per line), `vectors.safetensors`,
and `card.json`, which names both with size and sha256 and the weights they were computed by. One that other weights
made is refused: its vectors would be compared with those of another model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seqloom import __version__, cards, weights
from seqloom.bundle import CARD
from seqloom.cards import Card, listed_files
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, read_bounded, recover_folder
from seqloom.search.nearest import Nearest, nearest_of
from seqloom.shapes import Float, Tensor

FOLDER, TEXTS, VECTORS = "index", "candidates.txt", "vectors.safetensors"


class IndexCard(Card):
    """The card of an index."""

    NAME = "an index of candidates"
    seqloom: str
    weights: str  # sha256 of the weights that computed the vectors


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
            about = {"seqloom": __version__, "weights": computed_by, "files": listed_files(new)}
            (new / CARD).write_bytes(cards.written(IndexCard.model_validate({"format": IndexCard.FORMAT, **about})))

    @staticmethod
    def load(folder: Path, computed_by: str, again: str) -> Index:
        """Read it; E_BUNDLE where it is damaged, or of other weights than `computed_by`. `again` makes a new one."""
        recover_folder(folder)
        if not is_index(folder):
            raise SeqloomError("E_BUNDLE", "there is no index of candidates here", where=str(folder), fix=again)
        card = cards.read(folder / CARD, IndexCard, again)
        if card.weights != computed_by:
            what = "the index is of other weights than the run has now"
            raise SeqloomError("E_BUNDLE", what, where=str(folder), fix=again)
        cards.check_files(folder, card, again, needs=(TEXTS, VECTORS))
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


def is_index(folder: Path) -> bool:
    return (folder / CARD).is_file() and (folder / VECTORS).is_file()


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, on one line, in the order of their first appearance; blank ones are none."""
    flat = (" ".join(text.splitlines()).strip() for text in texts)
    return tuple(dict.fromkeys(text for text in flat if text))

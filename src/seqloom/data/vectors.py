"""Word vectors made elsewhere: GloVe and word2vec text files, one word and its numbers per line."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seqloom.config import MOST
from seqloom.data.readers import read_sources
from seqloom.errors import SeqloomError

Vector = npt.NDArray[np.float32]


def read_vectors(path: Path, wanted: Collection[str], width: int) -> dict[str, Vector]:
    """The vectors of the wanted words. A first line "count width" (word2vec) is skipped; gzip is read as it is."""
    found: dict[str, Vector] = {}
    for number, line in enumerate(read_sources(str(path)), start=1):
        word, *numbers = line.rstrip(" ").split(" ")
        if number == 1 and len(numbers) == 1 and word.isdigit() and numbers[0].isdigit():
            continue
        if len(numbers) < width and line:
            raise _wrong(path, number, f"{len(numbers)} numbers, the embedding's width is {width}")
        word, numbers = " ".join([word, *numbers[:-width]]), numbers[-width:]  # a few GloVe words hold blanks
        if word not in wanted:
            continue
        try:
            vector = np.array(numbers, dtype=np.float64)
        except ValueError:
            raise _wrong(path, number, "a vector that is not made of numbers") from None
        if not np.isfinite(vector).all():
            raise _wrong(path, number, "a vector that is not finite")
        if np.abs(vector).max() > MOST:
            raise _wrong(path, number, f"a vector with a number over {MOST:,}")
        found[word] = vector.astype(np.float32)
    return found


def _wrong(path: Path, number: int, what: str) -> SeqloomError:
    return SeqloomError(
        "E_DATA", what, where=f"{path}:{number}", fix="give a GloVe or word2vec text file of that width"
    )

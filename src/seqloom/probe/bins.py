"""Many positions of a signal as a few bins, each named by where it begins: hundreds of frames fit on no map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FEW, MANY = 20, 100  # bins of a map in a terminal, and on a page

Places = npt.NDArray[np.int64]  # S: the bin of every position


def bins_of(frames: int, positions: int, most: int) -> Places:
    """The first `frames` of so many positions share at most `most` bins of like size; the others have one each."""
    count = min(frames, most)
    own = np.arange(frames, dtype=np.int64) * count // max(1, frames)
    return np.concatenate([own, count + np.arange(positions - frames, dtype=np.int64)])


def summed(weights: npt.NDArray[np.float32], places: Places) -> npt.NDArray[np.float32]:
    """Weights over positions (the last dimension) as weights over bins: rows keep their sum."""
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    if not weights.size:
        return np.zeros((*weights.shape[:-1], len(firsts)), np.float32)
    return np.add.reduceat(weights, firsts, axis=-1)


def averaged(weights: npt.NDArray[np.float32], places: Places) -> npt.NDArray[np.float32]:
    """Weights between positions (the last two dimensions) as those between bins: rows averaged, columns summed."""
    columns = summed(weights, places)
    sizes = np.bincount(places)[:, None].astype(np.float32)
    rows: npt.NDArray[np.float32] = summed(columns.swapaxes(-1, -2), places).swapaxes(-1, -2) / sizes
    return rows


def merged(signal: npt.NDArray[np.float32], places: Places) -> npt.NDArray[np.float32]:
    """What positions are made of (S F) as the mean of every bin's."""
    sizes = np.bincount(places).astype(np.float32)
    means: npt.NDArray[np.float32] = summed(signal.T, places).T / sizes[:, None]
    return means


def labels_of(labels: Sequence[str], places: Places) -> tuple[str, ...]:
    """Each bin by its first position."""
    return tuple(labels[first] for first in np.flatnonzero(np.diff(places, prepend=-1)).tolist())

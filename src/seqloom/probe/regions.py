"""Where in a picture an answer looked, in words: a grid of regions as nine parts, from top left to bottom right."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]

THIRDS = (("top", "", "bottom"), ("left", "", "right"))
MIDDLE = "middle"


def named_parts(rows: int, columns: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The parts of such a grid by name, and the part that each of its regions is in, row by row."""
    down, across = (_thirds(count) for count in (rows, columns))
    places = (down[:, None] * 3 + across[None]).reshape(-1)
    used = np.unique(places)
    names = ["-".join(filter(None, (THIRDS[0][part // 3], THIRDS[1][part % 3]))) or MIDDLE for part in used.tolist()]
    return names, np.searchsorted(used, places)


def _thirds(count: int) -> npt.NDArray[np.int64]:
    """Which third each of so many rows is in: the middle of a row decides, so that both ends are alike."""
    return ((np.arange(count) + 0.5) * 3 / count).astype(np.int64)


def in_parts(weights: Weights, grid: tuple[int, int]) -> tuple[list[str], Weights]:
    """Weights over the regions of a grid and what stands behind them, as weights over named parts and the same."""
    names, places = named_parts(*grid)
    regions = len(places)
    member = np.zeros((regions, len(names)), np.float32)
    member[np.arange(regions), places] = 1.0
    return names, np.concatenate([weights[..., :regions] @ member, weights[..., regions:]], axis=-1)

"""What tests of frames share: made-up signals in .npy files, and lists that name them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SHAPES = ("sine", "square", "saw")
SYLLABLES = ("ba", "di", "gu")
TYPES = (np.float16, np.float32, np.float64)


def write_waves(folder: Path, count: int = 240, seed: int = 1) -> Path:
    """Noisy waves of three shapes, far from mean 0 and deviation 1, in all types of float."""
    rng, lines = np.random.default_rng(seed), []
    (folder / "waves").mkdir(parents=True)
    for number in range(count):
        length, period, phase = int(rng.integers(20, 50)), rng.uniform(6, 12), rng.uniform(0, 1)
        turns = np.arange(length) / period + phase
        wave = {"sine": np.sin(2 * np.pi * turns), "square": np.sign(turns % 1 - 0.5), "saw": 2 * (turns % 1) - 1}
        shape = SHAPES[number % 3]
        past = np.stack([np.roll(wave[shape], back) for back in range(3)], axis=1)  # S 3
        noisy = 40 + 10 * (past + rng.normal(0, 0.1, past.shape))
        np.save(folder / "waves" / f"{number}.npy", noisy.astype(TYPES[number % 3]))
        lines.append(f"waves/{number}.npy\t{shape}\n")
    (folder / "waves.tsv").write_text("".join(lines))
    return folder / "waves.tsv"


def write_levels(folder: Path, count: int = 160, seed: int = 2, every: int = 1) -> Path:
    """Signals that are high or low for a while: a tag for each frame, or for `every` so many."""
    rng, lines = np.random.default_rng(seed), []
    (folder / "levels").mkdir(parents=True)
    for number in range(count):
        high = np.repeat(rng.integers(0, 2, int(rng.integers(2, 6))), 4)
        signal = np.stack([high + rng.normal(0, 0.2, len(high)), rng.normal(0, 1, len(high))], axis=1)
        np.save(folder / "levels" / f"{number}.npy", signal)
        lines.append(f"levels/{number}.npy\t{' '.join('high' if one else 'low' for one in high[::every])}\n")
    (folder / "levels.tsv").write_text("".join(lines))
    return folder / "levels.tsv"


def write_bursts(folder: Path, count: int = 300, seed: int = 3) -> Path:
    """One burst for each syllable, of its own channel and of any length, with pauses between."""
    rng, lines = np.random.default_rng(seed), []
    (folder / "bursts").mkdir(parents=True)
    for number in range(count):
        said, rows = rng.integers(0, 3, int(rng.integers(1, 4))), []
        for one in said:
            rows += [np.eye(4)[one]] * int(rng.integers(3, 6)) + [np.eye(4)[3]] * int(rng.integers(2, 4))
        np.save(folder / "bursts" / f"{number}.npy", np.array(rows) + rng.normal(0, 0.1, (len(rows), 4)))
        lines.append(f"bursts/{number}.npy\t{' '.join(SYLLABLES[one] for one in said)}\n")
    (folder / "bursts.tsv").write_text("".join(lines))
    return folder / "bursts.tsv"

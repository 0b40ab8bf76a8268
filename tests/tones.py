"""What tests of sound share: words of two tones in WAV files, and a list that names them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

TONES = {"low": 400.0, "mid": 900.0, "high": 1800.0}
RATE = 8_000


def tone(hertz: float, seconds: float, rate: int = RATE, loud: float = 0.3) -> npt.NDArray[np.float32]:
    return (loud * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write_tones(folder: Path, count: int = 120, seed: int = 1) -> Path:
    """One to three tones with pauses between, by their names: `tones/0.wav<TAB>low high`."""
    import soundfile

    rng, lines = np.random.default_rng(seed), []
    (folder / "tones").mkdir(parents=True)
    for number in range(count):
        names = rng.choice(list(TONES), int(rng.integers(1, 4)))
        parts = [part for name in names for part in (tone(TONES[name], rng.uniform(0.1, 0.2)), tone(0, 0.08))]
        sound = np.concatenate(parts)
        soundfile.write(folder / "tones" / f"{number}.wav", sound + rng.normal(0, 0.002, len(sound)), RATE)
        lines.append(f"tones/{number}.wav\t{' '.join(names)}\n")
    (folder / "tones.tsv").write_text("".join(lines))
    return folder / "tones.tsv"

"""Features of sound as .npy files and the lists that name them: what recipes/spoken-*.yaml read.

python recipes/features.py digits fsdd/ features/digits      # WAV clips in archives -> log mel energies and a label
python recipes/features.py an4 an4-mfcc/ features/an4        # given cepstra -> with their changes, and a transcript

log mel energies: a Hann window of 25 ms every 10 ms, its power spectrum, summed by triangles that are equally wide on
the mel scale m = 2595 log10(1 + f / 700), the logarithm of each. Changes (deltas) are slopes over two frames each way.
The cepstra of a training utterance are written several times, as other mouths might have said it: at another speed,
and with its spectrum (the cosines that the cepstra weigh) stretched along the mel scale, as by another throat.
"""

from __future__ import annotations

import argparse
import io
import random
import tarfile
import wave
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

Frames = npt.NDArray[np.float32]  # S F
FILTERS, WINDOW, STEP = 32, 0.025, 0.010  # seconds
AN4_DEV = 100  # of the training utterances, the last ones
MEL = 40  # filters that the given cepstra were made of
COPIES, SPEED, STRETCH = 4, (0.85, 1.18), (0.88, 1.14)  # of a training utterance, the first as it is


def log_mel(samples: npt.NDArray[np.float64], rate: int) -> Frames:
    size, step = round(WINDOW * rate), round(STEP * rate)
    samples = np.pad(samples, (0, max(0, size - len(samples))))
    starts = np.arange(0, len(samples) - size + 1, step)
    windows = samples[starts[:, None] + np.arange(size)] * np.hanning(size)  # S N
    bins = 1 << (size - 1).bit_length()
    power = np.abs(np.fft.rfft(windows, bins)) ** 2
    return np.log(power @ triangles(rate, bins).T + 1e-6).astype(np.float32)


def triangles(rate: int, bins: int) -> npt.NDArray[np.float64]:
    """F filters over the frequencies of a spectrum."""
    mel = np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), FILTERS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = np.fft.rfftfreq(bins, 1 / rate)
    rising = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    found: npt.NDArray[np.float64] = np.clip(np.minimum(rising, falling), 0, None)
    return found


def deltas(frames: Frames) -> Frames:
    padded = np.pad(frames, ((2, 2), (0, 0)), mode="edge")
    slope = (2 * (padded[4:] - padded[:-4]) + (padded[3:-1] - padded[1:-3])) / 10
    return slope.astype(np.float32)


def otherwise(frames: Frames, speed: float, stretch: float) -> Frames:
    """Cepstra of the same words, said so many times as fast, with what was at mel m now at m times `stretch`.

    c_k = sum_m x_m cos(pi k (m + 1/2) / M): of so few cosines a spectrum is smooth and can be read anywhere.
    """
    places = np.arange(0, len(frames) - 1, speed)
    first = places.astype(np.int64)
    share = (places - first)[:, None]
    slower = (1 - share) * frames[first] + share * frames[first + 1]
    order, middles = np.arange(frames.shape[1]), np.arange(MEL) + 0.5
    read_at = np.clip(middles / stretch, 0, MEL)
    spectrum = slower @ np.cos(np.pi / MEL * order[:, None] * read_at)  # S M: the sum of cosines there
    back = np.cos(np.pi / MEL * middles[:, None] * order) * np.where(order, 2.0, 1.0) / MEL
    return (spectrum @ back).astype(np.float32)


def clips(archive: Path) -> Iterator[tuple[str, Frames]]:
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda one: one.name):
            content = files.extractfile(member) if member.name.endswith(".wav") else None
            if content is None:
                continue
            with wave.open(io.BytesIO(content.read())) as sound:
                assert (sound.getnchannels(), sound.getsampwidth()) == (1, 2), member.name
                samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768
                yield Path(member.name).stem, log_mel(samples.astype(np.float64), sound.getframerate())


def written(out: Path, part: str, rows: Iterator[tuple[str, Frames, str]]) -> None:
    """A file for each, and the list of all."""
    (out / part).mkdir(parents=True, exist_ok=True)
    with (out / f"{part}.tsv").open("w", encoding="utf-8") as listed:
        for name, frames, target in rows:
            np.save(out / part / f"{name}.npy", frames)
            listed.write(f"{part}/{name}.npy\t{target}\n")


def digits(data: Path, out: Path) -> None:
    """The label is the digit; clips 10 and 11 of every speaker are the dev set."""
    for part in ("train", "dev", "test"):
        found = clips(data / f"{'test' if part == 'test' else 'train'}.tar.gz")
        rows = ((name, frames, name.split("_")[0]) for name, frames in found if _part(name) == part)
        written(out, part, rows)


def _part(name: str) -> str:
    index = int(name.split("_")[2])
    return "test" if index < 5 else "dev" if index < 12 else "train"


def an4(data: Path, out: Path) -> None:
    with zipfile.ZipFile(data / "mfcc13_float16.npz") as archive:
        every = {}
        for part in ("train", "test"):
            with archive.open(f"{part}.npy") as file:
                every[part] = npy.read_array(file, allow_pickle=False).astype(np.float32)
    rows = [line.split("\t") for line in (data / "utterances.tsv").read_text("utf-8").splitlines()[1:]]
    own = [row for row in rows if row[0] == "train"]
    parts = {"train": own[:-AN4_DEV], "dev": own[-AN4_DEV:], "test": [row for row in rows if row[0] == "test"]}
    for part, chosen in parts.items():
        copies = range(COPIES if part == "train" else 1)
        written(out, part, (_utterance(row, every[row[0]], copy) for row in chosen for copy in copies))


def _utterance(row: list[str], every: Frames, copy: int) -> tuple[str, Frames, str]:
    _, name, first, count, transcript = row
    frames = every[int(first) : int(first) + int(count)]
    if copy:
        rng = random.Random(f"{name} {copy}")
        frames, name = otherwise(frames, rng.uniform(*SPEED), rng.uniform(*STRETCH)), f"{name}-{copy}"
    slopes = deltas(frames)
    return name, np.concatenate([frames, slopes, deltas(slopes)], axis=1), transcript.lower()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("digits", "an4"))
    parser.add_argument("data", type=Path, help="where the data set lies")
    parser.add_argument("out", type=Path, help="a folder for the files and the lists")
    asked = parser.parse_args()
    (digits if asked.kind == "digits" else an4)(asked.data, asked.out)


if __name__ == "__main__":
    main()

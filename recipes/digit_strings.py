"""Spoken digit strings: single clips of one speaker joined with silence between, and the lists that name them.

python recipes/digit_strings.py fsdd/ strings/                       # all speakers; test: clips that training has not
python recipes/digit_strings.py fsdd/ strings-theo/ --held-out theo  # test: a speaker that training has not

Reads train.tar.gz and test.tar.gz of the Free Spoken Digit Dataset (names are {digit}_{speaker}_{index}.wav), writes
WAV files and train.tsv, dev.tsv and test.tsv: a file's name, then its digits as words. Dev strings are made of clips 23
and 24 of the training set, which no training string has; test strings of the test set. A string has one to five digits.
There are only 13 clips of a digit by a speaker to train on, so in training strings each has a speed and a loudness of
its own, drawn anew whenever it is used.
"""

from __future__ import annotations

import argparse
import io
import random
import tarfile
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

RATE = 8_000
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
DEV = (23, 24)  # of the training clips
MOST = 5  # digits
PAUSE = (0.05, 0.4)  # seconds before, between and after digits
HISS = (0.5, 8.0)  # loudness of the silence, in steps of 16 bits
SPEED, LOUD = (0.85, 1.15), (0.5, 1.5)  # times those of a clip, in training strings

Sound = npt.NDArray[np.int16]
Clips = dict[tuple[str, int], list[Sound]]  # by speaker and digit


def clips_of(archive: Path, wanted: Sequence[int]) -> Clips:
    """The clips of these indices."""
    found: Clips = {}
    with tarfile.open(archive) as files:
        for member in sorted(files.getmembers(), key=lambda one: one.name):
            content = files.extractfile(member) if member.name.endswith(".wav") else None
            if content is None:
                continue
            digit, speaker, index = Path(member.name).stem.split("_")
            if int(index) not in wanted:
                continue
            with wave.open(io.BytesIO(content.read())) as sound:
                assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, RATE), member.name
                samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
            found.setdefault((speaker, int(digit)), []).append(samples)
    return found


def joined(clips: Clips, speaker: str, digits: Sequence[int], rng: random.Random, varied: bool) -> Sound:
    """These digits by this speaker, in a quiet room."""
    parts, loud = [_silence(rng)], rng.uniform(*HISS)
    for digit in digits:
        clip = rng.choice(clips[speaker, digit]).astype(np.float64)
        parts += [_another(clip, rng) if varied else clip, _silence(rng)]
    sound = np.concatenate(parts)
    hiss = np.random.default_rng(rng.getrandbits(32)).normal(0, loud, len(sound))
    return np.clip(np.round(sound + hiss), -32_768, 32_767).astype(np.int16)


def _another(clip: npt.NDArray[np.float64], rng: random.Random) -> npt.NDArray[np.float64]:
    """A clip faster or slower, and so higher or lower; louder or quieter."""
    places = np.arange(0, len(clip) - 1, rng.uniform(*SPEED))
    return np.interp(places, np.arange(len(clip)), clip) * rng.uniform(*LOUD)


def _silence(rng: random.Random) -> npt.NDArray[np.float64]:
    return np.zeros(int(RATE * rng.uniform(*PAUSE)))


def written(folder: Path, part: str, clips: Clips, count: int, speakers: Sequence[str]) -> None:
    """So many strings, each by a speaker that is drawn, and their list."""
    rng = random.Random(f"digit strings {part}")
    (folder / part).mkdir(parents=True, exist_ok=True)
    with (folder / f"{part}.tsv").open("w", encoding="utf-8") as listed:
        for number in range(count):
            speaker, digits = rng.choice(speakers), [rng.randrange(10) for _ in range(rng.randint(1, MOST))]
            name = f"{part}/{number:05}-{speaker}.wav"
            with wave.open(str(folder / name), "wb") as sound:
                sound.setnchannels(1)
                sound.setsampwidth(2)
                sound.setframerate(RATE)
                sound.writeframes(joined(clips, speaker, digits, rng, part == "train").astype("<i2").tobytes())
            listed.write(f"{name}\t{' '.join(WORDS[digit] for digit in digits)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="where the archives lie")
    parser.add_argument("out", type=Path, help="a folder for the files and the lists")
    parser.add_argument("--held-out", help="a speaker whom training does not hear, and the test only")
    parser.add_argument("--train", type=int, default=6_000, help="strings to train on")
    asked = parser.parse_args()
    train = clips_of(asked.data / "train.tar.gz", [index for index in range(100) if index not in DEV])
    everybody = sorted({speaker for speaker, _ in train})
    if asked.held_out is not None and asked.held_out not in everybody:
        parser.error(f"no speaker is called {asked.held_out!r}; one of: {', '.join(everybody)}")
    heard = [speaker for speaker in everybody if speaker != asked.held_out]
    tested = heard if asked.held_out is None else [asked.held_out]
    plan: Mapping[str, tuple[Clips, int, Sequence[str]]] = {
        "train": (train, asked.train, heard),
        "dev": (clips_of(asked.data / "train.tar.gz", DEV), 300, heard),
        "test": (clips_of(asked.data / "test.tar.gz", range(100)), 1_000, tested),
    }
    for part, (clips, count, speakers) in plan.items():
        written(asked.out, part, clips, count, speakers)


if __name__ == "__main__":
    main()

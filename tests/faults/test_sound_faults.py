"""Files of sound that cannot be read: each is one line that names file and line; the others are answered."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from commands import Command, binary
from tones import RATE, tone, write_tones

pytest_plugins = ["command_fixtures"]

RECIPE = """
data: {{train: {data}}}
source: {{kind: sound, sample_rate: 8000, bands: 8, stack: 4}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 4}}
  encoder: {{kind: pyramid, width: 4, layers: 2}}
  decoder: {{kind: luong, width: 4}}
training: {{steps: 2, optimiser: {{kind: adam, lr: 1e-2}}, metric: wer}}
evaluation: {{metrics: [wer], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""


def an_hour(path: Path) -> None:
    """Its header tells of an hour; so much is never decoded."""
    data = 3600 * RATE * 2
    with path.open("wb") as file:
        head = b"RIFF" + struct.pack("<I", 36 + data) + b"WAVEfmt "
        file.write(head + struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16) + b"data" + struct.pack("<I", data))
        file.truncate(44 + data)


def cut_off(path: Path) -> None:
    soundfile.write(path.with_suffix(".flac"), np.random.default_rng(1).normal(0, 0.1, RATE), RATE)
    path.write_bytes(path.with_suffix(".flac").read_bytes()[:200])


def not_finite(path: Path) -> None:
    sound = tone(300, 0.2)
    sound[800] = np.nan
    soundfile.write(path, sound, RATE, subtype="FLOAT")


FAULTS: dict[str, tuple[Callable[[Path], object], str, int, str]] = {
    "missing": (Path.unlink, "E_FILE", 6, "relative paths begin at the folder of the list"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "E_FILE", 6, "a folder, not a file"),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "E_FILE", 6, "not a plain file"),
    "text": (lambda path: path.write_text("this is no sound\n" * 50), "E_DATA", 3, "not a sound"),
    "nothing": (lambda path: path.write_bytes(b""), "E_DATA", 3, "an empty file"),
    "zero length": (lambda path: soundfile.write(path, np.zeros(0), RATE), "E_DATA", 3, "a sound of zero length"),
    "one sample": (lambda path: soundfile.write(path, np.zeros(1), RATE), "E_DATA", 3, "too short for one frame"),
    "an hour": (an_hour, "E_DATA", 3, "a sound of 3,600 seconds, at most 60 are read; "),
    "cut off": (cut_off, "E_DATA", 3, ""),
    "nan": (not_finite, "E_DATA", 3, "no finite number, at 0.100 s"),
    "rate": (lambda path: soundfile.write(path, np.zeros(500), 20), "E_DATA", 3, "20 samples a second"),
}
GOOD = {
    "8 bits": lambda path: soundfile.write(path, tone(400, 0.3), RATE, subtype="PCM_U8"),
    "stereo at 96 kHz": lambda path: soundfile.write(path, np.stack([tone(400, 0.3, 96_000)] * 2, 1), 96_000),
    "silence": lambda path: soundfile.write(path, np.zeros(RATE), RATE),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from seqloom.api.train import train

    folder = tmp_path_factory.mktemp("tones")
    (folder / "recipe.yaml").write_text(RECIPE.format(data=write_tones(folder, count=30)))
    return train(folder / "recipe.yaml", folder / "run").folder


@pytest.mark.parametrize("name", FAULTS)
def test_training_names_the_line_of_the_list(name: str, seqloom: Command, tmp_path: Path) -> None:
    spoil, code, status, said = FAULTS[name]
    listed = write_tones(tmp_path, count=30)
    spoil(tmp_path / "tones" / "6.wav")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(data=listed))
    line = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "-q").refused(code, status)
    assert f"{listed}:7: {tmp_path / 'tones' / '6.wav'}" in line
    assert said in line
    assert not (tmp_path / "run" / "bundle").exists()


@pytest.mark.parametrize("name", FAULTS)
def test_the_others_are_answered(name: str, trained: Path, seqloom: Command, tmp_path: Path) -> None:
    spoil, code, status, said = FAULTS[name]
    for number in range(3):
        soundfile.write(tmp_path / f"{number}.wav", tone(400, 0.3), RATE)
    spoil(tmp_path / "1.wav")
    (tmp_path / "list.txt").write_text("0.wav\n1.wav\n\n2.wav\n")
    answer = seqloom("predict", trained, tmp_path / "list.txt", "-q", "--min-length", 1)
    assert answer.code == status
    assert [bool(line) for line in answer.out.split("\n")] == [True, False, False, True, False]
    told = answer.err.splitlines()
    assert len(told) == 1
    assert told[0].startswith(f"seqloom: error[{code}]: ")
    assert str(tmp_path / "1.wav") in told[0]
    assert said in told[0]
    assert not seqloom("predict", trained, tmp_path / "list.txt", "-q", "--on-bad-file", "error").out


def test_a_file_that_is_no_sound_is_an_empty_line(trained: Path, seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_text("no sound")
    answer = seqloom("predict", trained, tmp_path / "a.wav", "-q")
    assert str(tmp_path / "a.wav") in answer.refused("E_DATA", 3)
    assert answer.out == "\n", "lines in are lines out"


@pytest.mark.parametrize("name", GOOD)
def test_odd_sounds_are_answered(name: str, trained: Path, seqloom: Command, tmp_path: Path) -> None:
    GOOD[name](tmp_path / "a.wav")
    answer = seqloom("predict", trained, tmp_path / "a.wav", "-q")
    assert (answer.code, len(answer.out.splitlines())) == (0, 1), answer


def test_a_file_a_folder_and_a_list_on_stdin(trained: Path, seqloom: Command) -> None:
    folder = trained.parent / "tones"
    one = seqloom("predict", trained, folder / "0.wav", "-q").out
    every = seqloom("predict", trained, folder, "-q").out.splitlines()
    names = sorted(str(path) for path in folder.iterdir())
    listed = binary("predict", trained, "-q", input="".join(f"{name}\n" for name in names).encode()).out.splitlines()
    assert len(every) == len(names) == 30
    assert listed == every
    assert every[names.index(str(folder / "0.wav"))] == one.strip("\n")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("source.shift=0.09", "source: shift: "),
        ("source.bands=200", "source: bands: "),
        ("source.speeds=[0.1]", "source.speeds"),
        ("source.sample_rat=8000", "sample_rate"),
        ("source.augment.time_masks=-1", "time_masks"),
        ("model.decoder=tags", "every tag belongs to one"),
    ],
)
def test_recipes_that_cannot_be_heard(settings: str, words: str, seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(data=tmp_path / "tones.tsv"))
    line = seqloom("train", tmp_path / "recipe.yaml", "--set", settings, "-q").refused("E_RECIPE", 2)
    assert words in line

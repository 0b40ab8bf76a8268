"""Files of frames that cannot be read: each is one line that names the file, the line of the list, and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy

from commands import Command
from signals import write_waves

pytest_plugins = ["command_fixtures"]

RECIPE = """
data: {{train: {data}}}
source: frames
target: {{tokenizer: whole}}
model: {{source_embedding: {{width: 4}}, encoder: {{kind: bag, width: 4}}, decoder: {{kind: label, pooling: mean}}}}
training: {{steps: 2, optimiser: {{kind: adam, lr: 1e-2}}, metric: accuracy}}
evaluation: {{metrics: [accuracy], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""


def objects(path: Path) -> None:
    np.save(path, np.array([[{"a": 1}]], dtype=object), allow_pickle=True)


def not_finite(path: Path) -> None:
    values = np.zeros((4, 3))
    values[2, 1] = np.nan
    np.save(path, values)


def too_large_for_float32(path: Path) -> None:
    np.save(path, np.full((2, 3), 1e300))


def archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=np.zeros((2, 3)))


def cut_off(path: Path) -> None:
    np.save(path, np.zeros((40, 3)))
    path.write_bytes(path.read_bytes()[:-1])


def huge(path: Path) -> None:
    """A header that promises far more than any memory holds."""
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**15, 3)})


def broken_header(path: Path) -> None:
    np.save(path, np.zeros((1, 3)))
    path.write_bytes(path.read_bytes().replace(b"(1, 3), }", b"(1, 3  (("))


def with_long_header(path: Path) -> None:
    path.write_bytes(b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little") + b"{")


FAULTS: dict[str, tuple[Callable[[Path], object], str, int, str]] = {
    "missing": (Path.unlink, "E_FILE", 6, "relative paths begin at the folder of the list"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "E_FILE", 6, "a folder, not a file"),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "E_FILE", 6, "not a plain file"),
    "text": (lambda path: path.write_text("1 2 3\n"), "E_DATA", 3, "not a NumPy array (.npy)"),
    "nothing": (lambda path: path.write_bytes(b""), "E_DATA", 3, "not a NumPy array (.npy)"),
    "archive": (archive, "E_DATA", 3, "numpy.save instead of numpy.savez"),
    "objects": (objects, "E_DATA", 3, "Python objects, which are never read"),
    "strings": (lambda path: np.save(path, np.array([["a"]])), "E_DATA", 3, "x.astype('float32')"),
    "complex": (lambda path: np.save(path, np.zeros((2, 3), complex)), "E_DATA", 3, "complex128"),
    "one dimension": (lambda path: np.save(path, np.zeros(5)), "E_DATA", 3, "x[:, None]"),
    "three dimensions": (lambda path: np.save(path, np.zeros((2, 3, 4))), "E_DATA", 3, "(time, features) is expected"),
    "no frames": (lambda path: np.save(path, np.zeros((0, 3))), "E_DATA", 3, "an empty array: 0 frames"),
    "features": (lambda path: np.save(path, np.zeros((9, 2))), "E_DATA", 3, "2 features a frame, but 3 are expected"),
    "turned": (lambda path: np.save(path, np.zeros((3, 9))), "E_DATA", 3, "save x.T"),
    "nan": (not_finite, "E_DATA", 3, "nan at frame 2, feature 1"),
    "too large": (too_large_for_float32, "E_DATA", 3, "finite in float32"),
    "cut off": (cut_off, "E_DATA", 3, "not written or copied whole"),
    "huge": (huge, "E_DATA", 3, "at most 1,000,000 frames"),
    "broken header": (broken_header, "E_DATA", 3, "not a NumPy array (.npy)"),
    "long header": (with_long_header, "E_DATA", 3, "not a NumPy array (.npy)"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from seqloom.api.train import train

    folder = tmp_path_factory.mktemp("waves")
    (folder / "recipe.yaml").write_text(RECIPE.format(data=write_waves(folder, count=30)))
    return train(folder / "recipe.yaml", folder / "run").folder


@pytest.mark.parametrize("name", FAULTS)
def test_training_names_the_line_of_the_list(name: str, seqloom: Command, tmp_path: Path) -> None:
    spoil, code, status, said = FAULTS[name]
    listed = write_waves(tmp_path, count=30)
    spoil(tmp_path / "waves" / "6.npy")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(data=listed))
    line = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "-q").refused(code, status)
    assert f"{listed}:7: {tmp_path / 'waves' / '6.npy'}" in line
    assert said in line
    assert not (tmp_path / "run" / "bundle").exists()


@pytest.mark.parametrize("name", FAULTS)
def test_prediction_names_the_file(name: str, trained: Path, seqloom: Command, tmp_path: Path) -> None:
    spoil, code, status, said = FAULTS[name]
    np.save(tmp_path / "6.npy", np.zeros((4, 3)))
    spoil(tmp_path / "6.npy")
    (tmp_path / "list.txt").write_text("6.npy\n")
    answer = seqloom("predict", trained, tmp_path / "list.txt", "-q")
    line = answer.refused(code, status)
    assert str(tmp_path / "6.npy") in line
    assert said in line
    assert answer.out == "\n", "lines in are lines out"


def test_blank_lines_are_empty_answers(trained: Path, seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"\n{trained.parent / 'waves' / '0.npy'}\n  \n")
    said = seqloom("predict", trained, tmp_path / "list.txt", "-q").out
    assert [bool(line) for line in said.split("\n")] == [False, True, False, False]


def test_long_files_are_found_before_the_first_answer(trained: Path, seqloom: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 3)))
    np.save(tmp_path / "b.npy", np.zeros((600, 3)))
    (tmp_path / "list.txt").write_text("a.npy\nb.npy\n")
    answer = seqloom("predict", trained, tmp_path / "list.txt", "-q")
    line = answer.refused("E_LONG", 3)
    assert f"a source of 600 frames, the recipe's maximum is 512; {tmp_path / 'list.txt'}:2; --on-long skip" in line
    assert not answer.out
    skipped = seqloom("predict", trained, tmp_path / "list.txt", "-q", "--on-long", "skip")
    assert [bool(line) for line in skipped.out.split("\n")] == [True, False, False]


def test_a_folder_without_arrays_and_a_model_of_text(
    trained: Path, run: Path, seqloom: Command, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert "2 runs given" in seqloom("predict", trained, tmp_path / "empty", "-q").refused("E_USAGE", 2)
    np.save(tmp_path / "empty" / "x.npy", np.zeros((2, 3)))
    seqloom("predict", run, tmp_path / "empty", "-q").refused("E_FILE", 6)  # a folder is no text
    line = seqloom("predict", run, tmp_path / "empty" / "x.npy", "-q").refused("E_DATA", 3)
    assert "reads texts, and this is an array" in line


def test_frames_that_changed_are_noticed_on_resume(trained: Path, seqloom: Command, tmp_path: Path) -> None:
    listed = write_waves(tmp_path, count=30)
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(data=listed))
    assert seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "-q").code == 0
    values = Path(tmp_path / "waves" / "6.npy").read_bytes()
    (tmp_path / "waves" / "6.npy").write_bytes(values[:-1] + bytes([values[-1] ^ 1]))
    line = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "-q").refused("E_CHANGED", 4)
    assert "(files it names)" in line


@pytest.mark.parametrize(
    "words",
    [("align", "RUN", "LIST"), ("lexicon", "RUN"), ("predict", "RUN", "LIST", "--replace-unknown")],
)
def test_what_is_about_words_says_so(words: tuple[str, ...], trained: Path, seqloom: Command) -> None:
    places = {"RUN": str(trained), "LIST": str(trained.parent / "waves.tsv")}
    answer = seqloom(*(places.get(word, word) for word in words))
    assert answer.code == 2, answer
    assert "Traceback" not in answer.err

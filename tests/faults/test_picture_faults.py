"""Bad pictures: training stops and names file and line; prediction tells of each, answers the others, loses no line."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from commands import Command
from scenes import write_blocks

pytest_plugins = ["command_fixtures"]

RECIPE = """
data: {{train: {data}}}
source: {{kind: pixels, size: 16, region: 4}}
target: {{tokenizer: words}}
model:
  target_embedding: {{width: 8}}
  encoder: {{kind: cnn, width: 8, channels: 8}}
  decoder: {{kind: luong, width: 8}}
batching: {{tokens: 272}}
training: {{steps: 2, validate_every: 2}}
evaluation: {{metrics: [exact], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def huge(path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(path)


FAULTS: dict[str, tuple[Callable[[Path], object], str, int, str]] = {
    "truncated": (cut_off, "E_DATA", 3, "picture"),
    "text": (lambda path: path.write_text("no picture"), "E_DATA", 3, "not a picture"),
    "missing": (lambda path: path.unlink(), "E_FILE", 6, "No such file"),
    "bomb": (huge, "E_DATA", 3, "20,000 x 20,000 pixels"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from seqloom.api.train import train

    folder = tmp_path_factory.mktemp("blocks")
    (folder / "recipe.yaml").write_text(RECIPE.format(data=write_blocks(folder, count=40)))
    return train(folder / "recipe.yaml", folder / "run").folder


@pytest.mark.parametrize("name", FAULTS)
def test_training_names_the_line(name: str, seqloom: Command, tmp_path: Path) -> None:
    spoil, code, status, said = FAULTS[name]
    listed = write_blocks(tmp_path, count=30)
    spoil(tmp_path / "blocks" / "6.png")
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(data=listed))
    line = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "-q").refused(code, status)
    assert f"{listed}:7: {tmp_path / 'blocks' / '6.png'}" in line
    assert said in line


@pytest.mark.parametrize("name", FAULTS)
def test_prediction_goes_on_with_the_others(name: str, trained: Path, seqloom: Command, tmp_path: Path) -> None:
    spoil, code, status, said = FAULTS[name]
    write_blocks(tmp_path, count=3)
    spoil(tmp_path / "blocks" / "1.png")
    (tmp_path / "list.txt").write_text("blocks/0.png\nblocks/1.png\nblocks/2.png\n")
    answer = seqloom("predict", trained, tmp_path / "list.txt", "-q", "--json")
    line = answer.refused(code, status)
    assert f"{tmp_path / 'list.txt'}:2: {tmp_path / 'blocks' / '1.png'}" in line
    assert said in line
    told = [json.loads(one) for one in answer.out.splitlines()]
    assert [one["skipped"] for one in told] == [False, True, False]
    assert told[1]["error"] == line
    assert len(seqloom("predict", trained, tmp_path / "list.txt", "-q").out.splitlines()) == 3
    stopped = seqloom("predict", trained, tmp_path / "list.txt", "-q", "--on-bad-file", "error")
    stopped.refused(code, status)
    assert not stopped.out


def test_an_option_that_is_none(trained: Path, seqloom: Command) -> None:
    assert "skip" in seqloom("predict", trained, "--text", "x.png", "--on-bad-file", "maybe").refused("E_USAGE", 2)


def test_without_pillow_it_says_how_to_get_it(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, real = write_blocks(tmp_path, count=5), builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.partition(".")[0] == "PIL":
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    (tmp_path / "recipe.yaml").write_text(RECIPE.format(data=listed))
    monkeypatch.setattr(builtins, "__import__", without)
    line = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "-q").refused("E_EXTRA", 2)
    assert "pip install 'seqloom[image]'" in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("model.encoder.kind=rnnn", "rnn"),
        ("source.region=5", "power of two"),
        ("source.size=18", "use 16 or 20"),
        ("model.source_embedding={kind: learned}", "cnn reads pixels, and source_embedding: learned reads text"),
        ("model.source_embedding={columns: 7}", "leave it out"),
        ("model.head=copy", "copy repeats tokens of the source"),
        ("source={kind: text, tokenizer: words}", "cnn reads pixels"),
        ("task={doubly_stochastic: 1}", ""),
    ],
)
def test_recipes_that_cannot_be(change: str, said: str, seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(data="x.tsv"))
    answer = seqloom("config", tmp_path / "recipe.yaml", "--set", change)
    if said:
        assert said in answer.refused("E_RECIPE", 2)
    else:
        assert answer.code == 0, answer


def test_what_to_type_next_names_a_file(trained: Path, seqloom: Command) -> None:
    told = seqloom("train", trained).err
    assert f"seqloom predict {trained} FILE" in told
    assert "--text" not in told


def test_several_pictures_are_named_in_a_list(trained: Path, seqloom: Command) -> None:
    pictures = [trained.parent / "blocks" / name for name in ("0.png", "1.png")]
    assert "in a list, one per line" in seqloom("predict", trained, *pictures).refused("E_USAGE", 2)

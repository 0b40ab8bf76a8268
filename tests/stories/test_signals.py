"""A person has signals instead of texts: labels, tags and words are learned from files of frames, by every command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import Command
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.train import train
from signals import SYLLABLES, write_bursts, write_levels, write_waves

pytest_plugins = ["command_fixtures"]

LABELS = """
data: {{train: {data}}}
source: {source}
target: {{tokenizer: whole}}
model:
  source_embedding: {{width: 16}}
  encoder: {{kind: {encoder}, width: 32}}
  decoder: {{kind: label, pooling: attention}}
training: {{steps: 60, validate_every: 30, optimiser: {{kind: adam, lr: 1e-2}}, metric: accuracy}}
evaluation: {{metrics: [accuracy], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""
TAGS = """
data: {{train: {data}}}
source: {{kind: frames, stack: {stack}}}
target: {{tokenizer: symbols}}
model:
  source_embedding: {{width: 16}}
  encoder: {{kind: rnn, width: 32}}
  decoder: {{kind: tags, transitions: true}}
training: {{steps: 50, validate_every: 25, optimiser: {{kind: adam, lr: 1e-2}}, metric: accuracy}}
evaluation: {{metrics: [accuracy], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""
WORDS = """
data: {{train: {data}}}
source: {{kind: frames, rate: 50}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 32}}
  target_embedding: {{width: 16}}
  encoder: {{kind: {encoder}, width: 32}}
  decoder: {{kind: {decoder}, width: 32}}
batching: {{tokens: 1024}}
training: {{steps: {steps}, validate_every: 100, optimiser: {{kind: adam, lr: 5e-3}}, metric: wer}}
evaluation: {{metrics: [wer], show: 0}}
runtime: {{threads: 1, device: cpu}}
"""


def learned(folder: Path, recipe: str, **parts: object) -> Path:
    (folder / "recipe.yaml").write_text(recipe.format(**parts))
    return train(folder / "recipe.yaml", folder / "run").folder


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("waves")
    return learned(folder, LABELS, data=write_waves(folder), source="frames", encoder="rnn")


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bursts")
    return learned(folder, WORDS, data=write_bursts(folder), encoder="rnn", decoder="luong", steps=250)


def test_shapes_of_waves_are_told_apart(waves: Path) -> None:
    found = evaluate(load(waves))
    assert found["accuracy"] > 90, found
    assert found.length_unit == "frames"
    assert found.decoding is not None
    assert found.decoding.unknown == 0


@pytest.mark.parametrize(("encoder", "source"), [("convolution", "{kind: frames, normalise: each}")])
def test_other_encoders_tell_them_too(encoder: str, source: str, tmp_path: Path) -> None:
    run = learned(tmp_path, LABELS, data=write_waves(tmp_path), source=source, encoder=encoder)
    assert evaluate(load(run))["accuracy"] > 85


@pytest.mark.parametrize("stack", [1, 2])
def test_a_tag_for_each_frame_or_for_every_second_one(stack: int, tmp_path: Path) -> None:
    run = learned(tmp_path, TAGS, data=write_levels(tmp_path, every=stack), stack=stack)
    model = load(run)
    assert evaluate(model)["accuracy"] > 95
    path = str(tmp_path / "levels" / "0.npy")
    assert len(model(path).text.split()) == model.codecs.source.length(path)


def test_tags_that_are_too_few_are_refused(seqloom: Command, tmp_path: Path) -> None:
    listed = write_levels(tmp_path, count=30, every=2)
    (tmp_path / "recipe.yaml").write_text(TAGS.format(data=listed, stack=1))
    line = seqloom("train", tmp_path / "recipe.yaml", "--run", tmp_path / "run", "-q").refused("E_ALIGN", 3)
    assert f"{listed}:" in line
    assert "frames, but" in line
    assert "stack" in line


def test_bursts_become_words(bursts: Path) -> None:
    assert evaluate(load(bursts))["wer"] < 10


def test_a_transformer_hears_them_too(tmp_path: Path) -> None:
    data = write_bursts(tmp_path)
    run = learned(tmp_path, WORDS, data=data, encoder="transformer", decoder="transformer", steps=350)
    assert evaluate(load(run))["wer"] < 20


def test_a_file_a_list_a_folder_and_a_pipe(
    waves: Path, seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = waves.parent / "waves"
    names = sorted(path.name for path in folder.glob("1?.npy"))
    (tmp_path / "some").mkdir()
    for name in names:
        shutil.copy(folder / name, tmp_path / "some" / name)
    (tmp_path / "list.txt").write_text("".join(f"some/{name}\n" for name in names))
    alone = [seqloom("predict", waves, folder / name, "-q").out for name in names]
    assert all(answer.strip() in ("sine", "square", "saw") for answer in alone)
    assert seqloom("predict", waves, tmp_path / "some", "-q").out == "".join(alone)
    assert seqloom("predict", waves, tmp_path / "list.txt", "-q").out == "".join(alone)
    monkeypatch.chdir(tmp_path)  # what is piped is relative to here
    from io import BytesIO, TextIOWrapper

    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO((tmp_path / "list.txt").read_bytes())))
    assert seqloom("predict", waves, "-q").out == "".join(alone)
    told = json.loads(seqloom("predict", waves, folder / names[0], "-q", "--json").out)
    assert told["source"] == str(folder / names[0])


def test_evaluate_score_and_info(waves: Path, seqloom: Command) -> None:
    assert "by source length (frames)" in seqloom("evaluate", waves, "--no-report").out
    judged = seqloom("evaluate", waves, "--data", waves.parent / "waves.tsv", "--no-report", "--json")
    assert json.loads(judged.out)["sentences"] == 240
    assert len(seqloom("score", waves, waves.parent / "waves.tsv").out.splitlines()) >= 240
    assert "frames" in seqloom("info", waves).out


def test_a_run_that_moved_predicts_as_before(waves: Path, seqloom: Command, tmp_path: Path) -> None:
    shutil.copytree(waves / "bundle", tmp_path / "bundle")
    path = waves.parent / "waves" / "3.npy"
    assert seqloom("predict", tmp_path / "bundle", path, "-q").out == seqloom("predict", waves, path, "-q").out


def test_attention_over_time(bursts: Path, seqloom: Command, tmp_path: Path) -> None:
    """Each syllable looks at its own burst; positions are times, and long signals are drawn in bins."""
    rows = [np.eye(4)[0]] * 20 + [np.eye(4)[3]] * 10 + [np.eye(4)[1]] * 30
    np.save(tmp_path / "long.npy", np.array(rows))
    said = seqloom("explain", bursts, tmp_path / "long.npy", "--target", "ba di").out
    assert "0.00s" in said
    assert "1.14s" in said, "the last of 20 bins of 60 frames at 50 a second begins at frame 57"
    assert "1.18s" not in said
    told = json.loads(seqloom("explain", bursts, tmp_path / "long.npy", "--target", "ba di", "--json").out)
    assert told["source_frames"] == 60
    assert told["source_tokens"][:3] == ["0.00s", "0.02s", "0.04s"]
    weights = np.array(told["weights"])[-1].mean(0)  # T S
    assert weights.shape == (3, 61)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-4)
    assert weights[0, :30].sum() > 0.5, "ba came first"
    assert weights[1, 20:60].sum() > 0.5, "di came last"
    seqloom("explain", bursts, tmp_path / "long.npy", "--words").refused("E_USAGE", 2)


@pytest.mark.parametrize("method", ["attention", "gradient", "integrated", "occlusion"])
def test_attributions_to_times(method: str, bursts: Path, seqloom: Command, tmp_path: Path) -> None:
    path = bursts.parent / "bursts" / "5.npy"
    said = seqloom("explain", bursts, path, "--attribute", method)
    assert said.code == 0, said
    assert "<- 0." in said.out
    page = tmp_path / "x.html"
    assert seqloom("explain", bursts, path, "--attribute", method, "--html", page).code == 0
    assert "0.02s" in page.read_text()


@pytest.mark.parametrize("look", ["--states", "--gradients", "--depth"])
def test_looks_at_a_test_set(look: str, bursts: Path, seqloom: Command) -> None:
    assert seqloom("explain", bursts, look).code == 0


def test_python_takes_names_of_files(bursts: Path) -> None:
    model = load(bursts)
    paths = [str(bursts.parent / "bursts" / f"{number}.npy") for number in range(4)]
    assert [one.text for one in model(paths)] == [model(path).text for path in paths]
    assert set(model(paths[0]).text.split()) <= set(SYLLABLES)

"""A person has recordings: tones are learned as words, by either encoder, and every command works on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Command
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.report import Limits, write_report
from seqloom.api.train import train
from tones import write_tones

pytest_plugins = ["command_fixtures"]

RECIPE = """
data: {{train: {data}, split: {{dev: 0.1, test: 0.15}}}}
source:
  kind: sound
  sample_rate: 8000
  bands: 12
  stack: 2
  speeds: [0.9, 1.0, 1.1]
  augment: {{time_masks: 1, time_width: 5, feature_masks: 1, feature_width: 1}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 16}}
  target_embedding: {{width: 8}}
  encoder: {encoder}
  decoder: {{kind: {decoder}, width: 32}}
  ctc: true
task: {{ctc: 0.5}}
batching: {{tokens: 512}}
training: {{steps: {steps}, validate_every: 40, optimiser: {{kind: adam, lr: 5e-3}}, metric: wer}}
evaluation: {{metrics: [wer, cer], show: 0}}
runtime: {{threads: 1, device: cpu, precision: float32}}
"""
PYRAMID = "{kind: pyramid, width: 32, layers: 2}"
SUBSAMPLED = "{kind: subsampled, width: 32, halvings: 1, over: {kind: transformer, width: 32, layers: 1}}"


def learned(folder: Path, encoder: str, decoder: str, steps: int = 200) -> Path:
    listed = write_tones(folder, count=200)
    (folder / "recipe.yaml").write_text(RECIPE.format(data=listed, encoder=encoder, decoder=decoder, steps=steps))
    return train(folder / "recipe.yaml", folder / "run").folder


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned(tmp_path_factory.mktemp("tones"), PYRAMID, "bahdanau")


def test_tones_are_heard(tones: Path) -> None:
    found = evaluate(load(tones))
    assert found["wer"] < 20, found


def test_a_run_of_recordings_has_its_report(tones: Path, tmp_path: Path) -> None:
    """Its encoder shortens the source: where it looked is shown, whether that is a reason cannot be told."""
    page = write_report(tones, tmp_path / "report.html", limits=Limits(sentences=6, closely=2)).read_text("utf-8")
    assert '"signal":{' in page
    assert '"faithfulness":[]' in page


def test_convolutions_and_a_transformer_hear_them_too(tmp_path: Path) -> None:
    assert evaluate(load(learned(tmp_path, SUBSAMPLED, "luong")))["wer"] < 20


def test_ctc_advises_the_search(tones: Path, seqloom: Command) -> None:
    """Its weight enters the score, and never the model's own probability."""
    clip = tones.parent / "tones" / "3.wav"
    plain, advised = (
        json.loads(seqloom("predict", tones, clip, "--json", "-q", *more).out)
        for more in ((), ("--set", "search.ctc=2.0"))
    )
    assert plain["text"] == advised["text"]
    one, other = plain["hypotheses"][0], advised["hypotheses"][0]
    assert one["log_prob"] == pytest.approx(other["log_prob"], abs=1e-4)
    assert other["score"] < one["score"]
    assert evaluate(load(tones, settings=["search.ctc=1.0"]))["wer"] < 20


def test_a_clip_is_explained_by_its_times(tones: Path, seqloom: Command, tmp_path: Path) -> None:
    clip = tones.parent / "tones" / "3.wav"
    told = json.loads(seqloom("explain", tones, clip, "--json").out)
    assert told["source_tokens"][:3] == ["0.00s", "0.02s", "0.04s"]
    assert len(told["weights"][0][0][0]) == len(told["source_tokens"])
    assert sum(told["weights"][0][0][0]) == pytest.approx(1, abs=1e-3)
    shown = seqloom("explain", tones, clip)
    assert shown.code == 0, shown
    assert "0.00s" in shown.out
    elsewhere = json.loads(seqloom("explain", tones, clip, "--json", "--attend", "1=4").out)
    assert elsewhere["weights"][0][0][0][:5] == [0, 0, 0.5, 0.5, 0]  # two positions are one of the memory
    assert "one position of 2" in seqloom("explain", tones, clip, "--faithfulness").refused("E_USAGE", 2)
    page = tmp_path / "page.html"
    assert seqloom("explain", tones, clip, "--html", page).code == 0
    assert page.stat().st_size > 1000


def test_the_same_sounds_in_the_same_order_are_drawn_again(tones: Path, tmp_path: Path) -> None:
    """A resumed or repeated training hears what the first one heard."""
    raw = (tones.parent / "recipe.yaml").read_text().replace("steps: 200", "steps: 6")
    (tmp_path / "recipe.yaml").write_text(raw)
    weights = [
        (train(tmp_path / "recipe.yaml", tmp_path / name).folder / "bundle" / "weights.safetensors").read_bytes()
        for name in ("one", "two")
    ]
    assert weights[0] == weights[1]

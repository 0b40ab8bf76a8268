"""On a GPU: whole runs in every precision, batches sized by trying, resuming, and the same answers as on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.model import Options
from seqloom.api.train import Wishes, train
from tiny import write_recipe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TRANSFORMER = [
    f"model.{part}={{kind: transformer, width: 32, layers: 2, heads: 2, dropout: 0.1}}"
    for part in ("encoder", "decoder")
]
SENTENCES = ["ant bee cat", "gnu", "fox eel dog cat bee"]


def trained(folder: Path, *assignments: str, name: str = "run", stop: int | None = None) -> tuple[Path, list[str]]:
    """A run on the GPU, and what was said."""
    said: list[str] = []
    asked = iter(range(10**9))
    ends = None if stop is None else (lambda: "interrupted" if next(asked) >= stop - 1 else None)
    wishes = Wishes(tell=said.append) if ends is None else Wishes(tell=said.append, stop=ends)
    recipe = folder / "tiny.yaml"
    train(
        recipe if recipe.exists() else write_recipe(folder),
        folder / name,
        ["runtime.device=cuda", *assignments],
        wishes,
    )
    return folder / name, said


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("model", [[], TRANSFORMER], ids=["rnn", "transformer"])
def test_it_learns_in_every_precision(tmp_path: Path, precision: str, model: list[str]) -> None:
    longer = ["training.epochs=30", "training.optimiser.lr=3e-3"] if model else ["training.epochs=12"]
    run, said = trained(tmp_path, f"runtime.precision={precision}", *longer, *model)
    assert any(line.startswith("training steps: ") for line in said)
    assert ("training steps: CUDA graphs" in said) == (precision != "fp16")
    assert evaluate(load(run)).scores["exact"].value > 80


def test_batches_are_as_large_as_data_and_memory_allow(tmp_path: Path) -> None:
    run, said = trained(tmp_path, "batching.tokens=auto", *TRANSFORMER)
    assert any(line.startswith("batches of ") for line in said)
    assert "tokens: auto" not in (run / "recipe.yaml").read_text()


@pytest.mark.parametrize("model", [[], TRANSFORMER], ids=["rnn", "transformer"])
def test_a_resumed_run_ends_like_one_that_was_not_interrupted(tmp_path: Path, model: list[str]) -> None:
    """Close, not bit for bit: which steps are replayed depends on what was seen since the start."""
    whole, _ = trained(tmp_path, *model, name="whole")
    trained(tmp_path, *model, name="parts", stop=20)
    parts, _ = trained(tmp_path, *model, name="parts")
    losses = [
        [line["nll"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "nll" in line]
        for run in (whole, parts)
    ]
    assert losses[1][-1] == pytest.approx(losses[0][-1], rel=0.05)


@pytest.mark.parametrize("model", [[], TRANSFORMER], ids=["rnn", "transformer"])
def test_a_model_trained_on_a_gpu_answers_alike_on_a_cpu(tmp_path: Path, model: list[str]) -> None:
    run, _ = trained(tmp_path, "training.epochs=12", *model)
    answers = [
        [
            (prediction.text, prediction.best.log_prob)
            for prediction in load(run, device=device).predict(SENTENCES, Options())
        ]
        for device in ("cuda", "cpu")
    ]
    for (text, score), (text_again, score_again) in zip(*answers, strict=True):
        assert text == text_again
        assert score == pytest.approx(score_again, abs=1e-3)

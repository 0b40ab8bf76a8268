"""On a GPU: recorded searches find what the loop finds, batch after batch, and a model uses them by itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from seqloom.api.load import load
from seqloom.api.options import Options
from seqloom.api.train import train
from tiny import WORDS, write_recipe

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
MODELS = {
    "rnn": [],
    "transformer": [
        f"model.{part}={{kind: transformer, width: 32, layers: 2, heads: 2, dropout: 0.1}}"
        for part in ("encoder", "decoder")
    ],
}
WISHES: list[dict[str, object]] = [
    {"beam": 5},
    {"beam": 5, "n_best": 3},
    {"strategy": {"kind": "greedy"}},
    {"beam": 4, "prefix": "ant bee"},
    {"beam": 4, "banned": ["cat"], "max_length": 4},
]


def sentences(count: int) -> list[str]:
    rng = random.Random(3)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(count)]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_by_recordings_as_it_answers_without(tmp_path: Path, name: str, precision: str) -> None:
    recipe = write_recipe(tmp_path)
    wanted = ["runtime.device=cuda", f"runtime.precision={precision}", "training.epochs=4", *MODELS[name]]
    run = train(recipe, tmp_path / "run", wanted).folder
    recorded, plain = load(run, device="cuda"), load(run, device="cuda")
    plain.recordings = None
    assert recorded.recordings is not None
    for wish in WISHES:
        options = Options.model_validate({**wish, "batch_tokens": 64})
        for _ in range(2):  # once while recording, once by what was recorded
            found = [one.hypotheses for one in recorded.predict(sentences(40), options)]
            expected = [one.hypotheses for one in plain.predict(sentences(40), options)]
            same = sum(
                [output.text for output in mine] == [output.text for output in theirs]
                for mine, theirs in zip(found, expected, strict=True)
            )
            assert same >= (40 if precision == "float32" else 36), "in bf16 ties may fall otherwise"
    assert recorded.recordings.failure is None
    assert recorded.recordings.count > 0

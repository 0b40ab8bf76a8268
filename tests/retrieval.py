"""What tests of runs that rank texts share: a toy task that is learned in seconds, and a run of it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from seqloom.api.train import train

THINGS = {"red": "apple", "green": "grass", "blue": "water", "sky": "air", "sea": "fish", "rose": "petal"}
RECIPE = """
data: {{train: {data}, limits: {{max_source: 12, max_target: 12}}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
model: {{kind: dual, source_embedding: {{width: 16}}, encoder: {{kind: {encoder}, width: 16}}, pooling: {pooling},
  projection: 16}}
batching: {{sentences: 64}}
training: {{epochs: 12, optimiser: {{kind: adam, lr: 1e-2}}, metric: mrr, validate_every: 20}}
evaluation: {{metrics: [recall_at, {{kind: recall_at, k: 5}}, mrr], show: 1}}
runtime: {{threads: 1, device: cpu}}
"""


def write_pairs(path: Path) -> Path:
    """What is asked about, and what is said of it: each of three words has its counterpart."""
    names = list(THINGS)
    chosen = [(a, b, c) for a in names for b in names for c in names]
    lines = [
        f"tell me of {a} and {b} or {c}\tit is {THINGS[a]} with {THINGS[b]} or {THINGS[c]}\n" for a, b, c in chosen
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_recipe(folder: Path, encoder: str = "bag", pooling: str = "attention") -> Path:
    path = folder / "dual.yaml"
    data = write_pairs(folder / "pairs.tsv")
    path.write_text(RECIPE.format(data=data, encoder=encoder, pooling=pooling), encoding="utf-8")
    return path


@cache
def trained() -> Path:
    """A trained run without an index, for all tests of a process to copy and none to change."""
    folder = Path(tempfile.mkdtemp(prefix="seqloom-dual-"))
    return train(write_recipe(folder), folder / "run").folder

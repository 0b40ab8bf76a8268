"""A task that is learned in seconds: say a sentence of one to five words backwards."""

from __future__ import annotations

from pathlib import Path
from random import Random

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
RECIPE = """\
languages: {{source: en, target: en-x-reversed}}
data: {{train: {data}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 24}}
  target_embedding: {{width: 24}}
  encoder: {{width: 32}}
  decoder: {{width: 32}}
batching: {{tokens: 256}}
training: {{epochs: 6, optimiser: {{kind: adam, lr: 1e-2}}}}
evaluation: {{metrics: [exact, bleu]}}
runtime: {{threads: 1, device: cpu}}
"""


def write_reversals(path: Path, pairs: int = 1200, seed: int = 1) -> None:
    """The pairs as a TSV; early words of the list are more frequent."""
    rng = Random(seed)
    lines = []
    for _ in range(pairs):
        source = rng.choices(WORDS, weights=range(len(WORDS), 0, -1), k=rng.randint(1, 5))
        lines.append(" ".join(source) + "\t" + " ".join(reversed(source)) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def write_recipe(folder: Path, pairs: int = 1200) -> Path:
    """`tiny.yaml` beside its `pairs.tsv`."""
    write_reversals(folder / "pairs.tsv", pairs)
    recipe = folder / "tiny.yaml"
    recipe.write_text(RECIPE.format(data=folder / "pairs.tsv"), encoding="utf-8")
    return recipe

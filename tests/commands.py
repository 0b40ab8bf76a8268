"""What tests of the command line share: a tiny recipe, a run trained from it, and the real binary."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BINARY = Path(sys.executable).parent / "seqloom"
LETTERS = "abcdefgh"

RECIPE = """
languages: {{source: en, target: ne}}
data: {{train: {train}, split: {{dev: 0.1, test: 0.1}}, limits: {{max_source: 20, max_target: 20}}}}
source: {{tokenizer: characters}}
target: {{tokenizer: characters}}
model:
  source_embedding: {{width: 8}}
  target_embedding: {{width: 8}}
  encoder: {{width: 16, dropout: 0.1}}
  decoder: {{width: 16, dropout: 0.1}}
batching: {{tokens: 128}}
training: {{steps: 12, validate_every: 6, log_every: 3, optimiser: {{kind: adam, lr: 0.02}}}}
evaluation: {{metrics: [exact, cer], validate_examples: 10}}
runtime: {{device: cpu, threads: 1}}
"""


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    def refused(self, name: str, code: int) -> str:
        """The one line of an error, of this name and exit code."""
        assert self.code == code, self
        lines = self.err.strip().splitlines()
        assert lines, self
        assert lines[-1].startswith(f"seqloom: error[{name}]: "), self.err
        assert "Traceback" not in self.err
        return lines[-1]


Command = Callable[..., Answer]


def binary(*arguments: object, **options: object) -> Answer:
    """Give a command to the real binary, in a process of its own; keywords are those of `subprocess.run`."""
    done = subprocess.run(command_line(*arguments), capture_output=True, timeout=120, env=environment(), **options)  # type: ignore[call-overload]
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def command_line(*arguments: object) -> list[str]:
    return [str(BINARY), *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def write_pairs(path: Path, count: int = 400) -> Path:
    """Words and their reversal."""
    rng = random.Random(1)
    words = {"".join(rng.choice(LETTERS) for _ in range(rng.randint(2, 6))) for _ in range(count)}
    path.write_text("".join(f"{word}\t{word[::-1]}\n" for word in sorted(words)))
    return path


def write_recipe(folder: Path, **changes: str) -> Path:
    """A tiny recipe and its data in `folder`; `changes` are lines to add or keys to replace at the top level."""
    pairs = write_pairs(folder / "pairs.tsv")
    text = RECIPE.format(train=f'"{pairs}"')
    for key, value in changes.items():
        kept = [line for line in text.splitlines() if not line.startswith(f"{key}:")]
        text = "\n".join([*kept, f"{key}: {value}"])
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path


@cache
def trained() -> Path:
    """A run that was trained once in this process: copy it before you change it."""
    from seqloom import train

    folder = Path(tempfile.mkdtemp(prefix="seqloom-tests-"))
    return train(write_recipe(folder), folder / "run").folder

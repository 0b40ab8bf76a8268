"""Is a training that is killed again and again, and resumed, the training that nobody killed? To the last bit?

    python benchmarks/kills.py [--random 60] [--every 1]

For an RNN and a Transformer, with dropout, accumulation, scheduled sampling and EMA on. First `--random` kills (kill -9
of a process of its own) at random moments, over and over in one run until it ends; then, for every file operation of a
whole training (or each `--every`-th), a training that is killed just before it, between two operations of a save, and
resumed. Weights, optimiser, EMA, metrics (but for clock fields), bundle and the order of examples must be those of the
training that was left alone, and nothing of the dead may lie about. Results go to benchmarks/results/kills.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from seqloom import runtime, train
from seqloom.training import loop
from seqloom.training.observers import CLOCK_FIELDS

RESULT = Path(__file__).parent / "results" / "kills.json"
LETTERS = "abcdefgh"
PATIENCE = 300.0  # seconds for one sitting: a hang guard
EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate", "shutil.rmtree"}

RECIPE = """
data: {{train: {pairs}, split: {{dev: 0.1, test: 0.1}}}}
source: {{tokenizer: characters}}
target: {{tokenizer: characters}}
{model}
task: {{sampling: {{kind: linear, steps: 30}}, history: {{drop: 0.1}}}}
batching: {{tokens: 80}}
training:
  steps: 10
  accumulate: 2
  ema: 0.9
  schedule: {{kind: inverse_sqrt, warmup: 4}}
  optimiser: {{kind: adamw, lr: 0.01}}
  validate_every: 5
  checkpoint_every: 3
  log_every: 2
evaluation: {{metrics: [exact], validate_examples: 4, show: 1}}
runtime: {{device: cpu, threads: 1}}
"""
MODELS = {
    "rnn": "model: {source_embedding: {width: 8}, target_embedding: {width: 8}, "
    "encoder: {width: 12, dropout: 0.2}, decoder: {kind: bahdanau, width: 12, dropout: 0.2}}",
    "transformer": "model: {source_embedding: {width: 16}, target_embedding: {width: 16}, "
    "encoder: {kind: transformer, width: 16, heads: 2, layers: 1, dropout: 0.2}, "
    "decoder: {kind: transformer, width: 16, heads: 2, layers: 1, dropout: 0.2}}",
}


def write_recipe(folder: Path, model: str) -> Path:
    """A recipe of this model, and pairs to learn from: words and their reversal."""
    draw = random.Random(1)
    words = sorted({"".join(draw.choice(LETTERS) for _ in range(draw.randint(2, 6))) for _ in range(250)})
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    recipe = folder / f"{model}.yaml"
    recipe.write_text(RECIPE.format(pairs=pairs, model=MODELS[model]))
    return recipe


# --- one sitting, in a process that may die ------------------------------------------------------------------------


def begin(recipe: Path, run: Path, fate: Callable[[], None] = lambda: None) -> int:
    """Train, or go on, in a process of its own; `fate` is called in it first. Its number."""
    process = os.fork()
    if process:
        return process
    try:  # the child, which never returns
        torch.set_num_threads(1)
        signal.alarm(int(PATIENCE))
        _note_examples(run.with_suffix(".order"))
        fate()
        train(recipe, run)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(process: int) -> int:
    """Wait for a process; its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _note_examples(path: Path) -> None:
    """Write down which examples each step is made of, as they are used."""
    summed = loop._summed

    def noted(backward, state, group, *rest):  # type: ignore[no-untyped-def]
        with path.open("a") as file:
            file.write(json.dumps([state.counters.step + 1, [batch.examples for batch in group]]) + "\n")
        return summed(backward, state, group, *rest)

    loop._summed = noted


def dies_before(operation: int, run: Path) -> Callable[[], None]:
    """The fate of a process that is killed just before this file operation (counted from 1) in its run."""

    def fate() -> None:
        seen = 0

        def count() -> None:
            nonlocal seen
            seen += 1
            if seen == operation:
                os.kill(os.getpid(), signal.SIGKILL)

        _watch(run, count)

    return fate


def counts(run: Path, to: Path) -> Callable[[], None]:
    """The fate of a process that only counts its file operations."""

    def fate() -> None:
        seen: list[int] = []

        def count() -> None:
            seen.append(1)
            descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(descriptor, str(len(seen)).encode())
            os.close(descriptor)

        _watch(run, count)

    return fate


def _watch(run: Path, count: Callable[[], None]) -> None:
    place = str(run)

    def hook(event: str, values: tuple[object, ...]) -> None:
        if event not in EVENTS or not values:
            return
        path = os.fsdecode(values[0]) if isinstance(values[0], (str, bytes, os.PathLike)) else ""
        below = path == place or path.startswith(place + "/")
        if below or (path and event in ("os.remove", "os.rmdir") and not path.startswith("/")):  # rmtree goes by dir_fd
            count()

    sync = os.fsync

    def counted_sync(descriptor: int) -> None:
        count()
        sync(descriptor)

    os.fsync = counted_sync
    sys.addaudithook(hook)


# --- the same, or not ----------------------------------------------------------------------------------------------


def differences(whole: Path, run: Path) -> list[str]:
    """What of a run is not as in the one that nobody killed; file by file and bit by bit."""
    found = []
    one, other = _files(whole), _files(run)
    found += [f"missing: {name}" for name in sorted(one.keys() - other.keys())]
    found += [f"left behind: {name}" for name in sorted(other.keys() - one.keys())]
    found += [f"differs: {name}" for name in sorted(one.keys() & other.keys()) if one[name] != other[name]]
    if metrics(whole) != metrics(run):
        found.append("differs: metrics.jsonl")
    expected, seen = order(whole), order(run)
    wrong = [step for step, examples in seen if dict(expected).get(step) != examples]
    if wrong or {step for step, _ in seen} != {step for step, _ in expected}:
        found.append(f"other examples in steps {wrong}")
    return found


def _files(run: Path) -> dict[str, bytes]:
    kept = (path for path in run.rglob("*") if path.is_file())
    named = {path.relative_to(run).as_posix(): path for path in kept}
    odd = ("metrics.jsonl", ".lock")  # clocks; a process's number
    return {
        name: path.read_bytes() for name, path in named.items() if name not in odd and not name.startswith("board/")
    }


def metrics(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK_FIELDS} for line in lines]


def order(run: Path) -> list[tuple[int, object]]:
    """Which examples were seen at which step, steps that were made anew as often as they were made."""
    lines = run.with_suffix(".order").read_text().splitlines()
    return [(step, examples) for step, examples in map(json.loads, _whole(lines))]


def _whole(lines: list[str]) -> list[str]:
    return [line for line in lines if line.endswith("]]]")]  # a kill may tear the last one of a sitting


# --- kills ---------------------------------------------------------------------------------------------------------


class Trial:
    """One model: an uninterrupted run, and as many killed ones as are asked for."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.recipe = write_recipe(folder, model)
        self.whole = folder / model / "whole" / "run"
        self.whole.parent.mkdir(parents=True)
        counted = folder / model / "operations"
        torch.set_num_threads(1)
        train(self.recipe, folder / model / "warm")  # so that forks of this process have all modules loaded
        started_at = time.monotonic()
        assert ended(begin(self.recipe, self.whole, counts(self.whole, counted))) == 0
        self.elapsed, self.operations = time.monotonic() - started_at, int(counted.read_text())

    def at_random(self, kills: int, seed: int) -> tuple[int, int, list[str]]:
        """Kill runs at random moments until there were so many kills; kills, runs, and what was not the same."""
        draw, done, runs, wrong = random.Random(seed), 0, 0, []
        while done < kills:
            run = self._new(f"random-{runs}")
            while True:
                process = begin(self.recipe, run)
                time.sleep(draw.uniform(0.0, 0.8 * self.elapsed))
                os.kill(process, signal.SIGKILL)
                code = ended(process)
                if code == 0:
                    break
                assert code == -signal.SIGKILL, code
                done += 1
            wrong += [f"random run {runs}: {one}" for one in differences(self.whole, run)]
            shutil.rmtree(run.parent)
            runs += 1
        return done, runs, wrong

    def before(self, operation: int) -> list[str]:
        """Kill a run just before a file operation, and let another process go on to the end."""
        run = self._new(f"operation-{operation}")
        code = ended(begin(self.recipe, run, dies_before(operation, run)))
        assert code in (0, -signal.SIGKILL), (operation, code)
        code = ended(begin(self.recipe, run))
        found = differences(self.whole, run) if code == 0 else [f"it could not go on: exit code {code}"]
        shutil.rmtree(run.parent)
        return [f"before operation {operation}: {one}" for one in found]

    def _new(self, name: str) -> Path:
        run = self.folder / self.model / name / "run"
        run.parent.mkdir()
        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=60, help="kills at random moments, for each model")
    parser.add_argument("--every", type=int, default=1, help="kill before each so many-th file operation")
    asked = parser.parse_args()
    models = {}
    for number, model in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(Path(folder).resolve(), model)
            kills, runs, wrong = trial.at_random(asked.random, seed=number)
            print(f"{model}: {kills} random kills in {runs} runs, {len(wrong)} differences", flush=True)
            chosen = range(1, trial.operations + 1, asked.every)
            for operation in chosen:
                wrong += trial.before(operation)
            print(f"{model}: {len(chosen)} kills at file operations, {len(wrong)} differences in all", flush=True)
        models[model] = {
            "random kills": kills,
            "runs that ended after them": runs,
            "file operations of a training": trial.operations,
            "kills between file operations": len(chosen),
            "differences": wrong,
        }
    about = {"machine": runtime.describe(), "date": datetime.now(UTC).date().isoformat()}
    RESULT.write_text(json.dumps({**about, "models": models}, indent=1) + "\n")
    print(json.dumps(models, indent=1))
    sys.exit(any(one["differences"] for one in models.values()))


if __name__ == "__main__":
    main()

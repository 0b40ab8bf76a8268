"""How does training scale? 1, 2 and 4 processes, the time to the first step, and the arithmetic for a huge corpus.

python benchmarks/scaling.py [--turns 3] [--steps 10]   # some minutes; writes results/scaling.json and docs/scale.md

The same recipe each time: a step is 4 batches, which 1, 2 or 4 processes of one thread each share. They take turns, so
that noise hits all of them; figures are medians. Then two pieces of every training are measured alone, which depend
on the number of pairs: encoding them, once, and planning an epoch, in every process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from seqloom import runtime
from seqloom.data.batching import Batching, plan

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "scaling.json"
GPU = ROOT / "benchmarks" / "results" / "gpu.json"
PAGE = ROOT / "docs" / "scale.md"
SIZES = (1, 2, 4)
PAIRS, WORDS = 6_000, 2_000
PLANNED = 2_000_000  # pairs of the epoch that is planned
QUIET = 0.25  # of the cores: a machine that is busier says nothing about the speed of several processes
BILLION, GPUS, TOKENS = 1_000_000_000, 64, 25  # the arithmetic: pairs, GPUs, target tokens of a pair
RECIPE = """
data: {{train: {data}}}
source: {{tokenizer: words}}
target: {{tokenizer: words}}
model:
  source_embedding: {{width: 192}}
  target_embedding: {{width: 192}}
  encoder: {{kind: transformer, width: 192, layers: 2, heads: 4}}
  decoder: {{kind: transformer, width: 192, layers: 2, heads: 4}}
batching: {{tokens: 1024}}
training: {{steps: {steps}, accumulate: 4, log_every: 1, optimiser: adam}}
evaluation: {{metrics: [exact], validate_examples: 1}}
runtime: {{device: cpu, threads: 1, precision: float32}}
"""


def write_data(path: Path) -> None:
    rng = random.Random(1)
    with path.open("w") as file:
        for _ in range(PAIRS):
            words = [f"w{rng.randrange(WORDS)}" for _ in range(rng.randint(5, 30))]
            file.write(" ".join(words) + "\t" + " ".join(reversed(words)) + "\n")


def trained(recipe: Path, run: Path, size: int) -> dict[str, float]:
    """One training by so many processes: tokens per second, processor time for each, seconds to the first step."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "seqloom", "train", recipe, "--run", run, "--no-report", "--profile"]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started_at, processes = time.monotonic(), []
    for rank in range(size):
        own = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
        environment, quiet = {**shared, **own}, subprocess.DEVNULL
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=quiet))
    looks = [look(run, [process.pid for process in processes], started_at)]
    while any(process.poll() is None for process in processes):
        seen = look(run, [process.pid for process in processes], started_at)
        if seen.steps > looks[-1].steps:
            looks.append(seen)
        time.sleep(0.05)
    said = processes[0].communicate()[1].decode()
    assert all(process.returncode == 0 for process in processes), said
    first, last = looks[1], looks[-1]  # the first step warms up
    tokens = last.tokens - first.tokens
    spent = {name: _seconds(said, name) for name in ("exchange", "forward", "backward")}
    return {
        "tokens_per_second": tokens / (last.at - first.at),
        "processor_seconds_per_token": (last.processor - first.processor) / tokens,
        "first_step": first.at,
        "first_step_processor": first.processor / size,
        "exchange": spent["exchange"] / sum(spent.values()),
    }


@dataclass(frozen=True)
class Look:
    """How far a training is: its logged steps and their tokens, seconds since its start, and of the processors."""

    steps: int
    tokens: int
    at: float
    processor: float


def look(run: Path, processes: Sequence[int], started_at: float) -> Look:
    metrics = run / "metrics.jsonl"
    text = metrics.read_text() if metrics.exists() else ""
    logged = [json.loads(line) for line in text.splitlines() if '"logged"' in line and line.endswith("}")]
    spent = 0.0
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return Look(len(logged), sum(line["tokens"] for line in logged), time.monotonic() - started_at, spent)


def _seconds(said: str, phase: str) -> float:
    found = re.search(rf"([0-9.]+) s  {phase}\n", said)
    return float(found[1]) if found else 0.0


def planned() -> dict[str, float]:
    """Seconds and bytes for each pair of an epoch that is planned: lengths, which stay, and what planning needs."""
    rng = np.random.default_rng(1)
    tracemalloc.start()
    source, target = (rng.integers(5, 60, PLANNED, dtype=np.int64) for _ in range(2))
    started_at = time.monotonic()
    batches = plan(source, target, Batching(tokens=16384), 1, 0)
    seconds = time.monotonic() - started_at
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(map(len, batches)) == PLANNED
    return {
        "pairs": PLANNED,
        "seconds_per_pair": seconds / PLANNED,
        "bytes": kept / PLANNED,
        "peak_bytes": peak / PLANNED,
    }


def encoded(folder: Path) -> float:
    """Pairs per second that one process reads, learns the words of and writes down."""
    from seqloom.data.codec import TextCodec
    from seqloom.data.codecs import Codecs
    from seqloom.data.corpus import Corpus, Limits
    from seqloom.data.readers import Example
    from seqloom.data.tokenizers import Words

    lines = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()]
    codec = TextCodec.train(TextCodec.Settings(tokenizer=Words.Settings()), lambda: [line[0] for line in lines], 1)
    started_at = time.monotonic()
    examples = (Example(source, (target,), "pairs.tsv", number) for number, (source, target) in enumerate(lines, 1))
    Corpus.build(examples, Codecs(codec, codec), folder / "corpus", Limits(), keep_text=False)
    return len(lines) / (time.monotonic() - started_at)


def measured(turns: int, steps: int) -> dict[str, Any]:
    found: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_data(folder / "pairs.tsv")
        (folder / "recipe.yaml").write_text(RECIPE.format(data=folder / "pairs.tsv", steps=steps))
        for turn in range(turns):
            for size in SIZES:
                found[size].append(trained(folder / "recipe.yaml", folder / f"{turn}-{size}", size))
                print(f"turn {turn + 1}: {size} processes, {found[size][-1]}", file=sys.stderr)
        rate = encoded(folder)
    medians = {
        str(size): {name: statistics.median(one[name] for one in ones) for name in ones[0]}
        for size, ones in found.items()
    }
    alone = medians["1"]["tokens_per_second"]
    for one in medians.values():
        one["ratio"] = one["tokens_per_second"] / alone
        one["processor_ratio"] = one["processor_seconds_per_token"] / medians["1"]["processor_seconds_per_token"]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "load_before": load,
        "turns": turns,
        "steps": steps,
        "processes": medians,
        "encoded_pairs_per_second": rate,
        "planned": planned(),
    }


# --- the page ----------------------------------------------------------------------------------------------------


def between(text: str, name: str, new: str) -> str:
    begin, end = f"<!-- {name}: begin (benchmarks/scaling.py writes this) -->", f"<!-- {name}: end -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{new}\n{end}{rest.split(end)[1]}"


def table(result: dict[str, Any]) -> str:
    lines = [
        "| processes | tokens/s | processor time a token | exchange | processor seconds to the first step |",
        "|---|---|---|---|---|",
    ]
    machine = result["machine"]
    quiet = result["load_before"] < QUIET * machine["cores"]
    for size, one in result["processes"].items():
        speed = f"{one['ratio']:.2f}" if quiet else "-"
        ratios = f"{speed} | {one['processor_ratio']:.2f}"
        lines.append(f"| {size} | {ratios} | {100 * one['exchange']:.0f} % | {one['first_step_processor']:.1f} |")
    lines.append("")
    lines.append(
        f"({result['date']}, {machine['processor']}, {machine['cores']} cores, one thread a process, median of "
        f"{result['turns']} turns; the load of the machine before was {result['load_before']:.1f}.)"
    )
    return "\n".join(lines)


def arithmetic(result: dict[str, Any]) -> str:
    gpu = json.loads(GPU.read_text())["train-transformer"]
    tokens, speed = BILLION * TOKENS, gpu["tokens_per_second"]
    name, rate, planned = gpu["machine"]["gpu"], result["encoded_pairs_per_second"], result["planned"]
    encoding, planning, most = BILLION / rate, BILLION * planned["seconds_per_pair"], BILLION * planned["peak_bytes"]
    each, memory = (
        f"{1e6 * planned['seconds_per_pair']:.2f} s a million pairs",
        f"{planned['peak_bytes']:.0f} bytes a pair",
    )
    rows = {
        f"target tokens of an epoch, {TOKENS} a pair": f"{tokens / 1e9:.0f} billion",
        f"one {name} at {speed:,} tokens/s (3 + 3 layers, 256 wide)": f"{tokens / speed / 3600:.1f} hours an epoch",
        f"{GPUS} of them, were nothing lost": f"{tokens / speed / GPUS / 60:.0f} minutes an epoch",
        f"to encode, once, by one process at {rate:,.0f} pairs/s": f"{encoding / 3600:.0f} hours",
        f"to plan an epoch, in every process ({each})": f"{planning / 60:.0f} minutes",
        f"memory of that, in every process ({memory} at most)": f"{most / 1e9:.0f} GB",
    }
    return "\n".join(
        ["| for 1 billion pairs | |", "|---|---|", *(f"| {what} | {cost} |" for what, cost in rows.items())]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--page", action="store_true", help="only write the page anew from the result")
    given = parser.parse_args()
    if not given.page:
        RESULT.write_text(json.dumps(measured(given.turns, given.steps), indent=1) + "\n")
    result = json.loads(RESULT.read_text())
    text = between(PAGE.read_text(), "scaling", table(result))
    PAGE.write_text(between(text, "arithmetic", arithmetic(result)))


if __name__ == "__main__":
    main()

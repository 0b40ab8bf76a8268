"""How much memory does a training take, and how long until its first step, as the corpus grows?

    python benchmarks/memory.py [--lines 10000,100000,1000000,10000000] [--folder DIR]

Synthetic pairs of 4 to 12 words, a word tokenizer of 8,000 words, a small model, 20 steps. Each size is trained by a
process of its own. `anonymous` is memory that only that process has (the peak of RssAnon, and at the first step);
`mapped` are pages of the encoded corpus and of libraries, which the system may drop and read again. DIR (a temporary
folder by default) needs about 250 bytes per line and is emptied after each size. Results go to
benchmarks/results/memory.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from seqloom import runtime

RESULT = Path(__file__).parent / "results" / "memory.json"
WORDS = 8_000
AT_ONCE = 100_000  # lines
RECIPE = """
data: {{train: "{folder}/train.tsv", dev: "{folder}/dev.tsv"}}
source: {{tokenizer: words, vocabulary: {{max_size: 8000}}}}
target: {{tokenizer: words, vocabulary: {{max_size: 8000}}}}
model: {{encoder: {{width: 64}}, decoder: {{kind: luong, width: 64}}, source_embedding: {{width: 32}},
  target_embedding: {{width: 32}}}}
batching: {{tokens: 1024}}
training: {{steps: 20, log_every: 1, validate_every: 20}}
evaluation: {{metrics: [exact], validate_examples: 4, show: 0}}
runtime: {{device: cpu, threads: 1, precision: float32}}
"""


def write_pairs(path: Path, lines: int, seed: int) -> None:
    """Sources of random words, frequent ones more often; targets are their reversal."""
    draw = np.random.default_rng(seed)
    names = np.array([f"w{number}" for number in range(WORDS)])
    shares = 1 / np.arange(1, WORDS + 1)
    with path.open("w") as file:
        for start in range(0, lines, AT_ONCE):
            lengths = draw.integers(4, 13, min(AT_ONCE, lines - start))
            words = names[draw.choice(WORDS, int(lengths.sum()), p=shares / shares.sum())].tolist()
            ends = np.cumsum(lengths).tolist()
            rows = (words[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True))
            file.writelines(f"{' '.join(row)}\t{' '.join(reversed(row))}\n" for row in rows)


def resident(process: int) -> dict[str, int]:
    """What the process holds now, in bytes: RssAnon and RssFile."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("RssAnon", "RssFile"))}
    return {name: int(kilobytes) * 1024 for name, kilobytes in found.items()}


def trained(folder: Path) -> dict[str, float]:
    """Train in a process of its own, and watch it."""
    recipe, run = folder / "memory.yaml", folder / "run"
    recipe.write_text(RECIPE.format(folder=folder))
    started_at = time.monotonic()
    command = [sys.executable, "-m", "seqloom", "train", str(recipe), "--run", str(run), "--quiet"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    peaks, first = {"RssAnon": 0, "RssFile": 0}, {}
    log = run / "metrics.jsonl"
    while process.poll() is None:
        now = resident(process.pid)
        peaks = {name: max(peak, now.get(name, 0)) for name, peak in peaks.items()}
        if not first and log.exists() and '"logged"' in log.read_text(errors="replace"):
            first = {"seconds": time.monotonic() - started_at, "anonymous": now.get("RssAnon", 0)}
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"training ended with {process.returncode}")
    return {
        "seconds to the first step": round(first["seconds"], 1),
        "seconds in all": round(time.monotonic() - started_at, 1),
        "anonymous at the first step (MB)": round(first["anonymous"] / 1e6),
        "anonymous at most (MB)": round(peaks["RssAnon"] / 1e6),
        "mapped at most (MB)": round(peaks["RssFile"] / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", default="10000,100000,1000000,10000000")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=asked.folder, prefix="seqloom-memory-"))
    rows = {}
    try:
        for lines in map(int, asked.lines.split(",")):
            folder = base / str(lines)
            folder.mkdir()
            write_pairs(folder / "train.tsv", lines, seed=1)
            write_pairs(folder / "dev.tsv", 500, seed=2)
            size = (folder / "train.tsv").stat().st_size
            rows[str(lines)] = {"corpus (MB)": round(size / 1e6, 1), **trained(folder)}
            print(lines, rows[str(lines)], flush=True)
            shutil.rmtree(folder)
            about = {"machine": runtime.describe(), "date": datetime.now(UTC).date().isoformat()}
            RESULT.write_text(json.dumps({**about, "lines": rows}, indent=1) + "\n")
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()

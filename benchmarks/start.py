"""How long until the first answer? `seqloom --help`, and one line predicted by a process that is started for it.

    python benchmarks/start.py RUN --text "a line for it" [--rounds 7]

RUN must hold an export for CTranslate2 as well (`seqloom export RUN --quantise int8`). All commands take turns, beside
one that only imports torch: what a prediction takes beyond that is seqloom's own. Files are in the system's memory, as
they are from the second time on, compiled modules too (PYTHONDONTWRITEBYTECODE, where it is set, is not heeded).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime

RESULT = Path(__file__).parent / "results" / "start.json"
USUAL = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
SEQLOOM = str(Path(sys.executable).with_name("seqloom"))


def commands(run: str, text: str) -> dict[str, list[str]]:
    predict = [SEQLOOM, "predict", run, "--text", text, "--device", "cpu"]
    return {
        "python alone": [sys.executable, "-c", "pass"],
        "import torch": [sys.executable, "-c", "import torch"],
        "seqloom --help": [SEQLOOM, "--help"],
        "one line": predict,
        "one line, --engine ctranslate2": [*predict, "--engine", "ctranslate2"],
    }


def seconds(command: list[str]) -> float:
    started_at = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=USUAL)
    return time.perf_counter() - started_at


def imports_torch(command: list[str]) -> bool:
    """Does the engine's prediction import torch? Asked of the interpreter itself."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True
    )
    return any(line.rpartition(b"|")[2].strip() == b"torch" for line in done.stderr.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--text", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    every = commands(asked.run, asked.text)
    for command in every.values():  # once for the system's memory
        seconds(command)
    rounds = [{name: seconds(command) for name, command in every.items()} for _ in range(asked.rounds)]
    medians = {name: round(statistics.median(one[name] for one in rounds), 3) for name in every}
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "rounds": asked.rounds,
        "seconds": medians,
        "all": {name: [round(one[name], 3) for one in rounds] for name in every},
        "beyond torch": round(medians["one line"] - medians["import torch"], 3),
        "engine imports torch": imports_torch(every["one line, --engine ctranslate2"]),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("seconds", "beyond torch", "engine imports torch")}, indent=1))


if __name__ == "__main__":
    main()

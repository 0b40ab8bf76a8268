"""How good and how quick are the demos on this machine? Runs `seqloom demo` for each and keeps the numbers.

    python benchmarks/demo.py [pronunciation] [dates]

Only numbers are kept, no data: scores with intervals and signatures, seconds, tokens per second, date, machine, seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.config import read_yaml

RESULTS = Path(__file__).parent / "results"


def measured(name: str, folder: Path) -> dict[str, object]:
    command = [str(Path(sys.executable).with_name("seqloom")), "demo", name, "--folder", str(folder), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(done.stdout)
    run = folder / name / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if line["event"] == "logged"]
    recipe = read_yaml(run / "recipe.yaml")
    evaluation = report["evaluation"]
    return {
        "recipe": f"demo {name}",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "device": recipe["runtime"]["device"],
        "threads": recipe["runtime"]["threads"],
        "seed": recipe["runtime"]["seed"],
        "pairs": report["data"]["pairs"],
        "parameters": next(line["parameters"] for line in lines if line["event"] == "started"),
        "steps": logged[-1]["step"],
        "target_tokens": logged[-1]["tokens_seen"],
        "padding": statistics.mean(line["padding"] for line in logged),
        "training_seconds": lines[-1]["elapsed"],
        "training_tokens_per_second": round(statistics.median(line["tokens_per_second"] for line in logged)),
        "total_seconds": report["elapsed"],
        "sentences": evaluation["sentences"],
        "perplexity": evaluation["perplexity"],
        "search": evaluation["decoding"]["search"],
        "prediction_tokens_per_second": round(evaluation["decoding"]["tokens_per_second"]),
        "scores": {
            score["metric"]: {
                "name": score["name"],
                "value": score["value"],
                "low": score["interval"]["low"],
                "high": score["interval"]["high"],
                "signature": score["signature"],
            }
            for score in evaluation["scores"]
        },
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("names", nargs="*", default=["pronunciation", "dates"], help="of demos")
    for name in options.parse_args().names:
        with tempfile.TemporaryDirectory() as folder:
            result = measured(name, Path(folder))
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"demo-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""Train a recipe, judge it on its test set, write what came out: every number in the README begins here.

    python recipes/measure.py recipes/translation-luong.yaml --set data.train.source=... --output recipes/results/x.json

The result names recipe, date, machine, seed, scores with intervals and signatures, parameters and seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.train import Run, Wishes, train
from seqloom.recipe import parameters
from seqloom.training.console import Console


def measured(recipe: Path, run: Path, assignments: list[str]) -> dict[str, object]:
    started_at = time.monotonic()
    with Console() as console:
        done: Run = train(recipe, run, assignments, Wishes(observers=[console], tell=print))
    trained = time.monotonic() - started_at
    model = load(run)
    result = evaluate(model)
    logged = [line["tokens_per_second"] for line in done.metrics if line["event"] == "logged"]
    assert result.decoding is not None
    return {
        "recipe": recipe.stem,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "device": str(model.device),
        "seed": model.recipe.runtime.seed,
        "parameters": parameters(model.network),
        "pairs": json.loads((run / "cache" / "train" / "corpus.json").read_text())["sizes"]["lines"] // 8,
        "steps": max(line["step"] for line in done.metrics),
        "training_seconds": round(trained, 1),
        "training_tokens_per_second": round(statistics.median(logged)),
        "sentences": result.sentences,
        "perplexity": result.perplexity,
        "search": result.decoding.search,
        "prediction_tokens_per_second": round(result.decoding.tokens_per_second),
        "scores": {
            kind: {
                "name": score.name,
                "value": score.value,
                "low": score.interval.low,
                "high": score.interval.high,
                "signature": score.signature,
            }
            for kind, score in result.scores.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--set", dest="assignments", action="append", default=[])
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    run = arguments.run or Path("runs") / arguments.recipe.stem
    result = measured(arguments.recipe, run, arguments.assignments)
    output = arguments.output or Path(__file__).parent / "results" / f"{arguments.recipe.stem}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""What went wrong, counted: the diagnosis of several runs on their test sets, weak and strong side by side.

python benchmarks/diagnosis.py RUN [RUN ...]

Each reference is forced through the model: a reference that scores higher than the output is a search error, any other
wrong output a model error (`seqloom evaluate RUN --diagnose` shows the same with the sentences).
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.wiring import parameters

RESULT = Path(__file__).parent / "results" / "diagnosis.json"


def diagnosed(run: Path) -> dict[str, object]:
    """One run's scores and counts, without any sentence of its test set."""
    model = load(run)
    started_at = time.perf_counter()
    found = evaluate(model, diagnosing=True)
    assert found.diagnosis is not None
    assert found.decoding is not None
    told = found.diagnosis
    return {
        "run": model.name,
        "parts": {name: part.model_dump()["kind"] for name, part in model.recipe.model.parts.items()},
        "parameters": parameters(model.network),
        "search": found.decoding.search,
        "sentences": found.sentences,
        "scores": {word: round(score.value, 2) for word, score in found.scores.items()},
        "perplexity": found.perplexity,
        "verdicts": dict(told.verdicts),
        "symptoms": dict(told.symptoms),
        "median_rank": told.median_rank,
        "mean_rank": told.mean_rank,
        "attention_on_the_right_word": told.mean_mass,
        "seconds": round(time.perf_counter() - started_at, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    runs = [diagnosed(run) for run in parser.parse_args().runs]
    result = {"date": datetime.now(UTC).date().isoformat(), "machine": runtime.describe(), "runs": runs}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

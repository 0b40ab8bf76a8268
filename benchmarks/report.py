"""How long a report takes and how large it is, for runs with a test set of 1,000 sentences.

python benchmarks/report.py RUN [RUN ...]

Answers and scores come first, as `seqloom evaluate RUN` makes them; then what the report adds is timed by itself:
diagnoses, maps of every sentence, all heads and beams of the most telling ones, the map of states. What each part of
the file weighs is counted in bytes of its JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.evaluate import Judge
from seqloom.api.load import load
from seqloom.api.options import Options
from seqloom.api.report import Limits, report
from seqloom.api.testset import held_out, prepared
from seqloom.wiring import parameters

RESULT = Path(__file__).parent / "results" / "report.json"


def reported(run: Path) -> dict[str, object]:
    model, options, limits = load(run), Options(on_long="skip"), Limits()
    examples = prepared(held_out(model.recipe, "test"), model.recipe)[: limits.sentences]
    judge, started_at = Judge(model), time.perf_counter()
    found = judge.run(model, examples, options)
    judged = time.perf_counter() - started_at
    started_at = time.perf_counter()
    page = report(judge, model, examples, [found], options, limits)
    written = time.perf_counter() - started_at
    return {
        "run": model.name,
        "parts": {name: part.model_dump()["kind"] for name, part in model.recipe.model.parts.items()},
        "parameters": parameters(model.network),
        "scores": {word: round(score.value, 2) for word, score in found.scores.items()},
        "sentences": len(examples),
        "closely": min(limits.closely, len(examples)),
        "seconds": {"answers and scores": round(judged, 1), "report": round(written, 1)},
        "megabytes": round(len(page.encode("utf-8")) / 1e6, 3),
        "most_megabytes": limits.most_bytes / 1e6,
        "shares": shares(page),
    }


def shares(page: str) -> dict[str, float]:
    """Megabytes of the file's parts."""
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    payload = json.loads(found[1])
    sizes = {name: len(json.dumps(part, separators=(",", ":"))) for name, part in payload.items()}
    sizes["scripts and styles"] = len(page) - len(found[1])
    return {name: round(size / 1e6, 3) for name, size in sizes.items() if size >= 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    runs = [reported(run) for run in parser.parse_args().runs]
    about = {"date": datetime.now(UTC).date().isoformat(), "machine": runtime.describe(), "load": os.getloadavg()[0]}
    RESULT.write_text(json.dumps({**about, "runs": runs}, indent=1) + "\n")
    print(json.dumps({**about, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()

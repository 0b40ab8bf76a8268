"""What does counting letters reach? One long text by Kneser-Ney, beside the language models of letters.

    python benchmarks/ngrams.py TRAIN DEV [--orders 1,7]   # plain texts; writes results/ngrams-ORDER.json

Every letter of DEV is asked for after the ORDER - 1 before it (`metrics/ngrams.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.metrics.ngrams import NGrams

RESULTS = Path(__file__).parent / "results"


def measured(train: str, dev: str, order: int) -> dict[str, object]:
    began = time.perf_counter()
    letters = {letter: place for place, letter in enumerate(sorted(set(train)), start=1)}  # 0: none that was seen
    known, asked = ([letters.get(letter, 0) for letter in text] for text in (train, dev))
    start = len(letters) + 1
    nll = -NGrams([known], order, start, start).log_prob(asked) / len(asked)
    signature = f"letters:{len(asked)}|order:{order}|smoothing:kneser-ney"
    return {
        "order": order,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "device": "cpu",
        "pairs": train.count("\n"),
        "training_seconds": round(time.perf_counter() - began, 1),
        "scores": {
            kind: {"name": name, "value": value, "low": None, "high": None, "signature": signature}
            for kind, name, value in (
                ("nll", "nats by letter", nll),
                ("bits_per_character", "bits by character", nll / math.log(2)),
            )
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--orders", default="1,7")
    arguments = parser.parse_args()
    train, dev = (path.read_text(encoding="utf-8") for path in (arguments.train, arguments.dev))
    for order in map(int, arguments.orders.split(",")):
        found = measured(train, dev, order)
        (RESULTS / f"ngrams-{order}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""What does counting words reach? Replies ranked by TF-IDF, on the same candidates as a dual encoder is judged on.

    python benchmarks/tfidf.py TRAIN TEST [--among 100]   # pairs: what was said before, tab, the reply

w(t, d) = (1 + log tf) * (log((1 + N) / (1 + df)) + 1) of the lower-cased words, df counted over all texts of the
training pairs; vectors of length 1, so that their product is the cosine. Candidates, draws, ties, metrics and intervals
are those of `seqloom evaluate` (`api/ranking.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from seqloom import runtime
from seqloom.api.evaluate import Judge
from seqloom.api.index import distinct
from seqloom.api.ranking import Protocol, draws
from seqloom.api.testset import from_spec
from seqloom.data.readers import Example
from seqloom.metrics.ranking import CANDIDATES

RESULT = Path(__file__).parent / "results" / "tfidf.json"
METRICS = ("recall_at", "recall_at:k=5", "recall_at:k=10", "mrr")
Vector = dict[str, float]


class TfIdf:
    """Weights of words, learned by counting the texts that have them."""

    def __init__(self, texts: Iterable[str]) -> None:
        counts: Counter[str] = Counter()
        self.texts = 0
        for text in texts:
            counts.update(set(text.lower().split()))
            self.texts += 1
        self.idf = {word: math.log((1 + self.texts) / (1 + count)) + 1 for word, count in counts.items()}
        self.unseen = math.log(1 + self.texts) + 1

    def vector(self, text: str) -> Vector:
        found = {
            word: (1 + math.log(count)) * self.idf.get(word, self.unseen)
            for word, count in Counter(text.lower().split()).items()
        }
        length = math.sqrt(sum(value**2 for value in found.values())) or 1.0
        return {word: value / length for word, value in found.items()}


def product(one: Vector, other: Vector) -> float:
    few, many = sorted((one, other), key=len)
    return sum(value * many.get(word, 0.0) for word, value in few.items())


def lists(model: TfIdf, examples: Sequence[Example], protocol: Protocol) -> tuple[list[str], int]:
    """The candidates of each example, the best first, and how many different ones the set has."""
    candidates = distinct(text for example in examples for text in example.references)
    vectors = [model.vector(text) for text in candidates]
    ranked = []
    for example, drawn in zip(examples, draws(candidates, examples, protocol), strict=True):
        query = model.vector(example.source)
        scores = np.array([product(query, vectors[place]) for place in drawn.tolist()])
        order = np.argsort(-scores, kind="stable")
        ranked.append(CANDIDATES.join(candidates[place] for place in drawn[order].tolist()))
    return ranked, len(candidates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--among", type=int, default=100)
    arguments = parser.parse_args()
    started_at = time.perf_counter()
    train, test = from_spec(arguments.train), from_spec(arguments.test)
    model = TfIdf(text for example in train for text in (example.source, *example.references))
    protocol = Protocol(arguments.among)
    ranked, candidates = lists(model, test, protocol)
    judged = Judge(None, METRICS).outputs("TF-IDF", ranked, test)
    scores = {word: score.written(protocol.signature(candidates)) for word, score in judged.scores.items()}
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "device": "cpu",
        "training_seconds": round(time.perf_counter() - started_at, 1),  # counting and ranking
        "pairs": len(train),
        "sentences": judged.sentences,
        "scores": scores,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

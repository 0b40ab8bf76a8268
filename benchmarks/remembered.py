"""How far do answers go that hardly look at the text? A baseline for questions about the texts of WebNLG.

    python benchmarks/remembered.py FOLDER   # as 'seqloom data prepare webnlg2017-questions' lays it out

`scores` are of a glance: of the answers that training gave to the question's predicate, the most frequent that stands
in the text, or nothing. `blind` never looks: the most frequent answer to the question or, where training did not ask
it, to its predicate. `seen` is the share of test questions that training asked, `seen_texts` of texts that it showed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.public.upstream import found, lines_of
from seqloom.api.testset import metrics_of
from seqloom.metrics.evaluation import evaluate_outputs

RESULT = Path(__file__).parent / "results" / "remembered.json"
METRICS = ("answer_exact", "answer_f1")


@dataclass(frozen=True)
class Question:
    """One line of the set."""

    text: str
    answer: str
    question: str
    predicate: str


class Memory:
    """Answers of training by question and by predicate, the most frequent first and equals in order of sight."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.by_question: dict[str, Counter[str]] = defaultdict(Counter)
        self.by_predicate: dict[str, Counter[str]] = defaultdict(Counter)
        for one in questions:
            self.by_question[one.question][one.answer] += 1
            self.by_predicate[one.predicate][one.answer] += 1

    def remembered(self, asked: Question) -> str:
        known = self.by_question.get(asked.question) or self.by_predicate.get(asked.predicate)
        return known.most_common(1)[0][0] if known else ""

    def read(self, asked: Question) -> str:
        known = self.by_predicate.get(asked.predicate, Counter())
        standing = (answer for answer, _ in known.most_common() if answer in asked.text)
        return next(standing, "")


def questions(folder: Path, part: str) -> list[Question]:
    return [Question(*line.split("\t")) for line in lines_of(found(folder, f"questions_{part}.tsv"))]


def judged(answers: Sequence[str], asked: Sequence[Question]) -> dict[str, dict[str, object]]:
    metrics = metrics_of(METRICS, None)
    scores = evaluate_outputs(answers, [[one.answer] for one in asked], list(metrics.values())).scores
    return {kind: score.written() for kind, score in zip(metrics, scores, strict=True)}


def measured(folder: Path) -> dict[str, object]:
    started_at = time.perf_counter()
    train, test = questions(folder, "train"), questions(folder, "test")
    memory = Memory(train)
    texts = {one.text for one in train}
    return {
        "set": "webnlg2017-questions",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "device": "cpu",
        "pairs": len(train),
        "sentences": len(test),
        "seen": sum(one.question in memory.by_question for one in test) / len(test),
        "seen_texts": sum(one.text in texts for one in test) / len(test),
        "scores": judged([memory.read(one) for one in test], test),
        "blind": judged([memory.remembered(one) for one in test], test),
        "training_seconds": round(time.perf_counter() - started_at, 1),  # counting and judging
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    result = measured(arguments.folder)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

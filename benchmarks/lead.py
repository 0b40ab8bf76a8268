"""What do the first words of a text reach as its summary? Baselines without a model, as long as summaries are.

    python benchmarks/lead.py aeslc FOLDER     # as 'seqloom data prepare aeslc' lays it out: mail, subject
    python benchmarks/lead.py scitldr FOLDER   # abstract, summaries; this set has no test part, dev is judged

Three ways: the first words, the first sentence, the first sentence cut to so many words. How many is the mean of the
training summaries; which way is told as `scores` is chosen by ROUGE-L of the training pairs as well. A text is judged
by its author's summary alone (`scores`), as papers mostly do, and by all that people wrote (`all_references`). Words
are stemmed (needs nltk), as in the papers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.public.upstream import found, lines_of
from seqloom.api.testset import metrics_of
from seqloom.data.sentences import split_sentences
from seqloom.metrics import Metric
from seqloom.metrics.evaluation import evaluate_outputs

RESULTS = Path(__file__).parent / "results"
METRICS = ("rouge_1:stem=true", "rouge_2:stem=true", "rouge_l:stem=true")
Way = Callable[[str, int], str]


@dataclass(frozen=True)
class Document:
    """A text and its summaries, the author's first."""

    text: str
    summaries: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """Where a set has its texts: the part that is judged, the column of the text, and how to find the summaries."""

    judged: str
    text: int
    summaries: Callable[[Sequence[str]], Sequence[str]]


KINDS = {
    "aeslc": Kind("test", 0, lambda cells: cells[1:]),
    "scitldr": Kind("dev", 2, lambda cells: cells[3].split(" ||| ")),
}


def first_words(text: str, words: int) -> str:
    return " ".join(text.split()[:words])


def first_sentence(text: str, words: int) -> str:
    return split_sentences(text.strip())[0][0]


def cut_sentence(text: str, words: int) -> str:
    return first_words(first_sentence(text, words), words)


WAYS: dict[str, Way] = {
    "first words": first_words,
    "first sentence": first_sentence,
    "first sentence, cut": cut_sentence,
}


def documents(kind: Kind, folder: Path, part: str) -> list[Document]:
    """All of a part; a mail without a subject of its own is left out, as there is nothing to judge it by."""
    rows = [line.split("\t") for line in lines_of(found(folder, f"{part}.tsv"))][1:]  # the first names the columns
    read = [Document(row[kind.text], tuple(kind.summaries(row))) for row in rows]
    return [one for one in read if one.summaries[0].strip()]


def mean_words(texts: Sequence[Document]) -> int:
    return max(1, round(statistics.mean(len(one.summaries[0].split()) for one in texts)))


def judged(way: Way, words: int, texts: Sequence[Document], every: bool) -> dict[str, dict[str, object]]:
    outputs = [way(one.text, words) for one in texts]
    references = [[one for one in text.summaries if one.strip()] if every else [text.summaries[0]] for text in texts]
    metrics = metrics_of(METRICS, None)
    scores = evaluate_outputs(outputs, references, list(metrics.values())).scores
    return {word: score.written() for word, score in zip(metrics, scores, strict=True)}


def best_way(words: int, texts: Sequence[Document]) -> tuple[str, dict[str, float]]:
    """The way with the largest ROUGE-L, and what each has."""
    rouge: Metric = metrics_of(METRICS[-1:], None)["rouge_l"]
    references = [[text.summaries[0]] for text in texts]
    values = {name: rouge.score([way(one.text, words) for one in texts], references) for name, way in WAYS.items()}
    return max(values, key=lambda name: values[name]), values


def measured(name: str, folder: Path) -> dict[str, object]:
    started_at = time.perf_counter()
    kind = KINDS[name]
    train, test = documents(kind, folder, "train"), documents(kind, folder, kind.judged)
    words = mean_words(train)
    best, values = best_way(words, train)
    ways = {
        way: {
            "words": round(statistics.mean(len(cut(one.text, words).split()) for one in test), 2),
            "scores": judged(cut, words, test, every=False),
            "all_references": judged(cut, words, test, every=True),
        }
        for way, cut in WAYS.items()
    }
    return {
        "set": name,
        "part": kind.judged,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "device": "cpu",
        "pairs": len(train),
        "sentences": len(test),
        "mean_words": words,
        "chosen": {"way": best, "by": "ROUGE-L of the training pairs", "values": values},
        "scores": ways[best]["scores"],
        "ways": ways,
        "training_seconds": round(time.perf_counter() - started_at, 1),  # nothing is trained: cutting and judging
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    result = measured(arguments.name, arguments.folder)
    output = arguments.output or RESULTS / f"lead-{arguments.name}.json"
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

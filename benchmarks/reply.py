"""How good are suggested replies, and what does one message cost? Trains `seqloom demo reply` and keeps the numbers.

    python benchmarks/reply.py [FOLDER]   # where the demo goes, or where it was trained already

Ranking: P@1, P@3, P@10 and MRR in % on held-out conversations, beside the frequency of replies, TF-IDF neighbours and
free generation, with 95 % bootstrap intervals. Cost: milliseconds of one core for one message, all of it and its parts;
and those of the ranking with 1,000 and 10,000 replies in R, taken in turns, as a ratio. Counted is the time that a core
worked for us (one thread), which others on the machine do not lengthen as much.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import torch

from seqloom import runtime
from seqloom.api.train import Wishes as TrainingWishes
from seqloom.reply import demo
from seqloom.reply.bundle import load, read_card
from seqloom.reply.conversations import read
from seqloom.reply.evaluation import evaluate, gathered, training_pairs
from seqloom.reply.replier import Replier
from seqloom.reply.responses import Response, ResponseSet, canonical
from seqloom.reply.selection import Selection
from seqloom.reply.training import Wishes, train

RESULT = Path(__file__).parent / "results" / "reply.json"
MESSAGES = 100  # that are timed
SIZES = (1_000, 10_000)
ROUNDS = 5


def trained(folder: Path) -> tuple[Path, float | None]:
    """The demo's run, and the seconds it took where it was trained now."""
    run = folder / "run"
    started_at = time.perf_counter()
    chat = demo.write_chat(folder)
    if (run / "reply" / "reply.json").is_file():
        return run, None
    train(
        read(chat), run, demo.SETTINGS, Wishes(training=TrainingWishes(tell=lambda line: print(line, file=sys.stderr)))
    )
    return run, time.perf_counter() - started_at


def milliseconds(work: Callable[[str], object], texts: Sequence[str]) -> list[float]:
    """Of each text alone."""
    taken = []
    for text in texts:
        started_at = time.process_time()
        work(text)
        taken.append(1000 * (time.process_time() - started_at))
    return taken


def spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": round(statistics.median(ordered), 2), "p95": round(ordered[int(0.95 * len(ordered))], 2)}


def sized(replier: Replier, chat: Path, size: int) -> Selection:
    """A ranking among so many of the replies that were really sent, all in words that the model has."""
    known = set(replier.selection.model.target.vocabulary.ordinary)
    counts: Counter[str] = Counter()
    for one in read(chat):
        key = canonical(one.reply.body) if one.reply is not None else ""
        if key and set(key.split()) <= known and len(key.split()) <= demo.SETTINGS.responses.max_words:
            counts[key] += 1
    some = [Response(key, count, intent=key) for key, count in counts.most_common(size)]
    assert len(some) == size, f"only {len(some):,} replies in known words"
    return Selection(replier.selection.model, ResponseSet(some), replier.settings.selection)


def growth(replier: Replier, chat: Path, texts: Sequence[str]) -> dict[str, object]:
    """Milliseconds of a ranking by the size of R, rounds in turns, and the ratio of both."""
    selections = {size: sized(replier, chat, size) for size in SIZES}
    for selection in selections.values():
        selection.rank(texts[:3])
    rounds: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(ROUNDS):
        for size, selection in selections.items():
            rounds[size].append(statistics.median(milliseconds(lambda text: selection.rank([text]), texts)))  # noqa: B023
    ratios = [large / small for small, large in zip(*rounds.values(), strict=True)]
    return {
        "beam": replier.settings.selection.beam,
        "ms": {str(size): round(statistics.median(values), 2) for size, values in rounds.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("demo/reply"), help="where the demo is, or will be"
    )
    run, seconds = trained(parser.parse_args().folder)
    replier = load(run, device="cpu", threads=1)
    torch.set_num_threads(1)
    held_out = gathered(replier, run, None)
    judged = evaluate(replier, held_out, training_pairs(run))
    messages = list(islice((one.message.body for one in held_out if one.reply), MESSAGES))
    texts = [one.prepared.text for one in replier.judged(messages) if one.reason is None]
    replier.suggest(messages[0], anyway=True)
    parts = {
        "all": milliseconds(lambda text: replier.suggest(text, anyway=True), messages),
        "preprocessing and gate": milliseconds(lambda text: replier.judged([text]), messages),
        "trigger": milliseconds(lambda text: replier.trigger.probability([text]), texts),
        "ranking": milliseconds(lambda text: replier.selection.rank([text], "en"), texts),
    }
    about = read_card(run / "reply").about
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "device": "cpu",
        "threads": 1,
        "training_seconds": None if seconds is None else round(seconds, 1),
        "data": "chitchat-dataset 0.9.0, split by conversation",
        "learned": about,
        "settings": replier.settings.model_dump(mode="json"),
        "evaluation": {key: value for key, value in judged.as_dict().items() if key != "examples"},  # texts of others
        "milliseconds": {name: spread(values) for name, values in parts.items()},
        "growth": growth(replier, folder / "chat.tsv", texts),
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(result["evaluation"]["systems"], indent=1), result["milliseconds"], result["growth"])  # type: ignore[index]


if __name__ == "__main__":
    main()

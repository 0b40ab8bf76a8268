"""The text, cut once by seqloom, for all: files of blank-separated pieces, which every contender takes for words."""

from __future__ import annotations

import gzip
import json
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

from seqloom.data.codec import TextCodec

PIECES = 8000  # of German and English together
MOST = 100  # pieces of a sequence; longer ones are left out
BATCH = 64  # test sentences of like lengths side by side
DEV = 64  # pairs that training must be given, though nothing is validated
CARD = "about.json"

Pair = tuple[list[str], list[str]]


def prepared(name: str, data: Path, folder: Path) -> Path:
    """A folder of `{train,dev,test}.{source,target}` and the vocabularies, made once from `data/name`."""
    place = folder / name
    if not (place / CARD).exists():
        place.mkdir(parents=True, exist_ok=True)
        (multi30k if name == "multi30k" else cmudict)(data / name, place)
    return place


def multi30k(data: Path, place: Path) -> None:
    """German to English with one vocabulary of byte pair encoding for both."""
    files = {"train": "train", "dev": "val", "test": "test2016"}
    texts = {
        part: [_lines(data / f"{file}.{language}.gz") for language in ("de", "en")] for part, file in files.items()
    }
    settings = TextCodec.Settings.model_validate({"tokenizer": {"kind": "bpe", "size": PIECES}, "lowercase": True})
    codec = TextCodec.train(settings, lambda: (line for side in texts["train"] for line in side), 1)
    both = codec.vocabulary.ordinary
    _write(
        place,
        {part: _pairs(*([codec.tokens(line) for line in side] for side in sides)) for part, sides in texts.items()},
        (both, both),
    )


def cmudict(data: Path, place: Path) -> None:
    """Letters to phonemes."""
    pairs: dict[str, list[Pair]] = {}
    for part in ("train", "dev", "test"):
        columns = [line.split("\t") for line in _lines(data / f"{part}.tsv.gz")]
        pairs[part] = _pairs([list(word) for word, _ in columns], [sounds.split() for _, sounds in columns])
    known = tuple(sorted({piece for pair in pairs["train"] for piece in pair[side]}) for side in (0, 1))
    _write(place, pairs, (known[0], known[1]))


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").replace("\u00a0", " ") for line in file]  # a space that is no end of a word to some


def _pairs(sources: Sequence[list[str]], targets: Sequence[list[str]]) -> list[Pair]:
    pairs = zip(sources, targets, strict=True)
    return [pair for pair in pairs if all(1 <= len(side) <= MOST for side in pair)]


def _write(place: Path, pairs: dict[str, list[Pair]], vocabularies: tuple[Sequence[str], Sequence[str]]) -> None:
    pairs["test"] = _alike(pairs["test"])
    pairs["dev"] = pairs["dev"][:DEV]
    for side, (name, vocabulary) in enumerate(zip(("source", "target"), vocabularies, strict=True)):
        assert all(piece.split() == [piece] for piece in vocabulary), "a piece is one word to everyone"
        (place / f"{name}.vocabulary").write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
        for part, chosen in pairs.items():
            text = "".join(" ".join(pair[side]) + "\n" for pair in chosen)
            (place / f"{part}.{name}").write_text(text, encoding="utf-8")
    mean = {
        part: [statistics.mean(len(pair[side]) for pair in chosen) for side in (0, 1)] for part, chosen in pairs.items()
    }
    longest = statistics.mean(max(len(source), len(target)) + 1 for source, target in pairs["train"])
    about = {
        "pairs": {part: len(chosen) for part, chosen in pairs.items()},
        "pieces": [len(vocabulary) for vocabulary in vocabularies],
        "mean_lengths": mean,
        "mean_longest": longest,  # of a training pair, the end counted
        "length": round(mean["test"][1]),  # of outputs, where all must be equally long
    }
    (place / CARD).write_text(json.dumps(about, indent=1) + "\n")


def _alike(pairs: list[Pair]) -> list[Pair]:
    """In batches of like source lengths, whose order is random; what fills no batch is left out."""
    ordered = sorted(pairs, key=lambda pair: len(pair[0]))
    batches = [ordered[start : start + BATCH] for start in range(0, len(ordered) - BATCH + 1, BATCH)]
    random.Random(1).shuffle(batches)
    return [pair for batch in batches for pair in batch]

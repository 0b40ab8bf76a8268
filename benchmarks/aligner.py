"""Attention as an aligner next to a statistical one: IBM Model 1 with a prior for the diagonal, on the same text.

python benchmarks/aligner.py --data FOLDER --write PAIRS.tsv              # the text both learn from, cut into words
seqloom train RECIPE --run THERE --set data.train=PAIRS.tsv               # and one of the other direction, BACK
python benchmarks/aligner.py --data FOLDER --runs THERE BACK

FOLDER holds multi30k/train.{en,fr}.gz, pydocs-en-fr/train.tsv.gz and wordalign/en-fr.gold.{en,fr,align}.gz: 447 pairs
whose links people gave. None of them is learned from. The baseline, after Dyer et al. (2013) without its tuned tension:

    p(f_j given e) = p_0 t(f_j given NULL) + (1 - p_0) sum_i d_ij t(f_j given e_i),  d_ij ~ exp(-L |i / I - j / J|)

with t learned by variational EM. Each word is linked to what explains it best. Layer and head of a run are chosen on
the first pairs, everything is judged on the others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from seqloom import runtime
from seqloom.api.align import Aligner
from seqloom.api.load import load
from seqloom.data.readers import Example
from seqloom.metrics.links import SYMMETRISATIONS, Gold, Judged, Links, read_gold, turned

RESULT = Path(__file__).parent / "results" / "aligner.json"
WORD = re.compile(r"\w+['’]|\w+|[^\w\s]")
ROUNDS, ALPHA, NOTHING, TENSION = 5, 0.01, 0.08, 4.0
LONGEST = 80  # words of a side that is learned from
CHOSEN_ON = 100  # gold pairs

Pairs = list[tuple[list[str], list[str]]]


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def training_text(data: Path) -> Pairs:
    """Multi30k and the Python documentation, lower-cased, cut into words as the gold pairs are."""
    both = list(zip(lines(data / "multi30k/train.en.gz"), lines(data / "multi30k/train.fr.gz"), strict=True))
    for line in lines(data / "pydocs-en-fr/train.tsv.gz"):
        _, source, target = line.split("\t")  # the first column names the document
        both.append((source, target))
    cut = [(words(source), words(target)) for source, target in both]
    return [(e, f) for e, f in cut if 0 < len(e) <= LONGEST and 0 < len(f) <= LONGEST]


def gold_text(data: Path) -> Pairs:
    sides = (lines(data / f"wordalign/en-fr.gold.{side}.gz") for side in ("en", "fr"))
    return [(e.lower().split(), f.lower().split()) for e, f in zip(*sides, strict=True)]


# --- the statistical aligner -------------------------------------------------------------------------------------


class Diagonal:
    """t(f given e) for all pairs of words that stand in one pair of sentences; word 0 is NULL."""

    def __init__(self, pairs: Pairs) -> None:
        self.numbers = [_numbers(side for side, _ in pairs), _numbers(side for _, side in pairs)]
        sentences = [self._cells(*pair) for pair in pairs]
        keys = np.concatenate([keys.ravel() for keys, _ in sentences])
        priors = np.concatenate([prior.ravel() for _, prior in sentences]).astype(np.float32)
        sizes = np.concatenate([np.full(*keys.shape) for keys, _ in sentences])  # how many cells each target word has
        self.known, cells = np.unique(keys, return_inverse=True)
        words_of = np.repeat(np.arange(len(sizes)), sizes)  # the target word that each cell explains
        self.table = np.full(len(self.known), 1.0)
        sources = self.known // (1 << 32)
        for _ in range(ROUNDS):
            weights = self.table[cells] * priors
            share = weights / np.bincount(words_of, weights)[words_of]
            counts = np.bincount(cells, share, len(self.known)) + ALPHA
            totals = np.bincount(sources, counts)[sources]
            self.table = torch.exp(_digamma(counts) - _digamma(totals)).numpy()

    def _cells(self, e: Sequence[str], f: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Key and prior of every target word (rows) and what may explain it (columns, NULL first)."""
        read = np.array([0, *(self.numbers[0].get(word, -1) for word in e)], dtype=np.int64)
        said = np.array([self.numbers[1].get(word, -1) for word in f], dtype=np.int64)
        keys = (np.maximum(read, 0) << 32)[None] + np.maximum(said, 0)[:, None]  # J I+1
        keys = np.where((read < 0)[None] | (said < 0)[:, None], -1, keys)
        places = np.abs((np.arange(len(e)) / len(e))[None] - (np.arange(len(f)) / len(f))[:, None])
        near = np.exp(-TENSION * places)
        prior = np.concatenate([np.full((len(f), 1), NOTHING), (1 - NOTHING) * near / near.sum(1, keepdims=True)], 1)
        return keys, prior

    def links(self, e: Sequence[str], f: Sequence[str]) -> Links:
        keys, prior = self._cells(e, f)
        places = np.searchsorted(self.known, keys).clip(max=len(self.known) - 1)
        seen = self.known[places] == keys
        weights = np.where(seen, self.table[places], 1e-9) * prior
        best = weights.argmax(1)
        return frozenset((int(i) - 1, j) for j, i in enumerate(best) if i > 0)


def _numbers(sides: Iterable[Sequence[str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for side in sides:
        for word in side:
            found.setdefault(word, len(found) + 1)
    return found


def _digamma(values: np.ndarray) -> torch.Tensor:
    return torch.digamma(torch.from_numpy(values))


# --- judgement ---------------------------------------------------------------------------------------------------


def judged(links: Sequence[Links], gold: Sequence[Gold]) -> dict[str, float]:
    total = Judged.total(Judged.of(*pair) for pair in zip(links, gold, strict=True))
    return {name: round(100 * getattr(total, name), 2) for name in ("aer", "precision", "recall")}


def both_ways(there: Sequence[Links], back: Sequence[Links], gold: Sequence[Gold]) -> dict[str, dict[str, float]]:
    results = {"there": judged(there, gold), "back": judged(back, gold)}
    for name, join in SYMMETRISATIONS.items():
        results[name] = judged([join(*both) for both in zip(there, back, strict=True)], gold)
    return results


def statistical(data: Path, test: Pairs, gold: Sequence[Gold]) -> dict[str, object]:
    pairs = training_text(data)
    there, back = Diagonal(pairs), Diagonal([(f, e) for e, f in pairs])
    found = [there.links(e, f) for e, f in test], [turned(back.links(f, e)) for e, f in test]
    return {"pairs": len(pairs), **both_ways(*found, gold)}


def by_attention(runs: Sequence[Path], pairs: Pairs, gold: Sequence[Gold]) -> dict[str, object]:
    aligner = Aligner(load(runs[0]), load(runs[1])).tuned(_examples(pairs[:CHOSEN_ON]), gold[:CHOSEN_ON])
    test = pairs[CHOSEN_ON:]
    there = [links for _, links in Aligner(aligner.model, picks=aligner.picks).aligned(_examples(test))]
    assert aligner.reverse is not None
    other = Aligner(aligner.reverse, picks=aligner.reverse_picks)
    back = [turned(links) for _, links in other.aligned(_examples([(f, e) for e, f in test]))]
    return {"weights": [str(aligner.picks), str(aligner.reverse_picks)], **both_ways(there, back, gold[CHOSEN_ON:])}


def _examples(pairs: Pairs) -> list[Example]:
    return [Example(" ".join(e), (" ".join(f),), "gold", i) for i, (e, f) in enumerate(pairs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--write", type=Path, help="only write the training text, English and French")
    parser.add_argument("--runs", type=Path, nargs=2, metavar=("THERE", "BACK"))
    arguments = parser.parse_args()
    if arguments.write is not None:
        rows = (f"{' '.join(e)}\t{' '.join(f)}\n" for e, f in training_text(arguments.data))
        arguments.write.write_text("".join(rows), encoding="utf-8")
        return
    path = arguments.data / "wordalign/en-fr.gold.align.gz"
    gold = [read_gold(line, f"{path}:{number}") for number, line in enumerate(lines(path), start=1)]
    pairs = gold_text(arguments.data)
    rest, judges = pairs[CHOSEN_ON:], gold[CHOSEN_ON:]
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "judged": len(rest),
        "chosen_on": CHOSEN_ON,
        "statistical": statistical(arguments.data, rest, judges),
    }
    if arguments.runs is not None:
        result["attention"] = by_attention(arguments.runs, pairs, gold)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

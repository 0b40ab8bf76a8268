"""Judge a recipe by cross-validation on its train and dev sets, so that a small test set chooses nothing.

python recipes/folds.py recipes/pronunciation-small.yaml --folds 3 --set data.train=... --set data.dev=...
python recipes/folds.py recipes/pronunciation-small.yaml --set ... --seeds 1-5   # the seeds of a fold as one model, too

All lines of both files are dealt into folds by a hash of their source, so that no source stands in two. Each fold is
answered by runs that saw the others alone; the scores are those of all lines together. The files are TSVs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.evaluate import Judge, RunEvaluation, evaluate
from seqloom.api.load import load_ensemble
from seqloom.api.many import parse_seeds
from seqloom.api.testset import from_spec, prepared
from seqloom.api.train import train
from seqloom.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Fold:
    """One share of the lines, and the runs that do not know it: those of this call and of earlier ones beside them."""

    folder: Path
    recipe: Path
    assignments: tuple[str, ...]
    seeds: tuple[int, ...]
    beside: tuple[Path, ...]  # folders of earlier calls

    def run(self, seed: int) -> Path:
        held, folder = self.folder / "held.tsv", self.folder / f"seed-{seed}"
        data = [f"data.train={self.folder / 'train.tsv'}", f"data.dev={held}", f"data.test={held}"]
        train(self.recipe, folder, [*self.assignments, *data, "training.keep=last", f"runtime.seed={seed}"])
        return folder

    def answered(self) -> list[RunEvaluation]:
        """The lines answered by each run, and at last by all of them as one."""
        runs = [self.run(seed) for seed in self.seeds]
        others = [run for folder in self.beside for run in sorted((folder / self.folder.name).glob("seed-*"))]
        found = [evaluate(run) for run in runs]
        return [*found, evaluate(load_ensemble([*runs, *others]))] if len(runs + others) > 1 else found


def lines_of(path: str) -> list[str]:
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def dealt(lines: Sequence[str], folds: int) -> list[list[str]]:
    """The lines by the hash of their source: the same, whatever their order."""
    shares: list[list[str]] = [[] for _ in range(folds)]
    groups: dict[str, list[str]] = {}
    for line in lines:
        groups.setdefault(line.split("\t")[0], []).append(line)
    for place, source in enumerate(sorted(groups, key=lambda text: hashlib.sha256(text.encode()).digest())):
        shares[place % folds].extend(groups[source])
    return shares


def laid_out(folder: Path, shares: Sequence[Sequence[str]]) -> list[Path]:
    found = []
    for number, share in enumerate(shares):
        found.append(folder / f"fold-{number}")
        found[-1].mkdir(parents=True, exist_ok=True)
        others = [line for other, lines in enumerate(shares) if other != number for line in lines]
        for name, lines in {"held": share, "train": others}.items():
            (found[-1] / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--seeds", type=parse_seeds, default=[1])
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("--run", type=Path, default=Path("runs/folds"))
    parser.add_argument("--beside", type=Path, action="append", default=[], help="the --run of an earlier call")
    parser.add_argument("--set", dest="assignments", action="append", default=[])
    arguments = parser.parse_args()
    recipe = load_recipe(arguments.recipe, arguments.assignments)
    files = [path for part in ("train", "dev") for path in recipe.data.files()[part]]
    folders = laid_out(arguments.run, dealt([line for path in files for line in lines_of(path)], arguments.folds))
    common = (arguments.recipe, tuple(arguments.assignments), tuple(arguments.seeds), tuple(arguments.beside))
    with ProcessPoolExecutor(arguments.jobs) as pool:
        found = list(pool.map(Fold.answered, [Fold(folder, *common) for folder in folders]))
    each = [
        summed(recipe, [(fold, answers[i]) for fold, answers in zip(folders, found, strict=True)])
        for i in range(len(found[0]))
    ]
    told = {"date": datetime.now(UTC).date().isoformat(), "machine": runtime.describe()}
    print(json.dumps({**told, "settings": arguments.assignments, "runs": each}, indent=1))


def summed(recipe: Recipe, answers: Sequence[tuple[Path, RunEvaluation]]) -> dict[str, object]:
    """The scores of all folds' lines together, and the mean cost of a token."""
    outputs = [text for _, answer in answers for text in answer.outputs]
    examples = [example for fold, _ in answers for example in prepared(from_spec(str(fold / "held.tsv")), recipe)]
    report = Judge(metrics=recipe.evaluation.metrics).outputs("folds", outputs, examples)
    costs = [math.log(answer.perplexity) for _, answer in answers if answer.perplexity is not None]
    return {
        "nll": round(sum(costs) / len(costs), 4),
        **{name: round(score.value, 2) for name, score in report.scores.items()},
    }


if __name__ == "__main__":
    main()

"""Train a recipe, judge it on its test set, write what came out: every number in the README begins here.

python recipes/measure.py recipes/translation-luong.yaml --set data.train.source=... --output recipes/results/x.json
python recipes/measure.py recipes/transliteration.yaml:1-3
python recipes/measure.py recipes/pronunciation-small.yaml:1-3 recipes/pronunciation-medium.yaml:1-2 --ensemble

The result names recipe, date, machine, seeds, scores with intervals and signatures, parameters and seconds. With
several seeds `scores` holds the means over those of the first recipe, `runs` what each run reached; the interval of a
mean is that of the middle run. `--ensemble` judges all runs, those of further recipes too, as one model.
`--tune search.ctc=0.5,1,2` takes for each run the value with which its dev set is judged best by `training.metric`.
`--root FOLDER` is where the data lies: results name files from there on. `--shared` says that other trainings kept the
machine busy meanwhile.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from seqloom import runtime
from seqloom.api.evaluate import RunEvaluation, evaluate
from seqloom.api.language import LanguageEvaluation, evaluate_language
from seqloom.api.load import load, load_ensemble, opened
from seqloom.api.many import parse_seeds
from seqloom.api.ranking import evaluate_ranking
from seqloom.api.retriever import ranks
from seqloom.api.testset import held_out
from seqloom.api.train import Wishes, train
from seqloom.config import read_yaml
from seqloom.recipe import load_recipe
from seqloom.training.console import Console
from seqloom.wiring import parameters

Score = dict[str, object]
Plan = list[tuple[Path, list[int]]]  # recipes, each with the seeds to train it with


def measured(plan: Plan, run: Path, assignments: list[str], ensemble: bool, tune: str | None) -> dict[str, object]:
    several = sum(len(seeds) for _, seeds in plan) > 1
    runs: list[dict[str, object]] = []
    folders: list[Path] = []
    for recipe, seeds in plan:
        for seed in seeds:
            folders.append(run / f"{recipe.stem}-{seed}" if several else run)
            runs.append(one_run(recipe, folders[-1], [*assignments, f"runtime.seed={seed}"], seed, tune))
    first, seeds = plan[0]
    own = runs[: len(seeds)]
    model = opened(folders[0])
    common: dict[str, object] = {
        "recipe": first.stem,
        "recipe_sha256": digest(first),
        "settings": assignments,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {**runtime.describe(), "load": round(os.getloadavg()[0], 1)},  # load: what else kept it busy
        "device": str(model.device),
        "precision": load_recipe(folders[0] / "recipe.yaml").runtime.precision,  # of the training
        "seed": seeds[0],
        "seeds": seeds,
        "parameters": parameters(model.network),
        "pairs": json.loads((folders[0] / "cache" / "train" / "corpus.json").read_text())["sizes"]["lines"] // 8,
    }
    for key, digits in {
        "steps": None,
        "training_seconds": 1,
        "training_tokens_per_second": None,
        "perplexity": 4,
    }.items():
        known = [float(str(one[key])) for one in own if one[key] is not None]
        common[key] = round(statistics.mean(known), digits) if known else None
    common |= {key: own[0][key] for key in ("sentences", "search", "prediction_tokens_per_second")}
    if tune:
        common["tuned"] = [one["tuned"] for one in own]
    common["scores"] = means([one["scores"] for one in own])  # type: ignore[misc]
    if several:
        common["runs"] = runs
    if ensemble:
        common["ensemble"] = scores_of(evaluate(load_ensemble(folders)))
    return common


def digest(recipe: Path) -> str:
    """Of what a recipe says, not of its comments: `docs/results.py` sees by it whether a recipe has changed since."""
    return hashlib.sha256(json.dumps(read_yaml(recipe), sort_keys=True).encode()).hexdigest()


def one_run(recipe: Path, folder: Path, assignments: list[str], seed: int, tune: str | None) -> dict[str, object]:
    with Console() as console:
        done = train(recipe, folder, assignments, Wishes(observers=[console], tell=print))
    logged = [float(str(line["tokens_per_second"])) for line in done.metrics if line["event"] == "logged"]
    chosen, tried = tuned(folder, tune) if tune else ([], {})
    return {
        "recipe": recipe.stem,
        **({"tuned": {"chosen": chosen, "dev": tried}} if tune else {}),
        "seed": seed,
        "steps": max(int(str(line["step"])) for line in done.metrics),
        "training_seconds": max(float(str(line["elapsed"])) for line in done.metrics),  # of a finished run too
        "training_tokens_per_second": round(statistics.median(logged)),
        **judged(folder, chosen),
    }


def tuned(folder: Path, tune: str) -> tuple[list[str], dict[str, float]]:
    """Of the values after `key=`, that with which the dev set is judged best, and what it is judged with each."""
    key, _, values = tune.partition("=")
    found = {}
    for value in values.split(","):
        model = load(folder, settings=[f"{key}={value}"])
        score = evaluate(model, held_out(model.recipe, "dev")).scores[model.recipe.training.metric]
        found[value] = (score.value, score.higher_is_better)
    best = min(found, key=lambda value: -found[value][0] if found[value][1] else found[value][0])
    return [f"{key}={best}"], {value: score for value, (score, _) in found.items()}


def judged(folder: Path, settings: Sequence[str] = ()) -> dict[str, object]:
    """What a run is worth on its test set."""
    if ranks(folder):
        return ranked(evaluate_ranking(folder))
    model = load(folder, settings=settings)
    if model.codecs.continues:
        return costs(evaluate_language(model, held_out(model.recipe)))
    result = evaluate(model)
    assert result.decoding is not None
    return {
        "sentences": result.sentences,
        "perplexity": result.perplexity,
        "search": result.decoding.search,
        "prediction_tokens_per_second": round(result.decoding.tokens_per_second),
        "scores": scores_of(result),
    }


def ranked(result: RunEvaluation) -> dict[str, object]:
    """How well texts are ranked; nothing is said."""
    return {
        "sentences": result.sentences,
        "perplexity": None,
        "search": result.ranked.partition(":")[0],
        "prediction_tokens_per_second": None,
        "scores": scores_of(result),
    }


def costs(result: LanguageEvaluation) -> dict[str, object]:
    """What texts cost a language model; nothing is searched for."""
    names = {"nll": "nats by token", "word_perplexity": "perplexity by word", "bits_per_character": "bits by character"}
    signature = f"texts:{result.texts}|tokens:{result.tokens}|words:{result.words}|characters:{result.characters}"
    return {
        "sentences": result.texts,
        "perplexity": result.perplexity,
        "search": None,
        "prediction_tokens_per_second": None,
        "scores": {
            key: {"name": name, "value": getattr(result, key), "low": None, "high": None, "signature": signature}
            for key, name in names.items()
        },
    }


def scores_of(result: RunEvaluation) -> dict[str, Score]:
    return {kind: score.written() for kind, score in result.scores.items()}


def means(runs: Sequence[dict[str, Score]]) -> dict[str, Score]:
    """Mean and deviation of each score over the seeds; interval and signature of the run in the middle."""
    found: dict[str, Score] = {}
    for kind in runs[0]:
        ordered = sorted((run[kind] for run in runs), key=lambda score: float(str(score["value"])))
        values = [float(str(score["value"])) for score in ordered]
        found[kind] = {**ordered[len(ordered) // 2], "value": statistics.mean(values)}
        if len(values) > 1:
            found[kind]["deviation"] = statistics.stdev(values)
    return found


def planned(text: str) -> tuple[Path, list[int]]:
    """`recipe.yaml:1-5` is a recipe and its seeds; one alone is trained with seed 1."""
    path, _, seeds = text.partition(":")
    return Path(path), parse_seeds(seeds or "1")


def beginning(folder: str) -> str:
    return folder.rstrip("/") + "/"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", type=planned, nargs="+", metavar="RECIPE[:SEEDS]")
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--set", dest="assignments", action="append", default=[])
    parser.add_argument("--ensemble", action="store_true", help="judge all runs as one model as well")
    parser.add_argument("--tune", metavar="KEY=A,B,C", help="choose among values of a setting on the dev set")
    parser.add_argument("--root", type=beginning, default="", help="where the data lies: cut off in the result")
    parser.add_argument("--shared", action="store_true", help="other trainings keep the machine busy meanwhile")
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    name = arguments.recipes[0][0].stem
    run = arguments.run or Path("runs") / name
    result = measured(arguments.recipes, run, arguments.assignments, arguments.ensemble, arguments.tune)
    result["settings"] = [
        setting.replace(arguments.root, "") if arguments.root else setting for setting in arguments.assignments
    ]
    result["machine"] |= {"shared": True} if arguments.shared else {}  # type: ignore[operator]
    output = arguments.output or Path(__file__).parent / "results" / f"{name}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""Several runs of one recipe: seeds (mean, deviation, a ready ensemble) and sweeps over values (the best one named).

`--seeds 1-3 --set training.optimiser.lr=1e-3,2e-3` is six runs: RUN/lr=1e-3/seed-1 and so on. Runs of one family differ
in `runtime.seed` alone: they share data, split and vocabulary, so that they can answer as one. The same call goes
on where an interruption fell: finished members are passed over. Nothing is trained here but by `train`.
"""

from __future__ import annotations

import json
import re
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from seqloom.api.evaluate import evaluate
from seqloom.api.folder import RECIPE, check_folder
from seqloom.api.prepare import check_model
from seqloom.api.ranking import evaluate_ranking
from seqloom.api.retriever import ranks
from seqloom.api.testset import split_outside_brackets
from seqloom.api.train import Wishes, train
from seqloom.bundle import open_bundle
from seqloom.config import Plain
from seqloom.data.files import is_regular
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write
from seqloom.recipe import Recipe, load_recipe
from seqloom.training.loop import Training

MOST_RUNS = 1000
SEED_KEY = "runtime.seed"
STOPPED = ("preempted", "interrupted")


@dataclass(frozen=True)
class Member:
    """One run to make: its family (the swept values), its seed, its folder and the settings that make it so."""

    family: str
    seed: int | None
    folder: Path
    assignments: tuple[str, ...]

    @property
    def label(self) -> str:
        parts = [self.family, "" if self.seed is None else f"seed-{self.seed}"]
        return "/".join(part for part in parts if part)


@dataclass(frozen=True)
class Outcome:
    """How a member ended; `values` are of validation, `test` those of the test set where asked for."""

    label: str
    family: str
    folder: Path
    reason: str
    values: dict[str, float]
    test: dict[str, float]
    error: str = ""  # why there are no values: the run diverged


@dataclass(frozen=True)
class Spread:
    """Mean and (sample) standard deviation over the runs of a family."""

    mean: float
    deviation: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.deviation:.2g}" if self.runs > 1 else f"{self.mean:.4g}"


@dataclass(frozen=True)
class Family:
    """Runs that differ by their seed alone. `ensemble` is the command that lets them answer as one."""

    name: str
    members: tuple[str, ...]
    values: dict[str, Spread]
    test: dict[str, Spread]
    ensemble: str | None


@dataclass(frozen=True)
class Many:
    """All runs of one call. `best` is the label of the best run by the watched metric; None where none can be named."""

    folder: Path
    metric: str
    outcomes: tuple[Outcome, ...]
    families: tuple[Family, ...]
    best: str | None
    best_family: str | None
    reason: str = "finished"  # or what stopped it in the middle: "preempted", "interrupted"

    def as_dict(self) -> dict[str, Plain]:
        return {
            "folder": str(self.folder),
            "reason": self.reason,
            "metric": self.metric,
            "best": self.best,
            "best_family": self.best_family,
            "runs": [{**asdict(outcome), "folder": str(outcome.folder)} for outcome in self.outcomes],
            "families": [asdict(family) for family in self.families],
        }


# --- the plan ----------------------------------------------------------------------------------------------------


def parse_seeds(text: str) -> list[int]:
    """`1-3,7` is 1, 2, 3, 7."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first or last - first >= MOST_RUNS:
            fix = f"write numbers and ranges: 1-3,7 (at most {MOST_RUNS:,} runs)"
            raise SeqloomError("E_USAGE", f"seeds {part.strip()!r}: not a number or a range", where="--seeds", fix=fix)
        seeds += range(first, last + 1)
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        raise SeqloomError("E_USAGE", f"seed {twice[0]} is asked for twice", where="--seeds")
    return seeds


def is_sweep(assignment: str) -> bool:
    """Whether `key=value` gives several values: `lr=1e-3,2e-3` does, `columns=[0,1]` does not."""
    return len(split_outside_brackets(assignment.partition("=")[2])) > 1


def plan(run: Path, assignments: Sequence[str], seeds: Sequence[int]) -> list[Member]:
    """Every combination of swept values, and every seed of each."""
    swept = [assignment.partition("=")[::2] for assignment in assignments if is_sweep(assignment)]
    plain = [assignment for assignment in assignments if not is_sweep(assignment)]
    if seeds and any(assignment.partition("=")[0].strip() == SEED_KEY for assignment in assignments):
        raise SeqloomError("E_USAGE", f"--seeds and --set {SEED_KEY} both choose seeds", fix="give one of them")
    choices = [[(key.strip(), value) for value in split_outside_brackets(values)] for key, values in swept]
    for key, value in (choice for options in choices for choice in options):
        if not value:
            raise SeqloomError("E_USAGE", "an empty value in a sweep", where=f"--set {key}", fix="1e-3,2e-3,4e-3")
    names = _short_names([key.strip() for key, _ in swept])
    members: list[Member] = []
    for chosen in product(*choices):
        family = ",".join(f"{names[key]}={_safe(value)}" for key, value in chosen)
        settings = (*plain, *(f"{key}={value}" for key, value in chosen))
        if not seeds:
            members.append(Member(family, None, run / family, settings))
        for seed in seeds:
            folder = run / family / f"seed-{seed}" if family else run / f"seed-{seed}"
            members.append(Member(family, seed, folder, (*settings, f"{SEED_KEY}={seed}")))
    if len({member.folder for member in members}) < len(members):
        raise SeqloomError("E_USAGE", "a sweep names the same value twice", where=", ".join(m.label for m in members))
    if len(members) > MOST_RUNS:
        raise SeqloomError("E_USAGE", f"{len(members):,} runs, at most {MOST_RUNS:,}")
    return members


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """`training.optimiser.lr` is `lr`, unless another swept key ends in the same word."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: word if last.count(word) == 1 else key for key, word in zip(keys, last, strict=True)}


def _safe(value: str) -> str:
    """A value as part of a folder's name."""
    return re.sub(r"[^\w.+-]+", "_", value).strip("_.")[:60] or "_"


# --- the work ----------------------------------------------------------------------------------------------------


def train_many(
    recipe_path: Path,
    run: Path | None,
    assignments: Sequence[str],
    seeds: Sequence[int],
    wishes: Callable[[str], Wishes],
    test: bool = False,
) -> Many:
    """Train every member in turn (`wishes(label)` says how), then write `summary.json` and each `ensemble.json`.

    A member that diverges is reported and the others go on: in a sweep over learning rates that is a finding.
    """
    folder = run if run is not None else Path("runs") / recipe_path.stem
    members = plan(folder, assignments, seeds)
    recipes = [load_recipe(recipe_path, member.assignments) for member in members]  # all mistakes before any work
    _refuse_pipes(recipes)
    for member, recipe in zip(members, recipes, strict=True):
        _check(member, recipe, folder)
    outcomes: list[Outcome] = []
    reason = "finished"
    for number, member in enumerate(members, start=1):
        chosen = replace(wishes(member.label), codec=_shared_codec(member, members))
        chosen.tell(f"run {number} of {len(members)}: {member.label}")
        outcome = _outcome(recipe_path, member, chosen, test)
        if outcome.reason in STOPPED:
            reason = outcome.reason
            break
        outcomes.append(outcome)
    if outcomes and all(outcome.error for outcome in outcomes) and reason == "finished":
        raise SeqloomError("E_DIVERGED", f"all {len(outcomes)} runs diverged", where=str(folder), fix="a smaller lr")
    many = _summary(folder, [recipe.watched() for recipe in recipes], outcomes, members, reason)
    if reason == "finished":
        _write(many)
    return many


def _refuse_pipes(recipes: Sequence[Recipe]) -> None:
    for path in {path for recipe in recipes for paths in recipe.data.files().values() for path in paths}:
        if not is_regular(path):
            fix = "save it in a file first"
            raise SeqloomError("E_USAGE", "several runs cannot read one pipe", where=path, fix=fix)


def _check(member: Member, recipe: Recipe, folder: Path) -> None:
    """What would stop a member at its start, found before the first one trains."""
    above = [place for place in member.folder.parents if place == folder or place.is_relative_to(folder)]
    for place in above:
        if (place / RECIPE).exists():
            what = f"this folder holds a single run, or a {RECIPE} of your own"
            raise SeqloomError("E_RUN", what, where=str(place), fix="choose another --run")
    check_folder(member.folder)
    try:
        check_model(recipe)
    except SeqloomError as error:
        raise SeqloomError(error.code, error.what, where=f"{member.label}: {error.where}", fix=error.fix) from None


def _shared_codec(member: Member, members: Sequence[Member]) -> Path | None:
    """Tokenizers are learned once per family: a seed must not change the vocabulary, or no ensemble could be made."""
    first = next(other for other in members if other.family == member.family)
    codec = first.folder / "codec"
    return codec if member is not first and codec.exists() else None


def _outcome(recipe_path: Path, member: Member, wishes: Wishes, test: bool) -> Outcome:
    try:
        finished = train(recipe_path, member.folder, member.assignments, wishes)
    except SeqloomError as error:
        if error.code != "E_DIVERGED":
            raise
        wishes.tell(error.line)
        return Outcome(member.label, member.family, member.folder, "diverged", {}, {}, error.what)
    reason = finished.reason or "interrupted"
    if reason in STOPPED:
        return Outcome(member.label, member.family, member.folder, reason, {}, {})
    validation = open_bundle(finished.bundle).about.get("validation")
    values = {name: float(value) for name, value in validation.items()} if isinstance(validation, dict) else {}
    judged = evaluate_ranking if ranks(member.folder) else evaluate
    tested = {word: score.value for word, score in judged(member.folder).scores.items()} if test else {}
    return Outcome(member.label, member.family, member.folder, reason, values, tested)


# --- the summary -------------------------------------------------------------------------------------------------


def _summary(
    folder: Path, watched: Sequence[Training], outcomes: Sequence[Outcome], members: Sequence[Member], reason: str
) -> Many:
    names = dict.fromkeys(member.family for member in members)
    families = tuple(_family(name, [o for o in outcomes if o.family == name and o.values], members) for name in names)
    metric = watched[0].metric
    single = {o.label: o.values[metric] for o in outcomes if metric in o.values}
    means = {family.name: family.values[metric].mean for family in families if metric in family.values}
    comparable = len({(training.metric, training.better) for training in watched}) == 1
    return Many(
        folder=folder,
        metric=metric,
        outcomes=tuple(outcomes),
        families=families,
        best=_best(single, watched[0]) if comparable else None,
        best_family=_best(means, watched[0]) if comparable and len(families) > 1 else None,
        reason=reason,
    )


def _best(values: dict[str, float], training: Training) -> str | None:
    best: str | None = None
    for label, value in values.items():
        if training.is_better(value, None if best is None else values[best]):
            best = label
    return best


def _family(name: str, outcomes: Sequence[Outcome], members: Sequence[Member]) -> Family:
    seeds = {member.label for member in members if member.seed is not None}
    seeded = [outcome for outcome in outcomes if outcome.label in seeds and not ranks(outcome.folder)]
    folders = " ".join(shlex.quote(str(outcome.folder)) for outcome in seeded)
    return Family(
        name=name,
        members=tuple(outcome.label for outcome in outcomes),
        values=_spreads([outcome.values for outcome in outcomes]),
        test=_spreads([outcome.test for outcome in outcomes]),
        ensemble=f"seqloom predict {folders} --ensemble" if len(seeded) > 1 else None,
    )


def _spreads(rows: Sequence[dict[str, float]]) -> dict[str, Spread]:
    """Per value: mean and sample deviation over the rows (0 for a single one)."""
    spreads = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if name in row]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        spreads[name] = Spread(statistics.fmean(values), deviation, len(values))
    return spreads


def _write(many: Many) -> None:
    """`summary.json` for the whole, and an `ensemble.json` beside the members of every family that can be one."""
    _write_json(many.folder / "summary.json", many.as_dict())
    for family in many.families:
        if family.ensemble is not None:
            names: list[Plain] = [label.rpartition("/")[2] for label in family.members]
            _write_json(many.folder / family.name / "ensemble.json", {"members": names, "command": family.ensemble})


def _write_json(path: Path, value: dict[str, Plain]) -> None:
    atomic_write(path, json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n")

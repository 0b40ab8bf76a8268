"""Checkpoint averaging: the mean of a run's checkpoints as a new bundle, measured against the run's own.

The run's bundle is left alone. The new one is calibrated again, because a confidence belongs to its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from seqloom import bundle, weights
from seqloom.api.datasets import Datasets
from seqloom.api.evaluate import calibrated
from seqloom.api.load import find_bundle, load, save_codecs
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.testset import prepared
from seqloom.config import Plain, kind_of
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.metrics.perplexity import perplexity
from seqloom.training import checkpoints
from seqloom.training.averaging import average

CALIBRATION_EXAMPLES = 2_000


@dataclass(frozen=True)
class Averaged:
    """The new bundle, what it is the mean of, and dev values before (the run's bundle) and after."""

    folder: Path
    checkpoints: tuple[str, ...]
    before: Mapping[str, float]
    after: Mapping[str, float]
    metric: str  # the one the run watches
    improved: bool

    def as_dict(self) -> dict[str, Plain]:
        return {
            "bundle": str(self.folder),
            "checkpoints": list(self.checkpoints),
            "metric": self.metric,
            "improved": self.improved,
            "before": dict(self.before),
            "after": dict(self.after),
        }


def average_run(
    run: str | Path,
    names: Sequence[str] = (),
    *,
    last: int | None = None,
    output: str | Path | None = None,
    load_model: Callable[[Path], Model] = load,
) -> Averaged:
    """Average the named checkpoints (default: the `last` ones, or all) into a bundle (default `RUN/averaged`)."""
    folder = Path(run).parent if Path(run).name == "bundle" else Path(run)
    goal = Path(output) if output is not None else folder / "averaged"
    model = load_model(folder)
    if goal.resolve() == find_bundle(folder).resolve():
        raise SeqloomError(
            "E_USAGE", "the mean would replace the run's own bundle", where=str(goal), fix="name another"
        )
    if goal.is_dir() and any(goal.iterdir()) and not (goal / bundle.CARD).is_file():
        raise SeqloomError(
            "E_USAGE", "this folder holds something else than a bundle", where=str(goal), fix="name another"
        )
    chosen = _chosen(folder, names, last)
    for path in chosen:  # size and checksum of each, before they are read together
        checkpoints.load_weights(path)
    dev = list(Datasets(model.recipe.data).dev())
    before = validation(model, dev)
    tensors = average([path / checkpoints.WEIGHTS for path in chosen])
    weights.restore(model.network, tensors, str(goal))
    after = validation(model, dev)
    training = model.recipe.watched()
    result = Averaged(
        folder=goal,
        checkpoints=tuple(path.name for path in chosen),
        before=before,
        after=after,
        metric=training.metric,
        improved=training.is_better(after[training.metric], before[training.metric]),
    )
    _save(replace(model, calibration=calibrated(model, _calibration_examples(model, dev))), folder, result)
    return result


def _chosen(run: Path, names: Sequence[str], last: int | None) -> list[Path]:
    """The checkpoints to average, oldest first; E_USAGE when there are not at least two."""
    known = {path.name: path for path in checkpoints.every(run)}
    listed = ", ".join(known) or "none"
    if names and last is not None:
        raise SeqloomError("E_USAGE", "give checkpoints or --last, not both")
    if last is not None and not 2 <= last <= len(known):
        raise SeqloomError("E_USAGE", f"--last {last}: a mean is of 2 to {len(known)} checkpoints", where=listed)
    found = list(known.values()) if last is None else list(known.values())[-last:]
    if names:
        wanted = dict.fromkeys(_named(name) for name in names)
        if missing := [name for name in wanted if name not in known]:
            fix = f"the run keeps: {listed}"
            raise SeqloomError("E_USAGE", f"no checkpoint {', '.join(missing)}", where=str(run), fix=fix)
        found = sorted((known[name] for name in wanted), key=checkpoints.step_of)
    if len(found) < 2:
        fix = "'training.average' in the recipe keeps more of them"
        raise SeqloomError(
            "E_USAGE", f"a mean needs at least two checkpoints, found: {listed}", where=str(run), fix=fix
        )
    return found


def _named(name: str) -> str:
    """`1200`, `step-00001200` or a path to it: the checkpoint's name."""
    return checkpoints.folder_of(Path(), int(name)).name if name.isdecimal() else Path(name).name


def validation(model: Model, dev: Sequence[Example]) -> dict[str, float]:
    """Before and after by one measure: loss on the dev pairs, the metrics on the first of them, decoded greedily."""
    limits, evaluation = model.recipe.data.limits, model.recipe.evaluation
    pairs = [
        (example.inputs, example.target)
        for example in dev
        if 0 < model.codecs.source.length(example.source) <= limits.max_source
        and 0 < len(model.target.tokens(example.target)) <= limits.max_target
    ]
    scores = model.score(pairs)
    total, count = -sum(score.log_prob for score in scores), sum(len(score.token_scores) for score in scores)
    if not count:
        raise SeqloomError("E_EMPTY", "the run has no dev pairs to validate on")
    values = {"nll": total / count, "perplexity": perplexity(total, count)}
    chosen = _calibration_examples(model, dev)[: evaluation.validate_examples]
    options = Options(beam=1, split=False, on_long="skip")
    outputs = [prediction.text for prediction in model.predict([example.inputs for example in chosen], options)]
    for settings, metric in zip(evaluation.metrics, evaluation.build(), strict=True):
        if chosen:
            values[kind_of(settings)] = metric.score(outputs, [example.references for example in chosen])
    return values


def _calibration_examples(model: Model, dev: Sequence[Example]) -> list[Example]:
    return [item for item in prepared(dev, model.recipe) if item.source.strip()][:CALIBRATION_EXAMPLES]


def _save(model: Model, run: Path, result: Averaged) -> None:
    """The run's card with the new numbers and what they are the mean of."""
    old = bundle.open_bundle(find_bundle(run))
    about: dict[str, Plain] = {
        **cast(Mapping[str, Plain], old.about),
        "name": f"{run.name}, averaged",
        "validation": dict(result.after),
        "calibration": model.calibration.model_dump(mode="json"),
        "averaged": list(result.checkpoints),
    }
    bundle.save(
        result.folder,
        recipe=old.recipe_text(),
        tensors=weights.of_model(model.network),
        extras=lambda folder: save_codecs(model.recipe, model.codecs, folder),
        about=about,
    )

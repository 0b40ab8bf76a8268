"""What beginning with another run's weights gains over beginning with none, and at how many labels.

Each portion of the training data is learned from twice by the same recipe and seeds: from scratch, and from a run that
learned plain text. All are judged on the same test set. Portions are nested, dev set and number of steps are the same
for both, and nothing of the other run reaches the one from scratch: its vocabulary is that of its own portion.

Runs lie in RUN/10%/scratch/seed-1 and so on; the same call goes on where an interruption fell. Nothing is trained here
but by `train`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from seqloom.api.folder import check_folder, read_recipe
from seqloom.api.load import find_bundle, load
from seqloom.api.many import STOPPED, Spread
from seqloom.api.options import Options
from seqloom.api.staging import PAIRS, RECIPE, REPORT
from seqloom.api.testset import held_out, metrics_of, prepared
from seqloom.api.train import Wishes, train
from seqloom.bundle import open_bundle
from seqloom.config import Plain
from seqloom.data.split import Part
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_json
from seqloom.metrics.base import Metric, Statistics
from seqloom.metrics.significance import Comparison, approximate_randomisation
from seqloom.probe.gain import Rung, gain_page
from seqloom.recipe import Recipe

PORTIONS = (0.01, 0.1, 1.0)
SCRATCH, BEGUN = "scratch", "begun"
SUMMARY = "gain.json"
_MOST_BYTES = 10_000_000


@dataclass(frozen=True)
class Arm:
    """The runs of one portion that began alike: what each reached on the test set, and all of their rows summed up."""

    values: tuple[float, ...]
    statistics: Statistics

    @property
    def spread(self) -> Spread:
        deviation = statistics.stdev(self.values) if len(self.values) > 1 else 0.0
        return Spread(statistics.fmean(self.values), deviation, len(self.values))


@dataclass(frozen=True)
class Portion:
    """Both ways of beginning, at one portion of the training data.

    `comparison` is of the rows of all seeds summed up, sentence by sentence: its interval is that of other sentences,
    its difference near that of the two means.
    """

    share: float
    pairs: int
    scratch: Spread
    begun: Spread
    comparison: Comparison

    @property
    def gain(self) -> float:
        """How much better on average: above zero is a gain, whichever way the metric points."""
        difference = self.begun.mean - self.scratch.mean
        return difference if self.comparison.higher_is_better else -difference

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the gain: those of the difference, turned round where less is better."""
        low, high = self.comparison.low, self.comparison.high
        return (low, high) if self.comparison.higher_is_better else (-high, -low)

    @property
    def proven(self) -> bool:
        """Is it better by approximate randomisation over the test set, at the 5 % level?"""
        return self.comparison.better() == "b"


@dataclass(frozen=True)
class Gain:
    """What a run is worth as a beginning, portion by portion."""

    folder: Path
    start: str
    metric: str
    signature: str
    sentences: int
    seeds: tuple[int, ...]
    portions: tuple[Portion, ...]
    reason: str = "finished"  # or what stopped it in the middle: "preempted", "interrupted"

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [
            {**asdict(row), "gain": row.gain, "interval": list(row.interval), "proven": row.proven}
            for row in self.portions
        ]
        return {
            "folder": str(self.folder),
            "start": self.start,
            "reason": self.reason,
            "metric": self.metric,
            "signature": self.signature,
            "sentences": self.sentences,
            "seeds": list(self.seeds),
            "portions": rows,
        }


def measure_gain(
    recipe: str | Path | Recipe,
    run: Path,
    start: Path,
    portions: Sequence[float] = PORTIONS,
    seeds: Sequence[int] = (1,),
    wishes: Callable[[str], Wishes] = lambda label: Wishes(),
    settings: Sequence[str] = (),
    part: Part = "test",
) -> Gain:
    """Train both ways at every portion, judge all by the recipe's first metric, write `gain.json` and a report.

    `part` is what is judged: settings are to be chosen on `dev`.
    """
    given = recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe), settings)
    _check(given, run, start)
    word, metric = next(iter(metrics_of(None, given).items()))
    found: list[Portion] = []
    examples = 0
    for share in sorted(set(portions)):
        arms: dict[str, Arm] = {}
        for name, one in ((SCRATCH, _alone(given)), (BEGUN, given)):
            folders = [run / f"{100 * share:g}%" / name / f"seed-{seed}" for seed in seeds]
            for seed, folder in zip(seeds, folders, strict=True):
                chosen = wishes(f"{100 * share:g} %, {name}, seed {seed}")
                chosen.tell(f"{folder.relative_to(run)}: {100 * share:g} % of the training data, {_told(name, start)}")
                drawn = one.with_(data=one.data.with_(portion=share), runtime=one.runtime.with_(seed=seed))
                done = train(drawn, folder, (), replace(chosen, start=None if name == SCRATCH else start))
                if (done.reason or "interrupted") in STOPPED:
                    return _gain(run, start, word, metric, examples, seeds, found, done.reason or "interrupted")
            arms[name], examples = _judged(folders, metric, part)
        found.append(_portion(share, _pairs(folders[0]), arms, metric))
    gain = _gain(run, start, word, metric, examples, seeds, found, "finished")
    atomic_write(run / SUMMARY, json.dumps(gain.as_dict(), indent=1, allow_nan=False).encode() + b"\n")
    atomic_write(run / REPORT, report_of(gain).encode("utf-8"))
    return gain


def report_of(gain: Gain) -> str:
    """The page of it."""
    rungs = [
        Rung(
            share=row.share,
            pairs=row.pairs,
            scratch=(row.scratch.mean, row.scratch.deviation),
            begun=(row.begun.mean, row.begun.deviation),
            gain=row.gain,
            interval=row.interval,
            proven=row.proven,
        )
        for row in gain.portions
    ]
    return gain_page(f"{gain.folder.name}: begun from {Path(gain.start).name}", gain.metric, rungs, _notes(gain))


def _notes(gain: Gain) -> list[str]:
    seeds = f"{len(gain.seeds)} seeds" if len(gain.seeds) > 1 else "one seed: runs of other seeds may differ by more"
    return [
        f"mean of {seeds}; judged on the same {gain.sentences:,} test sentences; {gain.signature}",
        "the interval (95 %) is that of other test sentences, all seeds taken together",
        "the same dev set chose the checkpoint of every run, also where there were few training pairs",
    ]


def _check(recipe: Recipe, run: Path, start: Path) -> None:
    open_bundle(find_bundle(start))  # what is not there is told before the first run, not after it
    if not recipe.model.answers:
        what = "a gain is measured on answers that are right or wrong, and this model gives none"
        raise SeqloomError("E_USAGE", what, where="model", fix="compare the validations of two runs instead")
    check_folder(run)
    if (run / RECIPE).exists():
        raise SeqloomError("E_RUN", "this folder holds a single run", where=str(run), fix="choose another --run")


def _alone(recipe: Recipe) -> Recipe:
    """The same recipe without what is only for a run that begins from another."""
    return recipe.with_(training=recipe.training.with_(take=(), freeze=(), extend_vocabulary=False))


def _told(name: str, start: Path) -> str:
    return "from scratch" if name == SCRATCH else f"from {start}"


def _judged(folders: Sequence[Path], metric: Metric, part: Part) -> tuple[Arm, int]:
    """What runs say of a part of their data, by their own recipes' search; and how many sentences that has."""
    rows, values = [], []
    for folder in folders:
        model = load(folder)
        examples = prepared(held_out(model.recipe, part), model.recipe)
        said = model.predict([example.inputs for example in examples], Options(on_long="skip"))
        rows.append(metric.statistics([one.text for one in said], [example.references for example in examples]))
        values.append(metric.value(rows[-1].sum(axis=0)))
    return Arm(tuple(values), sum(rows[1:], rows[0])), len(rows[0])


def _portion(share: float, pairs: int, arms: dict[str, Arm], metric: Metric) -> Portion:
    scratch, begun = arms[SCRATCH], arms[BEGUN]
    compared = approximate_randomisation(metric, scratch.statistics, begun.statistics)
    return Portion(share, pairs, scratch.spread, begun.spread, compared)


def _pairs(folder: Path) -> int:
    """How many training pairs a run kept."""
    row = read_json(folder / PAIRS, _MOST_BYTES, "the record of a run's pairs", "train again").get("train")
    kept = row.get("kept") if isinstance(row, dict) else None
    return kept if isinstance(kept, int) else 0


def _gain(
    run: Path,
    start: Path,
    word: str,
    metric: Metric,
    sentences: int,
    seeds: Sequence[int],
    found: Sequence[Portion],
    reason: str,
) -> Gain:
    name = f"{metric.name} ({word})" if metric.name != word else word
    return Gain(run, str(start), name, metric.signature(), sentences, tuple(seeds), tuple(found), reason)

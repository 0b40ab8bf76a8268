"""`seqloom.api.report.write_report("runs/x")`: everything about a run as one HTML file that opens from disk.

A report begins where an evaluation ends: its outputs are taken as they are. Of at most `sentences` examples (a seeded
choice, which the page says) the errors are diagnosed, and the outputs are read by force, in batches, for their maps;
only the most telling ones are searched for again, one by one, to see their beams. A report is about one model: of an
ensemble there are scores and diagnoses, and no one inside to look into.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from seqloom.api.attribute import faithfulness
from seqloom.api.curves import best_step, curves
from seqloom.api.datasets import Datasets
from seqloom.api.diagnose import Diagnoses, diagnose
from seqloom.api.evaluate import Judge, RunEvaluation
from seqloom.api.explain import watched
from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.api.staging import METRICS, PAIRS, REPORT
from seqloom.api.states import StateMap, state_map
from seqloom.api.testset import from_spec, held_out, prepared
from seqloom.config import Plain, kind_of
from seqloom.data.batching import in_order
from seqloom.data.codecs import Encoded, Ids
from seqloom.data.kinds import task_of
from seqloom.data.readers import Example
from seqloom.data.report import DataReport, examine
from seqloom.data.split import Part
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_json
from seqloom.metrics.base import Metric
from seqloom.probe.diagnose import Diagnosis
from seqloom.probe.edits import reduction_of
from seqloom.probe.explain import Explanation, Forced, explained
from seqloom.probe.faithfulness import Trials
from seqloom.probe.glimpse import Read, glimpsed
from seqloom.probe.report import MOST_BYTES, Report, Sentence, report_page
from seqloom.probe.telling import Judged, telling
from seqloom.wiring import parameters

SEED = 1
BATCH_TOKENS = 2048  # of forced passes; each step weighs the whole vocabulary
FEW, SHORT = 6, 60  # sentences, and their tokens at most, whose attention is held against what else can be measured
FEW_PAIRS = 50_000  # of the training data: more are not read again to look for leaks
_MOST_BYTES_OF_PAIRS = 1_000_000


@dataclass(frozen=True)
class Limits:
    """How much a report may hold."""

    sentences: int = 1000
    closely: int = 50  # of them with all heads and the beam
    most_bytes: int = MOST_BYTES


def write_report(
    run: str | Path,
    path: str | Path | None = None,
    examples: Iterable[Example] | str | Path | None = None,
    options: Options | None = None,
    limits: Limits | None = None,
    part: Part = "test",
) -> Path:
    """Evaluate a run on a part of its data (where it has no test set, on its dev set; or on `examples`), and report.

    Default path: `report.html` in the run folder. Only as many examples are answered as the report may show.
    """
    limits = limits or Limits()
    model = load(run)
    judge, chosen_options = Judge(model), options or Options(on_long="skip")
    if isinstance(examples, (str, Path)):
        given: Sequence[Example] = from_spec(str(examples), model.recipe)
    else:
        given = _held_out(model, part) if examples is None else list(examples)
    every = prepared(given, model.recipe)
    chosen = [every[place] for place in some(len(every), limits.sentences)]
    found = judge.run(model, chosen, chosen_options)
    notes = [] if len(chosen) == len(every) else [f"judged on {len(chosen):,} of {len(every):,} examples"]
    if part == "dev" and examples is None:
        notes.append("these are the dev examples that training itself looked at; 'seqloom evaluate' judges on others")
    target = Path(run) / REPORT if path is None else Path(path)
    save(target, report(judge, model, chosen, [found], chosen_options, limits, notes))
    return target


def save(path: Path, text: str) -> None:
    atomic_write(path, text.encode("utf-8"))


def report(
    judge: Judge,
    model: Model,
    examples: Sequence[Example],
    systems: Sequence[RunEvaluation],
    options: Options | None = None,
    limits: Limits | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The report as HTML. The first of `systems` is what `judge` found of `model` on `examples`; others stand beside.

    Examples are those that were answered, as `prepared` has them.
    """
    limits = limits or Limits()
    found = gathered(judge, model, examples, systems, options or Options(on_long="skip"), limits)
    return report_page(replace(found, notes=(*notes, *found.notes)), limits.most_bytes)


def _held_out(model: Model, part: Part) -> list[Example]:
    """A part of the recipe's data; the dev set of one that holds no test set out."""
    try:
        return held_out(model.recipe, part)
    except SeqloomError as error:
        if error.code != "E_EMPTY":
            raise
    return held_out(model.recipe, "dev")


def some(count: int, most: int) -> list[int]:
    """Places of at most so many of `count`, in order; always the same ones."""
    return list(range(count)) if count <= most else sorted(Random(SEED).sample(range(count), most))


# --- gathering -----------------------------------------------------------------------------------------------------


def gathered(
    judge: Judge,
    model: Model,
    examples: Sequence[Example],
    systems: Sequence[RunEvaluation],
    options: Options,
    limits: Limits,
) -> Report:
    """The plain parts of a report."""
    first = systems[0]
    assert len(first.predictions) == len(examples), "the first system is what the model said to the examples"
    metric = next(iter(judge.metrics.values()))
    places = some(len(examples), limits.sentences)
    chosen = [examples[place] for place in places]
    predictions = [first.predictions[place] for place in places]
    if first.diagnosis is not None:
        diagnoses = [first.diagnosis.items[place] for place in places]
    else:
        diagnoses = list(diagnose(model, chosen, options))
    sentences = _sentences(model, metric, chosen, predictions, diagnoses)
    why = telling(_judged(sentences, metric.higher_is_better), limits.closely)
    shown = _explanations(model, chosen, predictions, set(why), options)
    states = _states(model, chosen, predictions)
    points = {} if states is None else _points(states, predictions)
    sentences = [
        replace(one, why=why.get(i, ()), explanation=shown.get(i), point=points.get(i))
        for i, one in enumerate(sentences)
    ]
    folder = None if model.home is None else model.home.parent
    log = None if folder is None else folder / METRICS
    return Report(
        title=f"{model.name}: {len(examples):,} sentences",
        systems=tuple({**one.as_dict(), "diagnosis": None} for one in systems),
        sentences=tuple(sentences),
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        notes=tuple(_notes(model, len(examples), len(places), len(why))),
        facts=tuple(_facts(model, first)),
        data=_data(model, examples, folder),
        curves=() if log is None else curves(log),
        best_step=None if log is None else best_step(log),
        diagnosis=_diagnosis(Diagnoses.of(diagnoses, chosen, metric, model.recipe.model.labels)),
        variance=None if states is None else states.explained,
        faithfulness=_faithful(model, [chosen[i] for i in why if shown.get(i) is not None]),
    )


def _sentences(
    model: Model,
    metric: Metric,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    diagnoses: Sequence[Diagnosis],
) -> list[Sentence]:
    references = [example.references for example in examples]
    outputs = [prediction.text for prediction in predictions]
    values = metric.sentence_values(metric.statistics(outputs, references)).tolist()
    source = model.codecs.source
    return [
        Sentence(
            where=example.where,
            source=example.shown,
            output=prediction.text,
            references=tuple(example.references),
            value=value,
            length=len(example.source.split()) if source.natural else source.length(example.source),
            sureness=None if prediction.skipped else _sureness(prediction),
            diagnosis=diagnosis,
        )
        for example, prediction, value, diagnosis in zip(examples, predictions, values, diagnoses, strict=True)
    ]


def _sureness(prediction: Prediction) -> float:
    return prediction.best.log_prob / max(1, len(prediction.token_scores))


def _judged(sentences: Sequence[Sentence], higher_is_better: bool) -> list[Judged]:
    sign = 1.0 if higher_is_better else -1.0
    return [
        Judged(
            quality=sign * one.value,
            sureness=one.sureness,
            length=one.length,
            missed=-one.diagnosis.gap if one.diagnosis is not None and one.diagnosis.verdict == "search error" else 0,
        )
        for one in sentences
    ]


# --- looking inside --------------------------------------------------------------------------------------------------


def _explanations(
    model: Model,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    closely: set[int],
    options: Options,
) -> dict[int, Explanation]:
    """Of the telling ones everything, of the others a map; none of what was passed over or answered in parts."""
    if model.scorer is not None:
        return {}
    reads = {
        place: read
        for place, (example, prediction) in enumerate(zip(examples, predictions, strict=True))
        if (read := _read(model, example, prediction, options)) is not None
    }
    found = {place: _closely(model, reads[place], options) for place in sorted(closely & set(reads))}
    others = [place for place in reads if place not in found]
    lengths = [max(reads[place].forced.encoded.length, len(reads[place].forced.tokens)) for place in others]
    for batch in in_order(np.array(lengths, dtype=np.int64), BATCH_TOKENS):
        chosen = [others[row] for row in batch]
        with model.precision():
            seen = glimpsed(model.network, model.codecs, [reads[place] for place in chosen])
        found |= dict(zip(chosen, seen, strict=True))
    extras = {place: model.codecs.texts(examples[place].inputs)[1] for place in found}
    return {place: replace(one, extras=extras[place]) for place, one in found.items()}


def _read(model: Model, example: Example, prediction: Prediction, options: Options) -> Read | None:
    """What was said to an example, token by token; None where it was not answered as one piece."""
    _, _, parts = model.reader.read(example.inputs, options, example.where)
    if prediction.skipped or len(parts) != 1:
        return None
    encoded = model.codecs.encode(example.inputs)
    return Read(example.source, Forced(encoded, _ids(model, encoded, prediction.tokens)), prediction.best.truncated)


def _ids(model: Model, encoded: Encoded, pieces: Sequence[str]) -> Ids:
    """The ids of an output's pieces: what `Codecs.said` made of them, backwards."""
    size = len(model.target.vocabulary)
    copied = {piece: size + k for k, piece in enumerate(encoded.foreign)}
    known = model.target.vocabulary.ids(pieces)
    ids = [copied.get(piece, token) for piece, token in zip(pieces, known, strict=True)]
    return np.array(ids, dtype=np.int64)


def _closely(model: Model, read: Read, options: Options) -> Explanation:
    """With the beam, where searching again, alone, finds the same: of equally good outputs a batch may take another."""
    with model.precision():
        found = explained(model.network, model.codecs, read.text, read.forced)
    if options.risk is not None:
        return replace(found, truncated=read.truncated)
    best, tree = watched(model, read.forced.encoded, options)
    same = list(best.tokens) == read.forced.tokens.tolist()
    return replace(found, tree=tree if same else None, truncated=read.truncated)


def _states(model: Model, examples: Sequence[Example], predictions: Sequence[Prediction]) -> StateMap | None:
    """The states of the sources that were answered."""
    answered = [one for one, prediction in zip(examples, predictions, strict=True) if not prediction.skipped]
    most = model.recipe.data.limits.max_source
    whole = all(model.codecs.encode(example.inputs).own <= most for example in answered)
    if model.scorer is not None or len(answered) < 2 or not whole:
        return None
    return state_map(model, answered)


def _points(states: StateMap, predictions: Sequence[Prediction]) -> dict[int, tuple[float, float]]:
    answered = [place for place, prediction in enumerate(predictions) if not prediction.skipped]
    return {place: (point.x, point.y) for place, point in zip(answered, states.points, strict=True)}


# --- words and numbers around it -------------------------------------------------------------------------------------


def _notes(model: Model, judged: int, shown: int, closely: int) -> Iterator[str]:
    if shown < judged:
        yield f"scores are those of all {judged:,} sentences; shown are {shown:,} of them, drawn by seed {SEED}"
    if model.scorer is not None:
        yield "several models answer as one: there is no one inside to look into, so no maps are shown"
    elif closely < shown:
        yield f"the {closely:,} most telling sentences come with all heads and the beam, the others with a mean map"


def _facts(model: Model, found: RunEvaluation) -> Iterator[tuple[str, str]]:
    """What was judged, and how."""
    languages = model.recipe.languages
    yield "languages", f"{languages.source} to {languages.target}"
    yield "model", ", ".join(f"{name}: {kind_of(part)}" for name, part in model.recipe.model.parts.items())
    yield "parameters", f"{parameters(model.network):,}"
    told = found.decoding
    if told is not None:
        yield "search", told.search
        yield "speed", f"{told.sentences_per_second:,.1f} sentences/s, {told.tokens_per_second:,.0f} target tokens/s"
        yield "cut off at the length limit", f"{told.truncated:,}"
        yield "sources passed over", f"{told.skipped:,}"
        yield "unknown source tokens", f"{100 * told.unknown:.2f} %"


def _faithful(model: Model, telling: Sequence[Example]) -> tuple[str, ...]:
    """Whether attention may be read as a reason, over the references of a few telling sentences that are not long.

    Where an encoder shortens its source, weights cannot be moved one by one, and nothing is said.
    """
    short = [one for one in telling if one.target.strip() and model.codecs.source.length(one.source) <= SHORT]
    told_at_all = model.network.attention_taps and reduction_of(model.network) == 1
    if model.scorer is not None or not told_at_all or not short:
        return ()
    some = short[:: -(-len(short) // FEW)]
    told = faithfulness(model, some, Trials(steps=50, starts=1)).lines()
    return (f"measured on the references of {len(some)} of the telling sentences", *told)


def _diagnosis(told: Diagnoses) -> dict[str, Plain]:
    plain = told.as_dict(0)
    return {name: plain[name] for name in ("examples", "errors", "barred", "verdicts", "symptoms", "mean_rank")} | {
        "median_rank": plain["median_rank"],
        "mean_mass": plain["mean_mass"],
    }


def _data(model: Model, examples: Sequence[Example], folder: Path | None) -> dict[str, Plain]:
    """What became of the training data, lengths of what was judged, and what looks wrong with it."""
    sets = {} if folder is None or not (folder / PAIRS).is_file() else _pairs(folder / PAIRS)
    kept = sets.get("train", {}).get("kept")
    examined = _examined(model, examples, kept if isinstance(kept, int) else None)
    judged = examined.sets[-1]
    findings: list[Plain] = [
        {
            "set": "judged" if finding.set == judged.name else finding.set,
            "severity": finding.severity,
            "kind": finding.kind.replace("_", " "),
            "count": finding.count,
            "why": finding.why,
            "where": list(finding.where),
        }
        for finding in examined.findings
    ]
    sides: dict[str, Plain] = {
        name: {**side.percentiles, "alphabet": side.alphabet, "script": side.script}
        for name, side in (("source", judged.source), ("target", judged.target))
    }
    rows: list[Plain] = [{"name": name, **row} for name, row in sets.items()]
    return {"sets": rows, "judged": {"pairs": judged.pairs, **sides}, "findings": findings}


def _pairs(path: Path) -> dict[str, dict[str, Plain]]:
    """`pairs.json`: of each set how many were kept, and why others were not."""
    raw = read_json(path, _MOST_BYTES_OF_PAIRS, "the record of a run's pairs", "train again")
    found: dict[str, dict[str, Plain]] = {}
    for name, row in raw.items():
        if isinstance(row, Mapping) and isinstance(row.get("kept"), int) and isinstance(row.get("skipped"), Mapping):
            skipped = {str(why).replace("_", " "): int(count) for why, count in row["skipped"].items() if count}
            found[name] = {"kept": row["kept"], "skipped": dict(skipped)}
    return found


def _examined(model: Model, examples: Sequence[Example], trained: int | None) -> DataReport:
    """Beside the training set, where that is at hand and small enough to be read again; else alone."""
    task = task_of(model.recipe.model)
    if trained is not None and trained <= FEW_PAIRS:
        try:
            return examine(Datasets(model.recipe.data).train(), test=examples, task=task)
        except SeqloomError:  # the data moved away, or changed
            pass
    return examine(examples, task=task)

"""What `seqloom evaluate` found, as tables for a person: scores, lengths, words or labels, confidences, diagnoses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqloom.cli import say

if TYPE_CHECKING:
    from seqloom.api.diagnose import Diagnoses
    from seqloom.api.evaluate import RunEvaluation
    from seqloom.api.labelled import LabelTables
    from seqloom.api.search_errors import SearchErrors
    from seqloom.metrics.evaluation import Score
    from seqloom.metrics.labels import LabelRow

SHOWN = 200  # characters of a text of the worst examples
MOST_LABELS = 40  # rows of a table of labels
MOST_UNSEEN = 5  # labels that are named in one line


def print_report(systems: list[RunEvaluation]) -> None:
    """Everything a person wants to know about one system, or about several side by side."""
    _print_scores(systems)
    for word, score in systems[0].scores.items():
        _print_lengths(systems, word, score)
    _print_frequencies(systems)
    _print_labels(systems)
    for system in systems:
        _print_decoding(system, several=len(systems) > 1)
        _print_diagnosis(system, several=len(systems) > 1)


def _print_scores(systems: list[RunEvaluation]) -> None:
    several = len(systems) > 1
    rows: list[list[object]] = []
    for word in systems[0].scores:
        for system in systems:
            score = system.scores[word]
            interval = f"{score.interval.low:.2f} to {score.interval.high:.2f}"
            name = [score.name, system.name] if several else [score.name]
            rows.append([*name, f"{score.value:.2f}", interval, "higher" if score.higher_is_better else "lower"])
    for system in systems:
        if system.perplexity is not None:
            name = ["perplexity", system.name] if several else ["perplexity"]
            rows.append([*name, f"{system.perplexity:.2f}", "", "lower"])
    title = f"{' against '.join(system.name for system in systems)}: {systems[0].sentences:,} sentences"
    notes = [f"{system.name} is an output file, judged as it is" for system in systems if not system.predicted]
    notes += [f"The judges: {systems[0].judges.line}."] if systems[0].judges is not None else []
    notes += [f"Ranked among {system.ranked}" for system in systems if system.ranked]
    columns = ["metric", *(["system"] if several else []), "value", "95 % interval", "better"]
    say.table(title, columns, rows, notes)
    for score in systems[0].scores.values():
        say.data(f"{score.name}  {score.signature}")  # in one piece, to be copied


def _print_lengths(systems: list[RunEvaluation], word: str, score: Score) -> None:
    series = [
        {bucket.label: bucket for bucket in system.evaluation.by_length.get(score.name, ())} for system in systems
    ]
    if not any(series):
        return
    known = {label: bucket for buckets in series for label, bucket in buckets.items()}
    labels = sorted(known, key=lambda label: known[label].low)
    rows: list[list[object]] = []
    for label in labels:
        cells = [str(buckets[label].interval) if label in buckets else "" for buckets in series]
        rows.append([label, f"{known[label].count:,}", *cells])
    names = [system.name for system in systems] if len(systems) > 1 else [score.name]
    print()
    say.table(f"{score.name} by source length ({systems[0].length_unit})", ["length", "sentences", *names], rows)


def _print_frequencies(systems: list[RunEvaluation]) -> None:
    """F1 of words by how often training saw them; with precision and recall where one system has the table alone."""
    known = [(system.name, system.by_frequency) for system in systems if system.by_frequency is not None]
    if not known:
        return
    several = len(known) > 1
    rows: list[list[object]] = []
    for place, first in enumerate(known[0][1]):
        if not any(series[place].wanted or series[place].produced for _, series in known):
            continue
        f1 = [say.percent(series[place].f1 / 100) for _, series in known]
        shares = [say.percent(first.precision / 100), say.percent(first.recall / 100)]
        more = [] if several else [f"{first.produced:,}", *shares]
        rows.append([first.label, f"{first.wanted:,}", *more, *f1])
    names = [f"F1 {name}" for name, _ in known] if several else ["produced", "precision", "recall", "F1"]
    print()
    say.table("Words by how often training saw them", ["times seen", "wanted", *names], rows)


def _print_labels(systems: list[RunEvaluation]) -> None:
    """Precision, recall and F1 of every label, and of every type of span where tags write some."""
    several = len(systems) > 1
    for system in systems:
        told = system.by_label
        if told is None:
            continue
        of = f" of {system.name}" if several else ""
        notes = [unseen_labels(told)] if told.unseen else []
        _print_label_rows(f"Labels{of}", "label", told.labels, notes)
        if told.spans is not None:
            _print_label_rows(f"Spans{of} by their type", "type", told.spans)


def _print_label_rows(title: str, name: str, labels: Sequence[LabelRow], notes: Sequence[str] = ()) -> None:
    rows = [
        [row.label or "(none)", f"{row.wanted:,}", f"{row.produced:,}"]
        + [say.percent(share / 100) for share in (row.precision, row.recall, row.f1)]
        for row in labels[:MOST_LABELS]
    ]
    more = [f"and {len(labels) - MOST_LABELS:,} more; --json has them all"] if len(labels) > MOST_LABELS else []
    print()
    say.table(title, [name, "wanted", "produced", "precision", "recall", "F1"], rows, [*more, *notes])


def unseen_labels(told: LabelTables) -> str:
    """What of the references no output can be, in one line."""
    few = list(told.unseen.items())[:MOST_UNSEEN]
    named = ", ".join(f"{label} {count:,}" for label, count in few) + (", ..." if len(told.unseen) > len(few) else "")
    wanted = sum(row.wanted for row in told.labels)
    count = sum(told.unseen.values())
    return f"{count:,} of {wanted:,} wanted labels are none that training has, so no output is right there: {named}"


def _print_decoding(system: RunEvaluation, several: bool) -> None:
    told = system.decoding
    if told is None:
        return
    of = f" of {system.name}" if several else ""
    rows = [
        [f"{row.low:.1f} to {row.high:.1f}", f"{row.count:,}", say.percent(row.confidence), say.percent(row.accuracy)]
        for row in told.confidence.bins
    ]
    notes = [
        f"Expected calibration error {say.percent(told.confidence.ece)}; {say.percent(told.confidence.right)} of the "
        f"outputs are right ({told.confidence.criterion}), {say.percent(told.confidence.mean)} were promised.",
        "",
        f"{told.search.capitalize()}: {told.seconds:.1f} s, {told.sentences_per_second:,.1f} sentences/s, "
        f"{told.tokens_per_second:,.0f} target tokens/s; {told.truncated:,} outputs cut off at the length limit; "
        f"{told.skipped:,} sources skipped; {say.percent(told.unknown)} of the source tokens unknown.",
    ]
    print()
    say.table(f"Confidence{of}: promised and true", ["confidence", "outputs", "promised", "right"], rows, notes)


def _print_diagnosis(system: RunEvaluation, several: bool) -> None:
    from seqloom.probe.symptoms import visible

    told = system.diagnosis
    if told is None:
        return
    of = f" of {system.name}" if several else ""
    whole = max(1, len(told.items))
    rows = [(verdict, f"{count:,}", say.percent(count / whole)) for verdict, count in told.verdicts.items()]
    print()
    say.table(f"Diagnosis{of}", ["verdict", "outputs", "share"], rows, _partings(told))
    if told.errors and (told.symptoms or told.barred):
        found = [("reference out of reach", told.barred), *told.symptoms.items()]
        shares = [(kind, f"{count:,}", say.percent(count / told.errors)) for kind, count in found]
        print()
        say.table(f"Symptoms{of}", ["symptom", "outputs", "share of the errors"], shares)
    if told.errors:
        print()
        say.data(f"The worst{of} by {told.metric}:")
        for item, value in told.worst():
            say.data(f"{item.where}  {told.metric} {value:.1f}  {item.line}")
            source, output, reference = (visible(text, SHOWN) for text in (item.source, item.output, item.reference))
            say.data(f"  ! {source} -> {output}   (wanted: {reference})")


def _partings(told: Diagnoses) -> list[str]:
    """How far off the model was where output and reference part, on average."""
    if told.mean_rank is None:
        return []
    what = "The right label" if told.labels else "Where output and reference part, the right token"
    line = f"{what} has rank {told.mean_rank:,.1f} on average, {told.median_rank:,.0f} as the median"
    mass = told.mean_mass
    return [f"{line}." if mass is None else f"{line}; {say.percent(mass)} of the attention lay on its source word."]


def print_search_errors(found: SearchErrors | None) -> None:
    if found is not None:
        rows = [(beam, f"{found.errors[beam]:,}", say.percent(found.share(beam))) for beam in found.errors]
        note = (
            f"of {found.proven:,} sources whose most probable output is proven ({found.tried:,} were tried); "
            "by plain probability, whatever length normalisation the recipe has"
        )
        say.data("")
        say.table("search errors", ("beam", "errors", "share"), rows, [note])

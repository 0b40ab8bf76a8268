"""What is wrong with this data, before a night of training finds out: findings with line numbers.

Each set is read once, as a stream (`survey.py`). What matters depends on what the data are for: labels and tags have
troubles of their own (`label_survey.py`), plain text has no sources (`text_survey.py`). Nothing is changed or dropped
here, and nothing is printed: the report is data, with a plain text form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from seqloom.data import label_survey
from seqloom.data.examples import ITEMS
from seqloom.data.judgments import Agreement, Judges
from seqloom.data.kinds import EXAMPLES, Task
from seqloom.data.label_survey import LabelCounts, LabelSurvey, set_of
from seqloom.data.number_survey import NumberSummary, NumberSurvey
from seqloom.data.readers import Example
from seqloom.data.survey import SHOWN, Hashes, Numbers, Survey
from seqloom.data.text_survey import TextSummary, TextSurvey

Severity = Literal["error", "warning", "note"]

WHY: dict[str, tuple[Severity, str]] = {
    "empty_source": ("warning", "a pair without a source teaches nothing and is skipped in training"),
    "empty_target": ("warning", "a pair without a target teaches nothing and is skipped in training"),
    "duplicate_pairs": ("warning", "a pair that stands twice counts twice: the model leans towards it"),
    "several_targets": ("note", "one source, different targets: fine where several answers are right, noise otherwise"),
    "copies": ("note", "source and target are the same: many of these teach the model to copy"),
    "long_source": ("note", "far longer than the rest: slow, and often two lines that were glued together"),
    "long_target": ("note", "far longer than the rest: slow, and often two lines that were glued together"),
    "length_ratio": ("warning", "one side is out of all proportion to the other: often a misaligned pair"),
    "replacement_character": ("warning", "U+FFFD says that an earlier conversion lost characters"),
    "control_character": ("warning", "control characters are rarely meant and become tokens of their own"),
    "mojibake": ("warning", "looks like UTF-8 that was read as Latin-1: convert the file again"),
    "not_composed": ("note", "letters with loose accents (not NFC); 'normalise: nfc', the default, composes them"),
    "odd_script_source": ("warning", "not in the script of the other sources: a wrong language or a wrong column"),
    "odd_script_target": ("warning", "not in the script of the other targets: a wrong language or a wrong column"),
    "leaked_pairs": ("error", "the pair also stands in the training set: scores on it are worthless"),
    "leaked_sources": ("warning", "the source also stands in the training set: scores on it say little about new data"),
    "no_pairs": ("error", "there is nothing to learn from or to measure on"),
    "one_label": ("error", "all have the same label: there is nothing to tell apart"),
    "one_tag": ("error", "all words have the same tag: there is nothing to tell apart"),
    "label_once": ("warning", "a label that stands once can hardly be learned: a mistake, or a header (header: true)?"),
    "tag_once": ("note", "a tag that stands once can hardly be learned: a mistake?"),
    "similar_labels": ("warning", "labels that differ in case or blanks alone: probably one, written in two ways"),
    "similar_tags": ("warning", "tags that differ in case alone: probably one, written in two ways"),
    "unseen_label": ("warning", "a label that training has not: no model can say it"),
    "several_labels": ("warning", "one source, different labels: no model can be right about both"),
    "uneven_tags": ("error", "not one tag for each word: training stops at the first (E_ALIGN)"),
    "no_number": ("error", "not a finite number: training stops at the first (E_DATA); a header? (header: true)"),
    "one_number": ("error", "all numbers are the same: there is nothing to learn"),
    "far_number": ("warning", "far from all others: the levels in between are wasted; set target.tokenizer.low, high"),
    "unseen_number": ("note", "outside of what training has: no model goes beyond that"),
    "duplicate_texts": ("note", "a text that stands twice counts twice: the model leans towards it"),
    "leaked_texts": ("warning", "the text also stands in the training set: scores on it say little about new data"),
}
NOTHING = "nothing suspicious found"
_OF_TARGETS = frozenset({"copies", "long_target", "length_ratio", "odd_script_target"})
UNSUITED: dict[Task, frozenset[str]] = {  # kinds of trouble that are none where the data are for something else
    "transduce": frozenset(),
    "retrieve": frozenset({"length_ratio", "several_targets"}),  # a question may have several answers
    "label": _OF_TARGETS | {"several_targets"},  # `several_labels` says more
    "labels": _OF_TARGETS | {"several_targets", "empty_target"},
    "number": _OF_TARGETS,
    "tags": _OF_TARGETS,
    "language": frozenset(
        {"empty_source", "copies", "long_source", "length_ratio", "odd_script_source", "several_targets"}
    ),
}


@dataclass(frozen=True)
class Finding:
    """One kind of trouble in one set: how often, where first, and why it matters."""

    set: str
    kind: str
    count: int
    where: tuple[str, ...]

    @property
    def severity(self) -> Severity:
        return WHY[self.kind][0]

    @property
    def why(self) -> str:
        return WHY[self.kind][1]


@dataclass(frozen=True)
class SideSummary:
    """Lengths in characters, and how many different characters there are."""

    percentiles: dict[str, int]
    alphabet: int
    script: str


@dataclass(frozen=True)
class SetSummary:
    name: str
    pairs: int
    source: SideSummary
    target: SideSummary
    text: TextSummary | None = None  # where there are no sources
    numbers: NumberSummary | None = None  # where targets are numbers


@dataclass(frozen=True)
class DataReport:
    """Everything `seqloom check` says, as data."""

    sets: tuple[SetSummary, ...]
    findings: tuple[Finding, ...]
    task: Task = "transduce"
    labels: LabelCounts | None = None
    judges: Mapping[str, Agreement] = field(default_factory=dict)  # of every set whose items have several judgments

    def as_dict(self) -> dict[str, object]:
        findings = [{**asdict(finding), "severity": finding.severity, "why": finding.why} for finding in self.findings]
        told: dict[str, object] = {"task": self.task, "sets": [asdict(summary) for summary in self.sets]}
        if self.labels is not None:
            told["labels"] = {name: dict(counts) for name, counts in self.labels.sets.items()}
        if self.judges:
            told["judges"] = {name: asdict(agreement) for name, agreement in self.judges.items()}
        return {**told, "findings": findings}

    def lines(self) -> list[str]:
        """The report as plain text, worst first."""
        out = [line for summary in self.sets for line in _summary_lines(summary, self.task)]
        if self.labels is not None:
            out += self.labels.lines()
        out += [f"{name}: {agreement.line}" for name, agreement in self.judges.items()]
        if not self.findings:
            out.append(NOTHING)
        for finding in self.findings:
            more = " ..." if finding.count > len(finding.where) else ""
            out.append(f"{finding.severity}: {finding.set}: {finding.kind} ({finding.count:,} times): {finding.why}")
            if finding.where:
                out.append(f"    {', '.join(finding.where)}{more}")
        return out


def _summary_lines(summary: SetSummary, task: Task) -> Iterator[str]:
    yield f"{summary.name}: {summary.pairs:,} {EXAMPLES[task]}"
    if summary.text is not None:
        yield from summary.text.lines_told()
    sides = {"source": summary.source, "target": summary.target}
    if summary.numbers is not None:
        yield summary.numbers.told()
    told = {"transduce": list(sides), "retrieve": list(sides), "language": ["target"]}.get(task, ["source"])
    for name in told:
        side = sides[name]
        name = "text" if task == "language" else name
        lengths = ", ".join(f"{key} {value:,}" for key, value in side.percentiles.items())
        script = side.script.capitalize() or "mixed or no script"
        yield f"    {name}: characters per text {lengths}; {side.alphabet:,} different ones, {script}"


# --- judging -----------------------------------------------------------------------------------------------------


def examine(
    train: Iterable[Example],
    dev: Iterable[Example] | None = None,
    test: Iterable[Example] | None = None,
    task: Task = "transduce",
    separator: str = ITEMS,
) -> DataReport:
    """Read every set once and report what looks wrong, the worst first.

    `task`: what the data are for. `separator`: what stands between the labels of a set.
    """
    given = {
        name: examples for name, examples in (("train", train), ("dev", dev), ("test", test)) if examples is not None
    }
    cut = set_of(separator) if task == "labels" else None
    labels = {name: LabelSurvey(task == "tags", cut) for name in given if task in ("label", "labels", "tags")}
    texts = {name: TextSurvey() for name in given if task == "language"}
    numbers = {name: NumberSurvey() for name in given if task == "number"}
    judges = {name: Judges(task == "number") for name in given if task in ("label", "labels", "number")}
    if cut is not None:
        judges = {name: Judges(cut=lambda text: tuple(cut(text))) for name in given}
    also: dict[str, list[Callable[[int, Example], None]]] = {name: [] for name in given}
    for surveys in (labels, texts, numbers):
        for name, one in surveys.items():
            also[name].append(one.add)
    for name, judged in judges.items():
        also[name].append(judged.see)
    learned, *others = [Survey(name, examples, also[name]) for name, examples in given.items()]
    findings = [finding for survey in (learned, *others) for finding in _within(survey, task)]
    findings += [finding for survey in others for finding in _leaks(learned, survey, task)]
    if labels:
        findings += _about_labels(learned, others, labels)
    if numbers:
        findings += _about_numbers(learned, others, numbers)
    rank = {"error": 0, "warning": 1, "note": 2}
    findings.sort(key=lambda finding: rank[finding.severity])  # stable: sets stay in their order
    summaries = [_summary(one, texts.get(one.name), numbers.get(one.name)) for one in (learned, *others)]
    counts = LabelCounts.of("tag" if task == "tags" else "label", labels) if labels else None
    agreed = {name: found for name, one in judges.items() if (found := one.agreement()) is not None}
    return DataReport(tuple(summaries), tuple(findings), task, counts, agreed)


def _about_labels(learned: Survey, others: Sequence[Survey], labels: Mapping[str, LabelSurvey]) -> Iterator[Finding]:
    """What is wrong with the labels of every set, and those that training has not."""
    train = labels[learned.name]
    found = [(learned.name, one) for one in label_survey.within(learned, train, learned=True)]
    for survey in others:
        own = labels[survey.name]
        found += [(survey.name, one) for one in label_survey.within(survey, own, learned=False)]
        found += [(survey.name, one) for one in label_survey.unseen(survey, own, train)]
    return (Finding(name, kind, count, tuple(places[:SHOWN])) for name, (kind, count, places) in found)


def _about_numbers(learned: Survey, others: Sequence[Survey], numbers: Mapping[str, NumberSurvey]) -> Iterator[Finding]:
    """What is wrong with the numbers of every set, and those outside of what training has."""
    train = numbers[learned.name]
    found = [(learned.name, one) for one in train.within(learned, learned=True)]
    for survey in others:
        own = numbers[survey.name]
        found += [(survey.name, one) for one in own.within(survey, learned=False)]
        found += [(survey.name, one) for one in own.beyond(survey, train)]
    return (Finding(name, kind, count, tuple(places[:SHOWN])) for name, (kind, count, places) in found)


def _summary(survey: Survey, text: TextSurvey | None, numbers: NumberSurvey | None) -> SetSummary:
    sides: list[SideSummary] = []
    for side in (survey.source, survey.target):
        points = {"median": 50, "p95": 95, "p99": 99, "max": 100}
        percentiles = {name: int(_percentile(side.lengths, point)) for name, point in points.items()}
        sides.append(SideSummary(percentiles, len(side.alphabet), side.main_script()))
    told = None if text is None else text.summary()
    return SetSummary(
        survey.name, len(survey), sides[0], sides[1], told, None if numbers is None else numbers.summary()
    )


def _within(survey: Survey, task: Task) -> Iterator[Finding]:
    """What one set shows by itself."""
    if not len(survey):
        yield Finding(survey.name, "no_pairs", 1, ())
        return
    rows: dict[str, Numbers] = {kind: np.array(found) for kind, found in survey.suspects.items()}
    rows["long_source"] = _long(survey.source.lengths)
    rows["long_target"] = _long(survey.target.lengths)
    rows["length_ratio"] = _out_of_proportion(survey.source.lengths, survey.target.lengths)
    rows["odd_script_source"] = survey.source.odd_rows()
    rows["odd_script_target"] = survey.target.odd_rows()
    rows["several_targets"] = _several_targets(survey)
    for kind, found in rows.items():
        if len(found) and kind not in UNSUITED[task]:
            yield Finding(survey.name, kind, len(found), tuple(survey.where(int(row)) for row in found[:SHOWN]))
    again, before = _repeated(survey.pair_hashes, survey.pair_rows)
    if len(again):
        places = [f"{survey.where(a)} (first at {survey.where(b)})" for a, b in _few(again, before)]
        kind = "duplicate_texts" if task == "language" else "duplicate_pairs"
        yield Finding(survey.name, kind, len(again), tuple(places))


def _leaks(train: Survey, other: Survey, task: Task) -> Iterator[Finding]:
    """Pairs, and further sources, of a held-out set that also stand in the training set: both places are named."""
    pair_rows, pair_twins = _found_in(other.pair_hashes, other.pair_rows, train.pair_hashes, train.pair_rows)
    rows, twins = _found_in(other.source_hashes, np.arange(len(other)), train.source_hashes, np.arange(len(train)))
    only_source = ~np.isin(rows, pair_rows)
    for kind, found, origin in (
        ("leaked_texts" if task == "language" else "leaked_pairs", pair_rows, pair_twins),
        ("leaked_sources", rows[only_source], twins[only_source]),
    ):
        if len(found) and (task != "language" or kind == "leaked_texts"):  # nothing has a source there
            places = [f"{other.where(a)} = {train.where(b)}" for a, b in _few(found, origin)]
            yield Finding(other.name, kind, len(found), tuple(places))


def _few(first: Numbers, second: Numbers) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in zip(first[:SHOWN], second[:SHOWN], strict=True)]


def _percentile(lengths: Numbers, point: float) -> float:
    return float(np.percentile(lengths, point)) if len(lengths) else 0.0


def _long(lengths: Numbers) -> Numbers:
    """Over four times the length that 95 of 100 texts stay under (and 40 characters at least)."""
    return np.flatnonzero(lengths > max(4 * _percentile(lengths, 95), 40))


def _out_of_proportion(source: Numbers, target: Numbers) -> Numbers:
    """Log length ratios five deviations off the median (the robust kind), at least by a factor of two, and not tiny."""
    ratio = np.log((target + 1) / (source + 1))
    distance = np.abs(ratio - np.median(ratio))
    deviation = max(1.4826 * float(np.median(distance)), 0.1)
    far = (distance > 5 * deviation) & (distance > np.log(2))
    return np.flatnonzero(far & (np.maximum(source, target) >= 10) & (np.minimum(source, target) > 0))


def _several_targets(survey: Survey) -> Numbers:
    """The first row of every source that stands on several rows with different first references."""
    firsts = np.unique(survey.pair_rows, return_index=True)[1]
    both = np.stack([survey.source_hashes, survey.pair_hashes[firsts]], axis=1)
    distinct = np.unique(both, axis=0)[:, 0]
    sources, counts = np.unique(distinct, return_counts=True)
    order, first_rows = np.unique(survey.source_hashes, return_index=True)
    return np.sort(first_rows[np.searchsorted(order, sources[counts > 1])])


def _repeated(hashes: Hashes, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Rows whose hash was met on an earlier row, and that earliest row of each."""
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    earliest = rows[first[inverse]]
    again = earliest != rows  # the same reference twice on one row is no duplicate pair
    found, at = np.unique(rows[again], return_index=True)
    return found, earliest[again][at]


def _found_in(hashes: Hashes, rows: Numbers, known: Hashes, known_rows: Numbers) -> tuple[Numbers, Numbers]:
    """Rows with a hash that is known, each once, and the first row it is known from."""
    if not len(known) or not len(hashes):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ordered, first = np.unique(known, return_index=True)
    place = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    hit = ordered[place] == hashes
    found, at = np.unique(rows[hit], return_index=True)
    return found, known_rows[first[place[hit]]][at]

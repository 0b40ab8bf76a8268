"""The report of a run as one HTML file: scores, curves, lengths, diagnoses, states, and a page for every sentence.

`Report` is plain parts that somebody gathered (`api/report.py`); here they become a file in the manner of `page.py`,
whose rules hold: texts are data and never markup, nothing is asked for, `static/report.js` draws. The file stays under
a limit: the most telling sentences come with all heads and beams, the others with the mean map, and where even that has
no room left, with their texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seqloom.config import Plain
from seqloom.probe.diagnose import Diagnosis
from seqloom.probe.explain import Explanation
from seqloom.probe.glimpse import in_passing
from seqloom.probe.page import STEPS, document, escaped, number, packed_answer
from seqloom.probe.tree import WORDS
from seqloom.specials import BOS, SPECIALS

MOST_BYTES = 5_000_000
CLOSELY = 0.6  # of the room for answers that all heads and beams may take
GALLERY = 6  # best, and as many worst


@dataclass(frozen=True)
class Curve:
    """Values against training steps; curves of one panel share their axes."""

    panel: str
    name: str
    points: tuple[tuple[int, float], ...]

    def as_dict(self) -> dict[str, Plain]:
        points: list[Plain] = [[step, _short(value)] for step, value in self.points]
        return {"panel": self.panel, "name": self.name, "points": points}


@dataclass(frozen=True)
class Sentence:
    """One judged sentence. `why` says what is telling about it; empty: it is one of many."""

    where: str
    source: str
    output: str
    references: tuple[str, ...]
    value: float  # by the report's metric
    length: int  # of the source, in the report's unit
    sureness: float | None = None  # the mean log-probability of its tokens
    diagnosis: Diagnosis | None = None
    why: tuple[str, ...] = ()
    explanation: Explanation | None = None
    point: tuple[float, float] | None = None  # on the map of states

    def as_dict(self) -> dict[str, Plain]:
        told = self.diagnosis
        return {
            "where": self.where,
            "source": self.source,
            "output": self.output,
            "references": list(self.references),
            "value": _short(self.value),
            "length": self.length,
            "sureness": None if self.sureness is None else number(self.sureness),
            "verdict": "" if told is None else told.verdict,
            "line": "" if told is None else told.line,
            "symptoms": [] if told is None else sorted({symptom.kind for symptom in told.symptoms}),
            "why": list(self.why),
            "point": None if self.point is None else [_short(value) for value in self.point],
        }


@dataclass(frozen=True)
class Report:
    """All that a report shows. `systems` are evaluations as plain data; the first is the run's own."""

    title: str
    systems: tuple[Mapping[str, Plain], ...]
    sentences: tuple[Sentence, ...]
    metric: str  # what sentences are judged by
    higher_is_better: bool = True
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    data: Mapping[str, Plain] = field(default_factory=dict)  # see `api/report.py`
    curves: tuple[Curve, ...] = ()
    best_step: int | None = None
    diagnosis: Mapping[str, Plain] | None = None  # verdicts, symptoms, and what they are shares of
    variance: tuple[float, ...] | None = None  # the shares that the map's directions explain
    faithfulness: tuple[str, ...] = ()  # whether attention may be read as a reason: lines, cautions among them

    def ranked(self, worst: bool = False) -> list[int]:
        """Places of the sentences, best (or worst) first; of equal ones the longest, which say most."""
        sign = -1 if self.higher_is_better != worst else 1
        told = self.sentences
        return sorted(range(len(told)), key=lambda place: (sign * told[place].value, -told[place].length))

    def as_dict(self) -> dict[str, Plain]:
        shown = min(GALLERY, (len(self.sentences) + 1) // 2)
        best = self.ranked()[:shown]
        worst = [place for place in self.ranked(worst=True)[:shown] if place not in best]
        return {
            "systems": [dict(system) for system in self.systems],
            "sentences": [sentence.as_dict() for sentence in self.sentences],
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "facts": [list(fact) for fact in self.facts],
            "data": dict(self.data),
            "curves": [curve.as_dict() for curve in self.curves],
            "best_step": self.best_step,
            "diagnosis": None if self.diagnosis is None else dict(self.diagnosis),
            "variance": None if self.variance is None else list(self.variance),
            "faithfulness": list(self.faithfulness),
            "best": list(best),
            "worst": list(worst),
        }


def report_page(report: Report, most_bytes: int = MOST_BYTES) -> str:
    """The whole file; `most_bytes` are kept wherever texts and numbers alone do not need more."""
    told = _finite(report.as_dict())
    begun: dict[str, Plain] = {
        "title": report.title,
        "notes": list(report.notes),
        "begin": SPECIALS[BOS],
        "steps": STEPS,
        "fates": {str(fate): words for fate, words in WORDS.items()},
        "report": told,
    }

    def filled(answers: list[Plain]) -> str:
        payload: dict[str, Plain] = {**begun, "answers": answers}
        return document(report.title, payload, _plainly(report), "report.js", ("page.css", "report.css"))

    nothing: list[Plain] = [None] * len(report.sentences)
    room = most_bytes - len(filled(nothing).encode("utf-8"))
    return filled(_answers(report.sentences, room))


def _answers(sentences: Sequence[Sentence], room: int) -> list[Plain]:
    """Those with all heads first, then mean maps, each where it still fits."""
    found: list[Plain] = [None] * len(sentences)
    telling = [place for place, sentence in enumerate(sentences) if sentence.why]
    others = [place for place, sentence in enumerate(sentences) if not sentence.why]
    left, close = room, int(CLOSELY * room)
    for place in (*telling, *others):
        one = sentences[place].explanation
        if one is None:
            continue
        if sentences[place].why:
            packed: Plain = packed_answer(one)
            size = _size(packed)
            if size <= close:
                found[place], left, close = packed, left - size, close - size
                continue
        packed = {**packed_answer(in_passing(one)), "glimpse": bool(len(one.weights))}
        size = _size(packed)
        if size <= left:
            found[place], left = packed, left - size
    return found


def _size(packed: Plain) -> int:
    """Its bytes in the file at most: what HTML would take for markup grows to six."""
    text = json.dumps(packed, separators=(",", ":"))
    return len(text) + 5 * sum(text.count(character) for character in "<>&") + 1


def _short(value: float) -> float | None:
    """Five digits that tell, whatever the size."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _finite(plain: Plain) -> Plain:
    """Numbers beyond all numbers become null, which JSON can say."""
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    if isinstance(plain, Mapping):
        return {name: _finite(value) for name, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [_finite(value) for value in plain]
    return plain


# --- for who runs no scripts -----------------------------------------------------------------------------------------


def _plainly(report: Report) -> str:
    """The scores, and the best and worst sentences."""
    few = dict.fromkeys([*report.ranked()[:GALLERY], *report.ranked(worst=True)[:GALLERY]])
    return "\n".join([*_scores_plainly(report), *(_sentence_plainly(report, report.sentences[place]) for place in few)])


def _scores_plainly(report: Report) -> list[str]:
    lines = []
    for system in report.systems:
        scores = system.get("scores")
        for score in scores if isinstance(scores, list) else []:
            if isinstance(score, dict):
                value = score["value"]
                assert isinstance(value, float)
                lines.append(f"<p>{escaped(str(system['name']))}: {escaped(str(score['name']))} {value:.2f}</p>")
    return lines


def _sentence_plainly(report: Report, sentence: Sentence) -> str:
    value = f"{escaped(report.metric)} {sentence.value:.1f}"
    texts = (sentence.source, sentence.output, *sentence.references)
    return f"<h2>{value}</h2>\n" + "\n".join(f'<p dir="auto">{escaped(text)}</p>' for text in texts)

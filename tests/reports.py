"""Reports that are made up, so that everything about them is known: for tests of what shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from explanations import sentence, small_tree
from seqloom.config import Plain
from seqloom.probe.diagnose import Diagnosis, Verdict
from seqloom.probe.report import Curve, Report, Sentence

VERDICTS: tuple[Verdict, ...] = ("right", "model error", "search error", "model error")


def judged(place: int, text: str = "", tokens: int = 5) -> Sentence:
    """The sentence of this place: its metric is its place, its verdict one of four in turn."""
    shown = text or f"sentence {place + 1}"
    verdict = VERDICTS[place % len(VERDICTS)]
    told = Diagnosis(verdict, shown, f"output {shown}", f"wanted {shown}", where=f"test.tsv:{place + 1}", score=-1.0)
    return Sentence(
        where=f"test.tsv:{place + 1}",
        source=shown,
        output=f"output {shown}",
        references=(f"wanted {shown}",),
        value=float(place),
        length=2 + place % 7,
        sureness=-0.1 * place,
        diagnosis=replace(told, reference_score=-0.5 if verdict == "search error" else -2.0),
        why=("among the worst",) if place < 2 else (),
        explanation=replace(sentence(tokens, seed=place + 1), tree=small_tree(), text=shown, answer=f"output {shown}"),
        point=(float(place), float(place * place % 5)),
    )


def system(name: str, shift: float = 0.0) -> dict[str, Plain]:
    """An evaluation as plain data: BLEU 30 with an interval, in two buckets of length."""

    def interval(value: float) -> dict[str, Plain]:
        return {"value": value + shift, "low": value + shift - 2, "high": value + shift + 2}

    buckets: list[Plain] = [
        {"label": label, "low": low, "high": low + 9, "count": 10, "value": value + shift, "interval": interval(value)}
        for label, low, value in (("1-10", 1, 35.0), ("11-20", 11, 25.0))
    ]
    score: dict[str, Plain] = {
        "metric": "bleu",
        "name": "BLEU",
        "value": 30.0 + shift,
        "interval": interval(30.0),
        "signature": "nrefs:1",
        "higher_is_better": True,
    }
    words: list[Plain] = [
        {"label": label, "low": low, "wanted": 9, "produced": 8, "precision": 50.0, "recall": 40.0, "f1": 44.0 + shift}
        for label, low in (("0", 0), ("1-10", 1))
    ]
    bins: list[Plain] = [{"low": 0.5, "high": 0.6, "confidence": 0.55, "accuracy": 0.5, "count": 4}]
    told: dict[str, Plain] = {"criterion": "BLEU perfect", "ece": 0.05, "mean": 0.5, "right": 0.4, "bins": bins}
    return {
        "name": name,
        "scores": [score],
        "perplexity": 12.5,
        "by_length": {"BLEU": buckets},
        "length_unit": "words",
        "by_frequency": words,
        "decoding": {"confidence": told},
    }


def made_report(count: int = 8, text: str = "", systems: Sequence[str] = ("run",), tokens: int = 5) -> Report:
    """A report of so many sentences; `text`, where given, stands in every place that a text can stand in."""
    verdicts: list[Plain] = [
        {"verdict": verdict, "count": count // 2 if verdict == "model error" else count // 4, "share": 0.25}
        for verdict in ("right", "model error", "search error", "out of reach")
    ]
    symptoms: list[Plain] = [{"symptom": text or "repeated", "count": 1, "share": 0.1}]
    finding: dict[str, Plain] = {
        "set": "judged",
        "severity": "warning",
        "kind": text or "copies",
        "count": 3,
        "why": text or "a reason",
        "where": [text or "test.tsv:3"],
    }
    side: dict[str, Plain] = {"median": 3, "p95": 9, "max": 12, "alphabet": 26, "script": "latin"}
    skipped: dict[str, Plain] = {text or "empty source": 2}
    return Report(
        title=text or "a run",
        systems=tuple(system(text or name, 5.0 * place) for place, name in enumerate(systems)),
        sentences=tuple(judged(place, text, tokens) for place in range(count)),
        metric=text or "BLEU",
        notes=(text or "a note",),
        facts=((text or "search", text or "beam 5"),),
        data={
            "sets": [{"name": text or "train", "kept": 100, "skipped": skipped}],
            "judged": {"pairs": count, "source": side, "target": side},
            "findings": [finding],
        },
        faithfulness=("attention and gradients: tau 0.10", text or "caution: do not read these weights as reasons"),
        curves=(
            Curve("loss", text or "training", ((10, 3.0), (20, 2.0), (30, 1.5))),
            Curve("loss", "validation", ((20, 2.5), (30, 2.0))),
        ),
        best_step=30,
        diagnosis={
            "verdicts": verdicts,
            "symptoms": symptoms,
            "errors": count // 2,
            "mean_rank": 3.5,
            "median_rank": 2.0,
            "mean_mass": None,
        },
        variance=(0.6, 0.2),
    )

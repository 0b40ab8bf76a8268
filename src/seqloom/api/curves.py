"""Learning curves of a run, from its `metrics.jsonl`: what training and validations measured, step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from seqloom.probe.report import Curve

MOST_POINTS = 400  # of a curve; more are thinned out
_MOST_BYTES = 64_000_000


def curves(log: Path) -> tuple[Curve, ...]:
    """Loss, each metric and the learning rate; nothing where the file is not there, or larger than any such file."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for line in _lines(log):
        for panel, name, value in _values(line):
            step = line.get("step")
            if isinstance(step, int) and isinstance(value, (int, float)):
                found.setdefault((panel, name), []).append((step, float(value)))
    in_order = sorted(found.items(), key=lambda one: one[0][1] != "training")  # so that it has the same colour anywhere
    return tuple(Curve(panel, name, _thinned(points)) for (panel, name), points in in_order)


def best_step(log: Path) -> int | None:
    """The step of the weights that were best by the watched metric."""
    steps = [line.get("best_step") for line in _lines(log) if line.get("event") == "validated"]
    known = [step for step in steps if isinstance(step, int)]
    return known[-1] if known else None


def _values(line: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    if line.get("event") == "logged":
        yield "loss, nats per token", "training", line.get("nll")
        yield "learning rate", "learning rate", line.get("lr")
    values = line.get("values")
    if line.get("event") == "validated" and isinstance(values, Mapping):
        for name, value in values.items():
            if name == "nll":
                yield "loss, nats per token", "validation", value
            elif name != "perplexity":
                yield f"{name} on dev", "validation", value


def _lines(log: Path) -> Iterator[Mapping[str, object]]:
    """What can be read of it: a report does not fail for a torn line."""
    try:
        if log.stat().st_size > _MOST_BYTES:
            return
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _thinned(points: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    stride = -(-len(points) // MOST_POINTS)
    return (*points[:-1:stride], points[-1])

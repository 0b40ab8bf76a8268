"""`seqloom info RUN`: what a run is and how far it is; without a run, versions and machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say

if TYPE_CHECKING:
    from seqloom.api.info import Information
    from seqloom.config import Plain

Row = tuple[str, object]


def command(
    run: Path | None = typer.Argument(None, metavar="[RUN]", help="A run or bundle folder."),
    as_json: bool = typer.Option(False, "--json", help="As JSON."),
) -> None:
    """Show what a run or bundle is, or this machine."""
    from seqloom.api.info import information, machine

    if run is None:
        found = machine()
        if as_json:
            say.as_json(found)
        else:
            _show(_machine_rows(found))
        return
    known = information(run)
    if as_json:
        say.as_json(known.as_dict())
    else:
        _show(_rows(known))


def _show(rows: Iterator[Row]) -> None:
    pairs = [(name, str(value)) for name, value in rows]
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say.data(f"{name.ljust(width)}  {value}")


def _machine_rows(found: Mapping[str, Plain]) -> Iterator[Row]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            for extra, there in value.items():
                yield f"extra {extra}", there or f"absent (pip install 'seqloom[{extra}]')"
        else:
            yield name, value


def _rows(known: Information) -> Iterator[Row]:
    recipe, bundle = known.recipe, known.bundle
    plain = known.as_dict()
    yield "run" if known.progress is not None else "bundle", known.folder
    yield "languages", f"{recipe.languages.source} -> {recipe.languages.target}"
    yield from _mapping_rows(plain["model"])
    for name, paths in recipe.data.files().items():
        yield name, ", ".join(paths)
    if bundle is not None:
        yield from _bundle_rows(plain["bundle"])
    if known.progress is not None:
        yield from _progress_rows(known.progress)
    if bundle is None:
        yield "bundle", "none yet: it is written at the first validation"


def _mapping_rows(values: Plain) -> Iterator[Row]:
    assert isinstance(values, Mapping)
    for name, value in values.items():
        yield name, ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, Mapping) else value


def _bundle_rows(card: Plain) -> Iterator[Row]:
    assert isinstance(card, Mapping)
    if isinstance(count := card.get("parameters"), int):
        yield "parameters", f"{count:,}"
    if isinstance(size := card.get("bytes"), int):
        yield "bundle size", f"{size / 1e6:.2f} MB"
    if isinstance(sizes := card.get("vocabulary"), Mapping):
        yield "vocabulary", ", ".join(f"{side} {count:,}" for side, count in sizes.items())
    for name in ("validation", "test", "scores"):
        if isinstance(values := card.get(name), Mapping) and values:
            yield name, ", ".join(f"{key} {_short(value)}" for key, value in values.items())
    if isinstance(fitted := card.get("calibration"), Mapping) and fitted.get("examples"):
        yield "confidence", f"fitted on {fitted.get('examples')} dev examples; right means: {fitted.get('criterion')}"
    if isinstance(data := card.get("data"), Mapping):
        for name, mark in data.items():
            if isinstance(mark, Mapping):
                yield f"data {name}", f"{mark.get('size'):,} bytes, sha256 {str(mark.get('sha256'))[:12]}"
    if isinstance(made := card.get("machine"), Mapping):
        yield "trained on", f"{made.get('processor')}, {made.get('threads')} threads, torch {made.get('torch')}"
    yield "made by", f"seqloom {card.get('seqloom')}"


def _progress_rows(progress: Mapping[str, Plain]) -> Iterator[Row]:
    from seqloom.training.console import span

    state = f"finished ({progress['reason']})" if progress["finished"] else "not finished: 'seqloom train RUN' goes on"
    yield "state", state
    if isinstance(step := progress.get("step"), int):
        share = progress.get("progress")
        done = f" ({say.percent(share)} done)" if isinstance(share, float) else ""
        yield "step", f"{step:,}, epoch {progress.get('epoch')}, loss {_short(progress.get('loss'))}{done}"
    if isinstance(elapsed := progress.get("elapsed"), float):
        yield "time", f"{span(elapsed)}, {_short(progress.get('tokens_per_second'))} tokens/s at the last"
    if isinstance(best := progress.get("best"), Mapping):
        yield "best", f"{best['metric']} {_short(best['value'])} at step {best['step']:,}"
    if isinstance(kept := progress.get("checkpoints"), list):
        yield "checkpoints", ", ".join(f"step {step:,}" for step in kept) or "none"


def _short(value: object) -> str:
    return f"{value:,.5g}" if isinstance(value, float) else str(value)

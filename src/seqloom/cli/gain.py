"""`seqloom train RECIPE --from RUN --gain 1,10,100`: what that beginning gains over training from scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.cli import say
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.gain import Gain
    from seqloom.api.train import Wishes


def measured_gain(
    path: Path,
    run: Path,
    start: Path | None,
    percentages: str,
    seeds: Sequence[int],
    wishes: Callable[[str], Wishes],
    assignments: Sequence[str],
) -> Gain:
    """Train both ways at every portion; E_USAGE for what is no recipe, or begins from nothing."""
    from seqloom.api.gain import measure_gain
    from seqloom.api.many import is_sweep

    if start is None:
        raise SeqloomError("E_USAGE", "a gain is over training from scratch", where="--gain", fix="add --from RUN")
    if path.is_dir():
        raise SeqloomError("E_USAGE", "a gain begins from a recipe, not from a run", where=str(path))
    if swept := next(filter(is_sweep, assignments), None):
        what = "a gain is of one recipe, and this sweeps over several"
        raise SeqloomError("E_USAGE", what, where=f"--set {swept}", fix="give one value")
    return measure_gain(path, run, start, portions(percentages), seeds, wishes, assignments)


def portions(text: str) -> list[float]:
    """`1,10,100` is 0.01, 0.1, 1."""
    found = []
    for part in text.split(","):
        try:
            percentage = float(part)
        except ValueError:
            percentage = 0.0
        if not 0 < percentage <= 100:
            fix = "write percentages of the training data: 1,10,100"
            raise SeqloomError("E_USAGE", f"{part.strip()!r} is no percentage", where="--gain", fix=fix)
        found.append(percentage / 100)
    return found


def say_gain(found: Gain, as_json: bool) -> None:
    if as_json:
        say.as_json(found.as_dict())
        return
    rows: list[list[object]] = []
    for row in found.portions:
        interval = f"{row.interval[0]:+.2f} to {row.interval[1]:+.2f}"
        told = [str(row.scratch), str(row.begun), f"{row.gain:+.2f}", interval, "yes" if row.proven else "no"]
        rows.append([f"{100 * row.share:g} %", f"{row.pairs:,}", *told])
    columns = ["data", "pairs", "from scratch", "begun", "gain", "95 % interval", "proven"]
    seeds = f"{len(found.seeds)} seed{'' if len(found.seeds) == 1 else 's'}"
    notes = [f"{found.sentences:,} test sentences, {seeds}, {found.signature}"]
    say.table(f"{found.metric}: what beginning from {found.start} gains", columns, rows, notes)

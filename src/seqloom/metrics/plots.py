"""Pictures of a score: by source length, by training frequency, and how honest the confidences are.

matplotlib (the extra `plot`) is imported inside the functions and draws to a file without any display. Colours are
Okabe and Ito's, which colour-blind readers can tell apart; every series also has a marker and line style of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.errors import SeqloomError
from seqloom.metrics.breakdown import Bucket, FrequencyRow
from seqloom.metrics.calibration import ReliabilityBin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")
GREY = "#767676"
LONGEST_NAME = 50  # characters of a system's name that a title has room for


def plot_by_length(series: Mapping[str, Sequence[Bucket]], metric_name: str, path: Path, unit: str = "words") -> None:
    """The famous plot: score by source length, one line per system, with 95 % intervals."""
    figure = _figure(7.0, 4.2)
    axes = figure.add_subplot()
    spans = sorted({(bucket.low, bucket.label) for buckets in series.values() for bucket in buckets})
    places = {label: place for place, (_, label) in enumerate(spans)}
    for number, (label, buckets) in enumerate(series.items()):
        shift = 0.08 * (number - (len(series) - 1) / 2)  # error bars side by side, not on top of each other
        across = [places[bucket.label] + shift for bucket in buckets]
        values = [bucket.value for bucket in buckets]
        below = [max(0.0, bucket.value - bucket.interval.low) for bucket in buckets]
        above = [max(0.0, bucket.interval.high - bucket.value) for bucket in buckets]
        axes.errorbar(across, values, [below, above], fmt="none", ecolor=_colour(number), capsize=3)
        _line(axes, number, label, across, values)
    counts = {bucket.label: bucket.count for buckets in series.values() for bucket in buckets}
    axes.set_xticks(range(len(spans)), [f"{label}\n({counts[label]:,})" for _, label in spans], fontsize=9)
    axes.set_xlim(-0.5, max(len(spans), 1) - 0.5)
    axes.set_ylim(bottom=0)
    _finish(
        axes,
        f"source length in {unit} (number of sentences)",
        metric_name,
        f"{metric_name} by source length, with 95 % intervals",
    )
    _legend(axes)
    _save(figure, path)


def plot_reliability(rows: Sequence[ReliabilityBin], ece: float, path: Path, name: str = "") -> None:
    """Promised against true: an honest model lies on the diagonal. Below, how many outputs each bin holds."""
    figure = _figure(5.2, 5.8)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1.8, zorder=3, label="honest: promised = true")
    widths = [row.high - row.low for row in rows]
    middles = [(row.low + row.high) / 2 for row in rows]
    axes.bar(
        middles, [row.accuracy for row in rows], widths, color="#BFE0F5", edgecolor="white", label="share right in bin"
    )
    confidences, accuracies = [row.confidence for row in rows], [row.accuracy for row in rows]
    _line(axes, 1, "at the bin's mean confidence", confidences, accuracies)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    _legend(axes)
    below.bar(middles, [row.count for row in rows], widths, color=GREY, edgecolor="white")
    total = sum(row.count for row in rows)
    title = f"Reliability: ECE = {100 * ece:.1f} % over {total:,} outputs"
    if name:
        title = f"{_shown(name)}\n{title}"
    _finish(axes, "", "share of outputs that are right", title)
    _finish(below, "confidence", "outputs", "")
    _save(figure, path)


def plot_frequency(series: Mapping[str, Sequence[FrequencyRow]], path: Path) -> None:
    """F1 of words by how often training saw them, one line per system (greedy against beam, say)."""
    figure = _figure(7.0, 4.2)
    axes = figure.add_subplot()
    spans = sorted({(row.low, row.label) for rows in series.values() for row in rows if row.wanted})
    places = {label: place for place, (_, label) in enumerate(spans)}
    for number, (label, rows) in enumerate(series.items()):
        shown = [row for row in rows if row.wanted]
        _line(axes, number, label, [places[row.label] for row in shown], [row.f1 for row in shown])
    wanted = {row.label: row.wanted for rows in series.values() for row in rows}
    axes.set_xticks(range(len(spans)), [f"{label}\n({wanted[label]:,})" for _, label in spans], fontsize=9)
    axes.set_xlim(-0.5, max(len(spans), 1) - 0.5)
    axes.set_ylim(0, 102)
    _finish(
        axes, "times seen in training (number of words wanted)", "F1 of words, %", "Word accuracy by training frequency"
    )
    _legend(axes)
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    """A figure of its own, tied to no display and no global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SeqloomError("E_EXTRA", "plots need matplotlib", fix="pip install 'seqloom[plot]'") from None
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _shown(name: str) -> str:
    """A system's name as text: matplotlib takes `$` for a formula, and leaves out of legends what begins with `_`."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def _line(axes: Axes, number: int, label: str, across: Sequence[float], up: Sequence[float]) -> None:
    """Series `number`, in its own colour, marker and line style."""
    axes.plot(
        across,
        up,
        label=_shown(label),
        color=_colour(number),
        marker=MARKERS[number % len(MARKERS)],
        linestyle=LINES[number % len(LINES)],
        linewidth=1.8,
        markersize=5.5,
        clip_on=False,  # a marker on the edge is whole
        zorder=4,
    )


def _legend(axes: Axes) -> None:
    """On a plain ground, with lines long enough to show their dashes."""
    axes.legend(handlelength=3, framealpha=0.9, edgecolor="none")


def _finish(axes: Axes, across: str, up: str, title: str) -> None:
    """Labels, a faint grid, and no box."""
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    """Write the picture; its kind is the path's ending (png, svg, pdf)."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise SeqloomError("E_FILE", f"cannot write the plot: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise SeqloomError("E_USAGE", f"cannot write the plot: {error}", where=str(path)) from None

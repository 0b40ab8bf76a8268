"""The page that shows what a beginning is worth: scores by portion of the training data, from scratch and begun.

One HTML file in the manner of `page.py`, and simpler: a table and a drawing, made here, without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.probe.page import escaped, still_document

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 24, 14, 46  # what is around the plot
NAMES = ("from scratch", "begun from the other run")


@dataclass(frozen=True)
class Rung:
    """One portion: (mean, deviation over the seeds) both ways, the gain and the ends of its interval."""

    share: float
    pairs: int
    scratch: tuple[float, float]
    begun: tuple[float, float]
    gain: float
    interval: tuple[float, float]
    proven: bool


def gain_page(title: str, metric: str, rungs: Sequence[Rung], notes: Sequence[str] = ()) -> str:
    """The whole file."""
    body = f"""<header class="top"><h1>{escaped(title)}</h1>
<p class="soft">What a beginning is worth: {escaped(metric)} by portion of the training data</p></header>
<div class="frame"><main>
<section><h2>Scores</h2>{_table(metric, rungs)}</section>
<section><h2>By number of training pairs</h2>{_legend()}<div class="plot">{_drawing(metric, rungs)}</div></section>
<section><h2>How it was measured</h2>{"".join(f'<p class="soft">{escaped(note)}</p>' for note in notes)}</section>
</main></div>"""
    return still_document(title, body, ("page.css", "report.css"))


def _table(metric: str, rungs: Sequence[Rung]) -> str:
    heads = ["training data", "pairs", *NAMES, "gain", "95 % interval", "proven"]
    head = "".join(f'<th scope="col"{"" if i in (0, 6) else _FIGURE}>{name}</th>' for i, name in enumerate(heads))
    rows = "".join(
        f"<tr><td>{100 * rung.share:g} %</td>"
        + "".join(
            f"<td{_FIGURE}>{text}</td>"
            for text in (
                f"{rung.pairs:,}",
                _spread(rung.scratch),
                _spread(rung.begun),
                f"{rung.gain:+.2f}",
                f"{rung.interval[0]:+.2f} to {rung.interval[1]:+.2f}",
            )
        )
        + f"<td>{'yes' if rung.proven else 'no'}</td></tr>"
        for rung in rungs
    )
    name = escaped(f"{metric} by portion")
    return (
        f'<div class="scroll"><table class="rows" aria-label="{name}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


_FIGURE = ' class="figure"'


def _spread(value: tuple[float, float]) -> str:
    return f"{value[0]:.2f}" + (f" ± {value[1]:.2f}" if value[1] else "")


def _legend() -> str:
    signs = "".join(
        f'<span><svg viewBox="0 0 34 14" class="sign s{place}" aria-hidden="true">{_line("M1 7H33", place)}'
        f"{_marker(17, 7, place)}</svg>{name}</span>"
        for place, name in enumerate(NAMES)
    )
    return f'<div class="fates">{signs}</div>'


def _drawing(metric: str, rungs: Sequence[Rung]) -> str:
    """Portions stand side by side at equal distances: each is some ten times the one before."""
    ends = [
        mean + sign * deviation for rung in rungs for mean, deviation in (rung.scratch, rung.begun) for sign in (1, -1)
    ]
    low, high = min(ends), max(ends)
    margin = 0.08 * (high - low) or 1.0
    low, high = low - margin, high + margin
    step = (WIDTH - LEFT - RIGHT) / max(1, len(rungs) - 1)

    def across(place: int) -> float:
        return LEFT + step * place if len(rungs) > 1 else (LEFT + WIDTH - RIGHT) / 2

    def down(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / (high - low)

    parts = []
    for at in (low + (high - low) * share for share in (0.0, 0.25, 0.5, 0.75, 1.0)):
        parts.append(f'<path class="grid" d="M{LEFT} {down(at):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{down(at) + 4:.1f}" text-anchor="end">{at:.1f}</text>')
    for place, rung in enumerate(rungs):
        anchor = "end" if place and place == len(rungs) - 1 else "start" if not place and len(rungs) > 1 else "middle"
        where = f'x="{across(place):.1f}" text-anchor="{anchor}"'
        parts.append(f'<text {where} y="{HEIGHT - BOTTOM + 18}">{100 * rung.share:g} %</text>')
        parts.append(f'<text class="tiny" {where} y="{HEIGHT - BOTTOM + 33}">{rung.pairs:,} pairs</text>')
    for number, values in enumerate(([rung.scratch for rung in rungs], [rung.begun for rung in rungs])):
        points = [(across(place), mean, deviation) for place, (mean, deviation) in enumerate(values)]
        way = "".join(f"{'L' if i else 'M'}{x:.1f} {down(mean):.1f}" for i, (x, mean, _) in enumerate(points))
        whiskers = "".join(
            f'<path class="whisker" d="M{x:.1f} {down(mean - deviation):.1f}V{down(mean + deviation):.1f}"/>'
            for x, mean, deviation in points
            if deviation
        )
        marks = "".join(_marker(x, down(mean), number, f"{NAMES[number]}: {mean:.2f}") for x, mean, _ in points)
        parts.append(f'<g class="s{number}">{_line(way, number)}{whiskers}{marks}</g>')
    told = escaped(f"{metric} by portion of the training data, from scratch and begun; the table has the numbers")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{told}">{"".join(parts)}</svg>'


def _line(way: str, place: int) -> str:
    return f'<path class="line" d="{way}"{" stroke-dasharray=" + chr(34) + "7 4" + chr(34) if place else ""}/>'


def _marker(x: float, y: float, place: int, told: str = "") -> str:
    title = f"<title>{escaped(told)}</title>" if told else ""
    if place:
        return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7">{title}</rect>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'

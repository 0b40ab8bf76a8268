"""An attention map as text: source tokens across, output tokens down, the darker the cell the larger the weight.

It makes lines and prints none. Tokens are data of the user: what would move the cursor or take no room is written
visibly. A map wider than the terminal becomes several panels, one below the other.
"""

from __future__ import annotations

import locale
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TextIO

from rich.cells import cell_len, set_cell_size

from seqloom.probe.explain import AttentionMap
from seqloom.specials import SPECIALS

Style = Literal["colour", "blocks", "ascii"]

LEAST, LONGEST = 2, 14  # columns of a cell; longer tokens are cut
GAP = 1
BLOCKS = " ░▒▓█"
ASCII = " .:=*#@"
COLOURS = (None, 61, 97, 133, 168, 209, 214)  # of the 256: from blue over purple to orange, on dark and on light
COLOUR_BLOCKS = " ░▒▒▓▓█"
BLANKS = {"\n": "⏎", "\t": "⇥"}  # others are ␣; pages draw the same
FAINT, RESET = "\x1b[2m", "\x1b[0m"


def style_of(stream: TextIO, environ: Mapping[str, str], encoding: str | None = None) -> Style:
    """What can be shown: colours on a terminal unless NO_COLOR is set, blocks where text is UTF-8, else plain ASCII.

    The encoding is the locale's: what a stream was told to write says nothing about what its terminal can read.
    """
    if not (encoding or locale.getencoding()).lower().startswith("utf"):
        return "ascii"
    plain = environ.get("NO_COLOR") or environ.get("TERM") == "dumb" or not stream.isatty()
    return "blocks" if plain else "colour"


def render(shown: AttentionMap, width: int, style: Style) -> list[str]:
    """The map's lines, none over `width` columns unless a single cell needs it; heads are averaged."""
    columns = [written(token, style) for token in shown.source]
    rows = [written(token, style) for token in shown.output]
    label = max(map(cell_len, rows), default=0)
    stub = _Stub(label, [f"{probability:.2f}" for probability in shown.probabilities])
    sizes = [max(LEAST, cell_len(column)) for column in columns]
    weights = shown.mean.tolist()
    lines: list[str] = []
    panels = list(_panels(sizes, width - stub.width))
    for first, last in panels:
        if len(panels) > 1:
            lines += [*([""] if lines else []), f"source tokens {first + 1} to {last} of {len(columns)}"]
        cells = range(first, last)
        header = "".join(_centred(columns[s], sizes[s]) + " " * GAP for s in cells)
        lines.append((stub.head() + header).rstrip())
        for t, row in enumerate(rows):
            shades = "".join(_shade(weights[t][s], sizes[s], style) + " " * GAP for s in cells)
            lines.append((stub.row(t, row) + shades).rstrip())
    return [*lines, _legend(style)]


@dataclass(frozen=True)
class _Stub:
    """The left end of each line: an output token and its probability."""

    label: int
    probabilities: Sequence[str]

    @property
    def width(self) -> int:
        return self.label + len("  0.00  ")

    def head(self) -> str:
        return " " * self.label + "     p  "

    def row(self, t: int, token: str) -> str:
        return f"{' ' * (self.label - cell_len(token))}{token}  {self.probabilities[t]}  "


def _panels(sizes: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Cut the columns so that each part fits, at least one column in each."""
    first, used = 0, 0
    for column, size in enumerate(sizes):
        if used + size > room and column > first:
            yield first, column
            first, used = column, 0
        used += size + GAP
    yield first, len(sizes)


def _shade(weight: float, size: int, style: Style) -> str:
    if style == "ascii":
        return _pick(ASCII, weight) * size
    if style == "blocks":
        return _pick(BLOCKS, weight) * size
    colour = COLOURS[_level(weight, len(COLOURS))]
    block = _pick(COLOUR_BLOCKS, weight) * size
    return block if colour is None else f"\x1b[38;5;{colour}m{block}{RESET}"


def _pick(ramp: str, weight: float) -> str:
    return ramp[_level(weight, len(ramp))]


def _level(weight: float, levels: int) -> int:
    """Equal steps, but nothing at all is drawn below a twentieth: noise there hides the pattern."""
    return 0 if weight < 0.05 else min(levels - 1, 1 + int(weight * (levels - 1)))


def _legend(style: Style) -> str:
    ramp = {"ascii": ASCII, "blocks": BLOCKS, "colour": COLOUR_BLOCKS}[style]
    steps = len(ramp) - 1
    bounds = [0.05, *(step / steps for step in range(1, steps)), 1.0]
    parts = [f"{_shade((low + high) / 2, 2, style)} {low:.2f}" for low, high in pairwise(bounds)]
    return "weight from: " + "  ".join(parts)


def written(token: str, style: Style) -> str:
    """A token as it can be shown: spaces, controls and lone accents made visible, long ones cut."""
    if token in SPECIALS:
        return token
    visible = "".join(_visible(character, style) for character in token) or "''"
    if cell_len(visible) == 0:  # a lone accent needs something to stand on
        visible = "\u25cc" + visible
    if cell_len(visible) > LONGEST:
        visible = set_cell_size(visible, LONGEST - 1).rstrip() + ("~" if style == "ascii" else "…")
    return visible


def _visible(character: str, style: Style) -> str:
    if character.isspace():
        return "_" if style == "ascii" else BLANKS.get(character, "␣")
    if not character.isprintable() or (style == "ascii" and not character.isascii()):
        return ascii(character)[1:-1]  # \x1b, \u65e5
    return character


def _centred(text: str, size: int) -> str:
    left = (size - cell_len(text)) // 2
    return " " * left + text + " " * (size - cell_len(text) - left)

"""What a model makes of its sources: `state_map` draws their states in two dimensions, `neighbours` finds what is near.

    state_map(model, examples, colour="length")       where the sources of a test set lie, by PCA
    neighbours(model, ["a text"])                      the training examples whose states are nearest

Which vector stands for a source is said in `probe/states.py`. Nothing is printed here and no file is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from string import ascii_lowercase

import numpy as np
import torch

from seqloom.api.datasets import Datasets
from seqloom.api.model import Model
from seqloom.config import Plain
from seqloom.data.batching import in_order
from seqloom.data.codecs import Encoded
from seqloom.data.examples import Inputs
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.errors import nearest as nearest_name
from seqloom.probe.states import Measure, Nearest, Which, nearest, principal, source_states
from seqloom.shapes import Float, Tensor

BATCH_TOKENS = 8192
BLOCK = 131_072  # training examples whose states exist at once
SHADES = "0123456789"  # of a number, from the smallest to the largest
ROWS = 20  # of a map in a terminal


@dataclass(frozen=True)
class Point:
    """One source on the map; `value` is what it is coloured by: a number, or a label."""

    text: str
    x: float
    y: float
    length: int  # tokens of the source's own text
    value: float | str


@dataclass(frozen=True)
class StateMap:
    """The states of many sources on the two directions of largest variance."""

    points: tuple[Point, ...]
    explained: tuple[float, ...]  # the share of all variance along x, and along y
    colour: str
    which: Which

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [
            {"text": point.text, "x": point.x, "y": point.y, "length": point.length, self.colour_key: point.value}
            for point in self.points
        ]
        return {"which": self.which, "colour": self.colour, "explained": list(self.explained), "points": rows}

    @property
    def colour_key(self) -> str:
        return "value" if self.colour in ("text", "x", "y", "length") else self.colour

    def lines(self, width: int = 80) -> list[str]:
        """The map in characters: digits from the smallest value to the largest, letters for labels."""
        marks, legend = _marks([point.value for point in self.points])
        columns = max(10, width)
        xs, ys = [point.x for point in self.points], [point.y for point in self.points]
        cells: dict[tuple[int, int], list[str]] = {}
        for x, y, mark in zip(xs, ys, marks, strict=True):
            place = (
                round(_within(-y, -max(ys), -min(ys)) * (ROWS - 1)),
                round(_within(x, min(xs), max(xs)) * (columns - 1)),
            )
            cells.setdefault(place, []).append(mark)
        drawn = [
            "".join(_usual(cells.get((row, column), [" "])) for column in range(columns)).rstrip()
            for row in range(ROWS)
        ]
        shares = " and ".join(f"{100 * share:.1f} %" for share in self.explained)
        head = (
            f"{len(self.points):,} states ({self.which}), across and down {shares} of their variance, by {self.colour}"
        )
        return [head, *drawn, *legend]


@dataclass(frozen=True)
class Neighbour:
    """A training example and how far its state is."""

    example: Example
    distance: float


@dataclass(frozen=True)
class Neighbours:
    """The training examples whose states are nearest to a text's, nearest first."""

    text: str
    measure: Measure
    which: Which
    among: int
    near: tuple[Neighbour, ...]

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [
            {
                "source": one.example.source,
                **one.example.extras,
                "target": one.example.target,
                "where": one.example.where,
                "distance": one.distance,
            }
            for one in self.near
        ]
        return {
            "text": self.text,
            "measure": self.measure,
            "which": self.which,
            "among": self.among,
            "neighbours": rows,
        }

    def lines(self, width: int = 80) -> list[str]:
        rows = [f"{one.distance:8.4f}  {_pair(one.example)}"[:width] for one in self.near]
        return [f"{self.text}: nearest of {self.among:,} by {self.measure}", *rows]


def asked(model: Model, example: Example) -> Inputs:
    """What this model reads of an example; columns that it does not know (labels) are left out."""
    known = {name: text for name, text in example.extras.items() if name in model.codecs.extras}
    return {"source": example.source, **known} if known else example.source


def looked_at(model: Model, example: Example) -> Inputs:
    """What stands for an example: its source; of a language model the whole text, which it reads as a beginning."""
    if not model.codecs.continues:
        return asked(model, example)
    return " ".join(part for part in (example.source, example.target) if part)


def labels_of(examples: Sequence[Example], column: str) -> list[str]:
    """The labels of examples: one of the extras that they were read with."""
    for example in examples:
        if column not in example.extras:
            what = f"no column is called {column!r}{nearest_name(column, example.extras)}"
            fix = f"read it beside the texts: --data '{{path: FILE, extras: {{{column}: 2}}}}'"
            raise SeqloomError("E_USAGE", what, where=example.where, fix=fix)
    return [example.extras[column] for example in examples]


def states_of(model: Model, encoded: Sequence[Encoded], which: Which = "summary") -> Float[Tensor, "n D"]:
    """One vector for each input, in order, on the CPU."""
    lengths = np.array([read.length for read in encoded], dtype=np.int64)
    found: list[Tensor | None] = [None] * len(encoded)
    for batch in in_order(lengths, BATCH_TOKENS):
        states = source_states(model.network, model.sources([encoded[i] for i in batch]), which).cpu()
        for row, i in enumerate(batch):
            found[i] = states[row]
    return torch.stack([state for state in found if state is not None])


def within_limits(model: Model, inputs: Inputs, where: str) -> Encoded:
    """One input as the model reads it; E_LONG where it is over the recipe's maximum."""
    read, most = model.codecs.encode(inputs), _most(model)
    if read.own > most:
        what = f"a source of {read.own:,} tokens, the recipe's maximum is {most:,}"
        raise SeqloomError("E_LONG", what, where=where, fix="shorten it, or leave it out")
    return read


def _most(model: Model) -> int:
    """How many tokens may stand for an example; texts of a language model are its targets."""
    limits = model.recipe.data.limits
    return limits.max_target if model.codecs.continues else limits.max_source


def state_map(
    model: Model,
    examples: Sequence[Example],
    colour: str = "length",
    which: Which = "summary",
    labels: Sequence[str] | None = None,
) -> StateMap:
    """Where the states of the examples' sources lie.

    `colour` is length (source tokens), score (the mean log-probability per token of the first reference) or the name of
    a column that was read beside the texts; `labels`, where given, are one for each example, and `colour` their name.
    """
    if len(examples) < 2:
        raise SeqloomError("E_EMPTY", f"{len(examples)} example(s): a map needs at least 2")
    inputs = [looked_at(model, example) for example in examples]
    encoded = [within_limits(model, one, example.where) for one, example in zip(inputs, examples, strict=True)]
    components = principal(states_of(model, encoded, which))
    lengths = [read.own for read in encoded]
    values: Sequence[float | str]
    if labels is not None:
        if len(labels) != len(examples):
            raise SeqloomError("E_ALIGN", f"{len(labels):,} labels for {len(examples):,} examples")
        values = labels
    elif colour == "length":
        values = lengths
    elif colour == "score":
        pairs = ((asked(model, example), example.target) for example in examples)
        values = [score.log_prob / len(score.token_scores) for score in model.score(pairs)]
    else:
        values = labels_of(examples, colour)
    points = [
        Point(example.shown or example.target, float(x), float(y), length, value)
        for example, (x, y), length, value in zip(examples, components.points.tolist(), lengths, values, strict=True)
    ]
    return StateMap(tuple(points), components.shares, colour, which)


def neighbours(
    model: Model,
    texts: Sequence[Inputs],
    training: Iterable[Example] | None = None,
    *,
    k: int = 5,
    measure: Measure = "cosine",
    which: Which = "summary",
) -> list[Neighbours]:
    """The k examples (default: of the run's training data) whose states are nearest to each text's.

    Exact, and in blocks: any number of training examples passes through. Those over the recipe's maximum, which
    training left out, are passed over. Distances are 1 - cosine, or Euclidean.
    """
    if k < 1:
        raise SeqloomError("E_USAGE", f"{k} neighbours: at least 1")
    if not texts:
        return []
    queries = states_of(
        model, [within_limits(model, text, f"text {i}") for i, text in enumerate(texts, start=1)], which
    )
    best, kept, among = Nearest.none(len(texts)), dict[int, Example](), 0
    for block in readable(model, Datasets(model.recipe.data).train() if training is None else training):
        keys = states_of(model, [read for _, read in block], which)
        best = best.merged(nearest(queries, keys, k, measure, first=among), k)
        kept |= {i: block[i - among][0] for i in best.keys.flatten().tolist() if i >= among}
        among += len(block)
    if not among:
        raise SeqloomError("E_EMPTY", "no training examples to look among", fix="name a data file")
    return [
        Neighbours(
            _shown(text),
            measure,
            which,
            among,
            tuple(Neighbour(kept[i], distance) for i, distance in zip(row.tolist(), distances.tolist(), strict=True)),
        )
        for text, row, distances in zip(texts, best.keys, best.distances, strict=True)
    ]


def readable(model: Model, examples: Iterable[Example], size: int = BLOCK) -> Iterator[list[tuple[Example, Encoded]]]:
    """Examples that training would have accepted, with what the model reads of them."""
    most = _most(model)
    read = ((example, model.codecs.encode(looked_at(model, example))) for example in examples)
    accepted = ((example, encoded) for example, encoded in read if encoded.own <= most)
    while block := list(islice(accepted, size)):
        yield block


def _pair(example: Example) -> str:
    """An example on one line; a text of a language model has no source."""
    return f"{example.shown}  ->  {example.target}" if example.shown else example.target


def _shown(text: Inputs) -> str:
    if isinstance(text, str):
        return text
    beside = ", ".join(value for name, value in text.items() if name != "source")
    return f"{text['source']} [{beside}]" if beside else text["source"]


def _within(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _marks(values: Sequence[float | str]) -> tuple[list[str], list[str]]:
    """A character for each value, and what the characters mean."""
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) == len(values):
        low, high = min(numbers), max(numbers)
        marks = [SHADES[min(9, int(10 * _within(value, low, high)))] for value in numbers]
        return marks, [f"0: {low:.4g} ... 9: {high:.4g}" if high > low else f"{marks[0]}: {low:.4g}, all of them"]
    names = sorted({str(value) for value in values}, key=lambda name: (-[*map(str, values)].count(name), name))
    letters = {name: ascii_lowercase[i] if i < len(ascii_lowercase) else "+" for i, name in enumerate(names)}
    legend = [f"{letter}: {name}" for name, letter in letters.items() if letter != "+"]
    others = len(names) - len(legend)
    return [letters[str(value)] for value in values], [*legend, *([f"+: {others:,} others"] if others else [])]


def _usual(marks: Sequence[str]) -> str:
    """The most frequent of several characters that fall on one place; of equal ones the first."""
    return max(dict.fromkeys(marks), key=list(marks).count)

"""Training examples near a text: the states of a run's examples are worked out once, a little at a time, and kept.

Between two blocks of them others are answered. Only the first examples are looked among: a server must not hold a whole
corpus, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from seqloom.api.datasets import Datasets
from seqloom.api.model import Model
from seqloom.api.states import Neighbour, Neighbours, readable, states_of, within_limits
from seqloom.config import Plain
from seqloom.data.examples import Example, Inputs
from seqloom.errors import SeqloomError
from seqloom.probe.states import nearest
from seqloom.shapes import Tensor

MOST = 20_000  # examples of a run
BLOCK = 256


class _Gathered:
    """Examples of one model and their states, as many as were read so far."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.examples: list[Example] = []
        self.states: list[Tensor] = []
        self._blocks = readable(model, islice(Datasets(model.recipe.data).train(), MOST), BLOCK)

    def read(self) -> Iterator[int]:
        """Go on reading where somebody stopped: how many there are, after every block."""
        try:
            for block in self._blocks:
                self.states.append(states_of(self.model, [read for _, read in block]))
                self.examples += [example for example, _ in block]
                yield len(self.examples)
        except SeqloomError as error:
            if error.code not in ("E_FILE", "E_DATA", "E_ALIGN", "E_UTF8"):
                raise
            what = "the training data of this run cannot be read here"  # where they lie is not for everybody to know
            raise SeqloomError("E_USAGE", what, fix="serve it where it was trained") from None


class Nearby:
    """Of every run that somebody has asked about, examples and their states."""

    def __init__(self) -> None:
        self._gathered: dict[str, _Gathered] = {}

    def steps(self, model: Model, inputs: Inputs, count: int) -> Iterator[int | dict[str, Plain]]:
        """How many examples have been read so far, and at last those that are near."""
        text, _ = model.codecs.texts(inputs)
        query = within_limits(model, inputs, "the text")
        if not text.strip() or not query.own:
            raise SeqloomError("E_USAGE", "an empty text has no neighbours", fix="give a text")
        found = self._gathered.get(model.name)
        if found is None or found.model is not model:  # loaded anew: its states are others
            found = self._gathered[model.name] = _Gathered(model)
        try:
            yield from found.read()
        except SeqloomError:
            del self._gathered[model.name]
            raise
        if not found.examples:
            raise SeqloomError("E_EMPTY", "no training examples to look among", fix="serve it where it was trained")
        best = nearest(states_of(model, [query]), torch.cat(found.states), count)
        near = [
            Neighbour(found.examples[place], distance)
            for place, distance in zip(best.keys[0].tolist(), best.distances[0].tolist(), strict=True)
        ]
        told = Neighbours(text, "cosine", "summary", len(found.examples), tuple(near)).as_dict()
        yield {**told, "neighbours": [_shown(one) for one in near]}


def _shown(one: Neighbour) -> dict[str, Plain]:
    """Without the place in the server's files."""
    example = one.example
    return {
        "source": example.name or example.source,
        **example.extras,
        "target": example.target,
        "line": example.line,
        "distance": one.distance,
    }

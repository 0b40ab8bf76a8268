"""`gradients_by_distance(model, examples)`: does what was read long ago still reach the loss? See `probe/gradients.py`.

Nothing is printed here, no file is written and no weight changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.api.model import Model
from seqloom.api.score import refuse_long
from seqloom.api.states import asked
from seqloom.batch import Batch
from seqloom.config import Plain
from seqloom.data.batching import collate_pairs, in_order
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.probe.gradients import Curve, Norms, chain, gradient_norms, watched

EXAMPLES = 32  # every target token of every one of them is a backward pass
BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Gradients:
    """A curve for every place of the model whose states were looked at."""

    examples: int
    curves: tuple[Curve, ...]

    def as_dict(self) -> dict[str, Plain]:
        return {"examples": self.examples, "curves": [curve.as_dict() for curve in self.curves]}

    def lines(self, width: int = 80) -> list[str]:
        lines = [f"norm of d loss_t / d h_s by distance, over {self.examples:,} example(s)"]
        for curve in self.curves:
            lines += ["", *curve.lines(width)]
        return lines


def gradients_by_distance(
    model: Model, examples: Sequence[Example], layer: int | None = None, most: int = EXAMPLES
) -> Gradients:
    """Over the first `most` examples and their first references; `layer` counts from 1, by default the top one."""
    places = watched(model.network, layer)
    batches = forced_batches(model, examples[:most], BATCH_TOKENS)
    found: list[list[Norms]] = [gradient_norms(model.network, batch, places) for batch in batches]
    curves = [
        Curve.of(str(place), Norms.joined(norms), chain(model.network, batches[0], place))
        for place, norms in zip(places, zip(*found, strict=True), strict=True)
    ]
    return Gradients(len(examples[:most]), tuple(curves))


def forced_batches(model: Model, examples: Sequence[Example], tokens: int) -> list[Batch]:
    """The examples with their first references as batches on the model's device, the longest first."""
    if not examples:
        raise SeqloomError("E_EMPTY", "no examples to look at")
    for example in examples:
        refuse_long(model, example)
    pairs = [model.codecs.pair(asked(model, one), one.target, place) for place, one in enumerate(examples)]
    lengths = np.array([max(read.length, len(pair.target)) for pair, read in pairs], dtype=np.int64)
    return [collate_pairs([pairs[i][0] for i in rows]).to(model.device) for rows in in_order(lengths, tokens)]

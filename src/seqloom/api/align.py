"""Word alignments of given pairs: by what one model looked at, or by two models of both directions together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float32

from seqloom.api.attended import no_attention
from seqloom.api.model import Model
from seqloom.api.reading import CHUNK_LINES
from seqloom.api.score import refuse_long
from seqloom.data.batching import collate_pairs, in_order
from seqloom.data.codecs import Pair
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.metrics.links import Gold, Links, grow_diagonal, turned
from seqloom.probe.align import Looked, Picks, tuned

BATCH_TOKENS = 4096  # the weights of all layers and heads are kept


@dataclass(frozen=True)
class Aligner:
    """Who is asked, and whose weights are believed: a model, and perhaps one of the other direction."""

    model: Model
    reverse: Model | None = None
    join: Callable[[Links, Links], Links] = grow_diagonal
    picks: Picks = field(default_factory=Picks)
    reverse_picks: Picks = field(default_factory=Picks)

    def aligned(self, examples: Iterable[Example], chunk: int = CHUNK_LINES) -> Iterator[tuple[Example, Links]]:
        """Every example with the links (source word, target word) of its first reference, words counted from 0."""
        iterator = iter(examples)
        while part := list(islice(iterator, chunk)):
            found = [one.links(self.picks) for one in looked(self.model, part)]
            if self.reverse is not None:
                backward = [turned(one.links(self.reverse_picks)) for one in looked(self.reverse, _swapped(part))]
                found = [self.join(*both) for both in zip(found, backward, strict=True)]
            yield from zip(part, found, strict=True)

    def tuned(self, examples: Sequence[Example], gold: Sequence[Gold]) -> Aligner:
        """The same with the layer, head and step of each model that come nearest to people's links."""
        picks, _ = tuned(list(looked(self.model, examples)), gold, self.picks)
        if self.reverse is None:
            return replace(self, picks=picks)
        other = [Gold(turned(one.sure), turned(one.possible)) for one in gold]
        reverse_picks, _ = tuned(list(looked(self.reverse, _swapped(examples))), other, self.reverse_picks)
        return replace(self, picks=picks, reverse_picks=reverse_picks)


def looked(model: Model, examples: Sequence[Example]) -> Iterator[Looked]:
    """What a model looked at while it read each example's first reference, in order."""
    if not model.network.attention_taps:
        raise no_attention("name another run")
    for example in examples:
        refuse_long(model, example)
    pairs = [model.codecs.pair(example.inputs, example.target, place) for place, example in enumerate(examples)]
    lengths = np.array([max(read.length, len(pair.target)) for pair, read in pairs], dtype=np.int64)
    found: dict[int, Looked] = {}
    for places in in_order(lengths, BATCH_TOKENS):
        layers = _attention(model, [pairs[place][0] for place in places])
        for row, place in enumerate(places):
            (pair, read), example = pairs[place], examples[place]
            last, steps = len(read.source), len(pair.target) + 1
            weights = layers[row, :, :, :steps, last - read.own : last]
            words = model.source.words(example.source), model.target.words(example.target)
            found[place] = Looked(weights, *words)
    return (found[place] for place in range(len(examples)))


@torch.inference_mode()
def _attention(model: Model, pairs: Sequence[Pair]) -> Float32[np.ndarray, "B L H E S"]:
    with model.precision():
        layers = model.network.attention(collate_pairs(pairs).to(model.device))
    return torch.stack(layers, dim=1).float().cpu().numpy()


def _swapped(examples: Iterable[Example]) -> list[Example]:
    """The same pairs for a model of the other direction."""
    turned_round = []
    for example in examples:
        if example.extras:
            what = "pairs with extras cannot be turned round: what a model of the other direction reads is not known"
            raise SeqloomError("E_USAGE", what, where=example.where, fix="leave --reverse out")
        turned_round.append(replace(example, source=example.target, references=(example.source,), links=None))
    return turned_round

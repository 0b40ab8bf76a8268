"""Log-probabilities of given pairs: how likely a model finds targets that somebody else wrote.

Pairs stream through in chunks; a pair over the recipe's limits is refused with its line, never cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from seqloom.api.labelled import refuse_unfit
from seqloom.api.model import Model, PairScore
from seqloom.api.reading import CHUNK_LINES
from seqloom.data.readers import Example
from seqloom.data.source import SourceCodec
from seqloom.errors import SeqloomError
from seqloom.metrics.perplexity import perplexity


@dataclass
class ScoreTotal:
    """Sums over the pairs scored so far; what cannot be said at all would be all that they show, and stays outside."""

    pairs: int = 0
    unsaid: int = 0  # of these pairs: log P = -inf
    tokens: int = 0  # the end of each target included
    log_prob: float = 0.0

    def add(self, score: PairScore) -> None:
        self.pairs += 1
        if not math.isfinite(score.log_prob):
            self.unsaid += 1
            return
        self.tokens += len(score.token_scores)
        self.log_prob += score.log_prob

    @property
    def perplexity(self) -> float:
        return perplexity(-self.log_prob, self.tokens)


def score_examples(model: Model, examples: Iterable[Example], chunk: int = CHUNK_LINES) -> Iterator[PairScore]:
    """log P(target given source) of each example's first reference, in order, however long the input is."""
    iterator = iter(examples)
    while batch := list(islice(iterator, chunk)):
        for example in batch:
            refuse_long(model, example)
        refuse_unfit(model, batch)
        yield from model.score((example.inputs, example.target) for example in batch)


def refuse_long(model: Model, example: Example) -> None:
    """E_LONG for a pair that is over the recipe's limits."""
    limits = model.recipe.data.limits
    sides: tuple[tuple[str, SourceCodec, str, int], ...] = (
        ("source", model.codecs.source, example.source, limits.max_source),
        ("target", model.target, example.target, limits.max_target),
    )
    for side, codec, text, most in sides:
        short = not codec.settings.in_files and len(text) <= most // 8  # bytes: a character is at most 4 tokens
        count = 0 if short else codec.length(text)
        if count > most:
            raise SeqloomError(
                "E_LONG",
                f"a {side} of {count:,} {codec.unit}s, the recipe's maximum is {most:,}",
                where=example.where,
                fix=f"shorten the pair, or train with a larger data.limits.max_{side}",
            )

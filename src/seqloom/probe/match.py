"""Which words carry a match: the similarity that is lost when a word is left out, and what pooling made of it.

Leaving out asks the model itself and holds for every encoder and pooling; the weights of attention pooling are told
beside it, and are no proof of anything. Nothing here knows text: words are numbers of groups of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from seqloom.batch import Tokens
from seqloom.models.dual import POOLING
from seqloom.nn.tape import Tape
from seqloom.shapes import Float, Tensor

VectorsOf = Callable[[Tokens], Float[Tensor, "B D"]]


@dataclass(frozen=True)
class Carried:
    """Of each word of one text: how much lower the similarity is without it, and its share of the pooling."""

    lost: tuple[float, ...]
    pooled: tuple[float, ...] | None  # None where no attention pools


@torch.no_grad()
def carried(vectors_of: VectorsOf, ids: Sequence[int], words: Sequence[int], other: Float[Tensor, "D"]) -> Carried:
    """What each word of a text does for its similarity with `other`.

    `words` says of which word, from 0 up, each token is a part; -1: of none, and it stays.
    """
    count = max(words, default=-1) + 1
    scores = vectors_of(_texts(ids, words, [None, *range(count)])) @ other  # 1 + words: the whole text first
    lost = (scores[0] - scores[1:]).tolist()
    with Tape(POOLING) as tape:
        vectors_of(_texts(ids, words, [None]))
    if not tape.steps(POOLING):
        return Carried(tuple(lost), None)
    weights = tape.joined(POOLING, dim=2)[0, :, 0].mean(0).tolist()  # S: of all heads together
    shares = [sum(w for w, word in zip(weights, words, strict=True) if word == one) for one in range(count)]
    return Carried(tuple(lost), tuple(shares))


def _texts(ids: Sequence[int], words: Sequence[int], left_out: Sequence[int | None]) -> Tokens:
    """The text once without each of these words; its words are counted anew, for encoders that ask for them."""
    kept = [[place for place, word in enumerate(words) if word != one] for one in left_out]
    tokens = Tokens.pad([[ids[place] for place in row] for row in kept])
    counted = [
        [words[place] - (one is not None and words[place] > one) for place in row]
        for row, one in zip(kept, left_out, strict=True)
    ]
    return replace(tokens, words=Tokens.pad(counted, fill=-1).ids)

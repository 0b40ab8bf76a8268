"""What attention is good for after a search: outputs that left out a part of the source, and unknown words.

Weights are those of one forced pass over the finished output (law 1), of the last layer, averaged over its heads, over
the tokens of the source's own text: its end and what stands beside it are left out. Of an ensemble they are its first
member's. Nothing here searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64

from seqloom.batch import Batch, Tokens
from seqloom.config import kind_of
from seqloom.data.codecs import Encoded
from seqloom.errors import SeqloomError
from seqloom.search.hypotheses import Hypothesis
from seqloom.specials import EOS, UNK

if TYPE_CHECKING:
    from seqloom.api.model import Model

LEAST = 1e-6  # of a token's coverage: where nothing was looked at, the penalty is large and still a number

Weights = Float64[np.ndarray, "T S"]


def covered(
    model: Model, sources: Sequence[Encoded], found: Sequence[Sequence[Hypothesis]], beta: float
) -> list[list[Hypothesis]]:
    """The hypotheses of every source in a new order: score + beta * sum over i of log min(sum over t of a_ti, 1).

    (Wu et al. 2016, equation 14.) Only `score` changes. Those that ended stay before those that were cut off.
    """
    again: list[list[Hypothesis]] = [[] for _ in sources]
    for rank in range(max(map(len, found), default=0)):
        rows = [row for row, hypotheses in enumerate(found) if rank < len(hypotheses)]
        weights = attended(model, [sources[row] for row in rows], [found[row][rank] for row in rows])
        for row, looked in zip(rows, weights, strict=True):
            penalty = float(np.log(looked.sum(0).clip(LEAST, 1.0)).sum())
            hypothesis = found[row][rank]
            again[row].append(replace(hypothesis, score=hypothesis.score + beta * penalty))
    return [sorted(hypotheses, key=lambda one: (one.truncated, -one.score)) for hypotheses in again]


def known_pieces(model: Model, text: str, encoded: Encoded, hypothesis: Hypothesis, pieces: Sequence[str]) -> list[str]:
    """An output's pieces with each unknown one replaced by the source's that was looked at most.

    Where both sides are cut in the same way the piece itself is taken, otherwise what it reads as.
    """
    if UNK not in hypothesis.tokens:
        return list(pieces)
    (looked,) = attended(model, [encoded], [hypothesis])
    own = model.source.tokens(text)
    if kind_of(model.source.settings.tokenizer) != kind_of(model.target.settings.tokenizer):
        own = [model.source.tokenizer.surface(piece) for piece in own]
    return [
        own[int(looked[place].argmax())] if token == UNK else piece
        for place, (token, piece) in enumerate(zip(hypothesis.tokens, pieces, strict=True))
    ]


@torch.inference_mode()
def attended(model: Model, sources: Sequence[Encoded], said: Sequence[Hypothesis]) -> list[Weights]:
    """The weights of one output per source: a row for each of its tokens, and one for its end where it ended."""
    target = Tokens.pad([[*hypothesis.tokens, EOS] for hypothesis in said]).to(model.device)
    layers = model.network.attention(Batch(model.sources(sources), target))
    if not layers:
        raise no_attention()
    weights = layers[-1].mean(1).double().cpu().numpy()  # B T S
    assert weights.shape[2] >= max(len(encoded.source) for encoded in sources), "a weight for every token of the source"
    found = []
    for row, (encoded, hypothesis) in enumerate(zip(sources, said, strict=True)):
        last = len(encoded.source)
        steps = len(hypothesis.tokens) + (not hypothesis.truncated)
        found.append(weights[row, :steps, last - encoded.own : last])
    return found


def no_attention(instead: str = "leave coverage_penalty and replace_unknown out") -> SeqloomError:
    what = "this model has no attention to say which source word an output word came from"
    fix = f"{instead}, or train a decoder with attention (model.decoder.kind: luong)"
    return SeqloomError("E_USAGE", what, fix=fix)

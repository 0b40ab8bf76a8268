"""Passes of a decoder over a batch, compared in pieces: log-probabilities of a large vocabulary never exist whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.utils.checkpoint import checkpoint

from seqloom.batch import Tokens
from seqloom.models.contracts import Head, State
from seqloom.nn.layers import cells
from seqloom.shapes import Features, Float, Tensor

CHUNK_CELLS = 1 << 25  # log-probabilities beyond this many cells never exist whole
FLOOR = -1e4  # stands for -inf: what neither side may say adds nothing, where -inf minus -inf would add NaN

Pass = tuple[Features, State]  # what a decoder made of the target, and the state that its head may look at
Compare = Callable[[Sequence[Pass], Tokens], Float[Tensor, "M"]]


def in_pieces(compare: Compare, passes: Sequence[Pass], target: Tokens, vocabulary: int) -> Float[Tensor, "M"]:
    """What `compare` makes of passes over the same N rows, at the M real positions.

    Cut by rows and not by positions, because a head may look at its row's state. Each piece is computed again in the
    backward pass.
    """
    count, steps = target.mask.shape
    rows = max(1, cells(CHUNK_CELLS, passes[0][0]) // max(1, steps * vocabulary))
    if count <= rows:
        return compare(passes, target)
    parts = []
    for index in torch.split(torch.arange(count, device=target.mask.device), rows):
        cut = [(features[index], state.select(index, index)) for features, state in passes]
        part: Tensor = checkpoint(compare, cut, target.rows(index), use_reentrant=False, preserve_rng_state=False)
        parts.append(part)
    return torch.cat(parts)


def log_probs(head: Head, one: Pass, target: Tokens) -> Float[Tensor, "M W"]:
    """At the M real positions, and finite."""
    return target.real(head.log_probs(*one)).clamp(min=FLOOR)

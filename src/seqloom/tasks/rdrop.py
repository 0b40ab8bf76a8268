"""R-Drop (Liang et al. 2021): two passes with other dropout must agree on what comes next.

loss = (nll_p + nll_q) / 2 + alpha / 4 * (KL(p || q) + KL(q || p)), per target token: half of the paper's, so that the
paper's alpha means the same here and alpha = 0 is the plain loss. This file compares the passes; it runs neither: they
are the two halves of one pass over the batch and itself.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from seqloom.batch import Tokens
from seqloom.models.contracts import Head, State
from seqloom.nn.layers import cells
from seqloom.shapes import Features, Float, Tensor

CHUNK_CELLS = 1 << 25  # log-probabilities beyond this many cells never exist whole
FLOOR = -1e4  # stands for -inf: what neither pass may say adds nothing, where -inf minus -inf would add NaN

Pass = tuple[Features, State]  # what the decoder made of the target, and the state that its head may look at


def halves(head: Head, both: tuple[Float[Tensor, "twice T D"], State]) -> tuple[Pass, Pass]:
    """The passes over the first and the second half of the rows. Only a head that copies looks at the state."""
    features, state = both
    one, other = features.chunk(2)
    if not head.copies:
        return (one, state), (other, state)
    first, second = torch.arange(len(features), device=features.device).chunk(2)
    return (one, state.select(first, first)), (other, state.select(second, second))


def divergence(head: Head, one: Pass, other: Pass, target: Tokens, vocabulary: int) -> Float[Tensor, "M"]:
    """KL(p || q) + KL(q || p) at the M real positions of two passes over the same N rows.

    Cut by rows and not by positions, because a head may look at its row's state.
    """
    count, steps = target.mask.shape
    rows = max(1, cells(CHUNK_CELLS, one[0]) // max(1, steps * vocabulary))
    if count <= rows:
        return _apart(head, one, other, target)
    parts = []
    for index in torch.split(torch.arange(count, device=target.mask.device), rows):
        first, second = ((features[index], state.select(index, index)) for features, state in (one, other))
        apart: Tensor = checkpoint(
            _apart, head, first, second, target.rows(index), use_reentrant=False, preserve_rng_state=False
        )
        parts.append(apart)
    return torch.cat(parts)


def _apart(head: Head, one: Pass, other: Pass, target: Tokens) -> Float[Tensor, "M"]:
    p, q = (target.real(head.log_probs(*passed)).clamp(min=FLOOR) for passed in (one, other))  # M W
    return ((p.exp() - q.exp()) * (p - q)).sum(-1)  # both divergences at once: sum p (p - q) + sum q (q - p), in logs

"""R-Drop (Liang et al. 2021): two passes with other dropout must agree on what comes next.

loss = (nll_p + nll_q) / 2 + alpha / 4 * (KL(p || q) + KL(q || p)), per target token: half of the paper's, so that the
paper's alpha means the same here and alpha = 0 is the plain loss. This file compares the passes; it runs neither: they
are the two halves of one pass over the batch and itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqloom.batch import Tokens
from seqloom.models.contracts import Head, State
from seqloom.shapes import Float, Tensor
from seqloom.tasks.passes import Pass, in_pieces, log_probs


def halves(head: Head, both: tuple[Float[Tensor, "twice T D"], State]) -> tuple[Pass, Pass]:
    """The passes over the first and the second half of the rows. Only a head that copies looks at the state."""
    features, state = both
    one, other = features.chunk(2)
    if not head.copies:
        return (one, state), (other, state)
    first, second = torch.arange(len(features), device=features.device).chunk(2)
    return (one, state.select(first, first)), (other, state.select(second, second))


def divergence(head: Head, both: Sequence[Pass], target: Tokens, vocabulary: int) -> Float[Tensor, "M"]:
    """KL(p || q) + KL(q || p) at the M real positions of two passes over the same N rows."""

    def apart(passes: Sequence[Pass], gold: Tokens) -> Float[Tensor, "M"]:
        p, q = (log_probs(head, each, gold) for each in passes)  # M W
        return ((p.exp() - q.exp()) * (p - q)).sum(-1)  # both at once: sum p (p - q) + sum q (q - p), in logs

    return in_pieces(apart, both, target, vocabulary)

"""Distillation by tokens (Hinton et al. 2015, Kim and Rush 2016): a student learns its teachers' probabilities.

loss = (1 - w) nll + w sum over v of -p(v) log q(v), per target token: p the teachers' mean probability of each token v
after the gold history, q the student's. Several teachers together know more than any one of them, and one model then
does the work of all. Teachers read the batch as the student reads it, without dropout, and learn nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from pydantic import Field

from seqloom.batch import Batch, Tokens
from seqloom.config import Settings
from seqloom.models.contracts import Head
from seqloom.models.generator import Generator
from seqloom.shapes import Float, Tensor
from seqloom.tasks.passes import Pass, in_pieces, log_probs


class Teachers(Settings):
    """Trained runs of the same vocabularies, and how much their word counts beside the gold targets."""

    runs: tuple[str, ...] = Field(min_length=1)  # run or bundle folders; one of several seeds stands for all of them
    weight: float = Field(0.5, gt=0.0, le=1.0)


def taught(
    head: Head, passes: Sequence[Pass], teachers: Sequence[Generator], batch: Batch, vocabulary: int
) -> Float[Tensor, "M"]:
    """Cross-entropy of the student against its teachers at the M real positions, the mean over the student's passes."""
    assert batch.target is not None
    with torch.no_grad():
        theirs = [teacher.forced(batch) for teacher in teachers]

    def apart(cut: Sequence[Pass], gold: Tokens) -> Float[Tensor, "M"]:
        own, others = cut[: len(passes)], cut[len(passes) :]
        with torch.no_grad():
            told = (log_probs(teacher.head, one, gold).exp() for teacher, one in zip(teachers, others, strict=True))
            mean = reduce(torch.add, told) / len(teachers)  # M W
        return -torch.stack([(mean * log_probs(head, one, gold)).sum(-1) for one in own]).mean(0)

    return in_pieces(apart, [*passes, *theirs], batch.target, vocabulary)

"""One forced pair under a glass: cut out of its batch, copied so that every row asks something else, differentiable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch

from seqloom.batch import Batch, Frames, Source, Tokens
from seqloom.models.generator import Generator
from seqloom.specials import EOS

AT_ONCE = 4096  # positions of all rows of one call


def alone(batch: Batch) -> Batch:
    """The one pair of a batch, without padding."""
    assert len(batch) == 1, "one pair at a time"
    assert batch.target is not None
    target = _cut(batch.target)
    assert isinstance(target, Tokens)
    return Batch({name: _cut(source) for name, source in batch.sources.items()}, target)


def _cut(part: Source) -> Source:
    length = int(part.lengths[0])
    if isinstance(part, Frames):
        return Frames(part.values[:, :length], part.mask[:, :length])
    return replace(
        part,
        ids=part.ids[:, :length],
        mask=part.mask[:, :length],
        copies=None if part.copies is None else part.copies[:, :length],
    )


def unanswered(sources: Mapping[str, Source]) -> Batch:
    """Sources to which nothing has been said yet: their targets are the end alone."""
    mask = next(iter(sources.values())).mask[:, :1]
    return Batch(dict(sources), Tokens(torch.full_like(mask, EOS, dtype=torch.long), torch.ones_like(mask)))


def target_of(batch: Batch) -> Tokens:
    assert batch.target is not None
    return batch.target


def copied(batch: Batch, rows: int) -> Batch:
    """The one pair, so many times."""
    return batch.rows(torch.zeros(rows, dtype=torch.long, device=target_of(batch).ids.device))


def rows_at_once(batch: Batch) -> int:
    """How many copies of a pair one call may read."""
    positions = sum(source.mask.shape[1] for source in batch.sources.values()) + target_of(batch).mask.shape[1]
    return max(1, AT_ONCE // positions)


def source_places(network: Generator, batch: Batch) -> list[int]:
    """Where, among all that a step's weights are over, the source's positions and those of every extra stand.

    A memory is nothing else; where the decoder reads the sources itself there is more.
    """
    places = network.places(batch)
    if places is not None:
        return [int(place) for place in places.read[0]]
    return list(range(sum(source.mask.shape[1] for source in batch.sources.values())))


@contextmanager
def differentiable() -> Iterator[None]:
    """Inside, a model that only answers has gradients; cuDNN's recurrences have them only in training."""
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield

"""Attention within what was read: each encoder over its own source, and a decoder's comparison of several.

All maps are over the positions of the memory, the source's first and then each extra's, so that one name for every
position serves all. What looks at nothing (a bag) has rows of zeros.
"""

from __future__ import annotations

from seqloom.batch import Batch
from seqloom.models.generator import Generator
from seqloom.nn.tape import Tape
from seqloom.shapes import Float, Tensor


def within_taps(network: Generator) -> tuple[str, ...]:
    """The taps that `within_source` reads."""
    return (*_own(network), *network.decoder.between_taps)


def _own(network: Generator) -> tuple[str, ...]:
    """The taps of the source's own encoder, where it has one."""
    return tuple(name for encoder in network.readers()[:1] for name in encoder.self_taps)


def within_source(tape: Tape, network: Generator, batch: Batch) -> list[Float[Tensor, "B H S S"]]:
    """The encoder's layers, then the comparison; where its heads are not as many, their mean stands for each."""
    names = _own(network)
    maps = [_blocks(tape.steps(name), [name in one.self_taps for one in network.readers()], batch) for name in names]
    heads = {layer.shape[1] for layer in maps}
    for name in network.decoder.between_taps:
        [between] = tape.steps(name)
        if heads and heads != {between.shape[1]}:
            between = between.mean(1, keepdim=True).expand(-1, heads.pop(), -1, -1)
        maps.append(between)
    return maps


def _blocks(passes: list[Tensor], passing: list[bool], batch: Batch) -> Float[Tensor, "B H S S"]:
    """What passed one tap, source by source, each at its own positions; other encoders have other numbers of heads."""
    sizes = [source.mask.shape[1] for source in batch.sources.values()][: len(passing)]
    rows, heads = passes[0].shape[:2]
    found = passes[0].new_zeros(rows, heads, sum(sizes), sum(sizes))
    rest = iter(passes)
    for place, (size, passed) in enumerate(zip(sizes, passing, strict=True)):
        weights = next(rest) if passed else None
        if weights is not None and weights.shape[1] == heads:
            first = sum(sizes[:place])
            found[:, :, first : first + size, first : first + size] = weights
    return found

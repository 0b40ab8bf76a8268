"""Random numbers that belong to a source, not to a moment: (seed, source, sample, step) -> uniform in (0, 1).

A generator shared by the batch would give a source other numbers in other company. Here every number is a hash of
what it is for, so sampling obeys law 4: the same samples alone, in any batch, in any order, on any device.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from seqloom.batch import Source, Tokens
from seqloom.shapes import Float, Int, Tensor

# Odd 64-bit constants of the splitmix64 finaliser (Steele et al. 2014), signed, because torch's integers wrap around.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def _shifted(values: Int[Tensor, "*shape"], bits: int) -> Int[Tensor, "*shape"]:
    """Logical shift to the right: torch's own keeps the sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def mixed(values: Int[Tensor, "*shape"], with_: Int[Tensor, "*shape"] | int) -> Int[Tensor, "*shape"]:
    """A hash of a pair of 64-bit integers, in which every bit depends on every bit."""
    values = (values + _GOLDEN) * _FIRST ^ with_
    values = (values ^ _shifted(values, 30)) * _FIRST
    values = (values ^ _shifted(values, 27)) * _SECOND
    return values ^ _shifted(values, 31)


def fingerprints(sources: Mapping[str, Source], seed: int) -> Int[Tensor, "B"]:
    """One key per source, from what stands before the mask's end: padding, batch and order do not enter."""
    first = next(iter(sources.values())).mask
    keys = torch.full((first.shape[0],), seed, dtype=torch.long, device=first.device)
    for place, name in enumerate(sorted(sources)):
        terms = _contents(sources[name])  # B S
        positions = torch.arange(terms.shape[1], device=terms.device)
        terms = mixed(terms, positions.expand(terms.shape)) * sources[name].mask
        keys = mixed(keys + terms.sum(1), place)
    return keys


def _contents(source: Source) -> Int[Tensor, "B S"]:
    """An integer for every position: the token, or a hash of the frame's bits."""
    if isinstance(source, Tokens):
        return source.ids.long()
    bits = source.values.float().contiguous().view(torch.int32).long()  # B S F
    return mixed(bits, torch.arange(bits.shape[-1], device=bits.device).expand(bits.shape)).sum(-1)


def uniforms(keys: Int[Tensor, "B"], steps: Int[Tensor, "B"], samples: int) -> Float[Tensor, "B K"]:
    """One number strictly between 0 and 1 for every sample of every source at its step, in float64."""
    number = torch.arange(samples, device=keys.device).expand(len(keys), samples)
    hashes = mixed(mixed(keys[:, None].expand(number.shape), number), steps[:, None].expand(number.shape))
    return (_shifted(hashes, 11).double() + 0.5) * 2.0**-53

"""What does the single vector represent? States of many sources, seen from far (PCA) and from near (neighbours).

The state of a source is one vector, chosen by `which`:

    summary   what the encoder hands over to start the decoder: the last layer's final state, of an LSTM h and c side by
              side; of a Transformer, a convolution or a bag the mean of the states; of a model without an encoder
              (joint, language) the decoder's state from which the first token would be said
    mean      the mean of the states that attention looks at, over the real positions; without an encoder the mean of
              the decoder's states over what it has read by then

Nothing here reads text or files. At the end: where the states of layers and of single steps pass.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import nn

from seqloom.batch import Batch, Source
from seqloom.models.generator import Generator
from seqloom.nn.layers import mean_of_real
from seqloom.nn.tape import Tape
from seqloom.probe.pair import unanswered
from seqloom.shapes import Float, Int, Tensor

Which = Literal["summary", "mean"]
Measure = Literal["cosine", "l2"]
LARGE = 100_000  # keys from which on faiss, where it is installed, is worth a copy of them
CELLS = 1 << 24  # of a table of distances that exists at once


@torch.inference_mode()
def source_states(network: Generator, sources: Mapping[str, Source], which: Which = "summary") -> Float[Tensor, "B D"]:
    """One vector for each source."""
    network.eval()
    if memories := network.encode(sources):
        memory = memories["source"]
        if which == "mean":
            return mean_of_real(memory.states, memory.mask).float()
        return torch.cat(memory.summary[-1], dim=-1).float()
    batch = unanswered(sources)
    with Tape("decoder.states") as tape:
        network.forced(batch)
    states = tape.joined("decoder.states", dim=1)  # B P D
    last = reads_before(network, batch)
    if which == "mean":
        return mean_of_real(states, torch.arange(states.shape[1], device=last.device) <= last[:, None]).float()
    return states[torch.arange(len(last), device=last.device), last].float()


def reads_before(network: Generator, batch: Batch) -> Int[Tensor, "B"]:
    """How many tokens a decoder has read before the one that the target's first is said from; none after a memory."""
    places = network.places(batch)
    return torch.zeros_like(next(iter(batch.sources.values())).lengths) if places is None else places.said[:, 0]


# --- from far -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Components:
    """Points on the directions of largest variance, and the share of all variance that each direction explains."""

    points: Float[Tensor, "n C"]
    shares: tuple[float, ...]


def principal(states: Float[Tensor, "n D"], count: int = 2) -> Components:
    """PCA: X - mean = U S V^T, points U S, shares S^2 / sum S^2 (Pearson 1901). Exact, in float64.

    A direction and its opposite are equally good; the one is taken in which the largest weight (the first of equal
    ones) is positive, so that results repeat. Directions that the data do not have are zero.
    """
    centred = (states - states.mean(0, keepdim=True)).double()
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)  # k, k D
    kept = directions[:count]
    largest = kept.abs().argmax(1, keepdim=True)
    kept = kept * torch.where(kept.gather(1, largest) < 0, -1.0, 1.0)
    points = centred @ kept.T  # n c
    missing = count - points.shape[1]
    variance = sizes.square()
    whole = float(variance.sum())
    shares = [float(value) / whole if whole > 0 else 0.0 for value in variance[:count]] + [0.0] * missing
    return Components(torch.nn.functional.pad(points, (0, missing)), tuple(shares))


# --- from near ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nearest:
    """The nearest keys of each query, nearest first: their distances and their numbers."""

    distances: Float[Tensor, "q k"]
    keys: Int[Tensor, "q k"]

    @staticmethod
    def none(queries: int) -> Nearest:
        return Nearest(torch.empty(queries, 0), torch.empty(queries, 0, dtype=torch.long))

    def merged(self, other: Nearest, k: int) -> Nearest:
        """The k nearest of both; of equally near ones the first number comes first."""
        distances = torch.cat([self.distances, other.distances], dim=1)
        keys = torch.cat([self.keys, other.keys], dim=1)
        by_number = torch.argsort(keys, dim=1, stable=True)
        distances, keys = distances.gather(1, by_number), keys.gather(1, by_number)
        order = torch.argsort(distances, dim=1, stable=True)[:, :k]
        return Nearest(distances.gather(1, order), keys.gather(1, order))


def nearest(
    queries: Float[Tensor, "q D"], keys: Float[Tensor, "n D"], k: int, measure: Measure = "cosine", first: int = 0
) -> Nearest:
    """The k nearest keys by 1 - cosine, or by Euclidean distance; keys are numbered from `first` on.

    Exact. faiss, where it is installed and there are many keys, finds the same ones sooner: its flat indices look at
    every key as well.
    """
    if measure == "cosine":
        queries, keys = _unit(queries), _unit(keys)
    if not len(keys):
        return Nearest.none(len(queries))
    count = min(k, len(keys))
    if len(keys) > LARGE and importlib.util.find_spec("faiss") is not None:
        found = _by_faiss(queries, keys, count, measure)
        return Nearest.none(len(queries)).merged(Nearest(_apart(queries, keys[found], measure), found + first), count)
    best = Nearest.none(len(queries))
    size = max(1, CELLS // max(1, len(queries)))
    for begin in range(0, len(keys), size):
        part = keys[begin : begin + size]
        distances = 1 - queries @ part.T if measure == "cosine" else torch.cdist(queries, part)
        near = torch.topk(distances, min(count, len(part)), dim=1, largest=False).indices  # q k
        exactly = _apart(queries, part[near], measure)
        best = best.merged(Nearest(exactly, near + begin + first), count)
    return best


def _apart(queries: Float[Tensor, "q D"], found: Float[Tensor, "q k D"], measure: Measure) -> Float[Tensor, "q k"]:
    """Distances once more, without the cancellation of large products: equal vectors are 0 apart."""
    squares = (queries[:, None].double() - found.double()).square().sum(-1)
    return (squares / 2 if measure == "cosine" else squares.sqrt()).float()  # of unit vectors: |a - b|^2 = 2 - 2 cos


def _unit(vectors: Float[Tensor, "n D"]) -> Float[Tensor, "n D"]:
    return torch.nn.functional.normalize(vectors, dim=1)


def _by_faiss(
    queries: Float[Tensor, "q D"], keys: Float[Tensor, "n D"], k: int, measure: Measure
) -> Int[Tensor, "q k"]:
    import faiss

    index = (faiss.IndexFlatIP if measure == "cosine" else faiss.IndexFlatL2)(keys.shape[1])
    index.add(keys.float().numpy())
    return torch.from_numpy(index.search(queries.float().numpy(), k)[1]).long()


# --- where the states of layers and steps pass ----------------------------------------------------------------------


@runtime_checkable
class Layered(Protocol):
    """A stack whose layers let their states pass taps, one for each layer."""

    layer_taps: tuple[str, ...]


@runtime_checkable
class Recurrent(Protocol):
    """A stack of recurrences, whose states pass a tap at every step."""

    step_taps: tuple[str, ...]


def layer_taps(network: Generator, side: str) -> tuple[str, ...]:
    """The taps of the layers of one side ("encoder", "decoder"); of several encoders the source's own; or none."""
    found = [module for module in _parts(network, side) if isinstance(module, Layered)]
    return found[0].layer_taps if found else ()


def step_taps(network: Generator, side: str) -> tuple[str, ...]:
    """The taps of the steps of one side's recurrences, layer by layer, forward before backward; or none."""
    found = [module for module in _parts(network, side) if isinstance(module, Recurrent)]
    return found[0].step_taps if found else ()


def _parts(network: Generator, side: str) -> Iterator[nn.Module]:
    """A side and what it is made of, itself first."""
    if side == "decoder":
        yield from network.decoder.modules()
    else:
        for encoder in network.readers()[:1]:
            yield from encoder.modules()

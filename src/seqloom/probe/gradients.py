"""How far does a loss reach back? ||d loss_t / d h_s|| by the distance of s from t, and what the recurrence does to it.

    d loss_t / d h_s = d loss_t / d h_t  prod_{s <= i < t} d h_{i+1} / d h_i        (Bengio et al. 1994, Pascanu 2013)

loss_t is -log p(y_t given y_<t, x). h_s is the state after step s: for an LSTM h and c side by side, because both are
handed on. Derivatives are total: they take every way from h_s to loss_t, attention's short one as well. Distances are
steps in the order of reading, source and target as one sequence: a decoder's state s is t - s away, an encoder's state
s of L is L - s + t away. Without a recurrence (Transformer, convolution) h_s is a layer's state at position s.

The rate is the factor per step that fits best, log ||d loss_t / d h_s|| = a_t + distance log rate, with an a_t of its
own for every loss: sentences and tokens that are easy have small gradients everywhere, and that is not decay. A gated
recurrence drops in its first steps what nobody needs and then keeps the rest, so the farther half of the distances has
a rate of its own: that one tells vanishing (well below 1) from keeping (near 1). Where attention points at one word of
the source, an encoder's curve shows how far that word stands, and a rate tells little.

Nothing here reads text, prints, or changes a weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64

from seqloom.batch import Batch, Source, Tokens
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.nn.tape import Tape
from seqloom.probe.states import layer_taps, reads_before, step_taps
from seqloom.shapes import Float, Int, Tensor

SMALLEST = 1e-30  # what is smaller has lost its digits in float32 and says nothing about a rate
FEW, MOST_STEPS = 4, 64  # sentences and steps whose Jacobians are made: each is a matrix
ROWS = 16  # of a table in a terminal


@dataclass(frozen=True)
class Watched:
    """A place whose states are looked at."""

    tap: str
    encoder: bool
    steps: bool  # the tap is passed at every step, not once

    def __str__(self) -> str:
        side, *rest = self.tap.split(".")
        layer = f" layer {int(rest[0]) + 1}" if rest[0].isdigit() else ""
        backward = " read backwards" if rest[-1] == "backward" else ""
        return f"{side}{layer}{backward}" + (" inputs" if rest[-1] == "inputs" else "")


def watched(network: Generator, layer: int | None = None) -> list[Watched]:
    """Whose states are looked at: one layer of each side, counted from 1, by default the top one.

    The top layer of a Transformer's decoder touches only the loss of its own position: there, what enters the top
    layer is looked at. E_USAGE where no side has such a layer.
    """
    found: list[Watched] = []
    most = 0
    for side in ("encoder", "decoder"):
        steps, states = step_taps(network, side), layer_taps(network, side)
        most = max(most, len(states))
        number = layer if layer is not None else len(states)
        if steps:
            found += [
                Watched(name, side == "encoder", True) for name in steps if name.startswith(f"{side}.{number - 1}.")
            ]
        elif states and side == "decoder" and layer is None:
            found.append(Watched(states[-2] if len(states) > 1 else "decoder.inputs", False, False))
        elif states and 1 <= number <= len(states):
            found.append(Watched(states[number - 1], side == "encoder", False))
        elif side == "encoder" and layer is None and network.readers():  # one without layers
            found.append(Watched("encoder.states", True, False))
    if not found:
        raise SeqloomError("E_USAGE", f"layer {layer}: this model has layers 1 to {most}")
    return found


# --- what is found ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """The factors d h_{i+1} / d h_i of a recurrence and their products, by how many steps before the last they stand.

    Both are spectral norms (the most that a vector can grow), averaged over sentences; the product is over all factors
    up to there.
    """

    factors: tuple[float, ...]
    products: tuple[float, ...]

    @property
    def factor(self) -> float:
        return sum(self.factors) / max(1, len(self.factors))


@dataclass(frozen=True)
class Curve:
    """Mean gradient norms by distance, at one place of the model."""

    name: str
    distances: tuple[int, ...]
    norms: tuple[float, ...]
    counts: tuple[int, ...]
    rate: float  # the factor per step that fits best; nan where nothing can be fitted
    far_rate: float  # the same over the farther half of the distances
    chain: Chain | None = None

    @staticmethod
    def of(name: str, found: Norms, chain: Chain | None = None) -> Curve:
        distances = np.unique(found.distances)
        where = np.searchsorted(distances, found.distances)
        counts = np.bincount(where, minlength=len(distances))
        means = np.bincount(where, weights=found.norms, minlength=len(distances)) / np.maximum(counts, 1)
        return Curve(
            name,
            tuple(distances.tolist()),
            tuple(means.tolist()),
            tuple(counts.tolist()),
            found.rate(),
            found.rate(float(distances.max(initial=0)) / 2),
            chain,
        )

    @property
    def half_life(self) -> float:
        """Steps after which half of a far gradient is left; infinite where it does not decay."""
        return math.inf if not self.far_rate < 1 else math.log(0.5) / math.log(max(self.far_rate, SMALLEST))

    @property
    def verdict(self) -> str:
        if not any(self.norms):
            return "no gradient comes here: nothing reads these states"
        if math.isnan(self.far_rate):
            return "too few distances for a rate"
        recurs = self.chain is not None and self.half_life < 1000
        halved = f", halved every {self.half_life:.1f} steps" if recurs else ""
        return f"x {self.rate:.3f} per step, in the farther half x {self.far_rate:.3f}{halved}"

    def as_dict(self) -> dict[str, Plain]:
        chain = self.chain
        return {
            "name": self.name,
            "distances": list(self.distances),
            "norms": list(self.norms),
            "counts": list(self.counts),
            "rate": None if math.isnan(self.rate) else self.rate,
            "far_rate": None if math.isnan(self.far_rate) else self.far_rate,
            "half_life": self.half_life if math.isfinite(self.half_life) else None,
            "factors": None if chain is None else list(chain.factors),
            "products": None if chain is None else list(chain.products),
        }

    def lines(self, width: int = 80) -> list[str]:
        """A table with a bar for every distance, its length on a scale of powers of ten; far ones are put together."""
        lines = [self.name, self.verdict, "distance  mean norm"]
        rows = list(self._rows())
        shown = [norm for _, norm in rows if norm > 0]
        top, low = (math.log10(max(shown)), math.log10(min(shown))) if shown else (0.0, 0.0)
        room = max(4, width - 22)
        span = max(top - low, 1.0)  # a power of ten at least: noise must not look like decay
        for label, norm in rows:
            bar = 0 if norm <= 0 else 1 + round((math.log10(norm) - (top - span)) / span * (room - 1))
            lines.append(f"{label:>8}  {norm:9.2e}  {'#' * bar}".rstrip())
        if self.chain is not None and self.chain.factors:
            lines += [
                f"factors dh'/dh: {self.chain.factor:.3f}, the most that any direction grows in a step",
                f"their product over {len(self.chain.products)} step(s): {self.chain.products[-1]:.2e}",
            ]
        return lines

    def _rows(self) -> Iterator[tuple[str, float]]:
        size = math.ceil(len(self.distances) / ROWS) if self.distances else 1
        for begin in range(0, len(self.distances), size):
            part = slice(begin, begin + size)
            counts = self.counts[part]
            mean = sum(n * c for n, c in zip(self.norms[part], counts, strict=True)) / max(1, sum(counts))
            first, last = self.distances[part][0], self.distances[part][-1]
            yield (str(first) if first == last else f"{first}-{last}"), mean


@dataclass(frozen=True)
class Norms:
    """||d loss_t / d h_s|| of single pairs of a loss and a state: one entry for each."""

    losses: Int64[np.ndarray, "n"]  # which loss: a number of its own for each sentence and t
    distances: Int64[np.ndarray, "n"]
    norms: Float64[np.ndarray, "n"]

    @staticmethod
    def joined(parts: Sequence[Norms]) -> Norms:
        """Of several batches; losses of different batches stay different."""
        shifts = np.cumsum([0] + [int(part.losses.max(initial=-1)) + 1 for part in parts])
        return Norms(
            np.concatenate([part.losses + shift for part, shift in zip(parts, shifts[:-1], strict=True)]),
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.norms for part in parts]),
        )

    def rate(self, beyond: float = -1.0) -> float:
        """The factor per step beyond a distance, by least squares with an intercept for every loss."""
        kept = (self.norms > SMALLEST) & (self.distances > beyond)
        if not kept.any():
            return math.nan
        _, losses = np.unique(self.losses[kept], return_inverse=True)
        far, logs = self.distances[kept].astype(np.float64), np.log(self.norms[kept])
        counts = np.bincount(losses)
        far -= (np.bincount(losses, weights=far) / counts)[losses]
        logs -= (np.bincount(losses, weights=logs) / counts)[losses]
        spread = float((far * far).sum())
        return float(np.exp((far * logs).sum() / spread)) if spread > 0 else math.nan


# --- how it is found ----------------------------------------------------------------------------------------------


def gradient_norms(network: Generator, batch: Batch, places: Sequence[Watched]) -> list[Norms]:
    """The norms of every loss with respect to every state before it, at each of the places."""
    assert batch.target is not None
    with differentiable(network), tracking(place.tap for place in places) as tape:
        nll = network.nll(batch)  # B T
        states = [_states(tape, place, batch) for place in places]
        every = [tensor for tensors in states for tensor in tensors]
        rows: list[list[Tensor]] = [[] for _ in places]
        for t in range(nll.shape[1]):
            found = torch.autograd.grad(nll[:, t].sum(), every, retain_graph=True, allow_unused=True)
            taken = iter(
                torch.zeros_like(tensor) if gradient is None else gradient
                for tensor, gradient in zip(every, found, strict=True)
            )
            for place, tensors in enumerate(states):
                rows[place].append(_norms([next(taken) for _ in tensors]))
    return [
        _entries(torch.stack(found, dim=1), place, network, batch) for place, found in zip(places, rows, strict=True)
    ]


def _entries(norms: Float[Tensor, "B T K"], place: Watched, network: Generator, batch: Batch) -> Norms:
    """One entry for each real loss and each real state before it."""
    assert batch.target is not None
    steps, states = norms.shape[1:]
    t, k = torch.arange(steps, device=norms.device)[:, None], torch.arange(states, device=norms.device)[None]
    if place.encoder:
        lengths = _positions(batch.sources["source"], network, states)[:, None, None]
        distances = lengths - k + t  # B T K
        real = (k < lengths) & batch.target.mask[..., None]
    else:
        distances = reads_before(network, batch)[:, None, None] + t - k
        real = (distances >= 0) & batch.target.mask[..., None]
    losses = torch.arange(len(norms) * steps, device=norms.device).view(len(norms), steps, 1).expand_as(norms)
    return Norms(
        losses[real].cpu().numpy(), distances.expand_as(norms)[real].cpu().numpy(), norms[real].double().cpu().numpy()
    )


def _positions(source: Source, network: Generator, states: int) -> Int[Tensor, "B"]:
    """How many states an encoder has of a source: one for each token, for each word and the end, or for so many
    neighbours as make `states` of the longest: where time is halved, some power of two."""
    encoder = network.readers()[0]
    if encoder.reads_words and isinstance(source, Tokens):
        assert source.words is not None, "this encoder reads words"
        return source.words.amax(1) + 2
    if not encoder.shrinks:
        return source.lengths
    width, joined = source.mask.shape[1], 1
    while -(-width // joined) > states:
        joined *= 2
    return -(-source.lengths // joined)


def _states(tape: Tape, place: Watched, batch: Batch) -> list[Tensor]:
    """What passed, as tensors with a graph: N D of every step, or N S D of all positions."""
    passed = tape.steps(place.tap)
    if place.encoder:  # encoders of further sources pass the same taps, later
        return passed[: batch.sources["source"].mask.shape[1] if place.steps else 1]
    return passed


def _norms(gradients: Sequence[Tensor]) -> Float[Tensor, "B K"]:
    if gradients[0].dim() == 3:
        return torch.cat([gradient.double().norm(dim=-1) for gradient in gradients], dim=1)
    return torch.stack([gradient.double().norm(dim=-1) for gradient in gradients], dim=1)


def chain(network: Generator, batch: Batch, place: Watched) -> Chain | None:
    """Exact Jacobians of single steps, of a few sentences; None without a recurrence, or with a single step."""
    if not place.steps:
        return None
    few = batch.rows(torch.arange(min(FEW, len(batch)), device=batch.sources["source"].mask.device))
    assert few.target is not None
    with differentiable(network), tracking([place.tap]) as tape:
        network.forced(few)
        states = _states(tape, place, few)
        if place.encoder:
            lengths = _positions(few.sources["source"], network, len(states))
        else:
            lengths = few.target.lengths + reads_before(network, few)
        return _chained(states, lengths.tolist())


def _chained(states: Sequence[Float[Tensor, "N D"]], lengths: Sequence[int]) -> Chain | None:
    """From the last step of every row backwards; one Jacobian exists at a time."""
    factors: dict[int, list[float]] = {}
    products: dict[int, list[float]] = {}
    so_far: list[Tensor | None] = [None] * len(lengths)
    for i in reversed(range(len(states) - 1)):
        backs = {row: length - 2 - i for row, length in enumerate(lengths) if 0 <= length - 2 - i < MOST_STEPS}
        if not backs:
            continue
        steps = jacobian(states[i + 1], states[i])  # N D D
        for row, back in backs.items():
            before = so_far[row]
            so_far[row] = product = steps[row] if before is None else before @ steps[row]
            factors.setdefault(back, []).append(_spectral(steps[row]))
            products.setdefault(back, []).append(_spectral(product))
    return Chain(_means(factors), _means(products)) if factors else None


def jacobian(after: Float[Tensor, "N D"], before: Float[Tensor, "N E"]) -> Float[Tensor, "N D E"]:
    """d after / d before of every row; rows depend on nothing but themselves."""
    units = torch.eye(after.shape[1], dtype=after.dtype, device=after.device)[:, None].expand(-1, *after.shape)
    (found,) = torch.autograd.grad(
        after, before, units, retain_graph=True, allow_unused=True, is_grads_batched=True
    )  # D N E
    if found is None:
        return before.new_zeros(len(before), after.shape[1], before.shape[1]).double()
    return found.transpose(0, 1).double()


def _spectral(matrix: Float[Tensor, "D E"]) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def _means(values: dict[int, list[float]]) -> tuple[float, ...]:
    return tuple(sum(values[back]) / len(values[back]) for back in sorted(values))


@contextmanager
def differentiable(network: Generator) -> Iterator[None]:
    """Inside, gradients flow through a network that is being asked, on any device."""
    network.eval()
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):  # its recurrences want training mode
        yield


@contextmanager
def tracking(names: Iterable[str]) -> Iterator[Tape]:
    """A tape that keeps what passes with its graph, and begins one where weights are frozen."""

    def tracked(tensor: Tensor, step: int) -> Tensor:
        return tensor if tensor.requires_grad else tensor.requires_grad_()

    listen = list(names)
    with Tape(*listen, replace=dict.fromkeys(listen, tracked), keep_gradients=True) as tape:
        yield tape

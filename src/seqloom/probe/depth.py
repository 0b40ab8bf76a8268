"""What depth captures: what each layer knows, how far it sees, and what each head of attention does and is good for.

    probes    a logistic regression on frozen states, the mean over the positions, one for each layer (Alain and Bengio
              2016): how easily is a label read off?
    reach     how far the inputs lie that a state depends on: m_sj = E_v ||d (v . h_s) / d x_j||^2, v random with unit
              variance, which is the squared Frobenius norm of d h_s / d x_j (Hutchinson 1990). Each position's m_s
              sums to 1; the reach is the smallest distance |s - j| within which 90 % of it lie. Where an encoder
              makes one position of several, all of those are at distance 0 and the others count from them on
    roles     how much of a head's attention falls on the previous, the same, the next word, on the rarest word, on the
              word that is said, ..., against what even attention would give (Voita et al. 2019)
    pruning   the loss with one head silenced: its weights are zero, so that it adds nothing (the mask xi_h = 0 of
              Michel et al. 2019). Nothing is trained again; heads that others can replace look useless alone

Everything is numbers here: which token is rare, and which word was said, is told by whoever knows the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool as BoolArray
from jaxtyping import Float64
from torch.nn import functional as F

from seqloom.batch import Batch, Source
from seqloom.models.contracts import Memory
from seqloom.models.generator import Generator
from seqloom.nn.frontends import SOURCE
from seqloom.nn.layers import mean_of_real
from seqloom.nn.tape import Replacement, Tape
from seqloom.probe.edits import reduction_of
from seqloom.probe.gradients import differentiable, tracking
from seqloom.probe.pair import unanswered
from seqloom.probe.states import layer_taps
from seqloom.shapes import Bool, Float, Int, Tensor

MASS = 0.9  # of what a state depends on, within its reach
DRAWS = 4  # of v
PENALTY = 1e-3  # of a probe's squared weights, standardised features
CLEARLY = 0.1  # of what is possible above chance; below, a head has no role


# --- layers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layers:
    """The states of one batch of sources, layer by layer: first what enters the stack."""

    states: Mapping[str, Float[Tensor, "B _ D"]]
    mask: Bool[Tensor, "B S"]  # of what enters
    reduction: int = 1  # so many positions that enter are one of the layers

    def real(self, name: str) -> Bool[Tensor, "B _"]:
        """Which states of a layer stand for something."""
        return self.mask if name == next(iter(self.states)) else self.mask[:, :: self.reduction]

    def pooled(self) -> dict[str, Float[Tensor, "B D"]]:
        return {name: mean_of_real(states, self.real(name)) for name, states in self.states.items()}


def layers(network: Generator, sources: Mapping[str, Source], keep_gradients: bool = False) -> Layers:
    """Of the source's encoder; without one those of the decoder while it reads the source."""
    network.eval()
    side = "encoder" if network.readers() else "decoder"
    stack, reduction = layer_taps(network, side), reduction_of(network)
    taps = (f"{side}.inputs", *stack) if stack else (f"{side}.states",)  # a bag has no layers
    if reduction > 1:  # then a source is what enters, not what is left of it
        taps = (SOURCE, *(stack or (f"{side}.states",)))
    if keep_gradients:
        with tracking(taps) as tape:
            mask = _read(network, sources)
    else:
        with torch.no_grad(), Tape(*taps) as tape:
            mask = _read(network, sources)
    passed = {_layer_name(name): tape.steps(name)[0] for name in taps}
    if reduction > 1:
        return Layers(passed, sources["source"].mask, reduction)
    width = next(iter(passed.values())).shape[1]
    return Layers(passed, F.pad(mask, (0, width - mask.shape[1])))  # sources without a gap leave padding behind them


def _read(network: Generator, sources: Mapping[str, Source]) -> Bool[Tensor, "B S"]:
    """Let the sources be read; which of the states that they become are real."""
    for encoder in network.readers()[:1]:
        memory: Memory = encoder(sources["source"])
        return memory.mask
    batch = unanswered(sources)
    places = network.places(batch)
    assert places is not None, "somebody reads the source"
    network.forced(batch)
    last = places.said[:, 0]
    return torch.arange(int(last.max()) + 1, device=last.device) <= last[:, None]


def _layer_name(tap: str) -> str:
    _, *rest = tap.split(".")
    if tap == SOURCE:
        return "inputs"
    return f"layer {int(rest[0]) + 1}" if rest[0].isdigit() else rest[0]


# --- probes -------------------------------------------------------------------------------------------------------


def probe_accuracy(
    train: Float[Tensor, "n D"],
    train_labels: Int[Tensor, "n"],
    test: Float[Tensor, "m D"],
    test_labels: Int[Tensor, "m"],
    classes: int,
) -> float:
    """The share of test labels that a logistic regression reads off the states; fitted to convergence, in float64."""
    x, held_out = train.detach().double(), test.detach().double()
    mean, scale = x.mean(0), x.std(0, correction=0).clamp(min=1e-8)
    x, held_out = (x - mean) / scale, (held_out - mean) / scale
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, device=x.device, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, device=x.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(F.linear(x, weight, bias), train_labels) + PENALTY * weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimiser.step(loss)  # type: ignore[no-untyped-call]
    said = F.linear(held_out, weight.detach(), bias.detach()).argmax(1)
    return float((said == test_labels).double().mean())


# --- reach --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """How the states of a layer depend on inputs by distance: `before` and `after` begin with distance 1."""

    layer: str
    here: float
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def shares(self) -> list[float]:
        """By distance from 0 on, both directions together; they sum to 1."""
        return [self.here, *(one + other for one, other in zip(self.before, self.after, strict=True))]

    @property
    def distance(self) -> int:
        """The smallest distance within which 90 % lie."""
        return int(np.searchsorted(np.cumsum(self.shares), MASS - 1e-9))

    @property
    def farthest(self) -> int:
        """The largest distance from which anything at all comes."""
        return max((far for far, share in enumerate(self.shares) if share > 0), default=0)


def reaches(network: Generator, sources: Mapping[str, Source], seed: int = 0) -> dict[str, Float64[np.ndarray, "n w"]]:
    """For every layer and every real position the shares of what it depends on, by j - s from -(S-1) to S-1."""
    draw = torch.Generator().manual_seed(seed)
    with differentiable(network):
        found = layers(network, sources, keep_gradients=True)
        (_, inputs), *above = found.states.items()
        return {name: _dependence(states, inputs, found, draw) for name, states in above}


def _dependence(
    states: Float[Tensor, "B H D"], inputs: Float[Tensor, "B S E"], found: Layers, draw: torch.Generator
) -> Float64[np.ndarray, "n w"]:
    mask, width = found.mask, inputs.shape[1]
    rows = []
    for s in range(states.shape[1]):
        mass = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        for _ in range(DRAWS):
            direction = torch.randn(states.shape[2], generator=draw).to(states)
            (gradient,) = torch.autograd.grad((states[:, s] @ direction).sum(), inputs, retain_graph=True)
            mass += gradient.double().square().sum(-1)
        mass = mass.masked_fill(~mask, 0.0)
        total = mass.sum(1, keepdim=True)
        start, end = s * found.reduction, min((s + 1) * found.reduction, width)  # what it stands for
        kept = mask[:, start] & (total[:, 0] > 0)
        shares = (mass / total)[kept]
        here = shares[:, start:end].sum(1, keepdim=True)
        shares = torch.cat([shares[:, :start], here, shares[:, end:]], dim=1)
        placed = F.pad(shares, (width - 1 - start, end - 1))  # column c is distance c - (S - 1)
        rows.append(placed.cpu().numpy())
    joined: Float64[np.ndarray, "n w"] = np.concatenate(rows)
    return joined


def joined_reach(layer: str, parts: Sequence[Float64[np.ndarray, "n w"]]) -> Reach:
    """One layer's reach over all positions of all batches, which may be of different width."""
    widest = max((part.shape[1] for part in parts), default=1)
    padded = [np.pad(part, ((0, 0), ((widest - part.shape[1]) // 2,) * 2)) for part in parts]
    mean = np.concatenate(padded).mean(0)
    middle = widest // 2
    return Reach(layer, float(mean[middle]), tuple(mean[:middle][::-1].tolist()), tuple(mean[middle + 1 :].tolist()))


# --- heads --------------------------------------------------------------------------------------------------------


def head_taps(network: Generator) -> dict[str, tuple[str, ...]]:
    """The taps of attention weights: of the encoder and the decoder over themselves, and over the memory.

    Whether a recurrent encoder attends to itself shows when it is read: its tap is named here and may stay silent.
    """
    found = {"decoder": network.decoder.self_taps, "memory": network.decoder.attention_taps}
    for encoder in network.readers()[:1]:
        found = {"encoder": encoder.self_taps or ("encoder.attention",), **found}
    return {kind: taps for kind, taps in found.items() if taps}


@dataclass
class Tally:
    """Attention that fell on the positions of one role, what even attention would give, over so many rows; per head."""

    weight: Float64[np.ndarray, "H"]
    chance: float = 0.0
    rows: int = 0

    def add(
        self,
        weights: Float64[np.ndarray, "H T S"],
        role: BoolArray[np.ndarray, "T S"],
        visible: BoolArray[np.ndarray, "T S"],
    ) -> None:
        """Rows in which a position has the role count, and no others."""
        wanted = role & visible
        rows = wanted.any(1)
        self.weight += (weights * wanted).sum(-1)[:, rows].sum(-1)
        self.chance += float((wanted.sum(1)[rows] / visible.sum(1)[rows]).sum())
        self.rows += int(rows.sum())


@dataclass(frozen=True)
class RoleShare:
    """How much attention falls on a role, and how much would fall there by chance."""

    share: float
    chance: float
    rows: int

    @property
    def above(self) -> float:
        """0: as by chance, 1: all of it."""
        return (self.share - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0


@dataclass(frozen=True)
class Head:
    """What one head does, and what the loss is without it. Layers and heads are counted from 1."""

    tap: str
    layer: int
    head: int
    roles: Mapping[str, RoleShare]
    loss_without: float | None = None  # nll per token; None: not measured
    score_without: float | None = None

    @property
    def name(self) -> str:
        """As `explain --mask-head` names it: `2.1` looks at the source, `encoder.2.1` within the encoder."""
        part = f"{self.tap.split('.')[0]}." if self.tap.endswith(".self") or self.tap == "encoder.attention" else ""
        return f"{part}{self.layer}.{self.head}"

    @property
    def role(self) -> str:
        """Its strongest role against chance; "none" where nothing is clear."""
        name = max(self.roles, key=lambda name: self.roles[name].above, default="none")
        return name if name in self.roles and self.roles[name].above >= CLEARLY else "none"


@dataclass
class Roles:
    """Collects the attention of every head of one tap."""

    heads: int
    tallies: dict[str, Tally] = field(default_factory=dict)

    def add(
        self,
        weights: Float64[np.ndarray, "H T S"],
        roles: Mapping[str, BoolArray[np.ndarray, "T S"]],
        visible: BoolArray[np.ndarray, "T S"],
    ) -> None:
        for name, role in roles.items():
            self.tallies.setdefault(name, Tally(np.zeros(self.heads))).add(weights, role, visible)

    def shares(self, head: int) -> dict[str, RoleShare]:
        return {
            name: RoleShare(float(tally.weight[head]) / tally.rows, tally.chance / tally.rows, tally.rows)
            for name, tally in self.tallies.items()
            if tally.rows
        }


def places(rows: int, columns: int) -> dict[str, BoolArray[np.ndarray, "T S"]]:
    """The roles that need nothing but positions."""
    apart = np.arange(columns)[None] - np.arange(rows)[:, None]
    begin, end = np.zeros((2, rows, columns), dtype=bool)
    begin[:, :1] = end[:, -1:] = True
    return {"previous": apart == -1, "same place": apart == 0, "next": apart == 1, "begin": begin, "end": end}


def silenced(head: int, every: int = 1) -> Replacement:
    """What makes a head add nothing; of `every` passes of a tap the first is meant."""

    def change(weights: Tensor, step: int) -> Tensor:
        if step % every:
            return weights
        kept = torch.ones(weights.shape[1], dtype=weights.dtype, device=weights.device)
        kept[head] = 0.0
        return weights * kept[:, None, None]

    return change


@torch.no_grad()
def forced_loss(
    network: Generator, batches: Iterable[Batch], replace: Mapping[str, Replacement] | None = None
) -> float:
    """nll per target token, with what a tape puts in place of what passes."""
    total, count = 0.0, 0
    for batch in batches:
        with Tape(replace=replace):
            total += float(network.nll(batch).double().sum())
        count += batch.target_tokens
    return total / max(1, count)


@torch.no_grad()
def weights_passed(network: Generator, batch: Batch, taps: Sequence[str]) -> dict[str, list[Tensor]]:
    """The weights that pass each tap while a batch is read, one tensor per pass; taps that stay silent are left out."""
    with Tape(*taps) as tape:
        network.nll(batch)
    return {name: steps for name in taps if (steps := tape.steps(name))}

"""Is attention an explanation here? Four questions to one forced pair, after Jain and Wallace (2019).

At each step t, a the weights over the source (last layer, averaged over the heads), p the distribution of y_t:

    agreement     do weights rank the source's positions as gradients and occlusion do? Kendall's tau-b and Spearman's
                  rho of a against |input x gradient| and against |loss of log p|; and, because ranks of what hardly
                  counts are noise, whether both have the same position in front
    permuted      the weights of every layer and head, at this step alone, given to other positions: the median over
                  random permutations of the total variation TV(p', p) = sum |p' - p| / 2
    adversarial   how far can weights be from the model's own while the output stays? The largest JS(a', a) that Adam
                  found under TV(p', p) <= epsilon, JS averaged over layers and heads, in nats (at most log 2 = 0.69)

Weights are changed at one step and nowhere else: the history is what the model made of it. So each step is a row that
has read y_<t, and one step of all rows answers for all steps (law 1). Of a joint model, weights change places among the
source's positions only; of a monotonic decoder they are the probabilities of its positions. A model that agrees and
whose output follows its weights may be read by them; where it does not, `Faithfulness.lines` says so. This file judges
weights, never outputs.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float64

from seqloom.batch import Batch
from seqloom.config import Plain
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator, shifted
from seqloom.nn.tape import Replacement, Tape
from seqloom.probe.attribution import Attention, Gradient, Occlusion
from seqloom.probe.edits import reduction_of
from seqloom.probe.pair import AT_ONCE, alone, differentiable, source_places, target_of
from seqloom.shapes import Float, Int, Tensor

AGREES = 0.5  # tau from which two rankings count as alike
IN_FRONT = 0.75  # of the steps: the share from which two rankings count as having the same in front
MOVES = 0.1  # TV under permutation from which the output counts as following the weights
FAR = math.log(2) / 2  # JS from which weights that say the same count as other weights
PENALTY = 100.0  # of a unit of TV over epsilon, beside a unit of JS

PerStep = Float64[np.ndarray, "T"]
Correlation = Callable[[Float64[np.ndarray, "S"], Float64[np.ndarray, "S"]], float]
Weights = Float[Tensor, "n H 1 P"]


@dataclass(frozen=True)
class Trials:
    """How hard it is tried."""

    permutations: int = 20
    seed: int = 1
    epsilon: float = 0.01  # total variation that counts as the same output, as in the paper
    steps: int = 100  # of Adam
    starts: int = 2  # at random weights, of which the best counts
    rate: float = 0.3


@dataclass(frozen=True)
class Steps:
    """What was measured at every step of one pair; nan where there is nothing to rank or to permute."""

    gradient_tau: PerStep
    gradient_rho: PerStep
    occlusion_tau: PerStep
    occlusion_rho: PerStep
    permuted: PerStep
    adversarial: PerStep
    gradient_first: PerStep  # 1 where both have the same position in front, else 0
    occlusion_first: PerStep


@dataclass(frozen=True)
class Measure:
    """Mean and deviation over the steps that have a value."""

    mean: float
    deviation: float
    steps: int

    @staticmethod
    def of(values: PerStep) -> Measure:
        known = values[np.isfinite(values)]
        if not len(known):
            return Measure(math.nan, math.nan, 0)
        return Measure(float(known.mean()), float(known.std()), len(known))

    def __str__(self) -> str:
        return f"{self.mean:.2f} +- {self.deviation:.2f}" if self.steps else "not to be measured"

    def as_dict(self) -> dict[str, Plain]:
        known = self.steps > 0
        return {
            "mean": self.mean if known else None,
            "deviation": self.deviation if known else None,
            "steps": self.steps,
        }


@dataclass(frozen=True)
class Faithfulness:
    """The answers over all steps of some pairs."""

    pairs: int
    steps: int
    gradient_tau: Measure
    gradient_rho: Measure
    occlusion_tau: Measure
    occlusion_rho: Measure
    permuted: Measure
    adversarial: Measure
    gradient_first: Measure
    occlusion_first: Measure

    @staticmethod
    def of(pairs: Iterable[Steps]) -> Faithfulness:
        every = list(pairs)
        names = [field.name for field in fields(Steps)]
        measures = {name: Measure.of(np.concatenate([getattr(one, name) for one in every])) for name in names}
        return Faithfulness(len(every), sum(len(one.permuted) for one in every), **measures)

    def cautions(self) -> list[str]:
        """Why these weights are no reasons; nothing where none of the four questions says so."""
        found = []
        both = (self.gradient_tau, self.gradient_first), (self.occlusion_tau, self.occlusion_first)
        for other, (tau, first) in zip(("gradients", "occlusion"), both, strict=True):
            ranks = f"attention and {other} rank the source tokens differently (tau {tau.mean:.2f})"
            if tau.mean < AGREES and first.mean >= IN_FRONT:
                same = f"the first of both is the same in {100 * first.mean:.0f} % of the steps"
                found.append(f"{ranks}, though {same}: do not read more than the largest weight as a reason")
            elif tau.mean < AGREES:
                found.append(f"{ranks}: do not read these weights as reasons")
        if self.permuted.mean < MOVES:
            little = f"shuffled weights change the output little (total variation {self.permuted.mean:.2f})"
            found.append(f"{little}: what was looked at hardly matters to what was said")
        if self.adversarial.mean >= FAR:
            far = (
                f"quite other weights (Jensen-Shannon {self.adversarial.mean:.2f} of at most 0.69) give the same output"
            )
            found.append(f"{far}: these are not the only story that could be told")
        return found

    def lines(self, width: int = 1000) -> list[str]:
        """The report: what was measured, then either cautions or a line that says that there are none."""
        return [part for line in self._told() for part in textwrap.wrap(line, width, subsequent_indent="  ")]

    def _told(self) -> list[str]:
        measured = [
            f"attention and gradients: tau {self.gradient_tau}, rho {self.gradient_rho}"
            f"{_in_front(self.gradient_first)}",
            f"attention and occlusion: tau {self.occlusion_tau}, rho {self.occlusion_rho}"
            f"{_in_front(self.occlusion_first)}",
            f"weights permuted: the output changes by {self.permuted} (total variation)",
            f"weights chosen against the model: {self.adversarial} from its own with the same output (Jensen-Shannon)",
        ]
        cautions = self.cautions()
        if cautions:
            return measured + [f"caution: {line}" for line in cautions]
        if not self.gradient_tau.steps:
            return [*measured, "caution: too few source tokens to say anything"]
        agree = f"tau {self.gradient_tau.mean:.2f} and {self.occlusion_tau.mean:.2f}"
        return [
            *measured,
            f"attention ranks the source tokens as gradients and occlusion do ({agree}), and the output follows it",
        ]

    def as_dict(self) -> dict[str, Plain]:
        measures = {field.name: getattr(self, field.name).as_dict() for field in fields(Steps)}
        return {"pairs": self.pairs, "steps": self.steps, **measures, "cautions": self.cautions()}


def _in_front(first: Measure) -> str:
    return f", the same first in {100 * first.mean:.0f} % of the steps" if first.steps else ""


def measured(network: Generator, batch: Batch, trials: Trials | None = None) -> Steps:
    """All four questions to the one pair of a batch; E_USAGE for a model without attention."""
    chosen, batch = trials or Trials(), alone(batch)
    if not network.attention_taps:
        what = "this model has no attention whose faithfulness could be measured"
        raise SeqloomError("E_USAGE", what, fix="train a decoder with attention (model.decoder.kind: luong)")
    if reduction_of(network) > 1:
        what = f"its encoder makes one position of {reduction_of(network)}, whose weights cannot be moved one by one"
        raise SeqloomError("E_USAGE", what, fix="ask it of a model whose encoder keeps every position, such as rnn")
    weights = Attention(Attention.Settings())(network, batch).of_source
    gradient = np.abs(Gradient(Gradient.Settings())(network, batch).of_source)
    occlusion = np.abs(Occlusion(Occlusion.Settings())(network, batch).of_source)
    asked = Asked(network, batch)
    found = Steps(
        gradient_tau=_by_step(kendall, weights, gradient),
        gradient_rho=_by_step(spearman, weights, gradient),
        occlusion_tau=_by_step(kendall, weights, occlusion),
        occlusion_rho=_by_step(spearman, weights, occlusion),
        permuted=permuted(asked, chosen),
        adversarial=adversarial(asked, chosen),
        gradient_first=_by_step(same_first, weights, gradient),
        occlusion_first=_by_step(same_first, weights, occlusion),
    )
    if not network.decoder.sure_of_end:
        return found
    return Steps(**{field.name: getattr(found, field.name)[:-1] for field in fields(Steps)})  # nobody looks for the end


# --- rankings --------------------------------------------------------------------------------------------------------


def kendall(a: Float64[np.ndarray, "S"], b: Float64[np.ndarray, "S"]) -> float:
    """tau-b: (pairs in the same order - pairs in the opposite) / sqrt(pairs untied in a * pairs untied in b)."""
    upper = np.triu_indices(len(a), 1)
    first, second = (np.sign(values[:, None] - values[None])[upper] for values in (a, b))
    untied = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    return float((first * second).sum()) / untied if untied else math.nan


def spearman(a: Float64[np.ndarray, "S"], b: Float64[np.ndarray, "S"]) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""
    first, second = (_ranks(values) - (len(values) - 1) / 2 for values in (a, b))
    scale = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    return float((first * second).sum()) / scale if scale else math.nan


def same_first(a: Float64[np.ndarray, "S"], b: Float64[np.ndarray, "S"]) -> float:
    """1 where the largest of both stands at one place; nan where one of them has nothing that stands out."""
    if len(a) < 2 or a.max() == a.min() or b.max() == b.min():
        return math.nan
    return float(a.argmax() == b.argmax())


def _ranks(values: Float64[np.ndarray, "S"]) -> Float64[np.ndarray, "S"]:
    below, same = (values[None] < values[:, None]).sum(1), (values[None] == values[:, None]).sum(1)
    ranks: Float64[np.ndarray, "S"] = below + (same - 1) / 2
    return ranks


def _by_step(correlation: Correlation, a: Float64[np.ndarray, "T S"], b: Float64[np.ndarray, "T S"]) -> PerStep:
    return np.array([correlation(*rows) for rows in zip(a, b, strict=True)])


# --- other weights ---------------------------------------------------------------------------------------------------


class Asked:
    """Every step of a pair as a row of its own, which has read all before it and is about to answer."""

    def __init__(self, network: Generator, batch: Batch) -> None:
        self.network, self.taps = network, network.attention_taps
        inputs = shifted(target_of(batch)).ids[0]  # T
        self.last, count = inputs, len(inputs)
        steps = torch.arange(count, device=inputs.device)
        with torch.no_grad():
            state = network.start(batch.sources, count)
            if count > 1:
                state = network.decoder(inputs[:-1].expand(count, -1), state, steps)[1]
            self.state = state
            with Tape(*self.taps) as tape:
                self.probabilities = network.step(self.last, state.clone())[0].exp()  # T W
        self.weights: list[Weights] = [tape.joined(name, dim=2) for name in self.taps]
        self.places = torch.tensor(source_places(network, batch), device=inputs.device)

    @property
    def over_source(self) -> list[Float[Tensor, "T H 1 S"]]:
        """The part of the weights that is over the source."""
        return [weights[..., self.places] for weights in self.weights]

    def answers(self, steps: Int[Tensor, "n"], over_source: Sequence[Float[Tensor, "n H 1 S"]]) -> Float[Tensor, "n W"]:
        """The distributions of these steps, had their weights over the source been others."""
        put = {name: self._put(steps, layer, over_source) for layer, name in enumerate(self.taps)}
        with Tape(replace=put):
            return self.network.step(self.last[steps], self.state.select(steps))[0].exp()

    def _put(self, steps: Int[Tensor, "n"], layer: int, over_source: Sequence[Tensor]) -> Replacement:
        whole = self.weights[layer][steps].index_copy(3, self.places, over_source[layer])
        return lambda passing, _: whole

    def changed(self, steps: Int[Tensor, "n"], over_source: Sequence[Float[Tensor, "n H 1 S"]]) -> Float[Tensor, "n"]:
        """TV(p', p) of these steps."""
        return (self.answers(steps, over_source) - self.probabilities[steps]).abs().sum(1) / 2


@torch.no_grad()
def permuted(asked: Asked, trials: Trials) -> PerStep:
    """The median of TV(p', p) over permutations; those of one step are the same for all layers and heads."""
    steps, places = len(asked.last), len(asked.places)
    if places < 2:
        return np.full(steps, math.nan)
    generator = torch.Generator().manual_seed(trials.seed)
    order = torch.rand(steps * trials.permutations, places, generator=generator).argsort(1).to(asked.last.device)
    rows = torch.arange(steps, device=order.device).repeat_interleave(trials.permutations)
    size = max(1, AT_ONCE // places)
    parts = []
    for some, new in zip(torch.split(rows, size), torch.split(order, size), strict=True):
        given = [weights[some].gather(3, _like(new, weights[some])) for weights in asked.over_source]
        parts.append(asked.changed(some, given))
    every = torch.cat(parts).view(steps, trials.permutations).double().cpu().numpy()
    median: PerStep = np.median(every, axis=1)
    return median


def adversarial(asked: Asked, trials: Trials) -> PerStep:
    """The largest JS(a', a) with TV(p', p) <= epsilon; zero where nothing but the model's own was found.

    Of the loss -JS + 100 max(0, TV - epsilon), by Adam on the logits of a', all steps and starts side by side; every
    a' on the way counts that keeps the output.
    """
    own = asked.over_source
    steps, places = len(asked.last), len(asked.places)
    if places < 2:
        return np.full(steps, math.nan)
    rows = torch.arange(steps, device=asked.last.device).repeat_interleave(trials.starts)
    generator = torch.Generator().manual_seed(trials.seed)
    best = [_search(asked, some, own, trials, generator) for some in torch.split(rows, max(1, AT_ONCE // places))]
    found: PerStep = torch.cat(best).view(steps, trials.starts).amax(1).double().cpu().numpy()
    return found


def _search(
    asked: Asked, rows: Int[Tensor, "n"], own: Sequence[Tensor], trials: Trials, generator: torch.Generator
) -> Float[Tensor, "n"]:
    mass = [weights[rows].sum(-1, keepdim=True) for weights in own]  # of a joint model less than 1
    shares = [weights[rows] / total.clamp(min=1e-30) for weights, total in zip(own, mass, strict=True)]
    logits = [torch.randn(share.shape, generator=generator).to(share).requires_grad_() for share in shares]
    optimiser = torch.optim.Adam(logits, lr=trials.rate)
    best = torch.zeros(len(rows), dtype=shares[0].dtype, device=rows.device)
    for _ in range(trials.steps):
        with differentiable():
            other = [torch.softmax(values, dim=-1) for values in logits]
            apart = torch.stack([_divergence(a, b) for a, b in zip(other, shares, strict=True)]).mean(0)  # n
            changed = asked.changed(rows, [share * total for share, total in zip(other, mass, strict=True)])
            loss = (PENALTY * (changed - trials.epsilon).clamp(min=0.0) - apart).sum()
            gradients = torch.autograd.grad(loss, logits)
        best = torch.where(changed.detach() <= trials.epsilon, torch.maximum(best, apart.detach()), best)
        for values, gradient in zip(logits, gradients, strict=True):
            values.grad = gradient
        optimiser.step()
    return best


def _divergence(a: Float[Tensor, "n H 1 S"], b: Float[Tensor, "n H 1 S"]) -> Float[Tensor, "n"]:
    """JS(a, b) = (KL(a, m) + KL(b, m)) / 2 with m = (a + b) / 2, averaged over the heads."""
    middle = (a + b) / 2
    parts = [torch.xlogy(one, one) - torch.xlogy(one, middle) for one in (a, b)]
    return (parts[0] + parts[1]).sum(-1).mean((1, 2)) / 2


def _like(order: Int[Tensor, "n S"], weights: Float[Tensor, "n H 1 S"]) -> Int[Tensor, "n H 1 S"]:
    """One permutation per row, the same for all heads."""
    return order[:, None, None].expand(weights.shape)

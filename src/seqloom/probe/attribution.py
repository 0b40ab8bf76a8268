"""What each output token owes to each token that was read: five methods, one result.

For one forced pair, f_t = log p(y_t | y_<t, x), and e_i the embedding of a token that was read (of the source, or y_i):

    attention    the weights of the step that says y_t, averaged over the heads of one layer
    rollout      R <- (R + A R) / 2 through all layers, from R = I (Abnar and Zuidema 2020): the encoder's, then of each
                 decoder layer self-attention, and attention to the memory, R <- (R + A R_encoder) / 2
    gradient     e_i . df_t / de_i: input x gradient, summed over the embedding's width (Denil et al. 2014)
    integrated   e_i . integral of df_t / de_i on the way from e = 0 to e (Sundararajan et al. 2017), by captum; sums to
                 f_t(e) - f_t(0) up to `missed`
    occlusion    f_t minus f_t with token i replaced by <unk> (or <mask>), so that no other token moves (Li et al. 2016)

The first two are weights, never negative; the others are parts of log p, negative where a token spoke against y_t. The
start of the output is always read and gets nothing. What only looks at attention needs attention, and roll-out needs it
in every layer; the others work for whatever can be forced. Nothing here searches, knows text, or says what may be
believed (`faithfulness.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64
from pydantic import Field

from seqloom import config
from seqloom.batch import Batch, Frames, Source, Tokens
from seqloom.config import Table
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.nn.frontends import SOURCE, TARGET
from seqloom.nn.tape import Tape
from seqloom.probe.pair import alone, copied, differentiable, rows_at_once, source_places, target_of
from seqloom.shapes import Float, Int, Tensor
from seqloom.specials import MASK, UNK

LEAST = -87.0  # log p of what cannot be said any more (float32's smallest number)
NOTHING_TO_COPY = -1

Unit = Literal["log p", "weight"]
OfSource = Float64[np.ndarray, "T S"]
OfTarget = Float64[np.ndarray, "T T"]


@dataclass(frozen=True)
class Attributed:
    """Of each output token (its end included): what it owes to each position that was read.

    Columns are the source's positions, its end included, then those of every extra; and the output's own tokens, of
    which only earlier ones can have anything (the strictly lower triangle).
    """

    of_source: OfSource
    of_target: OfTarget
    unit: Unit
    comparable: bool = True  # are both sides measured by one measure, so that they have shares of one whole?
    missed: Float64[np.ndarray, "T"] | None = None  # by how much a sum that is promised differs


class Method(ABC):
    """Attributions of one forced pair."""

    @abstractmethod
    def __call__(self, network: Generator, batch: Batch) -> Attributed:
        """`batch` holds one pair; padding does not matter. E_USAGE where the model has not what is asked for."""


# --- weights ---------------------------------------------------------------------------------------------------------


def no_weights(what: str) -> SeqloomError:
    return SeqloomError("E_USAGE", what, fix="use gradient, integrated or occlusion, which work for every model")


class Attention(Method):
    """Where the step that says a token looked, and, where the decoder has self-attention, to what had been said.

    Both are distributions of their own, so the sides cannot be compared; of a joint model they are parts of one.
    """

    class Settings(config.Settings):
        kind: Literal["attention"] = "attention"
        layer: int | None = Field(None, ge=1)  # counted from 1; null: the last

    def __init__(self, settings: Settings) -> None:
        self.layer = settings.layer

    @torch.no_grad()
    def __call__(self, network: Generator, batch: Batch) -> Attributed:
        batch, taps = alone(batch), network.attention_taps
        if not taps:
            raise no_weights("this model has no attention: what it read reaches it through its states alone")
        if self.layer is not None and self.layer > len(taps):
            raise SeqloomError("E_USAGE", f"layer {self.layer}: this model has layers 1 to {len(taps)}")
        chosen = len(taps) if self.layer is None else self.layer
        own = network.decoder.self_taps
        with Tape(*{*taps, *own}) as tape:
            network.forced(batch)
        looked = network.attended(tape, batch)[chosen - 1][0].mean(0)  # T S
        steps = len(looked)
        among = tape.joined(own[chosen - 1], dim=2)[0].mean(0)[-steps:, -steps:] if own else looked.new_zeros(steps, 1)
        return Attributed(_array(looked), _of_earlier(among), "weight", comparable=taps == own)


class Rollout(Method):
    """Attention followed through all layers of a Transformer, down to the tokens (Abnar and Zuidema 2020).

    An extra whose encoder has no self-attention counts as its tokens themselves, which a bag of tags is.
    """

    class Settings(config.Settings):
        kind: Literal["rollout"] = "rollout"

    def __init__(self, settings: Settings) -> None:
        pass

    @torch.no_grad()
    def __call__(self, network: Generator, batch: Batch) -> Attributed:
        batch, steps = alone(batch), target_of(batch).mask.sum()
        rolled = rolled_out(network, batch)  # T, then inputs of the decoder and positions of the source
        read, said = rolled[:, : -int(steps)], rolled[:, -int(steps) :]
        return Attributed(_array(read), _of_earlier(said), "weight")


def rolled_out(network: Generator, batch: Batch) -> Float[Tensor, "T R"]:
    """Of each step the roll-out over all positions of the source, then over what the decoder read (BOS first).

    Rows sum to 1; of a joint model, to what its separators leave.
    """
    encoders = network.readers()
    names = [encoder.self_taps for encoder in encoders]
    decoder = network.decoder
    if not decoder.self_taps or (encoders and not names[0]):
        raise no_weights("roll-out follows self-attention through every layer, and this model has layers without it")
    with Tape(*{*sum(names, ()), *decoder.self_taps, *decoder.attention_taps}) as tape:
        network.forced(batch)
    own = [_mean(tape.joined(name, dim=2)) for name in decoder.self_taps]  # each T T; of a joint model everything
    steps, lengths = target_of(batch).ids.shape[1], [source.mask.shape[1] for source in batch.sources.values()]
    if not decoder.attention_taps:
        rolled = _rolled(own, torch.eye(len(own[0])).to(own[0]))[-steps:]
        return torch.cat([rolled[:, source_places(network, batch)], rolled[:, -steps:]], dim=1)
    read = _encoded(tape, names, lengths[: len(encoders)], own[0])
    cross = [_mean(tape.joined(name, dim=2)) for name in decoder.attention_taps]  # each T S
    looked, said = own[0].new_zeros(steps, len(read)), torch.eye(steps).to(own[0])
    for within, over in zip(own, cross, strict=True):
        looked, said = (looked + within @ looked) / 2, (said + within @ said) / 2
        looked, said = (looked + over @ read) / 2, said / 2
    return torch.cat([looked, said], dim=1)


def _encoded(
    tape: Tape, names: Sequence[tuple[str, ...]], lengths: Sequence[int], like: Tensor
) -> Float[Tensor, "S S"]:
    """The roll-outs of all encoders, one beside the other; those of extras pass the same taps after the source's."""
    passed: dict[str, int] = {}
    blocks = []
    for own, length in zip(names, lengths, strict=True):
        layers = []
        for name in own:
            layers.append(_mean(tape.steps(name)[passed.get(name, 0)]))
            passed[name] = passed.get(name, 0) + 1
        blocks.append(_rolled(layers, torch.eye(length).to(like)))
    joined: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
    return joined


def _rolled(layers: Sequence[Tensor], rolled: Tensor) -> Tensor:
    for weights in layers:
        rolled = (rolled + weights @ rolled) / 2
    return rolled


def _mean(weights: Float[Tensor, "1 H T S"]) -> Float[Tensor, "T S"]:
    """Averaged over the heads."""
    return weights[0].mean(0)


def _array(values: Tensor) -> Float64[np.ndarray, "T n"]:
    return values.detach().double().cpu().numpy()


def _of_earlier(inputs: Float[Tensor, "T n"]) -> OfTarget:
    """Values of what the decoder read (BOS, y_1, ...) as those of y_1, y_2, ...; the last was never read."""
    values, steps = _array(inputs), len(inputs)
    found = np.zeros((steps, steps))
    found[:, : values.shape[1] - 1] = values[:, 1:]
    return found


# --- gradients -------------------------------------------------------------------------------------------------------


class Embedded:
    """One pair as a function of its embeddings: those of the source and of every extra, and what the decoder reads."""

    def __init__(self, network: Generator, batch: Batch) -> None:
        self.network, self.batch = network, batch
        with torch.no_grad(), Tape(SOURCE, TARGET) as tape:
            network.forced(batch)
        heard = tape.steps(TARGET) or [torch.zeros(*target_of(batch).ids.shape, 1, device=target_of(batch).ids.device)]
        assert len(heard) == 1, "a forced pass reads its target at once, or, one that only names labels, not at all"
        self.inputs: tuple[Tensor, ...] = (*tape.steps(SOURCE), *heard)  # each 1 n E

    def __call__(self, *given: Tensor) -> Float[Tensor, "n"]:
        """f_t of every row, from its embeddings and, the last of `given`, the step t that it asks for."""
        *sources, target, steps = given
        taps = {SOURCE: lambda _, place: sources[place], TARGET: lambda _, place: target}
        rows = copied(self.batch, len(steps))
        with Tape(replace=taps):
            features, state = self.network.forced(rows)
        gold = target_of(rows).ids.gather(1, steps[:, None])  # n 1
        asked = features[torch.arange(len(steps), device=steps.device), steps][:, None]  # n 1 D
        asked = asked + 0.0 * target.sum((1, 2))[:, None, None]  # what was said has no part where nobody reads it
        return -self.network.head.nll(asked, state, Tokens(gold, torch.ones_like(gold, dtype=torch.bool)))[:, 0]

    def rows(self) -> Iterator[tuple[tuple[Tensor, ...], Int[Tensor, "n"]]]:
        """All steps, as many at once as one call may read: embeddings and steps."""
        steps = torch.arange(target_of(self.batch).ids.shape[1], device=self.inputs[0].device)
        for part in torch.split(steps, rows_at_once(self.batch)):
            yield tuple(value.expand(len(part), -1, -1).clone() for value in self.inputs), part

    def attributed(
        self, parts: Sequence[tuple[Tensor, ...]], missed: Float64[np.ndarray, "T"] | None = None
    ) -> Attributed:
        """`parts` are values of every embedding (n s E each), of some steps after the other."""
        summed = [torch.cat([value.sum(-1) for value in column]) for column in zip(*parts, strict=True)]  # T s each
        count = sum(source.mask.shape[1] for source in self.batch.sources.values())
        of_sources = summed[:-1] or [summed[-1].new_zeros(len(summed[-1]), count)]  # begun from nothing
        read = torch.cat(of_sources, dim=1)
        return Attributed(_array(read), _of_earlier(summed[-1]), "log p", missed=missed)


class Gradient(Method):
    """Input x gradient."""

    class Settings(config.Settings):
        kind: Literal["gradient"] = "gradient"

    def __init__(self, settings: Settings) -> None:
        pass

    def __call__(self, network: Generator, batch: Batch) -> Attributed:
        function, parts = Embedded(network, alone(batch)), []
        for embedded, steps in function.rows():
            leaves = [value.requires_grad_() for value in embedded]
            with differentiable():
                gradients = torch.autograd.grad(function(*leaves, steps).sum(), leaves, materialize_grads=True)
            parts.append(tuple(leaf.detach() * slope for leaf, slope in zip(leaves, gradients, strict=True)))
        return function.attributed(parts)


class Integrated(Method):
    """Integrated gradients from zero embeddings, BOS aside, which stays what it is."""

    class Settings(config.Settings):
        kind: Literal["integrated"] = "integrated"
        steps: int = Field(50, ge=2, le=10_000)  # points of the integral: fewer miss more

    def __init__(self, settings: Settings) -> None:
        self.points = settings.steps

    def __call__(self, network: Generator, batch: Batch) -> Attributed:
        try:
            from captum.attr import IntegratedGradients
        except ImportError:
            fix = "pip install 'seqloom[explain]'"
            raise SeqloomError("E_EXTRA", "integrated gradients need captum", fix=fix) from None
        batch = alone(batch)
        function, parts, missed = Embedded(network, batch), [], []
        for embedded, steps in function.rows():
            nothing = [torch.zeros_like(value) for value in embedded]
            nothing[-1][:, 0] = embedded[-1][:, 0]
            with differentiable():
                values, delta = IntegratedGradients(function, multiply_by_inputs=True).attribute(
                    inputs=embedded,
                    baselines=tuple(nothing),
                    additional_forward_args=(steps,),
                    n_steps=self.points,
                    internal_batch_size=max(len(steps), rows_at_once(batch)),
                    return_convergence_delta=True,
                )
            parts.append(values)
            missed.append(delta)
        return function.attributed(parts, torch.cat(missed).detach().double().cpu().numpy())


# --- occlusion -------------------------------------------------------------------------------------------------------


class Occlusion(Method):
    """The loss of log p when a token cannot be read: <unk> stands in its place, and nothing there can be copied.

    A token that already is <unk> loses nothing. What can no longer be said at all has a log p of -87.
    """

    class Settings(config.Settings):
        kind: Literal["occlusion"] = "occlusion"
        by: Literal["unk", "mask"] = "unk"  # <mask> is for models that were trained with source_noise.mask

    def __init__(self, settings: Settings) -> None:
        self.cover = MASK if settings.by == "mask" else UNK

    @torch.no_grad()
    def __call__(self, network: Generator, batch: Batch) -> Attributed:
        batch = alone(batch)
        steps = target_of(batch).ids.shape[1]
        places: list[tuple[str | None, int]] = [
            (name, place) for name, source in batch.sources.items() for place in range(source.mask.shape[1])
        ]
        read = len(places)
        places += [(None, place) for place in range(steps - 1)]
        said = self._log_probs(network, batch, [])  # 1 T
        size = rows_at_once(batch)
        parts = [self._log_probs(network, batch, places[at : at + size]) for at in range(0, len(places), size)]
        lost = _array((said - torch.cat(parts)).T)  # T, then places
        of_target = np.zeros((steps, steps))
        of_target[:, :-1] = lost[:, read:]
        return Attributed(lost[:, :read], np.tril(of_target, -1), "log p")

    def _log_probs(
        self, network: Generator, batch: Batch, hidden: Sequence[tuple[str | None, int]]
    ) -> Float[Tensor, "n T"]:
        """f_t of all steps, each row with one token hidden (of a source by name; None: of what was said); or none."""
        rows = copied(batch, max(1, len(hidden)))
        sources = {
            name: self._covered(source, [place if of == name else None for of, place in hidden])
            for name, source in rows.sources.items()
        }
        history = self._covered(target_of(rows), [place if of is None else None for of, place in hidden])
        assert isinstance(history, Tokens)
        features, state = network.forced(replace(rows, sources=sources), history)
        return (-network.head.nll(features, state, target_of(rows))).double().clamp(min=LEAST)

    def _covered(self, part: Source, places: Sequence[int | None]) -> Source:
        rows = [row for row, place in enumerate(places) if place is not None]
        columns = [place for place in places if place is not None]
        if isinstance(part, Frames):
            values = part.values.clone()
            values[rows, columns] = 0.0
            return replace(part, values=values)
        ids, copies = part.ids.clone(), None if part.copies is None else part.copies.clone()
        ids[rows, columns] = self.cover
        if copies is not None:
            copies[rows, columns] = NOTHING_TO_COPY
        return replace(part, ids=ids, copies=copies)


METHODS: Table[Method] = Table(
    "attributions",
    {
        "attention": Attention,
        "rollout": Rollout,
        "gradient": Gradient,
        "integrated": Integrated,
        "occlusion": Occlusion,
    },
)

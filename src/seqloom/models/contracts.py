"""The contracts between encoders, decoders, heads and search.

An encoder turns a source into a `Memory`. A decoder starts a `State` from memories and reads target tokens, any
number at a time: training reads all of them, decoding reads one. A head turns features into log-probabilities.
Search sees only a `Scorer`. Nothing here knows strings, files or the loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from seqloom import config
from seqloom.batch import Source
from seqloom.batch import Tokens as Gold
from seqloom.shapes import Bool, Features, Float, Int, LogProbs, Nll, Rows, RowTokens, StepLogProbs, Tensor

Tree = Mapping[str, Tensor]
Layers = tuple[tuple[Tensor, ...], ...]  # one tuple per layer: (h,) for Elman and GRU, (h, c) for an LSTM; each B D


@dataclass(frozen=True)
class Memory:
    """What an encoder hands over: states to attend to, which of them are real, and a summary per layer."""

    states: Float[Tensor, "B S D"]
    mask: Bool[Tensor, "B S"]
    summary: Layers


class State:
    """What a decoder (or constraint) carries between calls.

    `rows` tensors have N = B*K rows, row b*K + k: one per hypothesis. One that is called `ahead` (N W) tells search the
    log-probability of the likeliest rest after each token, where a decoder knows it. `sources` tensors have B rows:
    memory is not copied K times. Everything that changes is a tensor, positions too, so that one tree map serves each
    method.
    """

    __slots__ = ("rows", "sources")

    def __init__(self, rows: Tree, sources: Tree | None = None) -> None:
        self.rows: dict[str, Tensor] = dict(rows)
        self.sources: dict[str, Tensor] = dict(sources or {})

    def _map(self, on_rows: Callable[[Tensor], Tensor], on_sources: Callable[[Tensor], Tensor]) -> State:
        return State(
            {name: on_rows(tensor) for name, tensor in self.rows.items()},
            {name: on_sources(tensor) for name, tensor in self.sources.items()},
        )

    def select(self, rows: Int[Tensor, "n"], sources: Int[Tensor, "b"] | None = None) -> State:
        """Reorder, repeat or drop hypotheses; with `sources`, drop or repeat whole sources as well."""
        return self._map(
            lambda tensor: tensor.index_select(0, rows),
            lambda tensor: tensor if sources is None else tensor.index_select(0, sources),
        )

    def with_rows(self, **rows: Tensor) -> State:
        """The same sources, some rows replaced: how a decoder hands its state on."""
        return State({**self.rows, **rows}, self.sources)

    @staticmethod
    def joined(states: Sequence[State]) -> State:
        """Several scorers' states as one, which moves as one; `part` takes them apart again."""
        return State(
            {f"{index}/{name}": tensor for index, state in enumerate(states) for name, tensor in state.rows.items()},
            {f"{index}/{name}": tensor for index, state in enumerate(states) for name, tensor in state.sources.items()},
        )

    def part(self, index: int) -> State:
        """One of the states that were joined."""
        prefix = f"{index}/"
        return State(
            {name.removeprefix(prefix): tensor for name, tensor in self.rows.items() if name.startswith(prefix)},
            {name.removeprefix(prefix): tensor for name, tensor in self.sources.items() if name.startswith(prefix)},
        )

    def clone(self) -> State:
        return self._map(Tensor.clone, Tensor.clone)

    def detach(self) -> State:
        return self._map(Tensor.detach, Tensor.detach)

    def copy_(self, other: State) -> None:
        """Overwrite in place: a captured CUDA graph ends with this."""
        for name, tensor in self.rows.items():
            tensor.copy_(other.rows[name])
        for name, tensor in self.sources.items():
            tensor.copy_(other.sources[name])


class Encoder(nn.Module, ABC):
    """Source to memory. Only the encoder knows what became of its mask (a pyramid halves it)."""

    width: int  # D of memory.states
    reads_words: ClassVar[bool] = False  # True: sources must say which word each of their tokens is a part of
    reads: ClassVar[str | None] = None  # the only kind of source that it can read (`source.kind` of a recipe), if any
    shrinks: ClassVar[bool] = False  # True: its memory has fewer positions than the source
    one_way: bool = False  # True: a position knows nothing of what stands behind it
    reduction: int = 1  # so many neighbours of the source are one position of the memory, the last one may be of fewer
    self_taps: tuple[str, ...] = ()  # taps of the weights between its positions, layer by layer: B H S S
    summary_sizes: tuple[tuple[int, ...], ...]  # width of every tensor in memory.summary

    @abstractmethod
    def forward(self, source: Source) -> Memory: ...


class DecoderSettings(config.Settings):
    """What every decoder's settings can tell the model that it becomes a part of."""

    def fitted(self, encoder: bool) -> DecoderSettings:
        """These settings for a decoder with an encoder, or for one that reads alone.

        What was left open may be chosen here; what does not fit is a ValueError that begins with its key.
        """
        return self

    @property
    def attends(self) -> bool:
        """Has this decoder weights over the memory?"""
        return False

    @property
    def speaks(self) -> bool:
        """Are its features log-probabilities already, so that its head can only be `none`?"""
        return False

    @property
    def listens(self) -> bool:
        """Are the vectors of the tokens that it has said a part of what it says next?"""
        return True

    @property
    def in_place(self) -> bool:
        """Does every token that it says belong to the source's word of the same place?"""
        return False

    @property
    def may_say_nothing(self) -> bool:
        """Is an output without any token one that it learns, and not a mistake in the data?"""
        return False

    @property
    def measures(self) -> bool:
        """Are its tokens levels of a scale, in their order?"""
        return False

    @property
    def points(self) -> int:
        """How many tokens of the source, in a row, its outputs are at most; 0: they are something else."""
        return 0

    @property
    def apart(self) -> bool:
        """Does it want each source's memory by itself? It is then built with their names, `sources`, and needs two."""
        return False

    @property
    def asked_by(self) -> str | None:
        """The name of a further source that it cannot do without, if it names one."""
        return None


class Decoder(nn.Module, ABC):
    """Reads target tokens after a memory, or alone. Law 1: reading in pieces equals reading at once.

    Constructor keywords: `embedding`, `encoder`, and of a decoder that attends `shares_weights` (default False). Where
    it is True the features have the weights over the memory appended: averaged over the heads, of several layers the
    last one's, after their tap. Features are then N T D+S, `width` still being D. A copying head asks for it.
    """

    width: int  # D of the features
    carries: ClassVar[bool] = False  # True: its state has one size, however much it has read: it can be kept for later
    sure_of_end: ClassVar[bool] = False  # True: where it ends is no choice of its own, and nothing to be learned
    attention_taps: tuple[str, ...] = ()  # taps of the weights over the source, layer by layer: N H T S
    self_taps: tuple[str, ...] = ()  # taps of the weights over what the rows have read, layer by layer: N H T P
    between_taps: tuple[str, ...] = ()  # taps of the weights between its sources, over all of their positions: B H S S

    @abstractmethod
    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        """State before the first token, `rows` hypotheses in all (a multiple of B); keys are projected here, once.

        Without memories (of a decoder that was built without an encoder) nothing was read before the first token.
        """

    @abstractmethod
    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        """Features for every position, and the state after each row's last real token (`lengths`, default all)."""

    @property
    def one_by_one(self) -> str | None:
        """Because of what training goes through its steps one by one, where there is a faster way for its like."""
        return None

    def alone(self, state: State) -> LogProbs | None:
        """Of every place of the output the log-probability of each token, whatever stands at the others.

        None where that is not known, or is what the decoder says at each step anyway.
        """
        return None

    def held(self, state: State, room: int) -> State:
        """The same state with room for so many more tokens: reading them changes no tensor's shape. Consumes it.

        Recurrent states have one shape always; a decoder whose state grows with every token makes room here.
        """
        return state


class Head(nn.Module, ABC):
    """Features to log-probabilities. Law: nll == -log_probs.gather(gold)."""

    copies: ClassVar[bool] = False  # True: its features are those of a decoder that shares its weights, W = V + X
    repeats: ClassVar[bool] = False  # True: its features are log-probabilities, those of a decoder that speaks

    @abstractmethod
    def log_probs(self, features: Features, state: State) -> LogProbs: ...

    @abstractmethod
    def losses(
        self, features: Features, state: State, gold: Gold, smoothing: float = 0.0
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        """(what is minimised, plain nll) at the M real positions only: nothing is computed for padding."""

    def nll(self, features: Features, state: State, gold: Gold) -> Nll:
        """-log P(gold) per position, zero behind the mask."""
        values = self.losses(features, state, gold)[1]
        return torch.zeros_like(gold.mask, dtype=values.dtype).masked_scatter(gold.mask, values)


@runtime_checkable
class Scorer(Protocol):
    """What search sees: a model, an ensemble, a language model, a weighted mixture."""

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        """State for B sources x `hypotheses` rows, before any token. B is the batch of the sources."""
        ...

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        """Log-probabilities of the next token after reading `last` (BOS first). Consumes the state."""
        ...


@runtime_checkable
class Holding(Scorer, Protocol):
    """A scorer that can make room for the tokens to come, so that steps change no tensor's shape."""

    def held(self, state: State, room: int) -> State:
        """The same state with room for so many more tokens. Consumes it."""
        ...

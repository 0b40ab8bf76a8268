"""What every model that writes a sequence can do, whatever it is made of: P(y given x) = prod p(y_t given y_<t, x).

A generator is a decoder and a head that somebody starts on sources. It is a `Scorer`: search starts and steps it. It
knows integers, never strings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from seqloom import config
from seqloom.batch import Batch, Source, Tokens
from seqloom.models.contracts import Decoder, Encoder, Head, Memory, State
from seqloom.nn.frontends import Frontend
from seqloom.nn.tape import Tape
from seqloom.shapes import Features, Float, Int, Nll, Rows, RowTokens, StepLogProbs, Tensor
from seqloom.specials import BOS


class GeneratorSettings(config.Settings, ABC):
    """What the rest of a recipe must know of a model's settings."""

    @property
    @abstractmethod
    def one_vocabulary(self) -> bool:
        """Do source and target share their tokens?"""

    @property
    @abstractmethod
    def embeddings(self) -> Mapping[str, config.Settings]:
        """Settings of the embedding of each side ("source", "target"); of a shared one, only the target's."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, config.Settings]:
        """The named parts in the order in which a token passes them: encoder, decoder."""

    @property
    def takes_extras(self) -> bool:
        """Can further sources have encoders of their own? (Before the source any model can read them.)"""
        return False

    @property
    def copies(self) -> bool:
        """May outputs hold pieces of the source that the target vocabulary lacks? Then sources need `Tokens.copies`."""
        return False

    @property
    def attends(self) -> bool:
        """Has every output token weights over the source?"""
        return False

    @property
    def has_ctc(self) -> bool:
        """Does its encoder say something by itself, position by position?"""
        return False

    @property
    def continues(self) -> bool:
        """Is the source the beginning of the text that it goes on with, and may it be empty?"""
        return False

    @property
    def reads_words(self) -> bool:
        """Must sources tell which word each of their tokens is a part of?"""
        return False

    @property
    def labels(self) -> bool:
        """Are targets labels, which are said and never read?"""
        return False

    @property
    def points(self) -> int:
        """How many tokens of the source, in a row, outputs are at most; 0: they are something else."""
        return 0

    @property
    def in_place(self) -> bool:
        """Does every target token belong to the source's word of the same place?"""
        return False

    @property
    def may_be_empty(self) -> frozenset[str]:
        """Which side of an example ("source", "target") may have no text, and is no mistake in the data then?"""
        return frozenset({"source"} if self.continues else ())

    @property
    def measures(self) -> bool:
        """Are targets numbers on a scale?"""
        return False

    @property
    def compares(self) -> bool:
        """Does it compare its sources, so that there must be two or more with encoders?"""
        return False

    @property
    def asked_by(self) -> str | None:
        """The name of a further source whose encoder must be there, if it names one."""
        return None

    @property
    def ranks(self) -> bool:
        """Does it choose among given texts, and write none itself? It is then no generator."""
        return False

    @property
    def answers(self) -> bool:
        """Has every source one right answer, which search looks for and a calibration promises?"""
        return not self.continues and not self.ranks


class Network(nn.Module, ABC):
    """What a recipe's `model` builds, whatever it is for."""

    @abstractmethod
    def embeddings(self) -> Mapping[str, Frontend]:
        """The embedding of each side, under the names that the settings give them."""


@dataclass(frozen=True)
class Places:
    """Where things stand in the one sequence that is read by a decoder without an encoder, counted from 0."""

    read: Int[Tensor, "B S"]  # the positions of all sources, one source behind the other
    said: Int[Tensor, "B T"]  # from which the target's tokens are said


class Generator(Network):
    """A decoder, a head, and a way to start on sources.

    Sources are read by encoders (`readers`, `encode`), or by the decoder itself, before the target (`places`).
    """

    decoder: Decoder
    head: Head

    def readers(self) -> Sequence[Encoder]:
        """The encoder of each source in turn; none where the decoder reads the sources itself."""
        return ()

    def encode(self, sources: Mapping[str, Source]) -> dict[str, Memory]:
        """What the encoders hand over; nothing where there are none."""
        return {}

    def places(self, batch: Batch) -> Places | None:
        """Where sources and target stand in what the decoder reads; None where encoders read the sources."""
        return None

    @abstractmethod
    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        """State before the first target token, for B sources x `hypotheses` rows."""

    @property
    def attention_taps(self) -> tuple[str, ...]:
        """The taps that tell where predictions look in the source, layer by layer; none without attention."""
        return self.decoder.attention_taps

    def attended(self, tape: Tape, batch: Batch) -> list[Float[Tensor, "B H T S"]]:
        """Where each target token's prediction looked in the source, from a tape of a pass that was `forced`.

        Over all positions of the memory: the source's, then those of each extra in turn.
        """
        return [tape.joined(name, dim=2) for name in self.attention_taps]

    def attention(self, batch: Batch) -> list[Float[Tensor, "B H T S"]]:
        """Where each target token's prediction looks in the source, layer by layer; none without attention."""
        if not self.attention_taps:
            return []
        with Tape(*self.attention_taps) as tape:
            self.forced(batch)
        return self.attended(tape, batch)

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        features, state = self.read(last[:, None], state)
        return self.head.log_probs(features, state)[:, 0], state

    def read(self, tokens: RowTokens, state: State) -> tuple[Features, State]:
        """Features after tokens of the target, BOS first, from a state that `start` began."""
        features, state = self.decoder(tokens, state)
        return features, state

    def held(self, state: State, room: int) -> State:
        """The same state with room for so many more tokens: steps then change no tensor's shape. Consumes it."""
        return self.decoder.held(state, room)

    # --- teacher forcing ---------------------------------------------------------------------------------------------

    def forced(self, batch: Batch, history: Tokens | None = None) -> tuple[Features, State]:
        """The decoder's features at every target position; `history` replaces the gold tokens that it reads."""
        assert batch.target is not None
        inputs = shifted(batch.target if history is None else history)
        features, state = self.decoder(inputs.ids, self.start(batch.sources, 1))
        return features, state

    def losses(
        self, batch: Batch, history: Tokens | None = None, smoothing: float = 0.0
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        """(minimised, nll) per real target token."""
        assert batch.target is not None
        features, state = self.forced(batch, history)
        return self.head.losses(features, state, batch.target, smoothing)

    def nll(self, batch: Batch) -> Nll:
        """-log p(y_t given y_<t, x) for every target position, zero behind the mask."""
        assert batch.target is not None
        features, state = self.forced(batch)
        return self.head.nll(features, state, batch.target)


def shifted(target: Tokens) -> Tokens:
    """What the decoder reads when it must say `target`: BOS, then all but the last token."""
    ids = torch.roll(target.ids, 1, dims=1)
    ids[:, 0] = BOS
    return replace(target, ids=ids)

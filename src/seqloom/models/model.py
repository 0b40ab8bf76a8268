"""Whole models: an encoder, a decoder and a head (`Generator`), and several of them averaged (`Ensemble`).

A generator is a `Scorer`: search starts it on sources and steps it. It knows integers, never strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from pydantic import model_validator
from torch import nn

from seqloom import config
from seqloom.batch import BOS, Batch, Source, Tokens
from seqloom.config import Kind
from seqloom.models.contracts import Decoder, Encoder, Head, Memory, Scorer, State
from seqloom.models.heads import HEADS, Linear
from seqloom.models.rnn import DECODERS, ENCODERS, Luong, RecurrentEncoder
from seqloom.nn.frontends import EMBEDDINGS, Learned
from seqloom.shapes import Float, Nll, Rows, StepLogProbs, Tensor


class Generator(nn.Module):
    """P(y given x) = prod p(y_t given y_<t, x): an encoder, a decoder, a head."""

    class Settings(config.Settings):
        source_embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings()
        target_embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings()
        shared: bool = False  # source and target use one embedding (and so one vocabulary)
        tied: bool = False  # the output matrix is the target embedding
        encoder: Annotated[config.Settings, Kind(ENCODERS)] = RecurrentEncoder.Settings()
        decoder: Annotated[config.Settings, Kind(DECODERS)] = Luong.Settings()
        head: Annotated[config.Settings, Kind(HEADS)] = Linear.Settings()

        @model_validator(mode="after")
        def _sharing(self) -> Generator.Settings:
            if self.shared and self.source_embedding != self.target_embedding:
                raise ValueError("shared: source_embedding and target_embedding must be the same when shared")
            encoder, decoder = self.encoder.model_dump(), self.decoder.model_dump()
            if encoder.get("self_attention") and "attention" in decoder and decoder["attention"] is None:
                raise ValueError("encoder.self_attention: nothing reads these states; set decoder.attention")
            if self.tied and self.target_embedding.kind != "learned":  # type: ignore[attr-defined]
                raise ValueError("tied: only a learned target embedding can be tied to the output layer")
            return self

    def __init__(self, settings: Settings, *, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        assert not settings.shared or source_vocabulary == target_vocabulary
        target = EMBEDDINGS.build(settings.target_embedding, vocabulary=target_vocabulary)
        source = (
            target if settings.shared else EMBEDDINGS.build(settings.source_embedding, vocabulary=source_vocabulary)
        )
        self.source_embedding, self.target_embedding = source, target
        self.encoder: Encoder = ENCODERS.build(settings.encoder, embedding=source)
        self.decoder: Decoder = DECODERS.build(settings.decoder, embedding=target, encoder=self.encoder)
        tied = target.table if settings.tied else None
        self.head: Head = HEADS.build(
            settings.head, features=self.decoder.width, vocabulary=target_vocabulary, tied=tied
        )

    def encode(self, sources: Mapping[str, Source]) -> dict[str, Memory]:
        return {name: self.encoder(source) for name, source in sources.items()}

    # --- the Scorer contract -----------------------------------------------------------------------------------------

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        memories = self.encode(sources)
        count = next(iter(memories.values())).mask.shape[0]
        return self.decoder.start(memories, count * hypotheses)

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        features, state = self.decoder(last[:, None], state)
        return self.head.log_probs(features, state)[:, 0], state

    # --- teacher forcing ---------------------------------------------------------------------------------------------

    def losses(
        self, batch: Batch, history: Tokens | None = None, smoothing: float = 0.0
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "M"]]:
        """(minimised, nll) per real target token; `history` replaces the gold tokens that the decoder reads."""
        assert batch.target is not None
        inputs = shifted(batch.target if history is None else history)
        state = self.start(batch.sources, 1)
        features, state = self.decoder(inputs.ids, state)
        return self.head.losses(features, state, batch.target, smoothing)

    def nll(self, batch: Batch) -> Nll:
        """-log p(y_t given y_<t, x) for every target position, zero behind the mask."""
        assert batch.target is not None
        state = self.start(batch.sources, 1)
        features, state = self.decoder(shifted(batch.target).ids, state)
        return self.head.nll(features, state, batch.target)


def shifted(target: Tokens) -> Tokens:
    """What the decoder reads when it must say `target`: BOS, then all but the last token."""
    ids = torch.roll(target.ids, 1, dims=1)
    ids[:, 0] = BOS
    return Tokens(ids, target.mask)


class Ensemble(nn.Module):
    """Several scorers of one vocabulary; probabilities are averaged (not log-probabilities: law 6)."""

    def __init__(self, members: Sequence[Generator]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        states = [member.start(sources, hypotheses) for member in self._scorers()]
        return State(
            {f"{index}/{name}": tensor for index, state in enumerate(states) for name, tensor in state.rows.items()},
            {f"{index}/{name}": tensor for index, state in enumerate(states) for name, tensor in state.sources.items()},
        )

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        rows: dict[str, Tensor] = {}
        log_probs = []
        for index, member in enumerate(self._scorers()):
            logp, after = member.step(last, _member_state(state, index))
            log_probs.append(logp)
            rows |= {f"{index}/{name}": tensor for name, tensor in after.rows.items()}
        mean = torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(len(log_probs))
        return mean, State(rows, state.sources)

    def _scorers(self) -> list[Scorer]:
        return [member for member in self.members if isinstance(member, Generator)]


def _member_state(state: State, index: int) -> State:
    prefix = f"{index}/"
    return State(
        {name.removeprefix(prefix): tensor for name, tensor in state.rows.items() if name.startswith(prefix)},
        {name.removeprefix(prefix): tensor for name, tensor in state.sources.items() if name.startswith(prefix)},
    )

"""Whole models: an encoder and a decoder (`EncoderDecoder`), the table of all, and several averaged (`Ensemble`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import model_validator
from torch import nn

from seqloom import config
from seqloom.batch import Batch, Source
from seqloom.config import Kind, Table, kind_of
from seqloom.models.contracts import Decoder, Encoder, Head, Memory, Scorer, State
from seqloom.models.generator import Generator, GeneratorSettings
from seqloom.models.heads import HEADS, Linear
from seqloom.models.rnn import DECODERS, ENCODERS, Luong, RecurrentEncoder
from seqloom.nn.frontends import EMBEDDINGS, Embedding, Learned
from seqloom.nn.tape import Tape
from seqloom.shapes import Float, Rows, StepLogProbs, Tensor


class EncoderDecoder(Generator):
    """An encoder hands its memory to a decoder."""

    class Settings(GeneratorSettings):
        kind: Literal["encoder_decoder"] = "encoder_decoder"
        source_embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings()
        target_embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings()
        shared: bool = False  # source and target use one embedding (and so one vocabulary)
        tied: bool = False  # the output matrix is the target embedding
        encoder: Annotated[config.Settings, Kind(ENCODERS)] = RecurrentEncoder.Settings()
        decoder: Annotated[config.Settings, Kind(DECODERS)] = Luong.Settings()
        head: Annotated[config.Settings, Kind(HEADS)] = Linear.Settings()

        @model_validator(mode="after")
        def _sharing(self) -> EncoderDecoder.Settings:
            if self.shared and self.source_embedding != self.target_embedding:
                raise ValueError("shared: source_embedding and target_embedding must be the same when shared")
            encoder, decoder = self.encoder.model_dump(), self.decoder.model_dump()
            if encoder.get("self_attention") and "attention" in decoder and decoder["attention"] is None:
                raise ValueError("encoder.self_attention: nothing reads these states; set decoder.attention")
            if self.tied and kind_of(self.target_embedding) != "learned":
                raise ValueError("tied: only a learned target embedding can be tied to the output layer")
            return self

        @property
        def one_vocabulary(self) -> bool:
            return self.shared

        @property
        def embeddings(self) -> Mapping[str, config.Settings]:
            target = {"target": self.target_embedding}
            return target if self.shared else {**target, "source": self.source_embedding}

        @property
        def parts(self) -> Mapping[str, config.Settings]:
            return {"encoder": self.encoder, "decoder": self.decoder}

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

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        memories = self.encode(sources)
        count = next(iter(memories.values())).mask.shape[0]
        return self.decoder.start(memories, count * hypotheses)

    def embeddings(self) -> Mapping[str, Embedding]:
        return {"target": self.target_embedding, "source": self.source_embedding}

    def attention(self, batch: Batch) -> list[Float[Tensor, "B H T S"]]:
        with Tape(*self.decoder.attention_taps) as tape:
            self.nll(batch)
        return [tape.joined(name, dim=2) for name in self.decoder.attention_taps]


MODELS: Table[Generator] = Table("models", {"encoder_decoder": EncoderDecoder})


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

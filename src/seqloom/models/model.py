"""Whole models: an encoder and a decoder (`EncoderDecoder`), the table of all, and several averaged (`Ensemble`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from seqloom import config
from seqloom.batch import Batch, Source, Tokens
from seqloom.config import Kind, Table, kind_of
from seqloom.models.contracts import Decoder, DecoderSettings, Encoder, Head, Memory, State
from seqloom.models.copying import ReadsCopies, copyable
from seqloom.models.dual import DualEncoder
from seqloom.models.generator import Generator, GeneratorSettings, Network
from seqloom.models.heads import HEADS, Linear, Repeat
from seqloom.models.joint import Joint
from seqloom.models.language import LanguageModel
from seqloom.models.memories import FURTHER, FurtherSource, joined, spread_out
from seqloom.models.rnn import Luong
from seqloom.models.rnn_encoder import RecurrentEncoder
from seqloom.models.tables import DECODERS, ENCODERS
from seqloom.nn.ctc import CTC, Ctc
from seqloom.nn.frontends import EMBEDDINGS, FRONTENDS, Embedding, Frontend, Learned, OneHot
from seqloom.nn.tape import Tape, listening, tap
from seqloom.shapes import Float, Rows, StepLogProbs, Tensor


def _usual_head(chosen: Mapping[str, object]) -> config.Settings:
    """What stands where a recipe leaves the head out: linear, and none where the decoder speaks for itself."""
    decoder = chosen.get("decoder")
    return Repeat.Settings() if isinstance(decoder, DecoderSettings) and decoder.speaks else Linear.Settings()


class EncoderDecoder(Generator):
    """An encoder hands its memory to a decoder."""

    class Settings(GeneratorSettings):
        kind: Literal["encoder_decoder"] = "encoder_decoder"
        source_embedding: Annotated[config.Settings, Kind(FRONTENDS)] = Learned.Settings()
        target_embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings()
        shared: bool = False  # source and target use one embedding (and so one vocabulary)
        tied: bool = False  # the output matrix is the target embedding
        encoder: Annotated[config.Settings, Kind(ENCODERS)] = RecurrentEncoder.Settings()
        decoder: Annotated[DecoderSettings, Kind(DECODERS)] = Luong.Settings()
        head: Annotated[config.Settings, Kind(HEADS)] = Field(default_factory=_usual_head)
        ctc: bool = False  # the encoder says tokens by itself as well: for `task.ctc` and `search.ctc`

        @field_validator("decoder")
        @classmethod
        def _sees_the_source(cls, decoder: DecoderSettings) -> DecoderSettings:
            return decoder.fitted(encoder=True)

        @model_validator(mode="after")
        def _encoder_reads(self) -> EncoderDecoder.Settings:
            only, given = ENCODERS[kind_of(self.encoder)].reads, FRONTENDS[kind_of(self.source_embedding)].reads
            if only not in (None, given):
                told = f"{kind_of(self.encoder)} reads {only}, and source_embedding: {kind_of(self.source_embedding)}"
                raise ValueError(f"encoder: {told} reads {given}; set source.kind: {only}, or use another encoder")
            return self

        @model_validator(mode="after")
        def _sharing(self) -> EncoderDecoder.Settings:
            if self.shared and not self.decoder.listens:
                raise ValueError(f"shared: a {kind_of(self.decoder)} decoder reads no tokens, so it has no embedding")
            if self.shared and self.source_embedding != self.target_embedding:
                raise ValueError("shared: source_embedding and target_embedding must be the same when shared")
            encoder, decoder = self.encoder.model_dump(), self.decoder.model_dump()
            if encoder.get("self_attention") and "attention" in decoder and decoder["attention"] is None:
                raise ValueError("encoder.self_attention: nothing reads these states; set decoder.attention")
            if self.tied and kind_of(self.target_embedding) != "learned":
                raise ValueError("tied: only a learned target embedding can be tied to the output layer")
            return self

        @model_validator(mode="after")
        def _head_fits(self) -> EncoderDecoder.Settings:
            decoder, head = kind_of(self.decoder), HEADS[kind_of(self.head)]
            if self.decoder.speaks and not head.repeats:
                raise ValueError(
                    f"head: a {decoder} decoder says its probabilities itself; leave head out, or set none"
                )
            if head.repeats and not self.decoder.speaks:
                raise ValueError(f"head: none has no probabilities for a {decoder} decoder; use linear, mlp or copy")
            if head.repeats and self.tied:
                raise ValueError(f"tied: a {decoder} decoder has no output layer that could be tied")
            if head.copies and not self.attends:
                raise ValueError(
                    "head: copy points with the decoder's attention, and there is none; set decoder.attention"
                )
            return self

        @model_validator(mode="after")
        def _places_are_kept(self) -> EncoderDecoder.Settings:
            if not ENCODERS[kind_of(self.encoder)].shrinks:
                return self
            fewer = f"a {kind_of(self.encoder)} encoder leaves fewer positions than the source has"
            if self.decoder.in_place:
                raise ValueError(f"encoder: {fewer}, and every tag belongs to one; use rnn or transformer")
            if HEADS[kind_of(self.head)].copies:
                raise ValueError(f"encoder: {fewer}, and head: copy points at each; use rnn or transformer")
            if self.decoder.points:
                raise ValueError(f"encoder: {fewer}, and a span begins and ends at one; use rnn or transformer")
            if self.decoder.apart:
                raise ValueError(f"encoder: {fewer}, and the decoder compares them one by one; use rnn or transformer")
            return self

        @model_validator(mode="after")
        def _ctc_writes(self) -> EncoderDecoder.Settings:
            if self.ctc and not self.decoder.listens:
                raise ValueError(f"ctc: a {kind_of(self.decoder)} decoder says labels, and CTC writes; leave ctc out")
            if self.ctc and HEADS[kind_of(self.head)].copies:
                raise ValueError("ctc: it says tokens of the vocabulary, and head: copy says others; leave one out")
            return self

        @property
        def takes_extras(self) -> bool:
            return True

        @property
        def has_ctc(self) -> bool:
            return self.ctc

        @property
        def copies(self) -> bool:
            return HEADS[kind_of(self.head)].copies or bool(self.points)

        @property
        def points(self) -> int:
            return self.decoder.points

        @property
        def attends(self) -> bool:
            return self.decoder.attends

        @property
        def reads_words(self) -> bool:
            return ENCODERS[kind_of(self.encoder)].reads_words

        @property
        def labels(self) -> bool:
            return not self.decoder.listens and not self.points

        @property
        def in_place(self) -> bool:
            return self.decoder.in_place

        @property
        def may_be_empty(self) -> frozenset[str]:
            return frozenset({"target"} if self.decoder.may_say_nothing else ())

        @property
        def measures(self) -> bool:
            return self.decoder.measures

        @property
        def compares(self) -> bool:
            return self.decoder.apart

        @property
        def asked_by(self) -> str | None:
            return self.decoder.asked_by

        @property
        def one_vocabulary(self) -> bool:
            return self.shared

        @property
        def embeddings(self) -> Mapping[str, config.Settings]:
            target = {"target": self.target_embedding} if self.decoder.listens else {}
            return target if self.shared else {**target, "source": self.source_embedding}

        @property
        def parts(self) -> Mapping[str, config.Settings]:
            return {"encoder": self.encoder, "decoder": self.decoder}

    def __init__(
        self,
        settings: Settings,
        *,
        source_vocabulary: int,
        target_vocabulary: int,
        extras: Mapping[str, tuple[config.Settings, int]] | None = None,
    ) -> None:
        """Of a source of frames the "vocabulary" is F, the features of each. `extras` are further sources by name: how
        each is read, and the size of its vocabulary."""
        super().__init__()
        assert not settings.shared or source_vocabulary == target_vocabulary
        heard = settings.target_embedding if settings.decoder.listens else OneHot.Settings()  # it learns nothing
        target = EMBEDDINGS.build(heard, vocabulary=target_vocabulary)
        source = target if settings.shared else FRONTENDS.build(settings.source_embedding, vocabulary=source_vocabulary)
        self.source_embedding: Frontend = source
        self.target_embedding: Embedding = target
        self.encoder: Encoder = ENCODERS.build(settings.encoder, embedding=source)
        # "extra_": a module cannot have every name that a source can ("type", "keys")
        self.apart = settings.decoder.apart
        self.extras = nn.ModuleDict(
            {
                f"extra_{name}": FURTHER.build(chosen, vocabulary=size, main=self.encoder, apart=self.apart)
                for name, (chosen, size) in (extras or {}).items()
            }
        )
        copies = HEADS[kind_of(settings.head)].copies
        shares: dict[str, object] = {"shares_weights": True} if copies else {}
        if self.apart:
            shares["sources"] = ("source", *(extras or {}))
        reads = ReadsCopies(target) if copies else target
        self.decoder: Decoder = DECODERS.build(settings.decoder, embedding=reads, encoder=self.encoder, **shares)
        tied = target.table if settings.tied else None
        self.head: Head = HEADS.build(
            settings.head, features=self.decoder.width, vocabulary=target_vocabulary, tied=tied
        )

        self.ctc = Ctc(width=self.encoder.width, vocabulary=target_vocabulary) if settings.ctc else None

    def encode(self, sources: Mapping[str, Source]) -> dict[str, Memory]:
        """One memory, the extras' states behind the source's (`memories.joined`); or, in this order, each by itself."""
        memories: dict[str, Memory] = {"source": self.encoder(sources["source"])}
        if self.ctc is not None and listening(CTC):
            tap(CTC, self.ctc(memories["source"].states, memories["source"].mask))
        for key, further in self.extras.items():
            name = key.removeprefix("extra_")
            memories[name] = further(sources[name], self.encoder)
        return memories if self.apart else {"source": joined([*memories.values()])}

    def readers(self) -> list[Encoder]:
        """The encoder of each source in turn; the first one's reads those that share it."""
        further = [extra for extra in self.extras.values() if isinstance(extra, FurtherSource)]
        return [self.encoder, *(extra.reader(self.encoder) for extra in further)]

    def attended(self, tape: Tape, batch: Batch) -> list[Float[Tensor, "B H T S"]]:
        """Where a position of the memory stands for several of the source, its weight is spread evenly over these."""
        layers = super().attended(tape, batch)
        factors = [reader.reduction for reader in self.readers()]
        if max(factors) == 1:
            return layers
        masks = [source.mask for source in batch.sources.values()][: len(factors)]
        return [spread_out(weights, masks, factors) for weights in layers]

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        memories = self.encode(sources)
        count = next(iter(memories.values())).mask.shape[0]
        state = self.decoder.start(memories, count * hypotheses)
        if not self.head.copies:
            return state
        source = sources["source"]
        assert isinstance(source, Tokens), "only tokens can be copied"
        return State(state.rows, {**state.sources, **copyable(source, self.target_embedding.vocabulary)})

    def embeddings(self) -> Mapping[str, Frontend]:
        return {"target": self.target_embedding, "source": self.source_embedding}


MODELS: Table[Network] = Table(
    "models", {"encoder_decoder": EncoderDecoder, "joint": Joint, "language": LanguageModel, "dual": DualEncoder}
)


class Ensemble(nn.Module):
    """Several scorers of one vocabulary; probabilities are averaged (not log-probabilities: law 6)."""

    def __init__(self, members: Sequence[Generator]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        return State.joined([member.start(sources, hypotheses) for member in self._scorers()])

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        told = [member.step(last, state.part(index)) for index, member in enumerate(self._scorers())]
        mean = torch.logsumexp(torch.stack([log_probs for log_probs, _ in told]), dim=0) - math.log(len(told))
        return mean, State.joined([after for _, after in told])

    def held(self, state: State, room: int) -> State:
        return State.joined([member.held(state.part(index), room) for index, member in enumerate(self._scorers())])

    def _scorers(self) -> list[Generator]:
        return [member for member in self.members if isinstance(member, Generator)]

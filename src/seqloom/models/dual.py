"""A dual encoder: a source (query) and a text (candidate) become one vector each, and near ones belong together.

    q = N(P_q pool(encoder(x)))    c = N(P_c pool(encoder(y)))    s(x, y) = q . c
    p(y_i | x_i, batch) = exp(s(x_i, y_i) / tau) / sum_j exp(s(x_i, y_j) / tau)

N divides a vector by its length where the similarity is the cosine; tau is the temperature (Henderson et al. 2017,
Efficient natural language response suggestion; Karpukhin et al. 2020, DPR). Vectors of candidates do not depend on the
query, so they are computed once, for all queries to come. It is no generator: nothing is written, search has no steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Source, Tokens
from seqloom.config import Kind, kind_of
from seqloom.errors import SeqloomError
from seqloom.models.bag import Dropout
from seqloom.models.contracts import Encoder, Memory
from seqloom.models.generator import GeneratorSettings, Network
from seqloom.models.pooling import How, Pooling
from seqloom.models.rnn_encoder import RecurrentEncoder
from seqloom.models.tables import ENCODERS
from seqloom.nn.attention import AttentionSettings
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.frontends import EMBEDDINGS, Embedding, Learned
from seqloom.nn.layers import exact
from seqloom.shapes import Float, Tensor

POOLING = "pooling"  # tap of the weights that make one vector of a text (B H 1 S), where attention does
USUAL = {"cosine": 0.05, "dot": 1.0}  # temperatures


class Side(nn.Module):
    """From an encoder's memory to the vector that is compared: pooled, then projected."""

    def __init__(self, settings: DualEncoder.Settings, *, encoder: Encoder) -> None:
        super().__init__()
        self.pooling = Pooling(settings.pooling, settings.attention, encoder=encoder, name=POOLING)
        self.width = self.pooling.width
        layers: list[nn.Module] = [CheapDropout(settings.dropout)]
        if settings.hidden is not None:
            layers += [nn.Linear(self.width, settings.hidden), nn.ReLU(), CheapDropout(settings.dropout)]
            self.width = settings.hidden
        if settings.projection is not None:
            layers.append(nn.Linear(self.width, settings.projection, bias=False))
            self.width = settings.projection
        self.project = nn.Sequential(*layers)

    def forward(self, memory: Memory) -> Float[Tensor, "B D"]:
        pooled = exact(self.pooling(memory))
        with torch.autocast(pooled.device.type, enabled=False):  # vectors differ in digits that bf16 does not have
            vectors: Tensor = self.project(pooled)
        return vectors


class DualEncoder(Network):
    """Two encoders, or one that reads both sides, and a similarity of what they make of a text."""

    class Settings(GeneratorSettings):
        kind: Literal["dual"] = "dual"
        sharing: Literal["none", "encoder", "all"] = "encoder"  # what both sides have in common; all: projections too
        source_embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings()
        target_embedding: Annotated[config.Settings | None, Kind(EMBEDDINGS)] = None  # null: like the source's
        encoder: Annotated[config.Settings, Kind(ENCODERS)] = RecurrentEncoder.Settings()
        target_encoder: Annotated[config.Settings | None, Kind(ENCODERS)] = None  # null: like `encoder`
        pooling: How = "mean"  # a text as one vector
        attention: AttentionSettings = AttentionSettings()  # where `pooling` is attention
        hidden: int | None = Field(None, ge=1)  # width of a layer before the projection, relu(U x + c); null: none
        projection: int | None = Field(128, ge=1)  # width of the vectors that are compared; null: as they are pooled
        dropout: Dropout = 0.0  # on what is projected
        similarity: Literal["cosine", "dot"] = "cosine"
        temperature: float | None = Field(None, gt=0, le=1e3)  # null: 0.05 of cosines, 1 of dot products
        learned_temperature: bool = False  # `temperature` is only where it begins

        @model_validator(mode="after")
        def _sides_fit(self) -> DualEncoder.Settings:
            if self.one_vocabulary and (self.target_embedding or self.target_encoder):
                key = "target_encoder" if self.target_encoder else "target_embedding"
                raise ValueError(f"{key}: one encoder reads both sides; leave {key} out, or set sharing: none")
            read = self.encoder if self.target_encoder is None else self.target_encoder
            if ENCODERS[kind_of(read)].reads_words:
                known = f"only the words of sources are known, so {kind_of(read)} reads no target"
                raise ValueError(f"encoder: {known}; set sharing: none and target_encoder to another kind")
            if self.hidden is not None and self.projection is None:
                raise ValueError("projection: null, but hidden is a layer before it; give projection a width")
            return self

        @property
        def one_vocabulary(self) -> bool:
            return self.sharing != "none"

        @property
        def embeddings(self) -> Mapping[str, config.Settings]:
            source = {"source": self.source_embedding}
            return source if self.one_vocabulary else {**source, "target": self.target_embedding or source["source"]}

        @property
        def parts(self) -> Mapping[str, config.Settings]:
            second = {} if self.one_vocabulary else {"target_encoder": self.target_encoder or self.encoder}
            return {"encoder": self.encoder, **second}

        @property
        def reads_words(self) -> bool:
            return ENCODERS[kind_of(self.encoder)].reads_words

        @property
        def ranks(self) -> bool:
            return True

    def __init__(self, settings: Settings, *, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        assert not settings.one_vocabulary or source_vocabulary == target_vocabulary
        build = EMBEDDINGS.build
        self.source_embedding: Embedding = build(settings.source_embedding, vocabulary=source_vocabulary)
        self.encoder: Encoder = ENCODERS.build(settings.encoder, embedding=self.source_embedding)
        self.target_embedding, self.target_encoder = self.source_embedding, self.encoder
        if not settings.one_vocabulary:
            self.target_embedding = build(settings.embeddings["target"], vocabulary=target_vocabulary)
            self.target_encoder = ENCODERS.build(settings.parts["target_encoder"], embedding=self.target_embedding)
        self.query = Side(settings, encoder=self.encoder)
        self.candidate = self.query if settings.sharing == "all" else Side(settings, encoder=self.target_encoder)
        if self.query.width != self.candidate.width:
            what = f"vectors of {self.query.width} and {self.candidate.width} numbers cannot be compared"
            raise SeqloomError("E_RECIPE", what, where="model.projection", fix="give it a width, such as 128")
        self.width, self.cosine = self.query.width, settings.similarity == "cosine"
        start = math.log(settings.temperature or USUAL[settings.similarity])
        self.log_temperature: nn.Parameter | Tensor = torch.tensor(start)  # a fixed one is the recipe's alone to know
        if settings.learned_temperature:
            self.log_temperature = nn.Parameter(self.log_temperature)

    def embeddings(self) -> Mapping[str, Embedding]:
        return {"source": self.source_embedding, "target": self.target_embedding}

    def queries(self, sources: Mapping[str, Source]) -> Float[Tensor, "B D"]:
        """The vector of each source."""
        return self._compared(self.query(self.encoder(sources["source"])))

    def candidates(self, texts: Tokens) -> Float[Tensor, "B D"]:
        """The vector of each text that may be the answer."""
        return self._compared(self.candidate(self.target_encoder(texts)))

    def _compared(self, vectors: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        return F.normalize(vectors, dim=-1) if self.cosine else vectors

    def logits(self, queries: Float[Tensor, "B D"], candidates: Float[Tensor, "C D"]) -> Float[Tensor, "B C"]:
        """What a softmax makes probabilities of: similarities by the temperature."""
        with torch.autocast(queries.device.type, enabled=False):
            return queries @ candidates.T / self.log_temperature.to(queries).exp()

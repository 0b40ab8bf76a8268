"""One model for both: a single decoder reads source, SEP and target, and is asked about the target only.

    x_1 ... x_n EOS SEP BOS y_1 ... y_m        P(y given x) = prod p(y_t given x, y_<t)

A source is read as it comes: its EOS stays and SEP follows; several sources follow one another, each with its SEP. In
training the whole is one sequence without a gap. There is no encoder, no memory and no loss on the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import field_validator, model_validator

from seqloom import config
from seqloom.batch import Batch, Source, Tokens
from seqloom.config import Kind, kind_of
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Decoder, DecoderSettings, Head, State
from seqloom.models.generator import Generator, GeneratorSettings, Places, shifted
from seqloom.models.heads import HEADS, Linear
from seqloom.models.tables import DECODERS
from seqloom.models.transformer import TransformerDecoder
from seqloom.nn.frontends import EMBEDDINGS, SOURCE, TARGET, Embedding, Frontend, Learned
from seqloom.nn.tape import Tape, told_apart
from seqloom.shapes import Features, Float, Int, Tensor
from seqloom.specials import SEP


class AloneSettings(GeneratorSettings):
    """A decoder without an encoder: one embedding, so one vocabulary."""

    kind: str
    embedding: Annotated[config.Settings, Kind(EMBEDDINGS)] = Learned.Settings()
    tied: bool = False  # the output matrix is the embedding
    decoder: Annotated[DecoderSettings, Kind(DECODERS)] = TransformerDecoder.Settings()
    head: Annotated[config.Settings, Kind(HEADS)] = Linear.Settings()

    @field_validator("decoder")
    @classmethod
    def _reads_alone(cls, decoder: DecoderSettings) -> DecoderSettings:
        return decoder.fitted(encoder=False)

    @model_validator(mode="after")
    def _head_fits(self) -> AloneSettings:
        head = HEADS[kind_of(self.head)]
        if head.copies or head.repeats:
            raise ValueError(f"head: a {self.kind} model has no attention to a memory that it needs; use linear or mlp")
        if self.tied and kind_of(self.embedding) != "learned":
            raise ValueError("tied: only a learned embedding can be tied to the output layer")
        return self

    @property
    def one_vocabulary(self) -> bool:
        return True

    @property
    def embeddings(self) -> Mapping[str, config.Settings]:
        return {"target": self.embedding}

    @property
    def parts(self) -> Mapping[str, config.Settings]:
        return {"decoder": self.decoder}


class Joint(Generator):
    """A decoder that reads everything."""

    class Settings(AloneSettings):
        kind: Literal["joint"] = "joint"

    def __init__(self, settings: AloneSettings, *, source_vocabulary: int, target_vocabulary: int) -> None:
        """Source and target share their tokens; a source may have further ones behind them (features before it)."""
        super().__init__()
        assert source_vocabulary >= target_vocabulary
        if settings.tied and source_vocabulary > target_vocabulary:
            what = "the embedding has tokens that only a source can have: it cannot be the output matrix"
            raise SeqloomError("E_RECIPE", what, where="model.tied", fix="set model.tied: false")
        self.embedding: Embedding = EMBEDDINGS.build(settings.embedding, vocabulary=source_vocabulary)
        self.decoder: Decoder = DECODERS.build(settings.decoder, embedding=self.embedding, encoder=None)
        tied = self.embedding.table if settings.tied else None
        self.head: Head = HEADS.build(
            settings.head, features=self.decoder.width, vocabulary=target_vocabulary, tied=tied
        )

    def embeddings(self) -> Mapping[str, Frontend]:
        return {"target": self.embedding, "source": self.embedding}

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        """Sources are read once, each row to its own end; then every hypothesis gets its source's state."""
        prompt, places = without_gaps(_prompt(sources))
        count = prompt.ids.shape[0]
        with told_apart(TARGET, _embedded(places)):
            state: State = self.decoder(prompt.ids, self.decoder.start(None, count), prompt.lengths)[1]
        if hypotheses == 1:
            return state
        return state.select(torch.arange(count, device=prompt.ids.device).repeat_interleave(hypotheses))

    def forced(self, batch: Batch, history: Tokens | None = None) -> tuple[Features, State]:
        """Sources and target read as one sequence; features at the target's positions (law 1: as read in turns)."""
        assert batch.target is not None
        inputs = shifted(batch.target if history is None else history)
        whole, (*read, said) = without_gaps([*_prompt(batch.sources), inputs])
        with told_apart(TARGET, [*_embedded(read), (TARGET, said)]):
            features, state = self.decoder(whole.ids, self.decoder.start(None, len(batch)))
        return features.gather(1, said[..., None].expand(-1, -1, features.shape[2])), state

    @property
    def attention_taps(self) -> tuple[str, ...]:
        return self.decoder.self_taps

    def attended(self, tape: Tape, batch: Batch) -> list[Float[Tensor, "B H T S"]]:
        """A decoder's self-attention from the target's positions to the sources'; of a recurrent one there is none.

        The weights are what they are: what a token gives to SEP, to the target and to itself is missing, so that a
        row need not sum to 1. Of several sources, the positions of one follow those of the other.
        """
        places = self.places(batch)
        return [picked(tape.joined(name, dim=2), places) for name in self.attention_taps]

    def places(self, batch: Batch) -> Places:
        assert batch.target is not None
        *read, said = without_gaps([*_prompt(batch.sources), batch.target])[1]
        return Places(torch.cat(read[::2], dim=1), said)  # every second part is a SEP; padding stands last, never seen


def without_gaps(parts: Sequence[Tokens]) -> tuple[Tokens, tuple[Int[Tensor, "B s"], ...]]:
    """The real tokens of all parts, one behind the other, padding at the end; and where each part's tokens are now."""
    mask = torch.cat([part.mask for part in parts], dim=1)
    order = torch.argsort((~mask).byte(), dim=1, stable=True)
    places = torch.argsort(order, dim=1)
    ids = torch.cat([part.ids for part in parts], dim=1)
    widths = [part.ids.shape[1] for part in parts]
    return Tokens(ids.gather(1, order), mask.gather(1, order)), torch.split(places, widths, dim=1)


def _prompt(sources: Mapping[str, Source]) -> list[Tokens]:
    """What is read before the target: each source, and SEP behind it."""
    parts: list[Tokens] = []
    for source in sources.values():
        if not isinstance(source, Tokens):
            raise SeqloomError(
                "E_RECIPE", "a joint model reads tokens only", where="model.kind", fix="use encoder_decoder for frames"
            )
        separator = source.ids.new_full((len(source.ids), 1), SEP)
        parts += [source, Tokens(separator, torch.ones_like(separator, dtype=torch.bool))]
    return parts


def _embedded(prompt: Sequence[Int[Tensor, "B _"]]) -> list[tuple[str, Int[Tensor, "B _"]]]:
    """Where each source of a prompt stands; the SEP behind it is no part of it."""
    return [(SOURCE, places) for places in prompt[::2]]


def picked(weights: Float[Tensor, "B H L L"], places: Places) -> Float[Tensor, "B H T S"]:
    """Weights from where the target is said to where the sources stand, within one sequence."""
    batch = torch.arange(len(weights), device=weights.device)[:, None, None]
    return weights.transpose(1, 0)[:, batch, places.said[:, :, None], places.read[:, None]].transpose(1, 0)

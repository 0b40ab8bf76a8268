"""The recurrent encoder: layers that read the source forward, or both ways, and what they end with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import nn

from seqloom import config
from seqloom.batch import Source
from seqloom.config import Kind
from seqloom.models.contracts import Encoder, Memory
from seqloom.nn.attention import SelfAttention
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.entrance import Dropout
from seqloom.nn.frontends import Frontend, Vectors
from seqloom.nn.recurrent import CELLS, LSTM, Bidirectional, reverse
from seqloom.nn.tape import listening, tap
from seqloom.shapes import Int, States, Tensor


class RecurrentEncoder(Encoder):
    """A stack of recurrent layers, each forward or both ways; optionally self-attention over the states."""

    class Settings(config.Settings):
        kind: Literal["rnn"] = "rnn"
        cell: Annotated[config.Settings, Kind(CELLS)] = LSTM.Settings()
        width: int = Field(256, ge=1)  # of the states; with both directions each has half
        layers: int = Field(1, ge=1, le=1000)
        bidirectional: bool = True
        reverse: bool = False  # read the source back to front (Sutskever 2014); memory keeps the original order
        start: Literal["zero", "learned"] = "zero"
        dropout: Dropout = 0.0
        self_attention: SelfAttention.Settings | None = None

        @model_validator(mode="after")
        def _halves(self) -> RecurrentEncoder.Settings:
            if self.bidirectional and self.width % 2:
                raise ValueError(f"width: a bidirectional encoder needs an even width, got {self.width}")
            return self

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.vectors = Vectors(embedding, frames)
        self.width, self.reverse = settings.width, settings.reverse
        sees_all = settings.self_attention is not None and not settings.self_attention.causal
        self.one_way = not (settings.bidirectional or settings.reverse or sees_all)
        inputs = [self.vectors.width] + [settings.width] * (settings.layers - 1)
        self.layers = nn.ModuleList(
            Bidirectional(
                settings.cell,
                inputs=size,
                width=settings.width,
                both=settings.bidirectional,
                learned_start=settings.start == "learned",
                name=f"encoder.{layer}",
            )
            for layer, size in enumerate(inputs)
        )
        self.layer_taps = tuple(f"encoder.{layer}.states" for layer in range(settings.layers))
        self.step_taps = tuple(name for layer in self.layers for name in _bidirectional(layer).step_taps)
        self.dropout = CheapDropout(settings.dropout)
        attends = settings.self_attention
        self.self_attention = None if attends is None else SelfAttention(attends, width=settings.width)
        parts = len(CELLS[settings.cell.kind].parts)  # type: ignore[attr-defined]
        self.summary_sizes = ((settings.width,) * parts,) * settings.layers

    def forward(self, source: Source) -> Memory:
        lengths = source.lengths
        x = self.vectors(source)  # B S D
        x = tap("encoder.inputs", x)
        if self.reverse:
            x = reverse(x, lengths)
        summary = []
        for layer, name in zip(self.layers, self.layer_taps, strict=True):
            x, final = layer(self.dropout(x), lengths)
            if listening(name):
                x = self._seen(name, x, lengths)
            summary.append(final)
        if self.reverse:
            x = reverse(x, lengths)
        x = self.dropout(x).masked_fill(~source.mask[..., None], 0.0)
        if self.self_attention is not None:
            x = self.self_attention(x, source.mask)
        return Memory(tap("encoder.states", x), source.mask, tuple(summary))

    def _seen(self, name: str, x: States, lengths: Int[Tensor, "B"]) -> States:
        """A layer's states past their tap, in the order of the source."""
        if not self.reverse:
            return tap(name, x)
        return reverse(tap(name, reverse(x, lengths)), lengths)


def _bidirectional(module: nn.Module) -> Bidirectional:
    assert isinstance(module, Bidirectional)
    return module

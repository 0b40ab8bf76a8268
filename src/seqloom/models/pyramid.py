"""Listen: recurrent layers, each of which reads half as many positions as the one below (Chan et al. 2016).

    h^0_t = both(x_t, h^0_{t-1}),    h^l_t = both([h^{l-1}_{2t}; h^{l-1}_{2t+1}], h^l_{t-1})

A second of sound is a hundred frames, and hardly three words: attention over all of them is spread too thinly to learn
from, and a recurrence too long. A source of odd length is joined with zeros at its end; what is behind a source's end
is never read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Source
from seqloom.config import Kind
from seqloom.models.contracts import Encoder, Memory
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.entrance import Dropout, scale_of
from seqloom.nn.frontends import Frontend, Vectors
from seqloom.nn.layers import halved, nothing_behind
from seqloom.nn.recurrent import CELLS, LSTM, Bidirectional
from seqloom.nn.tape import tap
from seqloom.shapes import Float, Tensor


class PyramidEncoder(Encoder):
    """Bidirectional layers; every one but the first joins two neighbours of the one below, so that time is halved."""

    shrinks = True

    class Settings(config.Settings):
        kind: Literal["pyramid"] = "pyramid"
        cell: Annotated[config.Settings, Kind(CELLS)] = LSTM.Settings()
        width: int = Field(256, ge=1)  # of the states; each direction has half
        layers: int = Field(3, ge=1, le=12)  # 2^(layers - 1) positions become one
        scale_embedding: bool = True  # by sqrt(its width): embeddings are drawn small
        dropout: Dropout = 0.0

        @model_validator(mode="after")
        def _halves(self) -> PyramidEncoder.Settings:
            if self.width % 2:
                raise ValueError(f"width: two directions need an even width, got {self.width}")
            return self

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.vectors = Vectors(embedding, frames)
        self.width, self.reduction = settings.width, 2 ** (settings.layers - 1)
        self.scale = scale_of(embedding, settings.scale_embedding)
        inputs = [self.vectors.width] + [2 * settings.width] * (settings.layers - 1)
        self.layers = nn.ModuleList(
            Bidirectional(settings.cell, inputs=size, width=settings.width, both=True, learned_start=False)
            for size in inputs
        )
        self.dropout = CheapDropout(settings.dropout)
        parts = len(CELLS[settings.cell.kind].parts)  # type: ignore[attr-defined]
        self.summary_sizes = ((settings.width,) * parts,) * settings.layers

    def forward(self, source: Source) -> Memory:
        mask = source.mask
        x = tap("encoder.inputs", self.scale * self.vectors(source))  # B S D
        summary = []
        for number, layer in enumerate(self.layers):
            if number:
                x, mask = _joined(x), halved(mask)
            x, final = layer(self.dropout(x), mask.sum(1))
            x = nothing_behind(x, mask)
            summary.append(final)
        return Memory(tap("encoder.states", self.dropout(x)), mask, tuple(summary))


def _joined(x: Float[Tensor, "B S D"]) -> Float[Tensor, "B H E"]:
    """Neighbours side by side: S D as ceil(S / 2) 2D, with zeros where the last has none."""
    even = F.pad(x, (0, 0, 0, x.shape[1] % 2))
    return even.reshape(x.shape[0], -1, 2 * x.shape[2])

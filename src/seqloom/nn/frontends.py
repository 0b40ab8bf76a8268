"""Front ends: how what is read becomes vectors: tokens (learned, one-hot), frames (projected), regions of pictures.

Taps: `source.embedded` = what an encoder reads (B S E), passed by the source, then by each extra in turn;
`target.embedded` = what a decoder reads (N T E). A joint model passes both, each with its own tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Source
from seqloom.config import Table
from seqloom.errors import SeqloomError
from seqloom.nn.tape import tap
from seqloom.shapes import Float, Int, Tensor
from seqloom.specials import PAD

SOURCE, TARGET = "source.embedded", "target.embedded"


class Frontend(nn.Module, ABC):
    """What is read to vectors of width `width`."""

    width: int
    reads: ClassVar[str]  # the form of a source (`SourceSettings.form`): "text", "frames"


class Embedding(Frontend):
    """Token ids to vectors of width `width`."""

    reads = "text"

    @abstractmethod
    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]: ...

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """V: how many different ids it embeds."""

    @property
    def table(self) -> Float[Tensor, "V D"]:
        """The matrix that an output layer may be tied to."""
        raise SeqloomError("E_RECIPE", "only learned embeddings can be tied", where="model.tied")


class Learned(Embedding):
    """A row of a learned matrix per token; PAD is zero. `vectors` names a GloVe or word2vec text file to start from."""

    class Settings(config.Settings):
        kind: Literal["learned"] = "learned"
        width: int = Field(256, ge=1)
        vectors: str | None = None
        freeze: bool = False

    def __init__(self, settings: Settings, *, vocabulary: int) -> None:
        super().__init__()
        self.width = settings.width
        self.weight = nn.Parameter(torch.empty(vocabulary, settings.width))
        nn.init.normal_(self.weight, std=settings.width**-0.5)
        with torch.no_grad():
            self.weight[PAD] = 0
        self.weight.requires_grad_(not settings.freeze)

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        return F.embedding(ids, self.weight)

    @property
    def vocabulary(self) -> int:
        return self.weight.shape[0]

    @property
    def table(self) -> Float[Tensor, "V D"]:
        return self.weight


class OneHot(Embedding):
    """e_i, the i-th unit vector: nothing learned before the first layer."""

    class Settings(config.Settings):
        kind: Literal["onehot"] = "onehot"

    def __init__(self, settings: Settings, *, vocabulary: int) -> None:
        super().__init__()
        self.width = vocabulary
        self.register_buffer("like", torch.zeros(()), persistent=False)  # carries the float type and the device

    def forward(self, ids: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        return F.one_hot(ids, self.width).to(self.like.dtype)  # type: ignore[arg-type]

    @property
    def vocabulary(self) -> int:
        return self.width


class Projection(Frontend):
    """W x + b of a frame's F features. Drawn so that normalised frames become as large as learned embeddings are."""

    reads = "frames"

    class Settings(config.Settings):
        kind: Literal["projection"] = "projection"
        width: int = Field(256, ge=1)

    def __init__(self, settings: Settings, *, vocabulary: int) -> None:
        """`vocabulary` is F here: what a front end must know of its source."""
        super().__init__()
        self.width = settings.width
        self.weight = nn.Parameter(torch.empty(settings.width, vocabulary))
        self.bias = nn.Parameter(torch.empty(settings.width))  # the end of a source is a frame of zeros: b alone
        nn.init.normal_(self.weight, std=(settings.width * vocabulary) ** -0.5)
        nn.init.normal_(self.bias, std=settings.width**-0.5)

    def forward(self, frames: Float[Tensor, "B S F"]) -> Float[Tensor, "B S D"]:
        return F.linear(frames, self.weight, self.bias)


class Regions(Frontend):
    """A picture's regions as they are: of `region` x `region` pixels each, `rows` x `columns` of them, then its end.

    The recipe says what these are by the source's own settings; encoders of pictures ask for them here.
    """

    reads = "pixels"

    class Settings(config.Settings):
        kind: Literal["regions"] = "regions"
        rows: int = Field(8, ge=1)
        columns: int = Field(8, ge=1)
        region: int = Field(8, ge=2)
        channels: Literal[1, 3] = 3

    def __init__(self, settings: Settings, *, vocabulary: int) -> None:
        super().__init__()
        self.rows, self.columns, self.region = settings.rows, settings.columns, settings.region
        self.channels, self.width = settings.channels, settings.region**2 * settings.channels

    @property
    def regions(self) -> int:
        return self.rows * self.columns

    def forward(self, frames: Float[Tensor, "B S F"]) -> Float[Tensor, "B S F"]:
        return frames

    def planes(self, frames: Float[Tensor, "B S F"]) -> Float[Tensor, "B C H W"]:
        """The whole picture again, one plane for each colour."""
        side = self.region
        grid = frames[:, : self.regions].reshape(-1, self.rows, self.columns, side, side, self.channels)
        return grid.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)  # B C rows h columns w, then B C H W


EMBEDDINGS: Table[Embedding] = Table("embeddings", {"learned": Learned, "onehot": OneHot})


FRONTENDS: Table[Frontend] = Table(
    "frontends", {"learned": Learned, "onehot": OneHot, "projection": Projection, "regions": Regions}
)  # of sources; a target is always tokens


class Vectors(nn.Module):
    """A source as vectors with a mask: through its front end, or frames as they are given."""

    def __init__(self, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.embedding = embedding
        width = embedding.width if embedding is not None else frames
        assert width is not None
        self.width = width

    def forward(self, source: Source) -> Float[Tensor, "B S D"]:
        values = source.vectors(self.embedding)
        real = values.masked_fill(~source.mask[..., None], 0.0)  # NaN behind the mask must not reach a gradient
        return tap(SOURCE, real)

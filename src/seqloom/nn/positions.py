"""Positions: how attention and convolutions know where a token stands.

Absolute positions are added to the vectors that a stack reads; rotary ones turn queries and keys. Rows of a batch may
stand at different places, so places are tensors; a bound on them is known without asking the device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.config import Table
from seqloom.errors import SeqloomError
from seqloom.shapes import Float, Int, Tensor

Places = Int[Tensor, "n T"]  # n = N rows, or 1 where all rows stand at the same places
Turn = tuple[Float[Tensor, "n T d"], Float[Tensor, "n T d"]]  # what each dimension takes of itself and of its partner
LONGEST_WAVE = 10_000.0
MOST_PLACES = 1 << 16  # of a table


def angles(places: Places, width: int, like: Tensor, reaching: bool = False) -> Float[Tensor, "n T h"]:
    """p / 10000^(2i / width) for every pair i; in float32 where `like` is less exact.

    `reaching`: p / 10000^(2i / (width - 2)), so that the last pair has the longest wave itself.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    pairs = torch.arange(0, width, 2, device=places.device, dtype=dtype)
    most = max(1, width - 2) if reaching else width
    return places[..., None].to(dtype) * torch.exp(pairs * (-math.log(LONGEST_WAVE) / most))


class Positions(nn.Module, ABC):
    """One way to tell places."""

    turns: ClassVar[bool] = False  # True: queries and keys are turned, rather than something added to the vectors

    @abstractmethod
    def added(self, x: Float[Tensor, "N T D"], places: Places, end: int) -> Float[Tensor, "N T D"]:
        """The vectors with their places; every place is below `end`."""

    def turn(self, places: Places, width: int, like: Tensor, end: int) -> Turn | None:
        """By how much queries and keys of `width` per head are turned, as exactly as `like` is; None: not at all."""
        return None


class Formula(Positions):
    """Places that are told by a formula, and not learned."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[Hashable, Tensor] = {}  # none is ever taken away: a recorded step may read it

    def waves(self, places: Places, width: int, like: Tensor, end: int) -> Float[Tensor, "n T w"]:
        """What `drawn` says of these places. Where nobody learns, a table of it is made once: a step of decoding asks
        for few numbers, and on a GPU each of a dozen small operations takes as long as a large one."""
        if torch.is_grad_enabled() or torch.compiler.is_exporting() or end > MOST_PLACES:
            return self.drawn(places, width, like)
        size = 1 << max(4, (end - 1).bit_length())
        key = (width, size, like.dtype, like.device)
        if key not in self._tables:
            if like.is_cuda and torch.cuda.is_current_stream_capturing():  # what is made now is the recording's alone
                return self.drawn(places, width, like)
            self._tables[key] = self.drawn(torch.arange(size, device=like.device)[None], width, like)[0]
        return F.embedding(places, self._tables[key])

    @abstractmethod
    def drawn(self, places: Places, width: int, like: Tensor) -> Float[Tensor, "n T w"]:
        """The numbers by which places are told."""


class Sinusoidal(Formula):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D)) (Vaswani 2017): of any length.

    Other tools lay the same waves out otherwise: all sines before all cosines (tensor2tensor, Marian), and the slowest
    one at exactly 10000. What a model has learned holds for one layout only.
    """

    class Settings(config.Settings):
        kind: Literal["sinusoidal"] = "sinusoidal"
        layout: Literal["pairs", "halves"] = "pairs"  # a cosine beside each sine, or all cosines behind all sines
        reaching: bool = False  # divide exponents by D - 2 rather than D: the slowest wave is 10000 itself

    def __init__(self, settings: Settings, *, width: int) -> None:
        super().__init__()
        self.in_pairs, self.reaching = settings.layout == "pairs", settings.reaching

    def added(self, x: Float[Tensor, "N T D"], places: Places, end: int) -> Float[Tensor, "N T D"]:
        return x + self.waves(places, x.shape[-1], x, end)

    def drawn(self, places: Places, width: int, like: Tensor) -> Float[Tensor, "n T D"]:
        angle = angles(places, width, like, self.reaching)  # n T h
        if self.in_pairs:
            waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :width]
        else:
            waves = torch.cat([angle.sin(), angle[..., : width // 2].cos()], dim=-1)
        return waves.to(like.dtype)


class Learned(Positions):
    """A learned vector per place, up to `max_length` of them."""

    class Settings(config.Settings):
        kind: Literal["learned"] = "learned"
        max_length: int = Field(512, ge=1)

    def __init__(self, settings: Settings, *, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(settings.max_length, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def added(self, x: Float[Tensor, "N T D"], places: Places, end: int) -> Float[Tensor, "N T D"]:
        if end > len(self.weight):  # the bound may be generous: only now the device is asked
            self._refuse(int(places.max()) + 1)
        return x + F.embedding(places, self.weight)

    def _refuse(self, length: int) -> None:
        if length > len(self.weight):
            raise SeqloomError(
                "E_LONG",
                f"a sequence of {length} tokens, but positions are learned for {len(self.weight)}",
                where="positions.max_length",
                fix=f"train with max_length: {length} or more, or with sinusoidal or rotary positions",
            )


class Rotary(Formula):
    """Queries and keys turned by angles that grow with their place, so that scores see distances only (Su 2021).

    Dimensions i and i + d/2 of a head are one pair: (a, b) becomes (a cos - b sin, b cos + a sin). Each takes cos of
    itself and -sin or sin of its partner, which is half a head away: three operations, whatever the width.
    """

    turns = True

    class Settings(config.Settings):
        kind: Literal["rotary"] = "rotary"

    def __init__(self, settings: Settings, *, width: int) -> None:
        super().__init__()

    def added(self, x: Float[Tensor, "N T D"], places: Places, end: int) -> Float[Tensor, "N T D"]:
        return x

    def turn(self, places: Places, width: int, like: Tensor, end: int) -> Turn | None:
        own, partner = self.waves(places, width, like, end).chunk(2, dim=-1)
        return own, partner

    def drawn(self, places: Places, width: int, like: Tensor) -> Float[Tensor, "n T w"]:
        angle = angles(places, width, like)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([cos, cos, -sin, sin], -1)


class Nowhere(Positions):
    """No places at all: for convolutions, which see what stands beside what and need not know where (Kim 2014)."""

    class Settings(config.Settings):
        kind: Literal["none"] = "none"

    def __init__(self, settings: Settings, *, width: int) -> None:
        super().__init__()

    def added(self, x: Float[Tensor, "N T D"], places: Places, end: int) -> Float[Tensor, "N T D"]:
        return x


def turned(x: Float[Tensor, "N T *m d"], turn: Turn) -> Float[Tensor, "N T *m d"]:
    """Every vector turned by its place's angles, whatever stands between place and vector (heads, queries and keys)."""
    between = (None,) * (x.dim() - 3)
    own, partner = (part[(..., *between, slice(None))] for part in turn)  # n T 1.. d
    partners = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * own, partners, partner).to(x.dtype)


POSITIONS: Table[Positions] = Table(
    "positions", {"sinusoidal": Sinusoidal, "learned": Learned, "rotary": Rotary, "none": Nowhere}
)

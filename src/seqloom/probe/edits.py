"""What if it had looked elsewhere? Attention that is put where somebody wants it, and heads that are silenced.

An edit becomes what a tape puts in the place of the weights that pass (`nn/tape.py`). Output steps, positions, layers
and heads are counted from 1, as they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqloom.errors import SeqloomError
from seqloom.models.contracts import Encoder
from seqloom.models.generator import Generator
from seqloom.nn.tape import Replacement
from seqloom.shapes import Float, Tensor


@dataclass(frozen=True)
class Look:
    """Output token `step` looks at the source with these weights, which are made to sum to 1."""

    step: int
    weights: tuple[float, ...]  # over the source's tokens, the first ones where there are fewer; () and `at`: one-hot
    at: int | None = None
    layer: int | None = None  # None: every layer

    @staticmethod
    def parse(text: str) -> Look:
        """`3=5`: output token 3 looks at source token 5; `3=0.2,0,0.8`: with these weights; `2:3=5`: in layer 2."""
        where, _, what = text.partition("=")
        layer, _, step = where.rpartition(":")
        try:
            weights = tuple(float(part) for part in what.split(","))
            single = len(weights) == 1
            at = int(what) if single else None
            return Look(int(step), () if single else weights, at, int(layer) if layer else None)
        except ValueError:
            fix = "STEP=POSITION or STEP=WEIGHT,WEIGHT,..., counted from 1, such as 3=5; LAYER:STEP=... for one layer"
            raise SeqloomError("E_USAGE", f"--attend {text!r} cannot be read", fix=fix) from None

    def __str__(self) -> str:
        what = str(self.at) if self.at is not None else ",".join(f"{weight:g}" for weight in self.weights)
        return f"{'' if self.layer is None else f'{self.layer}:'}{self.step}={what}"


@dataclass(frozen=True)
class Silence:
    """A head that finds nothing: of attention to the source, or within the encoder or decoder."""

    layer: int
    head: int
    part: str = ""  # "", "encoder" or "decoder"

    @staticmethod
    def parse(text: str) -> Silence:
        """`2.1`: head 1 of layer 2 of the attention to the source; `encoder.2.1`, `decoder.2.1`: within that part."""
        part, _, rest = text.partition(".") if text[:1].isalpha() else ("", "", text)
        layer, _, head = rest.partition(".")
        if part not in ("", "encoder", "decoder") or not (layer.isdecimal() and head.isdecimal()):
            fix = "LAYER.HEAD, encoder.LAYER.HEAD or decoder.LAYER.HEAD, counted from 1, such as 2.1"
            raise SeqloomError("E_USAGE", f"--mask-head {text!r} cannot be read", fix=fix)
        return Silence(int(layer), int(head), part)

    def __str__(self) -> str:
        return f"{f'{self.part}.' if self.part else ''}{self.layer}.{self.head}"


@dataclass(frozen=True)
class Edits:
    """What is changed inside of a model for one answer."""

    looks: tuple[Look, ...] = ()
    silences: tuple[Silence, ...] = ()

    def replacements(self, network: Generator) -> dict[str, Replacement]:
        """What taps let pass instead, for one call (each counts its own steps); E_USAGE where that cannot be."""
        if not (self.looks or self.silences):
            return {}
        if self.looks and network.attention_taps and network.attention_taps == network.decoder.self_taps:
            what = "a joint model attends to source and target in one row of weights, which --attend cannot edit"
            raise SeqloomError("E_USAGE", what, fix="leave --attend out; --mask-head silences its heads")
        changed: dict[str, _Changed] = {}
        for look in self.looks:
            if look.step < 1 or (look.at is not None and look.at < 1):
                what = f"--attend {look}: steps and positions are counted from 1"
                raise SeqloomError("E_USAGE", what, fix="STEP=POSITION, such as 1=1")
            taps, look = _taps(network, ""), _shortened(look, reduction_of(network))
            for name in taps if look.layer is None else [_layer(taps, look.layer)]:
                changed.setdefault(name, _Changed()).looks.append(look)
        for silence in self.silences:
            name = _layer(_taps(network, silence.part), silence.layer)
            changed.setdefault(name, _Changed()).silent.append(silence.head)
        return dict(changed)


class _Changed:
    """Weights of one tap as they are wanted, step by step or all steps at once."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.silent: list[int] = []
        self._seen = 0  # steps that have passed

    def __call__(self, weights: Float[Tensor, "N H T S"], passes: int) -> Float[Tensor, "N H T S"]:
        steps, changed = weights.shape[2], weights.clone()
        for look in self.looks:
            place = look.step - 1 - self._seen
            if 0 <= place < steps:
                changed[:, :, place] = _wanted(look, weights)
        for head in self.silent:
            if not 1 <= head <= weights.shape[1]:
                raise SeqloomError("E_USAGE", f"--mask-head: head {head}: this layer has heads 1 to {weights.shape[1]}")
            changed[:, head - 1] = 0
        self._seen += steps
        return changed


def reduction_of(network: Generator) -> int:
    """How many neighbours of the source are one position of what is attended to."""
    encoder = getattr(network, "encoder", None)
    return encoder.reduction if isinstance(encoder, Encoder) else 1


def _shortened(look: Look, reduction: int) -> Look:
    """The same look where so many positions of the source became one: their weights are added."""
    if look.at is not None:
        return replace(look, at=(look.at - 1) // reduction + 1)
    starts = range(0, len(look.weights), reduction)
    return replace(look, weights=tuple(sum(look.weights[start : start + reduction]) for start in starts))


def _wanted(look: Look, weights: Float[Tensor, "N H T S"]) -> Float[Tensor, "S"]:
    size = weights.shape[3]
    given = look.weights if look.at is None else (*[0.0] * (look.at - 1), 1.0)
    if len(given) > size:
        fix = f"positions 1 to {size}, or as many weights at most"
        raise SeqloomError("E_USAGE", f"--attend {look}: the source has {size} tokens, its end included", fix=fix)
    most = max(given)
    if not all(map(math.isfinite, given)) or min(given) < 0 or not most > 0:
        what = f"--attend {look}: weights are numbers that are not negative, and one is over 0"
        raise SeqloomError("E_USAGE", what, fix="weights such as 0.2,0,0.8; they are made to sum to 1")
    parts = [weight / most for weight in given]  # as large as they are given, or as small, their shares are the same
    total = sum(parts)
    return weights.new_tensor([*(part / total for part in parts), *[0.0] * (size - len(parts))])


def _taps(network: Generator, part: str) -> Sequence[str]:
    """The taps of one kind of attention, layer by layer."""
    encoder = getattr(network, "encoder", None)
    if part == "encoder":
        names = encoder.self_taps if isinstance(encoder, Encoder) else ()
    else:
        names = network.decoder.self_taps if part == "decoder" else network.attention_taps
    if not names:
        what = f"within its {part}" if part else "to the source"
        raise SeqloomError("E_USAGE", f"this model has no attention {what}", fix="name what it has; 'info RUN' shows")
    return names


def _layer(names: Sequence[str], layer: int) -> str:
    if not 1 <= layer <= len(names):
        raise SeqloomError("E_USAGE", f"layer {layer}: there are layers 1 to {len(names)}", fix="name one of them")
    return names[layer - 1]

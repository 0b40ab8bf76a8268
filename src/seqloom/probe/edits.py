"""What if it had looked elsewhere? Attention that is put where somebody wants it, and heads that are silenced.

An edit becomes what a tape puts in the place of the weights that pass (`nn/tape.py`). Output steps, positions, layers
and heads are counted from 1, as they are shown.

A decoder that reads its source itself (of a joint or a language model) attends to source and target in one row of
weights. There an edit changes what falls on the source, and how it is spread there; how much of the row that is stays
as it was, head by head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from seqloom.batch import Source
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.nn.tape import Replacement
from seqloom.probe.pair import unanswered
from seqloom.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class Look:
    """Output token `step` looks at the source with these weights; only their proportions count."""

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

    def replacements(self, network: Generator, sources: Mapping[str, Source]) -> dict[str, Replacement]:
        """What taps let pass instead, for one call (each counts its own steps) on one source; E_USAGE where that
        cannot be."""
        changed: dict[str, _Changed] = {}
        stand = network.places(unanswered(sources))
        first, read = (0, None) if stand is None else (int(stand.said[0, 0]), stand.read[0])
        for look in self.looks:
            if look.step < 1 or (look.at is not None and look.at < 1):
                what = f"--attend {look}: steps and positions are counted from 1"
                raise SeqloomError("E_USAGE", what, fix="STEP=POSITION, such as 1=1")
            taps, look = _taps(network, ""), _shortened(look, reduction_of(network))
            for name in taps if look.layer is None else [_layer(taps, look.layer)]:
                changed.setdefault(name, _Changed(first, read)).looks.append(look)
        for silence in self.silences:
            name = _layer(_taps(network, silence.part), silence.layer)
            changed.setdefault(name, _Changed(first, read)).silent.append(silence.head)
        return dict(changed)


@dataclass
class _Changed:
    """Weights of one tap as they are wanted, step by step or all steps at once."""

    first: int  # steps before that of the first output token: those in which a decoder reads its source itself
    read: Int[Tensor, "S"] | None  # where, in what it reads, the source's positions stand
    looks: list[Look] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)
    _seen: int = 0  # steps that have passed

    def __call__(self, weights: Float[Tensor, "N H T S"], passes: int) -> Float[Tensor, "N H T S"]:
        steps, changed = weights.shape[2], weights.clone()
        for look in self.looks:
            place = self.first + look.step - 1 - self._seen
            if 0 <= place < steps:
                changed[:, :, place] = self._looking(look, weights[:, :, place])
        for head in self.silent:
            if not 1 <= head <= weights.shape[1]:
                raise SeqloomError("E_USAGE", f"--mask-head: head {head}: this layer has heads 1 to {weights.shape[1]}")
            changed[:, head - 1] = 0
        self._seen += steps
        return changed

    def _looking(self, look: Look, row: Float[Tensor, "N H P"]) -> Float[Tensor, "N H P"]:
        """All weights of a row as they are wanted, or, of a row over more than the source, those that are over it."""
        if self.read is None:
            return row.new_tensor(_wanted(look, row.shape[2])).expand_as(row)
        shares = row.new_tensor(_wanted(look, len(self.read)))
        return row.index_copy(2, self.read, row[:, :, self.read].sum(2, keepdim=True) * shares)


def reduction_of(network: Generator) -> int:
    """How many neighbours of the source are one position of what is attended to."""
    return next((encoder.reduction for encoder in network.readers()), 1)


def _shortened(look: Look, reduction: int) -> Look:
    """The same look where so many positions of the source became one: their weights are added."""
    if look.at is not None:
        return replace(look, at=(look.at - 1) // reduction + 1)
    starts = range(0, len(look.weights), reduction)
    return replace(look, weights=tuple(sum(look.weights[start : start + reduction]) for start in starts))


def _wanted(look: Look, size: int) -> list[float]:
    """The weights over so many positions; they sum to 1."""
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
    return [*(part / total for part in parts), *[0.0] * (size - len(parts))]


def _taps(network: Generator, part: str) -> Sequence[str]:
    """The taps of one kind of attention, layer by layer."""
    if part == "encoder":
        names = next((encoder.self_taps for encoder in network.readers()), ())
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

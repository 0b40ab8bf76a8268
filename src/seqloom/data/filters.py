"""Which examples are worth training on, and the count of those that are not: each is kept, or skipped by one filter."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from seqloom import config
from seqloom.data.codec import MAX_CHARACTERS
from seqloom.data.codecs import Codecs, Encoded, Pair, unknown_in
from seqloom.data.examples import Example
from seqloom.data.files import Tally
from seqloom.errors import SeqloomError
from seqloom.specials import UNK


class Limits(config.Settings):
    """Which pairs are worth training on. Lengths are in tokens, EOS not counted."""

    max_source: int = Field(default=512, ge=1)
    max_target: int = Field(default=512, ge=1)
    max_extra: int = Field(default=512, ge=1)  # of an extra; of those before the source together
    max_ratio: float | None = Field(default=None, ge=1.0)  # the longer side over the shorter


@dataclass
class Counts:
    """What became of every example that was read: kept, or skipped by exactly one filter."""

    read: int = 0
    kept: int = 0
    empty_source: int = 0
    empty_target: int = 0
    long_source: int = 0
    long_target: int = 0
    long_extra: int = 0
    ratio: int = 0
    no_weight: int = 0  # a weight of 0: it would teach nothing
    unseen_label: int = 0  # a label that training has not: no model can say it
    no_span: int = 0  # an answer that does not stand in its source, or is too long: nothing points at it
    source_tokens: int = 0  # of the kept pairs
    target_tokens: int = 0
    source_unknown: int = 0
    target_unknown: int = 0

    FILTERS: ClassVar = (
        "empty_source",
        "empty_target",
        "long_source",
        "long_target",
        "long_extra",
        "ratio",
        "no_weight",
        "unseen_label",
        "no_span",
    )

    @property
    def skipped(self) -> dict[str, int]:
        """Count per filter, in the order they are applied."""
        return {name: getattr(self, name) for name in self.FILTERS}


def encoded(example: Example, codecs: Codecs, limits: Limits, counts: Counts) -> Pair | None:
    """The encoded pair, or None where a filter skips it; either way it is counted once."""
    counts.read += 1
    verdict = _cheap_verdict(example, codecs.may_be_empty)
    if verdict is None:
        with example.told():
            for reference in example.references:
                codecs.target.tokenizer.refuse(reference, example.where)
            pair, read = codecs.pair(example.inputs, example.target, links=example.links)
        _refuse_uneven(pair, read, codecs, example)
        verdict = _verdict(pair, read, codecs, limits)
    if verdict is not None:
        setattr(counts, verdict, getattr(counts, verdict) + 1)
        return None
    counts.kept += 1
    counts.source_tokens += read.own
    counts.target_tokens += len(pair.target)
    counts.source_unknown += unknown_in(pair.source)
    counts.target_unknown += unknown_in(pair.target)
    return pair


def _cheap_verdict(example: Example, may_be_empty: Collection[str]) -> str | None:
    """Blank texts are empty, and enormous ones are long: nobody needs to tokenize them to know."""
    for side, text in (("source", example.source), ("target", example.target)):
        if len(text) > MAX_CHARACTERS:
            return f"long_{side}"
        if (not text or text.isspace()) and side not in may_be_empty:
            return f"empty_{side}"
    if any(len(text) > MAX_CHARACTERS for text in example.extras.values()):
        return "long_extra"
    return None if example.weight else "no_weight"


def _verdict(pair: Pair, read: Encoded, codecs: Codecs, limits: Limits) -> str | None:
    """The first filter that these lengths fail, if any."""
    source, target = read.own, len(pair.target)
    if not source and "source" not in codecs.may_be_empty:
        return "empty_source"
    if not target and "target" not in codecs.may_be_empty:
        return "empty_target"
    if source > limits.max_source:
        return "long_source"
    if target > limits.max_target:
        return "long_target"
    before = len(pair.source) - source - len(codecs.prefixes)
    if codecs.extras and max([before, *map(len, pair.extras.values())]) > limits.max_extra:
        return "long_extra"
    if codecs.labels and UNK in pair.target and not codecs.restores:
        return "unseen_label"
    if codecs.points and UNK in pair.target:
        return "no_span"
    if limits.max_ratio is not None and max(source, target) > limits.max_ratio * min(source, target) > 0:
        return "ratio"
    return None


def _refuse_uneven(pair: Pair, read: Encoded, codecs: Codecs, example: Example) -> None:
    """E_ALIGN where a target that has one label for each word has another number of them."""
    words, labels = codecs.words_read(read), len(pair.target)
    if codecs.in_place and words != labels and words and labels:
        source = codecs.source
        what = f"{words:,} {source.tagged}{'' if words == 1 else 's'}, but {labels:,} tag{'' if labels == 1 else 's'}"
        raise SeqloomError("E_ALIGN", what, where=example.where, fix=source.uneven)


def refuse_nothing(examples: Iterable[Example], tally: Tally, where: str, may_be_empty: Collection[str] = ()) -> None:
    """E_EMPTY, with every filter's count, where no pair has text on both sides; the first that has ends the search."""
    counts = Counts()
    for example in examples:
        verdict = _cheap_verdict(example, may_be_empty)
        if verdict is None:
            return
        counts.read += 1
        setattr(counts, verdict, getattr(counts, verdict) + 1)
    raise nothing_kept(counts, tally, where)


def nothing_kept(counts: Counts, tally: Tally | None = None, where: str = "") -> SeqloomError:
    """The error of a set of which nothing is left, with every filter's count and what `tally` was told in reading."""
    dropped = counts.skipped | dict(tally or {})
    lines = counts.read + sum((tally or {}).values())
    skipped = ", ".join(f"{name} {count:,}" for name, count in dropped.items())
    what = f"of {lines:,} pairs none is left ({skipped})" if lines else f"there are no pairs: 0 were read ({skipped})"
    return SeqloomError("E_EMPTY", what, where=where, fix="check the file and the limits")

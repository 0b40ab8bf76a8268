"""A first look at pairs, so that `init` can choose tokenizers and sizes and say why. It judges; it decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from seqloom.data.characters import SPACELESS_SCRIPTS, dominant_script
from seqloom.data.readers import Example

Looks = Literal["text", "symbols", "strings"]


@dataclass(frozen=True)
class SideProfile:
    """One side of a sample. Percentiles are (50, 95, 99, 100) in characters and in space-separated words."""

    looks: Looks  # natural text | space-separated symbols of a small closed set (phonemes) | single words or strings
    script: str  # LATIN, CYRILLIC, CJK ...; empty when there are hardly any letters
    mean_characters: float
    characters: tuple[int, int, int, int]
    mean_words: float
    words: tuple[int, int, int, int]
    alphabet: int  # different characters
    distinct_words: int


@dataclass(frozen=True)
class Profile:
    """`pairs` counts all; the sides describe the first `sampled` of them."""

    pairs: int
    sampled: int
    source: SideProfile
    target: SideProfile
    several_references: bool


def profile(examples: Iterable[Example], limit: int = 20_000) -> Profile:
    """Look at the first `limit` pairs closely and count the rest."""
    stream = iter(examples)
    sample = list(islice(stream, limit))
    pairs = len(sample) + sum(1 for _ in stream)
    return Profile(
        pairs,
        len(sample),
        _side([example.source for example in sample]),
        _side([example.target for example in sample]),
        any(len(example.references) > 1 for example in sample),
    )


def _side(texts: Sequence[str]) -> SideProfile:
    words = [text.split() for text in texts]
    characters = np.array([len(text) for text in texts])
    word_counts = np.array([len(parts) for parts in words])
    scripts = Counter(map(dominant_script, texts))
    del scripts[""]
    script = max(scripts, key=lambda name: (scripts[name], name), default="")
    frequencies = Counter(word for parts in words for word in parts)
    return SideProfile(
        _looks(words, frequencies, script, float(characters.mean()) if texts else 0.0),
        script,
        float(characters.mean()) if texts else 0.0,
        _percentiles(characters),
        float(word_counts.mean()) if texts else 0.0,
        _percentiles(word_counts),
        len(set().union(*texts)),
        len(frequencies),
    )


def _looks(words: Sequence[Sequence[str]], frequencies: Counter[str], script: str, mean_characters: float) -> Looks:
    """Symbols: several per text, short, few, and each met often (a closed set). Text: many words, or a long line."""
    total = frequencies.total()
    if not total:
        return "strings"
    per_text = total / len(words)
    mean_length = sum(len(word) * count for word, count in frequencies.items()) / total
    is_closed = len(frequencies) <= 300 and total >= 20 * len(frequencies)
    if per_text >= 2 and mean_length <= 3.5 and is_closed:
        return "symbols"
    if script in SPACELESS_SCRIPTS:
        return "text" if mean_characters >= 8 else "strings"
    return "text" if per_text >= 3 else "strings"


def _percentiles(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[int, int, int, int]:
    if not len(values):
        return (0, 0, 0, 0)
    median, p95, p99, most = (int(value) for value in np.percentile(values, [50, 95, 99, 100]))
    return median, p95, p99, most

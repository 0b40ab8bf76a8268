"""How large a model suits so much data: rules of thumb, by kind of data and number of examples.

Most of those for pronunciations were tried, those for 10,000 to 100,000 texts on a GPU lean on a recipe that was
measured, the rest is the custom of the field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from seqloom.data.kinds import Task
from seqloom.data.profile import Looks

Encoding = Literal["rnn", "convolution", "transformer", "spelled"]
Decoding = Literal["luong", "monotonic", "transformer", "label", "tags", "rnn"]


@dataclass(frozen=True)
class Sizes:
    """What the number of examples decides."""

    embedding: int
    width: int
    dropout: float
    batch: int  # tokens
    epochs: int
    layers: int = 1
    encoder: Encoding = "rnn"
    decoder: Decoding = "luong"
    r_drop: float = 0.0  # doubles the work of a step


Presets = tuple[tuple[float, Sizes], ...]  # upper bound of the number of examples -> sizes

# Single words and symbols: in any order, and in the order of the source (spelling to sounds).
SHORT: Presets = (
    (3_000, Sizes(64, 128, 0.3, 512, 60)),
    (30_000, Sizes(128, 256, 0.2, 1024, 25)),
    (300_000, Sizes(128, 256, 0.0, 1024, 8)),
    (math.inf, Sizes(256, 512, 0.0, 4096, 4)),
)
ORDERED: Presets = (
    (3_000, Sizes(128, 256, 0.5, 512, 80, 3, "convolution", "monotonic", 1.0)),
    (30_000, Sizes(128, 256, 0.3, 1024, 30, 1, "rnn", "monotonic")),
    *SHORT[2:],
)
# Natural text: where there is a GPU, Transformers from 10,000 pairs on.
TEXT: Presets = (
    (3_000, Sizes(128, 128, 0.3, 1024, 60)),
    (30_000, Sizes(128, 256, 0.3, 2048, 30)),
    (300_000, Sizes(256, 512, 0.2, 4096, 12)),
    (math.inf, Sizes(256, 512, 0.1, 8192, 5)),
)
TEXT_ON_GPU: Presets = (
    *TEXT[:1],
    (10_000, Sizes(256, 512, 0.4, 2048, 40)),
    (100_000, Sizes(256, 256, 0.2, 4096, 30, 4, "transformer", "transformer", 1.0)),
    (1_000_000, Sizes(512, 512, 0.2, 8192, 20, 6, "transformer", "transformer")),
    (math.inf, Sizes(512, 512, 0.1, 16384, 8, 6, "transformer", "transformer")),
)
# One label for a source: little is said of each example, so that much of it must be dropped.
LABEL: Presets = (
    (3_000, Sizes(64, 128, 0.5, 512, 30, decoder="label")),
    (30_000, Sizes(128, 256, 0.5, 1024, 20, decoder="label")),
    (300_000, Sizes(128, 256, 0.3, 4096, 8, decoder="label")),
    (math.inf, Sizes(256, 512, 0.2, 8192, 4, decoder="label")),
)
# One tag for each word; a batch is counted in letters.
TAGS: Presets = (
    (3_000, Sizes(32, 128, 0.4, 1024, 30, encoder="spelled", decoder="tags")),
    (30_000, Sizes(32, 256, 0.3, 3072, 8, encoder="spelled", decoder="tags")),
    (math.inf, Sizes(64, 512, 0.2, 8192, 4, encoder="spelled", decoder="tags")),
)
# Plain text, by its characters: letter by letter up to `LETTERS_BELOW`.
LETTERS_BELOW = 5_000_000
LANGUAGE: Presets = (
    (300_000, Sizes(64, 256, 0.4, 2048, 30, decoder="rnn")),
    (LETTERS_BELOW, Sizes(64, 256, 0.2, 4096, 15, decoder="rnn")),
    (50_000_000, Sizes(256, 512, 0.3, 4096, 8, decoder="rnn")),
    (math.inf, Sizes(512, 1024, 0.1, 8192, 3, decoder="rnn")),
)
LANGUAGE_ON_GPU: Presets = (
    *LANGUAGE[:1],
    (LETTERS_BELOW, Sizes(384, 384, 0.2, 16384, 60, 6, decoder="transformer")),
    (50_000_000, Sizes(384, 384, 0.2, 16384, 20, 6, decoder="transformer")),
    (math.inf, Sizes(512, 512, 0.1, 32768, 5, 8, decoder="transformer")),
)


def presets(task: Task, source: Looks, target: Looks, gpu: bool) -> Presets:
    """The table of a kind of data."""
    if task in ("label", "labels", "number", "retrieve"):
        return LABEL
    if task == "tags":
        return TAGS
    if task == "language":
        return LANGUAGE_ON_GPU if gpu else LANGUAGE
    if "text" in (source, target):
        return TEXT_ON_GPU if gpu else TEXT
    return ORDERED if (source, target) == ("strings", "symbols") else SHORT


def upto(count: float, rows: Presets) -> Sizes:
    return next(sizes for bound, sizes in rows if count < bound)


def rate(sizes: Sizes, is_text: bool) -> float:
    """The peak of the learning rate; large models and deep ones want less."""
    if sizes.decoder == "transformer":
        return 1e-3 if sizes.width <= 384 else 5e-4
    if sizes.decoder == "label":
        return 1e-3
    slow = is_text or sizes.decoder in ("monotonic", "tags", "rnn")
    return (2e-3 if slow else 4e-3) / (1 if sizes.width <= 256 else 2)


def warmup(sizes: Sizes, is_text: bool) -> int:
    """Steps in which the rate rises."""
    if sizes.decoder == "transformer":
        return 1000 if sizes.width <= 384 else 4000
    return 400 if is_text and sizes.decoder == "luong" else 100

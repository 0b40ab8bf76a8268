"""`seqloom init DATA`: look at the pairs and choose what suits their size and kind, with a reason for every choice.

The choices are rules of thumb: most of those for pronunciations were tried, those for 10,000 to 100,000 texts on a GPU
lean on a recipe that was measured, the rest is the custom of the field. A start that trains, not a search. The recipe
is written as text (`draft.py`) so that its comments say why.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from seqloom import runtime
from seqloom.api.datasets import held_out_share
from seqloom.config import Settings
from seqloom.data.batching import collate_pairs
from seqloom.data.characters import SPACELESS_SCRIPTS
from seqloom.data.codecs import Pair
from seqloom.data.examples import ITEMS
from seqloom.data.files import BadUtf8
from seqloom.data.profile import Looks, Profile, SideProfile, profile
from seqloom.data.readers import Example, read
from seqloom.errors import SeqloomError
from seqloom.models.model import MODELS
from seqloom.recipe import Recipe
from seqloom.runtime import Runtime
from seqloom.specials import SPECIALS
from seqloom.tasks.transduce import Transduce
from seqloom.training.optim import OPTIMISERS

SAMPLE = 20_000  # pairs that are looked at closely
WORDS_BELOW = 3_000  # pairs of text: fewer do not teach a useful subword vocabulary
TOKEN_LIMIT, MOST_TOKENS = 512, 2048  # the recipe's default limit of a sequence, and the most that init will set
SEPARATORS = (ITEMS, "|", ",", "+", " ")
PATIENCE = 3.0  # seconds that may go into estimating the time
Kind = Literal["characters", "symbols", "words", "bpe"]
Encoding = Literal["rnn", "convolution", "transformer"]
Decoding = Literal["luong", "monotonic", "transformer"]


@dataclass(frozen=True)
class Side:
    """How one side is cut into tokens, and about how many there will be."""

    looks: Looks
    script: str
    tokenizer: Kind
    why: str
    size: int | None  # of a bpe vocabulary
    coverage: float  # of a bpe vocabulary
    vocabulary: int  # about
    mean: float  # tokens per text, about
    limit: int  # tokens of a text, at most


@dataclass(frozen=True)
class Sizes:
    """What the number of pairs decides."""

    embedding: int
    width: int
    dropout: float
    batch: int  # tokens
    epochs: int
    layers: int = 1
    encoder: Encoding = "rnn"
    decoder: Decoding = "luong"
    r_drop: float = 0.0  # doubles the work of a step


Presets = tuple[tuple[float, Sizes], ...]  # upper bound of the number of pairs -> sizes

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
LEAST_STEPS = 20  # however few pairs there are
BPE_SIZES = ((10_000, 1_000), (100_000, 4_000), (1_000_000, 8_000), (math.inf, 16_000))


@dataclass(frozen=True)
class Choices:
    """Everything that a drafted recipe says."""

    profile: Profile
    source: Side
    target: Side
    sizes: Sizes
    epochs: int
    steps: int  # in all, about
    warmup: int
    lr: float
    validate_every: int
    held_out: int  # pairs of dev, and as many of test
    max_ratio: float  # target tokens per source token, at most
    merge_sources: bool  # one source with several right targets is common
    separators: Mapping[str, str]  # of every extra that the data have: what stands between its symbols


def choose(dataset: Settings, on_bad_utf8: BadUtf8 = "error", gpu: bool | None = None) -> Choices:
    """Read the pairs once and choose; E_EMPTY where there are none. `gpu`: whether training will have one."""
    sample: list[Example] = []
    found = profile(_sampled(read(dataset, on_bad_utf8=on_bad_utf8), sample), limit=SAMPLE)
    if not found.pairs:
        raise SeqloomError("E_EMPTY", "there are no pairs", fix="one pair per line: source, tab, target")
    if not any(example.source.strip() and example.target.strip() for example in sample):
        what = f"of {len(sample):,} pairs none has text on both sides"
        raise SeqloomError("E_EMPTY", what, where=sample[0].where, fix="is it the right column? set 'columns'")
    source = _side(found.source, found.pairs, [example.source for example in sample])
    target = _side(found.target, found.pairs, [example.target for example in sample])
    is_text = "text" in (source.looks, target.looks)
    has_gpu = torch.cuda.is_available() if gpu is None else gpu
    sizes = _upto(found.pairs, _presets(source.looks, target.looks, has_gpu))
    cost = max(source.mean, target.mean) + 1
    epoch = found.pairs * cost / sizes.batch  # in steps
    epochs = max(sizes.epochs, math.ceil(LEAST_STEPS / max(1.0, epoch)))
    steps = _round(epochs * max(1.0, epoch))
    return Choices(
        profile=found,
        source=source,
        target=target,
        sizes=sizes,
        epochs=epochs,
        steps=steps,
        warmup=min(_warmup(sizes, is_text), steps // 10),
        lr=_rate(sizes, is_text),
        validate_every=max(1, min(steps, _round(steps / 12, 1))),
        held_out=round(held_out_share(found.pairs) * found.pairs),
        max_ratio=_ratio(sample, source.tokenizer, target.tokenizer),
        merge_sources=_has_alternatives(sample) or found.several_references,
        separators={name: _separator([one.extras[name] for one in sample]) for name in sample[0].extras},
    )


def _sampled(examples: Iterator[Example], sample: list[Example]) -> Iterator[Example]:
    """Pass examples on, and keep the first of them."""
    for example in examples:
        if len(sample) < SAMPLE:
            sample.append(example)
        yield example


def _presets(source: Looks, target: Looks, gpu: bool) -> Presets:
    if "text" in (source, target):
        return TEXT_ON_GPU if gpu else TEXT
    return ORDERED if (source, target) == ("strings", "symbols") else SHORT


def _upto(pairs: int, rows: Presets) -> Sizes:
    return next(sizes for bound, sizes in rows if pairs < bound)


def _rate(sizes: Sizes, is_text: bool) -> float:
    """The peak of the learning rate; large models and deep ones want less."""
    if sizes.decoder == "transformer":
        return 1e-3 if sizes.width <= 256 else 5e-4
    slow = is_text or sizes.decoder == "monotonic"
    return (2e-3 if slow else 4e-3) / (1 if sizes.width <= 256 else 2)


def _warmup(sizes: Sizes, is_text: bool) -> int:
    if sizes.decoder == "transformer":
        return 1000 if sizes.width <= 256 else 4000
    return 400 if is_text else 100


def _round(value: float, digits: int = 2) -> int:
    """To a few digits: nobody means 8,173 steps."""
    scale: int = 10 ** max(0, len(str(int(value))) - digits)
    return max(1, round(value / scale) * scale)


# --- one side ----------------------------------------------------------------------------------------------------


def _side(found: SideProfile, pairs: int, texts: list[str]) -> Side:
    kind, why = _tokenizer(found, pairs)
    size = coverage = None
    vocabulary = {"characters": found.alphabet, "symbols": found.distinct_words, "words": found.distinct_words}.get(
        kind
    )
    if vocabulary is None:
        size, coverage = _bpe(found, pairs)
        vocabulary = size
        why += f"; {size:,} pieces suit {pairs:,} pairs"
    lengths = np.array([_tokens(kind, text) for text in texts])
    long = float(np.percentile(lengths, 99.9)) if len(lengths) else 0.0
    limit = TOKEN_LIMIT if long <= TOKEN_LIMIT else min(MOST_TOKENS, math.ceil(long / 128) * 128)
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return Side(found.looks, found.script, kind, why, size, coverage or 1.0, vocabulary + len(SPECIALS), mean, limit)


def _tokenizer(found: SideProfile, pairs: int) -> tuple[Kind, str]:
    if found.looks == "symbols":
        return "symbols", f"{found.distinct_words} symbols between spaces, a closed set: each is a token"
    if found.looks == "strings":
        return "characters", "single words or short strings: letter by letter, every new one can be read and written"
    if pairs >= WORDS_BELOW:
        return "bpe", "natural text: frequent words whole, rare ones in pieces, so no word is unknown"
    if found.script in SPACELESS_SCRIPTS:
        return "characters", "few texts, and no spaces between words: character by character"
    return "words", "few texts: whole words, each with what was seen of it; a new word will be unknown"


def _bpe(found: SideProfile, pairs: int) -> tuple[int, float]:
    """Pieces, and the share of characters they must cover: large scripts need room, and lose their rarest signs."""
    size = next(size for bound, size in BPE_SIZES if pairs < bound)
    if found.alphabet > 500:
        return max(size, _round(2.0 * found.alphabet)), 0.9995
    return max(size, _round(4.0 * found.alphabet)), 1.0


def _tokens(kind: Kind, text: str) -> float:
    """About how many tokens a text gives."""
    if kind == "characters":
        return len(text)
    words = len(text.split())
    if kind == "bpe":
        return max(1.4 * words, len(text) / 5 if words > 1 else len(text) / 1.5)
    return words if kind == "symbols" else 1.15 * words


def _ratio(sample: list[Example], source: Kind, target: Kind) -> float:
    """Target tokens per source token that hardly any pair exceeds, the ten that are free counted off."""
    ratios = [(_tokens(target, e.target) - 10) / (_tokens(source, e.source) + 1) for e in sample]
    widest = float(np.percentile(ratios, 99.5)) if ratios else 0.0
    return 2.0 if widest <= 1.6 else math.ceil(2 * 1.25 * widest) / 2


def _has_alternatives(sample: list[Example]) -> bool:
    """Whether one source in a hundred or more stands with different targets."""
    targets: dict[tuple[str, ...], set[str]] = {}
    for example in sample:
        targets.setdefault(example.key, set()).add(example.target)
    return sum(len(answers) > 1 for answers in targets.values()) >= max(1, len(targets) / 100)


def _separator(texts: list[str]) -> str:
    """What stands between the symbols of an extra: the first usual sign that a tenth of its texts hold."""
    return next((sign for sign in SEPARATORS if sum(sign in text for text in texts) * 10 >= len(texts)), ITEMS)


def guess_language(path: str) -> str:
    """`train.de` and `train.de.gz` are German; a suffix that is no code says nothing."""
    suffix = Path(path.removesuffix(".gz")).suffix.removeprefix(".")
    known = re.fullmatch(r"[a-z]{2}(-[A-Za-z]{2,4})?", suffix)
    return suffix if known else "und"


# --- how long it will take ---------------------------------------------------------------------------------------


def estimated_seconds(recipe: Recipe, choices: Choices, tries: int = 3) -> float:
    """Seconds that training will take here, by the quickest of a few steps on made-up pairs of the right size.

    Validation is left out, and whatever else this machine is busy with.
    """
    device = runtime.apply(Runtime(device=recipe.runtime.device, threads=recipe.runtime.threads))
    sizes = (choices.source.vocabulary, choices.target.vocabulary)
    network = MODELS.build(recipe.model, source_vocabulary=sizes[0], target_vocabulary=sizes[1]).to(device)
    task = Transduce(recipe.task, vocabularies=sizes, searching=recipe.search)
    optimiser = OPTIMISERS.build(recipe.training.optimiser, model=network)
    lengths = [max(1, round(side.mean)) for side in (choices.source, choices.target)]
    rows = max(1, choices.sizes.batch // (max(lengths) + 1))
    rng = np.random.default_rng(1)
    made = [[rng.integers(len(SPECIALS), max(size, len(SPECIALS) + 1), length) for _ in range(rows)]
            for size, length in zip(sizes, lengths, strict=True)]  # fmt: skip
    batch = collate_pairs([Pair(one, other, i) for i, (one, other) in enumerate(zip(*made, strict=True))]).to(device)

    def step() -> None:
        network.zero_grad()
        loss = task.loss(network, batch, 1)
        (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
        optimiser.step(1.0)
        if device.type == "cuda":
            torch.cuda.synchronize()

    step()  # the first one pays for setting up
    quickest, spent = math.inf, 0.0
    while tries and spent < PATIENCE:
        started_at = time.monotonic()
        step()
        elapsed = time.monotonic() - started_at
        quickest, spent, tries = min(quickest, elapsed), spent + elapsed, tries - 1
    return quickest * choices.steps

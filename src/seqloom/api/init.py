"""`seqloom init DATA`: look at the examples and choose what suits their size and kind, with a reason for every choice.

What they are for (`data/kinds.py`), how texts are cut, how large a model and how long to train (`sizes.py`): a start
that trains, not a search. The recipe is written as text (`draft.py`) so that its comments say why.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from seqloom.api.datasets import held_out_share
from seqloom.api.sides import TOKEN_LIMIT, Kind, Side, rounded, sides, tokens
from seqloom.api.sizes import Sizes, presets, rate, upto, warmup
from seqloom.config import Settings, kind_of
from seqloom.data.examples import ITEMS
from seqloom.data.files import BadUtf8
from seqloom.data.kinds import EXAMPLES, TEXT, Guess, Task, guessed, separator_of
from seqloom.data.label_survey import set_of
from seqloom.data.named import WHAT, Files, file_kind, opened
from seqloom.data.profile import Profile, profile
from seqloom.data.readers import Example, read
from seqloom.errors import SeqloomError
from seqloom.figures import FIX, no_number, number_in
from seqloom.metrics.spans import OUTSIDE, PLACES

SAMPLE = 20_000  # examples that are looked at closely
SEPARATORS = (ITEMS, "|", ",", "+", " ")
AT_ONCE = 16  # files in a batch, at least
LEAST_STEPS = 20  # however few pairs there are
WINDOWS = {"characters": 256, "bpe": 128}  # tokens of a long text that are learned from at once
TextUnit = Literal["lines", "documents", "stream"]


@dataclass(frozen=True)
class Choices:
    """Everything that a drafted recipe says."""

    guess: Guess
    asked: bool  # a person said what the data are for
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
    near: float  # of numbers: a tenth of their range, rounded, within which one is as good as right
    separator: str  # between the labels of a set
    labels: Mapping[str, int]  # of labels and tags: how often each stands in the sample, the most frequent first
    spans: bool  # tags write spans, as BIO does
    text: TextUnit | None  # what a text is, where there are no sources
    window: int | None  # of a long text: tokens that are learned from at once
    files: Files | None = None  # where sources name files

    @property
    def task(self) -> Task:
        return self.guess.task

    @property
    def examples(self) -> str:
        """How many there are, each by its name."""
        return f"{self.profile.pairs:,} {'lines' if self.task == 'language' else EXAMPLES[self.task]}"

    @property
    def characters(self) -> float:
        """Of all targets, about."""
        return self.profile.pairs * self.profile.target.mean_characters


def choose(
    dataset: Settings, on_bad_utf8: BadUtf8 = "error", gpu: bool | None = None, task: Task | None = None
) -> Choices:
    """Read the examples once and choose; E_EMPTY where there are none. `gpu`: whether training will have one."""
    sample: list[Example] = []
    found = profile(_sampled(read(dataset, on_bad_utf8=on_bad_utf8), sample), limit=SAMPLE)
    _refuse_nothing(kind_of(dataset), sample)
    guess = guessed(kind_of(dataset), sample)
    if task is not None:
        guess = Guess(task, "as asked for")
    _refuse_impossible(guess.task, kind_of(dataset), sample)
    unit = _unit(dataset, sample) if guess.task == "language" else None
    files = _files(guess.task, sample)
    source, target = sides(guess.task, found, sample, in_windows=unit not in (None, "lines"))
    is_text = "text" in (source.looks, target.looks)
    has_gpu = torch.cuda.is_available() if gpu is None else gpu
    amount = found.pairs * found.target.mean_characters if guess.task == "language" else found.pairs
    sizes = upto(amount, presets(guess.task, source.looks, target.looks, has_gpu))
    if files is not None:
        source = replace(source, mean=files.mean, limit=_room(files.longest))
        sizes = replace(sizes, batch=max(sizes.batch, rounded(AT_ONCE * (files.mean + 1))))
    cost = max(source.mean, target.mean) + 1
    epoch = found.pairs * cost / sizes.batch  # in steps
    epochs = max(sizes.epochs, math.ceil(LEAST_STEPS / max(1.0, epoch)))
    steps = rounded(epochs * max(1.0, epoch))
    labels = _labels(guess.task, sample)
    return Choices(
        guess=guess,
        asked=task is not None,
        profile=found,
        source=source,
        target=target,
        sizes=sizes,
        epochs=epochs,
        steps=steps,
        warmup=min(warmup(sizes, is_text), steps // 10),
        lr=rate(sizes, is_text),
        validate_every=max(1, min(steps, rounded(steps / 12, 1))),
        held_out=round(held_out_share(found.pairs) * found.pairs),
        max_ratio=_ratio(sample, source.tokenizer, target.tokenizer),
        merge_sources=guess.task == "transduce" and (_has_alternatives(sample) or found.several_references),
        separators={name: _separator([one.extras[name] for one in sample]) for name in sample[0].extras},
        near=_near(sample) if guess.task == "number" else 0.0,
        separator=separator_of([example.target for example in sample]),
        labels=labels,
        spans=guess.task == "tags" and _write_spans(labels),
        text=unit,
        window=None if unit in (None, "lines") else WINDOWS[target.tokenizer],
        files=files,
    )


def _files(task: Task, sample: Sequence[Example]) -> Files | None:
    """What sources name, where they name files and a person did not ask for what only texts can be used for."""
    kind = None if task in ("language", "retrieve") else file_kind(sample)
    return None if kind is None else opened(kind, sample)


def _room(longest: int) -> int:
    """Positions of a file that a recipe should allow, by the longest of some."""
    return max(TOKEN_LIMIT, math.ceil(1.5 * longest / 128) * 128)


def _sampled(examples: Iterator[Example], sample: list[Example]) -> Iterator[Example]:
    """Pass examples on, and keep the first of them."""
    for example in examples:
        if len(sample) < SAMPLE:
            sample.append(example)
        yield example


def _refuse_nothing(reader: str, sample: Sequence[Example]) -> None:
    if not sample:
        raise SeqloomError("E_EMPTY", "there are no pairs", fix="one pair per line: source, tab, target")
    if not any((reader == TEXT or example.source.strip()) and example.target.strip() for example in sample):
        what = f"of {len(sample):,} pairs none has text on both sides"
        raise SeqloomError("E_EMPTY", what, where=sample[0].where, fix="is it the right column? set 'columns'")


def _refuse_impossible(task: Task, reader: str, sample: Sequence[Example]) -> None:
    """E_USAGE where a person asks for what these examples cannot be used for."""
    where = f"--task {task}"
    if (task == "language") != (reader == TEXT):
        what = (
            "plain text has no sources" if reader == TEXT else "a language model learns from text alone, not from pairs"
        )
        fix = "say {kind: tsv, path: FILE}" if reader == TEXT else "say {kind: text, path: FILE}"
        raise SeqloomError("E_USAGE", what, where=where, fix=fix)
    if task == "retrieve" and (kind := file_kind(sample)) is not None:
        what = f"the sources name {WHAT[kind]}, and what is found among many texts is asked for by a text"
        raise SeqloomError("E_USAGE", what, where=where, fix="leave --task out")
    odd = next((one for one in sample[1:] if number_in(one.target) is None and one.target.strip()), None)
    if task == "number" and odd is not None:
        raise SeqloomError("E_DATA", f"the target {no_number(odd.target)}", where=odd.where, fix=FIX)
    if task == "tags" and sample[0].extras:
        what = "a tag belongs to a word of the source, and there is none for further sources"
        raise SeqloomError("E_USAGE", what, where=where, fix="leave extras out")


def _unit(dataset: Settings, sample: Sequence[Example]) -> TextUnit:
    """What a person said a text is; else what stands between blank lines where there are any, and a line if not."""
    if "unit" in dataset.model_fields_set:
        said: TextUnit = dataset.model_dump()["unit"]
        return said
    return "documents" if any(after.line > before.line + 1 for before, after in pairwise(sample)) else "lines"


def _labels(task: Task, sample: Sequence[Example]) -> Mapping[str, int]:
    cuts: dict[Task, Callable[[str], list[str]]] = {
        "label": lambda text: [text],
        "labels": set_of(separator_of([example.target for example in sample])),
        "tags": str.split,
    }
    if task not in cuts:
        return {}
    cut = cuts[task]
    return dict(Counter(label for example in sample for label in cut(example.target) if label.strip()).most_common())


def _near(sample: Sequence[Example]) -> float:
    """A tenth of the range of the numbers, to one digit."""
    numbers = [number for one in sample if (number := number_in(one.target)) is not None]
    return float(f"{(max(numbers) - min(numbers)) / 10:.0e}") if numbers else 0.0


def _write_spans(tags: Mapping[str, int]) -> bool:
    """Whether these are tags such as B-PER, and O for words in no span."""
    inside = [tag for tag in tags if tag not in OUTSIDE]
    return bool(inside) and all(tag[1:2] == "-" and tag[0] in PLACES for tag in inside)


def _ratio(sample: list[Example], source: Kind, target: Kind) -> float:
    """Target tokens per source token that hardly any pair exceeds, the ten that are free counted off."""
    ratios = [(tokens(target, e.target) - 10) / (tokens(source, e.source) + 1) for e in sample]
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

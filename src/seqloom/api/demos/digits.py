"""Handwritten numbers to number words: "four hundred seven", digits of scikit-learn's bundled set side by side.

The digits are real (UCI optical recognition, 1,797 pictures of 8 x 8), the numbers are put together here. A fifth of
the numbers of several words and a fifth of the digits' pictures never occur in training: the test is made of these
alone, so every number of it is new, and so is the handwriting of every digit in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seqloom.api.demos.base import INSTALL, Demo
from seqloom.data.images import require
from seqloom.errors import SeqloomError
from seqloom.files import file_error

if TYPE_CHECKING:
    from PIL.Image import Image

Ink = npt.NDArray[np.uint8]  # 8 8: 255 is black
HEIGHT, WIDTH = 16, 48  # pixels
LARGE = (10, 14)  # pixels of a digit, either way
SLANT, PALE = 0.25, 0.6
GAP, TURN = (0, 2), 12  # pixels to the right of a digit; degrees, at most
DIGITS = 3  # of a number, at most
SIZES = {"train": 20_000, "dev": 200, "test": 500}
HELD_OUT = 0.2  # of the numbers that are made of several words
SHARES = {"test": 0.2, "dev": 0.05}  # of the pictures of a digit; the rest is for training
FOLDER = "numbers"

ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def in_words(number: int) -> str:
    """A number below a thousand as it is said."""
    if number >= 100:
        rest = number % 100
        return f"{ONES[number // 100]} hundred" + (f" {in_words(rest)}" if rest else "")
    if number >= 20:
        return TENS[number // 10 - 2] + (f" {ONES[number % 10]}" if number % 10 else "")
    return ONES[number]


@dataclass(frozen=True)
class Number:
    """A number to be written; the seed says by which pictures, how large and where."""

    value: int
    part: str
    seed: int

    def draw(self, path: Path) -> None:
        from PIL import Image, ImageChops

        rng = Random(self.seed)
        known = handwriting(self.part)
        written = [_digit(rng.choice(known[int(digit)]), rng, self.part == "train") for digit in str(self.value)]
        page, right = Image.new("L", (WIDTH, HEIGHT)), WIDTH
        for image in reversed(written):  # ones stand on the right, as in a column of numbers
            right -= image.width + rng.randint(*GAP)
            whole = Image.new("L", page.size)
            whole.paste(image, (right, rng.randint(0, HEIGHT - image.height)))
            page = ImageChops.lighter(page, whole)
        ImageChops.invert(page).save(path)


def _digit(ink: Ink, rng: Random, varied: bool) -> Image:
    """A digit, larger or smaller; varied also as others might write it: slanted, a little turned, in paler ink."""
    from PIL import Image

    size = rng.randint(*LARGE), rng.randint(*LARGE)
    large = Image.fromarray(ink).resize(size, Image.Resampling.BICUBIC)
    if not varied:
        return large
    slant, pale = rng.uniform(-SLANT, SLANT), rng.uniform(PALE, 1.0)
    slanted = (1, slant, -slant * size[1] / 2, 0, 1, 0)
    large = large.transform(size, Image.Transform.AFFINE, slanted, Image.Resampling.BILINEAR)
    return large.rotate(rng.uniform(-TURN, TURN), Image.Resampling.BILINEAR).point(lambda value: value * pale)


@cache
def _every_digit() -> tuple[tuple[Ink, ...], ...]:
    """The pictures of each digit, in an order of their own; E_EXTRA where the package is missing."""
    try:
        bunch = import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise SeqloomError(
            "E_EXTRA", "the digits come with scikit-learn, which is not installed", fix=INSTALL
        ) from None
    ink = np.rint(np.asarray(bunch.images) * (255 / 16)).astype(np.uint8)
    kinds = [
        [picture for picture, is_it in zip(ink, bunch.target, strict=True) if is_it == digit] for digit in range(10)
    ]
    for kind in kinds:
        Random(1).shuffle(kind)
    return tuple(map(tuple, kinds))


@cache
def handwriting(part: str) -> Sequence[Sequence[Ink]]:
    """By digit, the pictures that a set may use; no two sets share one."""
    chosen = []
    for pictures in _every_digit():
        test = round(SHARES["test"] * len(pictures))
        dev = test + round(SHARES["dev"] * len(pictures))
        chosen.append({"test": pictures[:test], "dev": pictures[test:dev], "train": pictures[dev:]}[part])
    return chosen


def _values() -> Mapping[str, Mapping[int, list[int]]]:
    """The numbers of each set by how many digits they have. Those below twenty are words of their own, all learned."""
    found: dict[str, dict[int, list[int]]] = {"test": {}, "train": {}}
    for digits in range(1, DIGITS + 1):
        values = list(range(10 ** (digits - 1) if digits > 1 else 0, 10**digits))
        composed = [value for value in values if value >= len(ONES)]
        Random(digits).shuffle(composed)
        held = set(composed[: round(HELD_OUT * len(composed))])
        found["test"][digits] = sorted(held)
        found["train"][digits] = [value for value in values if value not in held]
    return found


def numbers(part: str) -> Iterator[Number]:
    """The numbers of a set, the same at every call; those of the test stand nowhere else."""
    values, rng = _values()["test" if part == "test" else "train"], Random(f"numbers {part}")
    lengths = [digits for digits, some in values.items() if some]
    for _ in range(SIZES[part]):
        yield Number(rng.choice(values[rng.choice(lengths)]), part, rng.randrange(1 << 30))


def lines(part: str) -> Iterator[tuple[str, ...]]:
    """A picture and what it says."""
    for place, number in enumerate(numbers(part)):
        yield f"{FOLDER}/{part}-{place:05}.png", in_words(number.value)


def draw_all(folder: Path) -> None:
    """Every picture that the lines name."""
    require()
    handwriting("train")
    try:
        (folder / FOLDER).mkdir(exist_ok=True)
        for part in SIZES:
            for place, number in enumerate(numbers(part)):
                number.draw(folder / FOLDER / f"{part}-{place:05}.png")
    except OSError as error:
        raise file_error(error, folder / FOLDER) from None


RECIPE = """\
# Handwritten numbers to words: a convolutional network, and a Transformer decoder that looks at its regions.
# Every line may be changed: `seqloom train THIS_FILE --run SOME_FOLDER` trains it anew.
# `seqloom config THIS_FILE` shows all the keys that are left at their defaults.

data:                             # one number per line: a picture beside this file, then its words
  train: {path: {pairs}}
  dev: {path: {dev}}
  test: {path: {test}}            # numbers that are not in training, by digits that are not either

source:
  kind: pixels
  size: [16, 48]
  region: 8                       # 2 x 6 regions
  colours: grey
  augment: {contrast: 0.2}
target: {tokenizer: words}

model:
  target_embedding: {width: 96}
  encoder: {kind: cnn, width: 128, channels: 32, local: true, dropout: 0.05}  # local: it sees what is close by
  decoder: {kind: transformer, width: 96, layers: 2, heads: 4, dropout: 0.0}

task: {history: {replace: 0.15}}  # a number that training lacks must be seen: words before it are not to be trusted
batching: {tokens: 416, pool: 1}  # 32 numbers of 12 regions and an end; of any length, so that no batch is all alike

training:
  steps: 3000
  optimiser: {kind: adamw, lr: 1e-3, weight_decay: 0.05}
  schedule: {kind: cosine, warmup: 100}   # to zero at the last step
  clip: 1.0
  log_every: 20
  validate_every: 500
  metric: exact
  keep: last                      # few dev numbers choose by chance

search: {strategy: greedy}

evaluation:
  metrics: [exact, wer]
  validate_examples: 200
  show: 3
"""

DIGITS_DEMO = Demo(
    name="digits",
    about="handwritten numbers to number words, of scikit-learn's digits",
    pairs=lambda: lines("train"),
    held_out={part: (lambda part=part: lines(part)) for part in ("dev", "test")},  # type: ignore[misc]
    beside=draw_all,
    recipe=RECIPE,
    sources="numbers",
    units=(("", lambda text: ()), ("words", str.split)),
    question=f"{FOLDER}/test-00000.png",
    change=("one-head", "model.decoder.heads=1"),
    called={"exact": "exact match", "wer": "word error rate"},
)

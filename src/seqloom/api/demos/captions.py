"""Scenes of two shapes, drawn with Pillow, to what they show: "a red circle above a blue square".

Every scene can be told in several ways by a small grammar, and each of them is right. What is learned begins with the
thing that is above or on the left, as one reads: where either thing may come first, looking at both at once predicts
the first colour as well as any look at one of them, and attention takes many times as long to find its way. Some pairs
of things (a red circle and a blue square) never stand together in training: the test is made of these alone, so that
whoever learned pictures by heart fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from seqloom.api.demos.base import Demo
from seqloom.data.images import require
from seqloom.files import file_error

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

COLOURS = {
    "red": (214, 40, 40),
    "green": (40, 160, 70),
    "blue": (40, 90, 210),
    "yellow": (240, 200, 30),
    "purple": (140, 60, 170),
}
SHAPES = ("circle", "square", "triangle", "cross")
RELATIONS = {"above": "below", "left of": "right of"}  # how the first stands to the second, and the other way round
SIDE = 48  # pixels
SIZES = {"train": 3200, "dev": 150, "test": 400}
HELD_OUT = 0.2  # of the pairs of things
FOLDER = "scenes"

Thing = tuple[str, str]  # colour, shape
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


@dataclass(frozen=True)
class Scene:
    """Two things and how they stand to each other; the seed says where exactly."""

    first: Thing
    second: Thing
    relation: str
    seed: int

    def captions(self) -> tuple[str, ...]:
        """All that the grammar says of it, in the order in which one reads first."""
        first, second = (f"a {colour} {shape}" for colour, shape in (self.first, self.second))
        back = RELATIONS[self.relation]
        return (
            f"{first} {self.relation} {second}",
            f"there is {first} {self.relation} {second}",
            f"{second} {back} {first}",
            f"there is {second} {back} {first}",
        )

    def boxes(self) -> tuple[Box, Box]:
        """Where the two things are."""
        rng, far, near = Random(self.seed), SIDE * 0.26, SIDE * 0.74
        ends = ((SIDE / 2, far), (SIDE / 2, near)) if self.relation == "above" else ((far, SIDE / 2), (near, SIDE / 2))
        first, second = (_box(x, y, rng) for x, y in ends)
        return first, second

    def draw(self, path: Path) -> None:
        from PIL import Image, ImageDraw

        rng = Random(-self.seed)
        tint = rng.randrange(225, 256)
        image = Image.new("RGB", (SIDE, SIDE), (tint, tint, min(255, tint + rng.randrange(12))))
        for (colour, shape), box in zip((self.first, self.second), self.boxes(), strict=True):
            _draw(ImageDraw.Draw(image), shape, box, COLOURS[colour])
        image.save(path)


def _box(x: float, y: float, rng: Random) -> Box:
    radius, shift = SIDE * rng.uniform(0.16, 0.2), SIDE * 0.05
    x, y = x + rng.uniform(-shift, shift), y + rng.uniform(-shift, shift)
    return x - radius, y - radius, x + radius, y + radius


def _draw(on: ImageDraw, shape: str, box: Box, fill: tuple[int, int, int]) -> None:
    left, top, right, bottom = box
    x, y, thin = (left + right) / 2, (top + bottom) / 2, (right - left) / 6
    if shape == "circle":
        on.ellipse(box, fill)
    elif shape == "square":
        on.rectangle(box, fill)
    elif shape == "triangle":
        on.polygon([(x, top), (left, bottom), (right, bottom)], fill)
    else:
        on.rectangle((left, y - thin, right, y + thin), fill)
        on.rectangle((x - thin, top, x + thin, bottom), fill)


def scenes(part: str) -> Iterator[Scene]:
    """The scenes of a set, the same at every call."""
    things = [(colour, shape) for colour in COLOURS for shape in SHAPES]
    pairs = list(combinations(things, 2))
    Random(1).shuffle(pairs)
    held = round(HELD_OUT * len(pairs))
    rng = Random(f"scenes {part}")
    for number in range(SIZES[part]):
        couple = list(rng.choice(pairs[:held] if part == "test" else pairs[held:]))
        rng.shuffle(couple)
        yield Scene(couple[0], couple[1], rng.choice(list(RELATIONS)), rng.randrange(1 << 30) + number)


def lines(part: str) -> Iterator[tuple[str, ...]]:
    """A picture and its captions, that which is learned first."""
    rng = Random(f"captions {part}")
    for number, scene in enumerate(scenes(part)):
        captions = list(scene.captions())
        learned = captions.pop(rng.randrange(2))
        yield (f"{FOLDER}/{part}-{number:04}.png", learned, *captions)


def draw_all(folder: Path) -> None:
    """Every picture that the lines name."""
    require()
    try:
        (folder / FOLDER).mkdir(exist_ok=True)
        for part in SIZES:
            for number, scene in enumerate(scenes(part)):
                scene.draw(folder / FOLDER / f"{part}-{number:04}.png")
    except OSError as error:
        raise file_error(error, folder / FOLDER) from None


RECIPE = """\
# Scenes of coloured shapes to captions: Show, Attend and Tell (Xu et al. 2015).
# Every line may be changed: `seqloom train THIS_FILE --run SOME_FOLDER` trains it anew.
# `seqloom config THIS_FILE` shows all the keys that are left at their defaults.

data:                             # one scene per line: a picture beside this file, then its captions
  train: {path: {pairs}, references: [2, 3, 4]}
  dev: {path: {dev}, references: [2, 3, 4]}
  test: {path: {test}, references: [2, 3, 4]}    # pairs of things that never stand together in training

source: {kind: pixels, size: 48, region: 8}      # 6 x 6 regions
target: {tokenizer: words}

model:
  target_embedding: {width: 32}
  encoder: {kind: cnn, width: 96, channels: 24, local: true}   # a region knows what is in it and close by
  decoder:
    kind: luong                   # looks at the regions before every word, knowing the words before it
    cell: gru
    width: 128
    start: zero                   # all it knows of the picture is what it looks at: no scene is learned by heart
    attention: {score: additive}

batching: {tokens: 1184}          # 32 scenes of 36 regions and an end

training:
  steps: 1500
  optimiser: {kind: adam, lr: 3e-3, betas: [0.9, 0.98]}
  schedule: {kind: cosine, warmup: 100}   # to zero at the last step
  clip: 1.0
  log_every: 20
  validate_every: 300
  metric: exact                   # any of its captions is right; the best validation is what is kept

search: {strategy: greedy}

evaluation:
  metrics: [exact, bleu]
  validate_examples: 150
  show: 3
"""

CAPTIONS = Demo(
    name="captions",
    about="scenes of coloured shapes to captions, drawn with Pillow",
    pairs=lambda: lines("train"),
    held_out={part: (lambda part=part: lines(part)) for part in ("dev", "test")},  # type: ignore[misc]
    beside=draw_all,
    recipe=RECIPE,
    sources="scenes",
    units=(("", lambda text: ()), ("words", str.split)),
    question=f"{FOLDER}/test-0000.png",
    change=("bilinear", "model.decoder.attention.score=bilinear"),
    called={"exact": "exact match", "bleu": "BLEU"},
)

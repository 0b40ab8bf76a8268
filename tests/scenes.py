"""What tests of pictures share: small pictures that Pillow draws, and lists that name them."""

from __future__ import annotations

from pathlib import Path
from random import Random

from PIL import Image, ImageDraw

COLOURS = {"red": (220, 30, 30), "green": (30, 160, 60), "blue": (30, 60, 220)}
SIDES = ("left", "right")


def write_blocks(folder: Path, count: int = 120, seed: int = 1, size: int = 16) -> Path:
    """A coloured block on the left or on the right: `red left`, or `left red`, both right."""
    rng, lines = Random(seed), []
    (folder / "blocks").mkdir(parents=True)
    for number in range(count):
        colour, side = rng.choice(list(COLOURS)), rng.choice(SIDES)
        image = Image.new("RGB", (size, size), (250, 250, 250))
        left = rng.randrange(1, 3) + (size // 2 if side == "right" else 0)
        top = rng.randrange(2, size // 2)
        ImageDraw.Draw(image).rectangle((left, top, left + size // 4, top + size // 4), COLOURS[colour])
        image.save(folder / "blocks" / f"{number}.png")
        lines.append(f"blocks/{number}.png\t{colour} {side}\t{side} {colour}\n")
    (folder / "blocks.tsv").write_text("".join(lines))
    return folder / "blocks.tsv"

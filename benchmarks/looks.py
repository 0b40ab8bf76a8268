"""Does attention lie on what a word names? Scenes of `seqloom demo captions`, of which we know where everything is.

python benchmarks/looks.py demo/captions [--scenes 200] [--output benchmarks/results/looks.json]

For every colour and shape in a right answer: does the region that was looked at most touch the box of the thing that is
named, and how much of the weight is on regions that do? Beside it how many regions do, which is what looking anywhere
would reach. Stricter: is the middle of that region inside the box? Weights are those of the last layer, the mean of its
heads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seqloom import runtime
from seqloom.api.demos.captions import COLOURS, FOLDER, SHAPES, SIDE, Box, Scene, scenes
from seqloom.api.load import load
from seqloom.api.model import Model

Floats = npt.NDArray[np.float64]
AT = {"above": 0, "below": 1, "left": 0, "right": 1}  # which thing is named first, by the word between


def named(words: list[str]) -> Iterator[tuple[int, int]]:
    """(place in the answer, which of the two things) of every colour and shape."""
    between = next(place for place, word in enumerate(words) if word in AT)
    first = AT[words[between]]
    for place, word in enumerate(words):
        if word in COLOURS or word in SHAPES:
            yield place, first if place < between else 1 - first


def inside(box: Box, grid: tuple[int, int], touching: bool) -> npt.NDArray[np.bool_]:
    """Regions, row by row, whose middle is inside a box, or that touch it."""
    rows, columns = grid
    height, width = SIDE / rows, SIDE / columns
    left, top, right, bottom = box
    more = (width / 2, height / 2) if touching else (0.0, 0.0)
    x, y = (np.arange(columns) + 0.5) * width, (np.arange(rows) + 0.5) * height
    across, down = (x > left - more[0]) & (x < right + more[0]), (y > top - more[1]) & (y < bottom + more[1])
    found: npt.NDArray[np.bool_] = (down[:, None] & across[None]).ravel()
    return found


def looked(model: Model, folder: Path, number: int, scene: Scene) -> list[tuple[bool, float, float, bool]] | None:
    """Of each word that names something: is it touched most, by how much of all weight, by chance; is it hit.

    None where the answer is wrong.
    """
    explained = model.explain(str(folder / FOLDER / f"test-{number:04}.png"))
    if explained.answer not in scene.captions():
        return None
    assert explained.grid is not None
    weights: Floats = explained.weights[-1].mean(0)[:, : explained.frames].astype(np.float64)  # T R
    found = []
    for place, thing in named(explained.answer.split()):
        box, row = scene.boxes()[thing], weights[place]
        touched, within = (inside(box, explained.grid, touching) for touching in (True, False))
        most = row.argmax()
        found.append((bool(touched[most]), float(row[touched].sum()), float(touched.mean()), bool(within[most])))
    return found


def measured(folder: Path, count: int) -> dict[str, object]:
    model = load(folder / "run")
    some = [scene for _, scene in zip(range(count), scenes("test"), strict=False)]
    answers = [looked(model, folder, number, scene) for number, scene in enumerate(some)]
    if not any(answers):
        raise SystemExit("no answer is right, so there is nothing to look for: is the demo trained?")
    words = np.array([word for answer in answers if answer is not None for word in answer], dtype=np.float64)
    touched, weight, chance, within = words.mean(0)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": runtime.describe(),
        "scenes": len(some),
        "right": sum(answer is not None for answer in answers),
        "words": len(words),
        "most_on_what_it_names": round(float(touched), 4),
        "weight_on_what_it_names": round(float(weight), 4),
        "by_chance": round(float(chance), 4),
        "most_with_its_middle_on_it": round(float(within), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where `seqloom demo captions` put its files")
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "looks.json")
    asked = parser.parse_args()
    result = measured(asked.folder, asked.scenes)
    asked.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

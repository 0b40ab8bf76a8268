"""The scenes of `seqloom demo captions`: the same every time, told in every way the grammar has, and honestly split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from seqloom.api.demos.captions import COLOURS, SIZES, Scene, lines, scenes


def couples(part: str) -> set[frozenset[tuple[str, str]]]:
    return {frozenset((scene.first, scene.second)) for scene in scenes(part)}


def test_the_test_is_of_pairs_that_never_stand_together_in_training() -> None:
    assert not couples("test") & (couples("train") | couples("dev"))
    things = [{thing for couple in couples(part) for thing in couple} for part in ("train", "test")]
    assert things[1] <= things[0], "every thing of the test is known"
    assert {part: len(list(scenes(part))) for part in SIZES} == SIZES


def test_captions_are_of_the_scene_and_the_same_at_every_call() -> None:
    assert list(lines("dev")) == list(lines("dev"))
    scene = Scene(("red", "circle"), ("blue", "square"), "above", 1)
    assert scene.captions() == (
        "a red circle above a blue square",
        "there is a red circle above a blue square",
        "a blue square below a red circle",
        "there is a blue square below a red circle",
    )
    for row, drawn in zip(lines("dev"), scenes("dev"), strict=True):
        assert sorted(row[1:]) == sorted(drawn.captions())
        assert row[1] in drawn.captions()[:2], "what is learned begins with what is above or on the left"


def test_what_is_drawn_is_where_it_is_said_to_be(tmp_path: Path) -> None:
    for relation, half in (("above", np.s_[:24, :]), ("left of", np.s_[:, :24])):
        Scene(("red", "cross"), ("blue", "circle"), relation, 3).draw(tmp_path / "x.png")
        pixels = np.asarray(Image.open(tmp_path / "x.png").convert("RGB"))
        red = (pixels == COLOURS["red"]).all(-1)
        assert red.sum() > 30
        assert red[half].sum() > 0.9 * red.sum()


def test_boxes_are_where_things_were_drawn(tmp_path: Path) -> None:
    for seed in range(5):
        scene = Scene(("red", "cross"), ("blue", "circle"), "above", seed)
        scene.draw(tmp_path / "x.png")
        pixels = np.asarray(Image.open(tmp_path / "x.png").convert("RGB"))
        for (colour, _), (left, top, right, bottom) in zip((scene.first, scene.second), scene.boxes(), strict=True):
            rows, columns = np.nonzero((pixels == COLOURS[colour]).all(-1))
            drawn = columns.min(), rows.min(), columns.max(), rows.max()
            assert np.allclose(drawn, (left, top, right, bottom), atol=1.1)

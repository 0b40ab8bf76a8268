"""Answers that are remembered, and sentences whose names are filled in: what the scripts beside the recipes count."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "recipes"))

import delexicalised  # type: ignore[import-not-found]
import remembered  # type: ignore[import-not-found]

from seqloom.api.evaluate import Judge


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    train = [("Mill 1 is on the Lune.", "Lune", "1 ?", "river"), ("Mill 2 is on the Lune.", "Lune", "2 ?", "river")]
    train += [("Mill 3 is on the Wye.", "Wye", "3 ?", "river")]
    test = [("Mill 3 lies by the Lune.", "Lune", "3 ?", "river"), ("Mill 4 is on the Wye.", "Wye", "4 ?", "river")]
    test += [("Mill 5 is red.", "red", "5 ?", "colour"), ("Mill 1 is on the Lune.", "Lune", "6 ?", "river")]
    for part, rows in (("train", train), ("test", test)):
        (tmp_path / f"questions_{part}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return tmp_path


def test_a_glance_finds_what_stands_there_and_memory_does_not(folder: Path) -> None:
    """Blind: Wye (as 3 was answered), Lune, nothing, Lune: one of four. With a glance: Lune, Wye, nothing, Lune."""
    found = remembered.measured(folder)
    assert found["blind"]["answer_exact"]["value"] == pytest.approx(25)
    assert found["scores"]["answer_exact"]["value"] == pytest.approx(75)
    assert (found["seen"], found["seen_texts"]) == (0.25, 0.25)


def test_names_are_filled_in_before_anything_is_judged() -> None:
    lines = [
        "mr\tref\tname\tnear",
        "name[X_name], near[X_near]\tX_name is by X_near.\tMill\tPier",
        "name[X_name], near[X_near]\tBy X_near is X_name.\tMill\tPier",
        "name[X_name], near[X_near]\tX_name is by X_near.\tBarn\tPier",
    ]
    wanted = delexicalised.restaurants(lines)
    assert [one.sentences for one in wanted] == [["Mill is by Pier.", "By Pier is Mill."], ["Barn is by Pier."]]
    judge = Judge(None, ["exact"])
    found = delexicalised.scores(judge, wanted, ["By X_near is X_name.", "By X_near is X_name."])
    assert found["exact"]["value"] == pytest.approx(50)
    assert found["exact"]["signature"].endswith("|names:filled")

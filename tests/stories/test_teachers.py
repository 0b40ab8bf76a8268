"""`task.teachers`: a run that learns from other runs' probabilities, from the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from commands import Answer, Command
from seqloom.api.folder import read_recipe
from seqloom.api.train import Wishes, train
from seqloom.bundle import open_bundle

pytest_plugins = ["command_fixtures"]


def taught(seqloom: Command, run: Path, student: Path, teachers: object, *more: object) -> Answer:
    asked = f"task.teachers={{runs: [{teachers}], weight: 0.9}}"
    return seqloom("train", run / "recipe.yaml", "--run", student, "--set", asked, "--set", "steps=4", "-q", *more)


def test_a_student_learns_from_a_run_and_tells_only_its_name(seqloom: Command, run: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    assert seqloom("train", run / "recipe.yaml", "--run", plain, "--set", "steps=4", "-q").code == 0
    answer = taught(seqloom, run, tmp_path / "student", run)
    assert answer.code == 0, answer.err
    one, other = (open_bundle(folder / "bundle").weights() for folder in (plain, tmp_path / "student"))
    assert any(not torch.equal(tensor, other[name]) for name, tensor in one.items()), "the teacher changed nothing"
    inside = yaml.safe_load((tmp_path / "student" / "recipe.yaml").read_text())
    assert inside["task"]["teachers"]["runs"] == [str(run.absolute())]
    kept = yaml.safe_load((tmp_path / "student" / "bundle" / "recipe.yaml").read_text())
    assert kept["task"]["teachers"]["runs"] == [run.name]
    assert seqloom("predict", tmp_path / "student" / "bundle", "--text", "abc", "-q").code == 0, "it needs no teacher"


def test_a_folder_of_seeds_teaches_as_one(seqloom: Command, run: Path, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    answer = seqloom("train", run / "recipe.yaml", "--run", seeds, "--seeds", "1-2", "--set", "steps=3", "-q")
    assert answer.code == 0, answer.err
    answers = {}
    for name, teachers in {"both": seeds, "listed": f"{seeds / 'seed-1'}, {seeds / 'seed-2'}"}.items():
        assert taught(seqloom, run, tmp_path / name, teachers).code == 0
        answers[name] = open_bundle(tmp_path / name / "bundle").weights()
    assert all(torch.equal(tensor, answers["listed"][name]) for name, tensor in answers["both"].items())


def test_an_interrupted_student_goes_on_with_its_teachers(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, and from any folder: where they lie is written down."""
    monkeypatch.chdir(run.parent)
    recipe = read_recipe(run / "recipe.yaml", [f"task.teachers={{runs: [{run.name}]}}", "steps=6"])
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    train(recipe, whole)
    asked = iter((None, None, "preempted"))
    assert train(recipe, halves, wishes=Wishes(stop=lambda: next(asked, None))).reason == "preempted"
    monkeypatch.chdir(tmp_path.parent)
    assert train(halves).reason == "steps"
    one, other = (open_bundle(folder / "bundle").weights() for folder in (whole, halves))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_what_cannot_teach_is_refused_before_anything_is_written(seqloom: Command, run: Path, tmp_path: Path) -> None:
    student = tmp_path / "student"
    assert "no such run" in taught(seqloom, run, student, tmp_path / "nobody").refused("E_FILE", 6)
    pairs = tmp_path / "other.tsv"
    pairs.write_text("".join(f"{'xyz' * n}\t{'zyx' * n}\n" for n in range(1, 40)))
    answer = seqloom(
        "train", run / "recipe.yaml", "--run", student, "--set", f"data.train={pairs}", "--set", "data.dev=null",
        "--set", "data.test=null", "--set", f"task.teachers={{runs: [{run}]}}", "--set", "steps=2", "-q",
    )  # fmt: skip
    assert "do not read and write alike" in answer.refused("E_RECIPE", 2)
    assert not (student / "recipe.yaml").exists()
    line = taught(seqloom, run, run, run, "--replace").refused("E_USAGE", 2)
    assert "--replace would drop" in line

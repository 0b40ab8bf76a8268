"""`seqloom demo` as a person meets it: one command, and every command it tells them to type next works."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from seqloom.api import demo as api
from seqloom.api.demos import DEMOS, captions, digits
from seqloom.cli.main import run

SMALL = ("--threads", "1", "--steps", "12")


@pytest.fixture(autouse=True)
def few_pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder, with 600 pairs and a narrow model, unless the test is marked as a story."""
    monkeypatch.chdir(tmp_path)
    if request.node.get_closest_marker("story"):
        return
    for sizes in (captions.SIZES, digits.SIZES):  # of what is drawn
        monkeypatch.setitem(sizes, "train", 600)
    for name, demo in DEMOS.items():
        narrow = re.sub(r"width: \d+", "width: 16", demo.recipe)
        small = replace(demo, pairs=lambda demo=demo: islice(demo.pairs(), 600), recipe=narrow)
        monkeypatch.setitem(DEMOS, name, small)


@pytest.mark.parametrize("name", DEMOS)
def test_from_data_to_a_map_in_one_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", name, *SMALL]) == 0
    said = capsys.readouterr()
    assert Path("demo", name, "pairs.tsv").exists()
    assert Path("demo", name, "run", "bundle", "card.json").exists()
    assert "600 train pairs" in said.err if DEMOS[name].held_out else "600 pairs" in said.err
    assert f"'seqloom check demo/{name}/recipe.yaml' finds" in said.err
    for wanted in ("95 % interval", "10 of them", "confidence", "where it looked", "<eos>", "weight from"):
        assert wanted in said.out, wanted


def test_the_commands_it_names_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "dates", *SMALL]) == 0
    out = capsys.readouterr().out
    commands = [line.strip() for line in out.splitlines() if line.startswith("  seqloom ")]
    assert len(commands) == 4
    for line in commands:
        program, *arguments = shlex.split(line)
        assert program == "seqloom"
        shorter = ["--set", "training.steps=4"] if arguments[0] == "train" else []
        assert run([*arguments, *shorter]) == 0, line


def test_json_is_one_document_and_talk_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "pronunciation", *SMALL, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["demo"] == "pronunciation"
    assert report["data"]["pairs"] == 600
    assert [score["metric"] for score in report["evaluation"]["scores"]] == ["string_error", "per"]
    assert len(report["examples"]) == 10
    assert {"source", "output", "references", "right", "confidence"} == set(report["examples"][0])
    looked = report["attention"]
    for head in looked["weights"]:
        assert [len(row) for row in head] == [len(looked["source"])] * len(looked["output"])
    assert len(report["next"]) == 4


def test_again_is_quick_and_another_recipe_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "dates", *SMALL]) == 0
    stored = Path("demo/dates/run/metrics.jsonl").read_bytes()
    first = capsys.readouterr().out
    assert run(["demo", "dates", *SMALL]) == 0
    said = capsys.readouterr()
    assert "finished" in said.err
    assert "kept demo/dates/recipe.yaml" in said.err
    assert Path("demo/dates/run/metrics.jsonl").read_bytes() == stored
    assert _without_times(said.out) == _without_times(first)
    assert run(["demo", "dates", "--threads", "1", "--steps", "13"]) == 2
    assert "E_RUN" in capsys.readouterr().err
    assert run(["demo", "dates", "--threads", "1", "--steps", "13", "--replace"]) == 0


def _without_times(out: str) -> list[str]:
    return [line for line in out.splitlines() if "tokens/s" not in line and "all this in" not in line]


def test_a_recipe_without_attention_is_fine_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    place = api.prepare(DEMOS["dates"], Path("demo/dates"))
    text = place.recipe.read_text()
    place.recipe.write_text(text.replace("kind: luong", "kind: rnn").replace("attention: {score: additive}", ""))
    assert run(["demo", "dates", *SMALL]) == 0
    assert "this model has no attention" in capsys.readouterr().out


def test_an_unknown_demo_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "pronounciation"]) == 2
    assert 'did you mean "pronunciation"?' in capsys.readouterr().err


@pytest.mark.story
def test_dates_learns_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """The whole of `seqloom demo dates`: above 99 % exact match on phrases it never saw."""
    assert run(["demo", "dates", "--threads", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    scores = {score["metric"]: score["value"] for score in report["evaluation"]["scores"]}
    assert scores["exact"] > 99.0


@pytest.mark.story
def test_captions_tells_new_scenes_and_looks_at_what_it_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of `seqloom demo captions`: above 95 % on pairs it never saw, looking at what it names."""
    assert run(["demo", "captions", "--threads", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    scores = {score["metric"]: score["value"] for score in report["evaluation"]["scores"]}
    assert scores["exact"] > 95.0
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    looked = import_module("looks").measured(Path("demo/captions"), 50)
    assert looked["most_on_what_it_names"] > 0.9
    assert looked["weight_on_what_it_names"] > 0.75

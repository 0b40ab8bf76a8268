"""`seqloom export`, `predict --engine` and `bench` as a person types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jaxtyping
import pytest

from commands import Command
from tiny import write_recipe

pytest.importorskip("ctranslate2")
pytest_plugins = ["command_fixtures"]

STACK = "{kind: transformer, width: 32, layers: 1, heads: 2, positions: rotary}"


@pytest.fixture
def transformer(tmp_path: Path, seqloom: Command) -> Path:
    recipe = write_recipe(tmp_path, pairs=400)
    changes = [f"model.{part}={STACK}" for part in ("encoder", "decoder")] + ["training.epochs=2"]
    run = tmp_path / "transformer"
    answer = seqloom("train", recipe, "--run", run, "-q", *(word for change in changes for word in ("--set", change)))
    assert answer.code == 0, answer.err
    return run


def test_export_then_predict_line_by_line(transformer: Path, tmp_path: Path, seqloom: Command) -> None:
    exported = seqloom("export", transformer)
    assert exported.code == 0, exported.err
    assert f"seqloom predict {transformer} --engine ctranslate2" in exported.err
    lines = tmp_path / "lines.txt"
    lines.write_text("ant bee\n\ncat dog eel\nfox\n")
    ours = seqloom("predict", transformer, lines, "-q")
    theirs = seqloom("predict", transformer, lines, "-q", "--engine", "ctranslate2")
    assert theirs.out == ours.out
    assert theirs.out.count("\n") == 4
    told = json.loads(seqloom("predict", transformer, "-t", "ant bee", "--engine", "ctranslate2", "--json", "-q").out)
    own = json.loads(seqloom("predict", transformer, "-t", "ant bee", "--json", "-q").out)
    assert told["text"] == own["text"]
    assert told["hypotheses"][0]["token_scores"] == pytest.approx(own["hypotheses"][0]["token_scores"], abs=1e-4)
    table = seqloom("predict", transformer, "-t", "ant bee", "--engine", "ctranslate2", "-n", "3", "-q").out
    assert [row.split("\t")[1] for row in table.splitlines()] == ["1", "2", "3"]


def test_an_export_of_its_own_folder(transformer: Path, tmp_path: Path, seqloom: Command) -> None:
    small = json.loads(seqloom("export", transformer, "-o", tmp_path / "small", "--quantise", "int8", "--json").out)
    whole = json.loads(seqloom("export", transformer, "--json").out)
    assert small["bytes"] < whole["bytes"]
    answer = seqloom("predict", tmp_path / "small", "-t", "ant bee", "--engine", "ctranslate2", "-q")
    assert answer.code == 0, answer.err


def test_a_bundle_without_a_run_is_left_as_it_is(transformer: Path, tmp_path: Path, seqloom: Command) -> None:
    bundle = Path(shutil.copytree(transformer / "bundle", tmp_path / "bare"))
    for to in ("ctranslate2", "onnx"):
        for output in ([], ["-o", bundle / "inside"], ["-o", bundle]):
            line = seqloom("export", bundle, "--to", to, *output).refused("E_USAGE", 2)
            assert "-o FOLDER" in line
            assert ("RUN/bundle" in line) == (to == "onnx")
    assert "-o FOLDER" in seqloom("export", transformer, "-o", transformer / "bundle").refused("E_USAGE", 2)
    exported = seqloom("export", bundle, "-o", tmp_path / "beside")
    assert exported.code == 0, exported.err
    ours = seqloom("predict", bundle, "-t", "ant bee", "-q")
    theirs = seqloom("predict", tmp_path / "beside", "-t", "ant bee", "-q", "--engine", "ctranslate2")
    assert (ours.code, theirs.code, theirs.out) == (0, 0, ours.out)


def test_an_export_takes_the_place_of_an_export_and_of_nothing_else(
    transformer: Path, tmp_path: Path, seqloom: Command
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    for place in (tmp_path / "full", transformer):
        assert "something else than an export" in seqloom("export", transformer, "-o", place).refused("E_USAGE", 2)
    assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        assert seqloom("export", transformer, "-o", tmp_path / "empty").code == 0


def test_what_an_engine_cannot_do_is_said(transformer: Path, run: Path, seqloom: Command) -> None:
    missing = seqloom("predict", transformer, "-t", "ant", "--engine", "ctranslate2")
    assert "seqloom export RUN" in missing.refused("E_BUNDLE", 4)
    other = seqloom("predict", transformer, "-t", "ant", "--engine", "ctranslate3").refused("E_USAGE", 2)
    assert 'did you mean "ctranslate2"' in other
    seqloom("export", transformer)
    for wish in (["--sample"], ["--must", "bee"], ["--stream"], ["--mbr", "4"], ["--set", "search.limits.extra=3"]):
        refusal = seqloom("predict", transformer, "-t", "ant", "--engine", "ctranslate2", *wish)
        assert wish[0] in refusal.refused("E_USAGE", 2)
    assert "no Transformer" in seqloom("export", run).refused("E_USAGE", 2)
    assert "one of: int8" in seqloom("export", transformer, "--quantise", "int3").refused("E_USAGE", 2)


def test_graphs_for_onnx_runtime(run: Path, tmp_path: Path, seqloom: Command) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    jaxtyping.config.update("jaxtyping_disable", True)  # while a graph is made, sizes are symbols and no numbers
    try:
        exported = seqloom("export", run, "--to", "onnx")
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert exported.code == 0, exported.err
    lines = tmp_path / "lines.txt"
    lines.write_text("abc\nhgfed\n")
    wishes = ["-q", "--beam", "3", "--must", "b"]
    assert (
        seqloom("predict", run, lines, *wishes, "--engine", "onnx").out == seqloom("predict", run, lines, *wishes).out
    )
    assert "--ensemble" in seqloom("predict", run, run, "--ensemble", "-t", "a", "--engine", "onnx").refused(
        "E_USAGE", 2
    )
    assert "one of: ctranslate2, onnx" in seqloom("export", run, "--to", "tflite").refused("E_USAGE", 2)


def test_bench_measures_what_was_exported_too(transformer: Path, seqloom: Command) -> None:
    seqloom("export", transformer)
    ways = ["--batch", "2", "--beam", "1", "--seconds", "0", "--windows", "1"]
    found = json.loads(seqloom("bench", transformer, *ways, "--json").out)
    assert [speed["engine"] for speed in found["speeds"]] == ["seqloom", "ctranslate2"]
    table = seqloom("bench", transformer, *ways, "--engine", "seqloom")
    assert "tokens/s" in table.out
    shared = json.loads(seqloom("bench", transformer, *ways[2:], "--batch", "8", "--workers", "2", "--json").out)
    assert shared["speeds"][0]["tokens_per_second"] > 0
    assert "sizes by commas" in seqloom("bench", transformer, "--batch", "0").refused("E_USAGE", 2)
    nothing = seqloom("bench", transformer / "nope")
    assert "no such run" in nothing.refused("E_FILE", 6)
    assert len(nothing.err.splitlines()) == 1, "nothing is planned for what is not there"
    assert "one of: seqloom" in seqloom("bench", transformer, "--engine", "x").refused("E_USAGE", 2)

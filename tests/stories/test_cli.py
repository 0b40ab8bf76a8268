"""The command line as a person meets it: what is typed, what comes out, and where."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import Answer, Command, binary, command_line, environment, write_recipe
from seqloom import weights
from seqloom.bundle import open_bundle
from seqloom.cli.main import COMMANDS

pytest_plugins = ["command_fixtures"]

# --- the frame ---------------------------------------------------------------------------------------------------


def test_help_needs_nothing_heavy() -> None:
    code = "import seqloom.cli.main, sys; print(*{'torch', 'pydantic', 'yaml', 'rich', 'numpy'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == []


def test_help_names_every_command(seqloom: Command) -> None:
    answer = seqloom("--help")
    assert answer.code == 0
    for name in COMMANDS:
        assert f" {name} " in answer.out
        assert seqloom(name, "--help").code == 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["trian"], "no such command: 'trian' (did you mean \"train\"?)"),
        (["train", "--replce"], 'no such option: --replce (did you mean "--replace"?)'),
        (["--verzion"], 'no such option: --verzion (did you mean "--version"?)'),
        (["train"], "no recipe given"),
        (["predict"], "missing argument"),
        (["train", "r.yaml", "--grace", "soon"], "invalid value for '--grace'"),
        (["predict", "run", "--format", "jsonn"], 'did you mean "jsonl"?'),
    ],
)
def test_what_cannot_be_obeyed_is_one_line(typed: list[str], said: str, seqloom: Command) -> None:
    line = seqloom(*typed).refused("E_USAGE", 2)
    assert said in line, line


def test_profile_says_where_the_time_went(seqloom: Command, tmp_path: Path) -> None:
    answer = seqloom("train", write_recipe(tmp_path), "--run", tmp_path / "run", "--profile")
    assert answer.code == 0, answer.err
    rows = [re.match(r" *([0-9.]+) %  +[0-9.]+ s  (.+)", line) for line in answer.err.splitlines()]
    told = {row[2]: float(row[1]) for row in rows if row}
    assert {"data", "forward", "backward", "optimiser", "logging"} <= set(told)
    assert sum(told.values()) == pytest.approx(100.0, abs=0.7)


def test_debug_shows_where_and_keeps_the_line(seqloom: Command, tmp_path: Path) -> None:
    answer = seqloom("train", tmp_path / "no.yaml", "--debug")
    assert "Traceback" in answer.err
    assert answer.err.strip().splitlines()[-1].startswith("seqloom: error[E_FILE]")


# --- from data to a model ----------------------------------------------------------------------------------------


def test_from_a_file_of_pairs_to_a_model(seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """init, check, train, predict, info, config: the first five minutes."""
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)
    drafted = seqloom("init", "pairs.tsv")
    assert drafted.code == 0
    assert "seqloom train recipe.yaml" in drafted.err
    assert seqloom("check", "recipe.yaml").code == 0

    short = ["--set", "steps=4", "--set", "validate_every=2", "--threads", "1"]
    trained = seqloom("train", "recipe.yaml", *short)
    assert (trained.code, trained.out) == (0, "runs/recipe\n"), trained.err
    assert "seqloom predict runs/recipe" in trained.err, "what to type next"
    again = seqloom("train", "runs/recipe")
    assert (again.code, again.out) == (0, "runs/recipe\n")
    assert "finished already" in again.err

    assert seqloom("predict", "runs/recipe", "--text", "abc").code == 0
    known = json.loads(seqloom("info", "runs/recipe", "--json").out)
    assert known["progress"]["finished"] is True
    assert known["bundle"]["parameters"] > 0
    assert "state" in seqloom("info", "runs/recipe").out
    assert seqloom("info", "runs/recipe/bundle").code == 0


def test_the_result_as_json_and_nothing_else(seqloom: Command, tmp_path: Path) -> None:
    answer = seqloom("train", write_recipe(tmp_path), "--run", tmp_path / "r", "--json", "--quiet")
    told = json.loads(answer.out)
    assert (told["finished"], told["reason"], answer.err) == (True, "steps", "")
    assert set(told["validation"]) == {"nll", "perplexity", "exact", "cer"}


def test_seeds_and_sweeps_make_many_runs(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, training="{steps: 2}")
    answer = seqloom(
        "train", recipe, "--run", tmp_path / "many", "--seeds", "1-2", "--set", "lr=0.01,0.02", "--json", "-q"
    )
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert [one["label"] for one in told["runs"]] == [f"lr={lr}/seed-{n}" for lr in ("0.01", "0.02") for n in (1, 2)]
    family = seqloom(
        "predict", tmp_path / "many/lr=0.01/seed-1", tmp_path / "many/lr=0.01/seed-2", "--ensemble", "-t", "a"
    )
    assert family.code == 0, family.err


def test_fine_tuning_begins_with_the_other_runs_weights(seqloom: Command, run: Path, tmp_path: Path) -> None:
    still = ["--set", "lr=1e-30", "--set", "steps=1"]  # nothing can move: what comes out is what went in
    recipe = write_recipe(tmp_path)
    assert seqloom("train", recipe, "--from", run, "--run", tmp_path / "tuned", *still).code == 0
    before, after = (open_bundle(folder / "bundle").weights() for folder in (run, tmp_path / "tuned"))
    assert all((before[name] - after[name]).abs().max() < 1e-6 for name in before)

    other = seqloom("train", recipe, "--from", run, "--run", tmp_path / "other", "--set", "source.lowercase=true")
    assert "source:" in other.refused("E_RECIPE", 2)
    assert seqloom("train", recipe, "--run", tmp_path / "plain", *still).code == 0
    late = seqloom("train", recipe, "--from", run, "--run", tmp_path / "plain", *still)
    assert "did not begin from another one" in late.refused("E_RUN", 2)


def test_fine_tuning_needs_no_recipe(seqloom: Command, run: Path, tmp_path: Path) -> None:
    """`train --from RUN --run NEW` takes the other run's recipe."""
    assert seqloom("train", "--from", run, "--run", tmp_path / "more", "--set", "steps=1").code == 0
    assert "--run" in seqloom("train", "--from", run).refused("E_USAGE", 2)


def test_nothing_is_dropped_for_a_run_that_cannot_begin(seqloom: Command, run: Path, tmp_path: Path) -> None:
    recipe, weights = run / "recipe.yaml", run / "bundle" / "weights.safetensors"
    before = weights.read_bytes()
    seqloom("train", recipe, "--run", run, "--replace", "--from", run).refused("E_USAGE", 2)
    seqloom("train", recipe, "--run", run, "--replace", "--from", tmp_path / "none").refused("E_FILE", 6)
    assert weights.read_bytes() == before
    seqloom("train", recipe, "--run", tmp_path / "new", "--from", tmp_path / "none").refused("E_FILE", 6)
    assert not (tmp_path / "new").exists(), "the corrected command finds an empty place"


def test_init_never_replaces_its_data(seqloom: Command, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tb\n")
    seqloom("init", pairs, "--output", pairs, "--force").refused("E_USAGE", 2)
    assert pairs.read_text() == "a\tb\n"


# --- check -------------------------------------------------------------------------------------------------------


def test_check_finds_leaks_with_both_line_numbers(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    known = (tmp_path / "pairs.tsv").read_text().splitlines()
    (tmp_path / "test.tsv").write_text(f"zzz\tzzz\n{known[41]}\n")
    answer = seqloom("check", recipe, "--set", f"data.test={tmp_path / 'test.tsv'}")
    assert answer.code == 0, "findings are for reading"
    assert f"{tmp_path / 'test.tsv'}:2 = {tmp_path / 'pairs.tsv'}:42" in answer.out
    strict = seqloom("check", recipe, "--set", f"data.test={tmp_path / 'test.tsv'}", "--fail", "--json")
    assert "leaked_pairs" in strict.refused("E_DATA", 3)
    assert "leaked_pairs" in {finding["kind"] for finding in json.loads(strict.out)["findings"]}
    assert seqloom("check", tmp_path / "pairs.tsv", "--fail").code == 0


def test_check_tells_of_every_malformed_line(seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text('a\tb\nc\nd\te\n{"source": "f"}\n')
    answer = seqloom("check", tmp_path / "x.tsv")
    assert "malformed (2 times)" in answer.out
    assert "x.tsv:2: 1 column(s)" in answer.out
    assert "x.tsv:4: 1 column(s)" in answer.out
    assert "nothing suspicious" not in answer.out
    assert "malformed" in json.loads(seqloom("check", tmp_path / "x.tsv", "--json").out)["reading"]["train"]
    seqloom("check", tmp_path / "x.tsv", "--fail").refused("E_DATA", 3)
    (tmp_path / "y.tsv").write_text('{"source": "f"}\n')
    assert "JSON lines" in seqloom("init", tmp_path / "y.tsv").refused("E_DATA", 3)


def test_check_reads_on_past_bytes_that_are_not_utf8(seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"a\tb\nc\xff\td\n\te\n")
    answer = seqloom("check", tmp_path / "x.tsv")
    assert "bad_utf8 (1 times)" in answer.out
    assert "empty_source (1 times)" in answer.out
    assert seqloom("check", tmp_path / "x.tsv", "--fail").code == 3


# --- config ------------------------------------------------------------------------------------------------------


def test_config_writes_every_default_and_reads_it_back(seqloom: Command, tmp_path: Path) -> None:
    first = seqloom("config", write_recipe(tmp_path), "--set", "lr=0.5")
    assert first.code == 0
    assert "lr: 0.5" in first.out
    assert "label_smoothing: 0.0" in first.out
    (tmp_path / "whole.yaml").write_text(first.out)
    assert seqloom("config", tmp_path / "whole.yaml").out == first.out


def test_config_alone_is_the_vocabulary_of_recipes(seqloom: Command) -> None:
    words = json.loads(seqloom("config", "--json").out)
    keys = {key["path"]: key for key in words["keys"]}
    assert keys["training.epochs"]["default"] == "null"
    assert keys["task.label_smoothing"]["type"] == "number >= 0 < 1"
    assert keys["training.patience"]["meaning"] == "validations in a row without improvement that end the run"
    from seqloom.data.tokenizers import TOKENIZERS
    from seqloom.metrics import METRICS

    for name, table in (("tokenizers", TOKENIZERS), ("metrics", METRICS)):
        assert [entry["kind"] for entry in words["tables"][name]] == list(table)
    luong = next(entry for entry in words["tables"]["decoders"] if entry["kind"] == "luong")
    assert {key["path"]: key["default"] for key in luong["keys"]}["attention.score"] == "bilinear"
    assert "data.train" in seqloom("config").out


def test_short_keys_are_taken_where_they_are_plain(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    assert "steps: 77" in seqloom("config", recipe, "--set", "steps=77").out, "the least deep one"
    line = seqloom("config", recipe, "--set", "width=3").refused("E_USAGE", 2)
    assert "model.encoder.width" in line
    assert "model.decoder.width" in line
    assert "unknown key 'wdth'" in seqloom("config", recipe, "--set", "wdth=3").refused("E_RECIPE", 2)


# --- predict -----------------------------------------------------------------------------------------------------


def test_every_way_in_gives_the_same_answers(seqloom: Command, run: Path, tmp_path: Path) -> None:
    words = ["abc", "hgf", "aab"]
    file = tmp_path / "in.txt"
    file.write_text("\n".join(words) + "\n")
    from_file = seqloom("predict", run, file)
    assert from_file.out.count("\n") == 3
    assert "3 lines" in from_file.err
    assert "tokens/s" in from_file.err
    texts = [part for word in words for part in ("--text", word)]
    assert seqloom("predict", run, *texts).out == from_file.out
    piped = binary("predict", run, "-", "--quiet", input=file.read_bytes())
    assert (piped.out, piped.err) == (from_file.out, "")
    assert seqloom("predict", run, file, "--output", tmp_path / "out.txt").out == ""
    assert (tmp_path / "out.txt").read_text() == from_file.out
    assert seqloom("predict", run, file, "--buffer", "1").out == from_file.out
    assert seqloom("predict", run / "bundle", file).out == from_file.out


def test_forms_of_answers(seqloom: Command, run: Path) -> None:
    rows = [
        line.split("\t") for line in seqloom("predict", run, "-t", "abc", "-t", "b", "--n-best", "3").out.splitlines()
    ]
    assert [(row[0], row[1]) for row in rows] == [(n, rank) for n in "12" for rank in "123"]
    assert [float(row[2]) for row in rows[:3]] == sorted((float(row[2]) for row in rows[:3]), reverse=True)
    told = [json.loads(line) for line in seqloom("predict", run, "-t", "abc", "-t", "", "--json").out.splitlines()]
    assert [one["line"] for one in told] == [1, 2]
    assert [one["skipped"] for one in told] == [False, True]
    assert 0 <= told[0]["confidence"] <= 1
    assert len(told[0]["hypotheses"][0]["token_scores"]) >= len(told[0]["hypotheses"][0]["tokens"])


def test_ways_to_search(seqloom: Command, run: Path) -> None:
    def said(*options: object) -> str:
        answer = seqloom("predict", run, "-t", "abcd", *options)
        assert answer.code == 0, answer.err
        return answer.out

    assert said("--greedy") == said("--beam", "1") == said("--set", "search.strategy.size=1")
    drawn = ("--sample", "--temperature", "3", "--seed")
    assert said(*drawn, "1") == said(*drawn, "1")
    assert len({said(*drawn, str(seed)) for seed in range(5)}) > 1
    assert said("--prefix", "ha").startswith("ha")
    assert "a" not in said("--ban", "a", "--min-length", "4")
    assert len(said("--min-length", "6", "--max-length", "6").strip()) == 6
    long = said("--min-length", "8", "--no-repeat", "1").strip()
    assert len(set(long)) == len(long)
    assert "no token" in seqloom("predict", run, "-t", "a", "--ban", "ß").refused("E_USAGE", 2)
    assert "exclude" in seqloom("predict", run, "-t", "a", "--greedy", "--sample").refused("E_USAGE", 2)
    assert "--sample" in seqloom("predict", run, "-t", "a", "--top-k", "3").refused("E_USAGE", 2)


def test_an_ensemble_of_one_model_with_itself_is_that_model(seqloom: Command, run: Path) -> None:
    single = seqloom("predict", run, "-t", "abc")
    assert seqloom("predict", run, run, "--ensemble", "-t", "abc").out == single.out
    assert "--ensemble" in seqloom("predict", run, run, "-t", "abc").refused("E_USAGE", 2)
    assert "several" in seqloom("predict", run, "--ensemble", "-t", "abc").refused("E_USAGE", 2)


def test_typed_lines_are_answered_one_by_one(run: Path) -> None:
    """On a terminal nobody waits for the end of the input."""
    terminal, stdin = pty.openpty()
    with subprocess.Popen(
        command_line("predict", run), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
    ) as process:
        os.close(stdin)
        assert process.stdout is not None
        for word in (b"abc", b"bcd"):
            os.write(terminal, word + b"\n")
            assert process.stdout.readline().endswith(b"\n"), "before anything more is typed"
        os.write(terminal, b"\x04")
        assert process.wait(60) == 0
    os.close(terminal)


# --- interruptions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_stopped_run_is_saved_and_goes_on(number: int, code: int, seqloom: Command, tmp_path: Path) -> None:
    """And ends with the very weights of a run that was left alone."""
    recipe = write_recipe(tmp_path, training="{steps: 400, validate_every: 200, log_every: 1}")
    halves = tmp_path / "halves"
    with subprocess.Popen(
        command_line("train", recipe, "--run", halves),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        metrics = halves / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size > 2000):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    answer = Answer(process.returncode, out, err)
    assert answer.code == code, answer
    assert f"seqloom train {halves}" in answer.err, "how to go on"
    known = json.loads(seqloom("info", halves, "--json").out)
    assert known["progress"]["finished"] is False
    assert 0 < known["progress"]["step"] < 400
    assert seqloom("train", halves, "-q").code == 0
    assert seqloom("train", recipe, "--run", tmp_path / "whole", "-q").code == 0
    one, other = (open_bundle(folder / "bundle").weights() for folder in (halves, tmp_path / "whole"))
    assert weights.to_bytes(one) == weights.to_bytes(other)


def test_eight_bits_answer_like_the_weights_they_were_rounded_from(run: Path, seqloom: Command) -> None:
    whole, rounded = (seqloom("predict", run, "-t", "abc", "-q", "--json", *more) for more in ((), ("--int8",)))
    assert (whole.code, rounded.code) == (0, 0)
    one, other = (json.loads(answer.out)["hypotheses"][0] for answer in (whole, rounded))
    assert one["text"] == other["text"]
    assert one["token_scores"] != other["token_scores"]
    assert one["token_scores"] == pytest.approx(other["token_scores"], abs=0.2)
    judged = seqloom("evaluate", run, "--int8", "--json")
    assert judged.code == 0


def test_eight_bits_are_not_an_engine_s(run: Path, seqloom: Command) -> None:
    refused = seqloom("predict", run, "-t", "abc", "--int8", "--engine", "onnx")
    assert refused.code == 2
    assert "--quantise int8" in refused.err

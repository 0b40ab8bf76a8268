"""What commands that answer, judge and show refuse, and how they say it: nothing is overwritten or taken silently."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from commands import Command, binary, command_line, environment, trained, write_pairs, write_recipe
from seqloom import SeqloomError
from seqloom.api.load import members
from seqloom.cli import say
from seqloom.cli.main import COMMANDS
from seqloom.files import atomic_write

pytest_plugins = ["command_fixtures"]


def write(folder: Path, text: str | bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# --- nothing is overwritten --------------------------------------------------------------------------------------


def test_stdin_is_never_the_output_as_well(run: Path) -> None:
    """`predict RUN -o F < F` and `predict RUN < F >> F`; `predict RUN F >> F` would feed itself for ever."""
    path = write(run, "abc\nbc\n", "in.txt")
    with path.open("rb") as stdin:
        line = binary("predict", run, "-o", path, stdin=stdin).refused("E_USAGE", 2)
    assert "would replace the input" in line
    for given in ([], [path]):
        with path.open("rb") as stdin, path.open("ab") as stdout:
            done = subprocess.run(
                command_line("predict", run, *given),
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                env=environment(),
                timeout=60,
            )
        assert done.returncode == 2
        assert b"would replace the input" in done.stderr
    assert path.read_text() == "abc\nbc\n"


def test_devices_and_pipes_are_written_and_stay(seqloom: Command, run: Path) -> None:
    expected = seqloom("evaluate", run, "--write-outputs", run / "out.txt", "--json")
    assert expected.code == 0, expected.err
    fifo = run / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert seqloom("evaluate", run, "--write-outputs", fifo, "--json").code == 0
    assert os.read(reader, 1 << 16) == (run / "out.txt").read_bytes()
    os.close(reader)
    assert fifo.is_fifo()
    link = run / "null"
    link.symlink_to(os.devnull)
    assert seqloom("evaluate", run, "--write-outputs", link, "--json").code == 0
    assert link.is_symlink()
    with pytest.raises(SeqloomError, match=r"E_FILE.*not a regular file"):
        atomic_write(fifo, b"of whatever command")
    assert fifo.is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout here")
def test_dev_stdout_is_stdout(run: Path, tmp_path: Path) -> None:
    told = binary("predict", run, "-t", "abc", "-q").out
    assert binary("predict", run, "-t", "abc", "-q", "-o", "/dev/stdout").out == told
    log = write(tmp_path, "of yesterday\n", "log")
    with log.open("ab") as stdout:
        line = command_line("predict", run, "-t", "abc", "-q", "-o", "/dev/stdout")
        assert subprocess.run(line, stdout=stdout, env=environment(), timeout=60).returncode == 0
    assert log.read_text() == f"of yesterday\n{told}", "what `>> log` has opened is not replaced"


def test_outputs_spare_the_runs_own_data(seqloom: Command, run: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "mine.tsv", 40)
    before = pairs.read_text()
    own = ["--set", f"data.train={pairs}", "--part", "train"]
    assert "overwrite an input" in seqloom("evaluate", run, *own, "--write-outputs", pairs).refused("E_USAGE", 2)
    sides = [write(tmp_path, "ab\n", "src"), write(tmp_path, "ba\n", "ref")]
    spec = f"{{source: {sides[0]}, target: {sides[1]}}}"
    for path in sides:
        seqloom("evaluate", run, "--data", spec, "--write-outputs", path).refused("E_USAGE", 2)
    assert (pairs.read_text(), sides[0].read_text(), sides[1].read_text()) == (before, "ab\n", "ba\n")
    student = ["distill", run, "-o", tmp_path / "new.tsv", "--recipe"]
    assert "--recipe would replace --output" in seqloom(*student, tmp_path / "new.tsv").refused("E_USAGE", 2)


# --- what is asked and cannot be ---------------------------------------------------------------------------------


def test_a_copying_model_can_begin_with_what_its_source_holds(seqloom: Command, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, training="{steps: 1}")
    copying = ["--set", "model.head=copy", "--set", "model.decoder={kind: bahdanau, width: 16}", "--quiet"]
    assert seqloom("train", recipe, "--run", tmp_path / "copy", *copying).code == 0
    for more in ([], ["--stream"], ["--greedy"]):
        answer = seqloom("predict", tmp_path / "copy", "-t", "ab€z", "--prefix", "€a", *more)
        assert answer.code == 0, answer.err
        assert answer.out.startswith("€a")
    offered = seqloom("predict", tmp_path / "copy", "-t", "ab€z", "--prefix", "€", "--alternatives", "9")
    assert offered.code == 0, offered.err
    assert all(row.split("\t")[4].startswith("€") for row in offered.out.splitlines())
    line = seqloom("predict", tmp_path / "copy", "-t", "abc", "--prefix", "€").refused("E_USAGE", 2)
    assert "'€' is not in the vocabulary, and not in every source" in line


def test_members_that_read_otherwise_are_no_ensemble(seqloom: Command, run: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, training="{steps: 1}")
    for key, value in (("source.lowercase", "true"), ("target.normalise", "none")):
        other = tmp_path / value
        assert seqloom("train", recipe, "--run", other, "--set", f"{key}={value}", "--quiet").code == 0
        for option in ([other, "--ensemble"], ["--fuse", other]):
            line = seqloom("predict", run, *option, "-t", "abc").refused("E_BUNDLE", 4)
            assert f"{key} differs: " in line
            assert str(other) in line or "--fuse" in option
    same = tmp_path / "same"
    assert seqloom("train", recipe, "--run", same, "--quiet").code == 0
    assert seqloom("predict", run, same, "--ensemble", "-t", "abc").code == 0, "the same data and settings"


def test_a_missing_member_is_named(seqloom: Command, run: Path) -> None:
    missing = run / "no-such"
    for more in (["-t", "abc"], []):
        line = seqloom("predict", run, missing, "--ensemble", *more).refused("E_FILE", 6)
        assert str(missing) in line
        assert "no such run folder" in line


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--beam", "five"], "'--beam': expected an integer (got 'five')"),
        (["--samples", "0"], "'--samples': expected at least 1 (got '0')"),
        (["--part", "tset"], "'--part': 'tset' is not one of 'train', 'dev', 'test'"),
    ],
)
def test_values_of_options_are_refused_in_plain_words(given: list[str], said: str, seqloom: Command) -> None:
    line = seqloom("evaluate", "a-run", *given).refused("E_USAGE", 2)
    assert said in line
    assert "Input should" not in line
    assert "Value error" not in line


# --- what is judged ----------------------------------------------------------------------------------------------


def test_nothing_is_not_perfect(seqloom: Command, run: Path, tmp_path: Path) -> None:
    blank = write(tmp_path, "\t\n \t \n\t\n", "blank.tsv")
    for command in (["evaluate", run], ["compare", run, run]):
        line = seqloom(*command, "--data", blank).refused("E_EMPTY", 3)
        assert "all 3 references are empty" in line
        assert str(blank) in line
    assert seqloom("evaluate", run, "--set", f"data.test={blank}").refused("E_EMPTY", 3)
    some = write(tmp_path, "abc\tcba\n\t\n", "some.tsv")
    answer = seqloom("evaluate", run, "--data", some)
    assert answer.code == 0
    assert "caution: 1 of 2 examples have an empty reference" in answer.err


def test_an_output_file_is_not_the_runs_own_answer(seqloom: Command, run: Path, tmp_path: Path) -> None:
    pairs = write(tmp_path, "abc\tcba\nab\tba\n", "pairs.tsv")
    outputs = write(tmp_path, "cba\nba\n", "out.txt")
    answer = seqloom("evaluate", run, "--outputs", outputs, "--data", pairs)
    assert "predicts nothing" in answer.err
    assert "out.txt is an output file, judged as it is" in answer.out
    told = json.loads(seqloom("evaluate", run, "--outputs", outputs, "--data", pairs, "--json").out)
    assert told["predicted"] is False
    assert told["scores"][0]["value"] == 100
    own = seqloom("evaluate", run, "--data", pairs, "--json", "--no-report")
    assert json.loads(own.out)["predicted"] is True
    assert own.err == ""


# --- what messages advise ----------------------------------------------------------------------------------------


def test_bad_utf8_is_mended_by_what_the_command_has(seqloom: Command, run: Path, tmp_path: Path) -> None:
    bad = write(tmp_path, b"abc\tcba\nb\xffc\tcb\n", "bad.tsv")
    for command in (["predict", run, bad], ["init", bad, "-o", "-"]):
        line = seqloom(*command).refused("E_UTF8", 3)
        assert "--on-bad-utf8 skip or replace" in line
        assert "data.on_bad_utf8" not in line
    trains = ["train", write_recipe(tmp_path), "--set", f"data.train={bad}", "--run", tmp_path / "new"]
    for command in (trains, ["evaluate", run, "--set", f"data.test={bad}"]):
        line = seqloom(*command).refused("E_UTF8", 3)
        assert "set data.on_bad_utf8 in the recipe" in line
        assert "--on-bad-utf8" not in line
    for command in (["score", run, bad], ["evaluate", run, "--data", bad], ["compare", run, run, "--data", bad]):
        line = seqloom(*command).refused("E_UTF8", 3)
        assert "on_bad_utf8" not in line
        assert "on-bad-utf8" not in line
        assert "iconv" in line


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (b"", [], "0 were read"),
        (b"\t\n \t \nabc\t\n", [], "of 3 pairs none is left (empty_source 2, empty_target 1,"),
        (b"\xff\ta\n\t\n", ["--set", "data.on_bad_utf8=skip"], "of 2 pairs none is left (empty_source 1,"),
    ],
)
def test_empty_data_are_counted_by_filter(
    text: bytes, more: list[str], said: str, seqloom: Command, tmp_path: Path
) -> None:
    data = write(tmp_path, text, "empty.tsv")
    given = ["train", write_recipe(tmp_path), "--run", tmp_path / "new", "--set", f"data.train={data}", *more]
    line = seqloom(*given).refused("E_EMPTY", 3)
    assert said in line
    assert f"data.train: {data}" in line
    assert ("bad_utf8 1" in line) == bool(more)


def test_an_empty_dev_file_is_named(seqloom: Command, run: Path, tmp_path: Path) -> None:
    empty = write(tmp_path, "", "none.tsv")
    given = ["train", write_recipe(tmp_path), "--run", tmp_path / "new", "--set", f"data.dev={empty}"]
    line = seqloom(*given).refused("E_EMPTY", 3)
    assert f"the file holds no pairs; data.dev: {empty}" in line
    one = write(tmp_path, "a\tb\n", "one.tsv")
    given[-1] = f"data={{train: {one}, split: {{dev: 0.4, test: 0.4, seed: 1}}}}"
    assert "all pairs are held out" in seqloom(*given).refused("E_EMPTY", 3)
    line = seqloom("evaluate", run, "--set", f"data.test={empty}").refused("E_EMPTY", 3)
    assert f"holds no pairs; data.test: {empty}" in line
    blank = write(tmp_path, "\t\n\t\n", "blank.tsv")
    assert "none has text on both sides" in seqloom("init", blank, "-o", "-").refused("E_EMPTY", 3)


def test_splitting_is_not_advised_to_who_splits(seqloom: Command, run: Path) -> None:
    line = seqloom("predict", run, "-t", "ab" * 15, "--on-long", "split").refused("E_LONG", 3)
    assert "a word of 30 tokens cannot be split" in line
    assert "--on-long skip" in line
    assert "--on-long split" not in line
    assert "--on-long split" in seqloom("predict", run, "-t", "ab" * 15).refused("E_LONG", 3)


# --- recipes from pipes ------------------------------------------------------------------------------------------


def test_a_pipe_without_a_writer_is_no_recipe(tmp_path: Path) -> None:
    fifo = tmp_path / "recipe.yaml"
    os.mkfifo(fifo)
    for command in ("config", "check", "train"):
        line = binary(command, fifo, cwd=tmp_path).refused("E_FILE", 6)
        assert str(fifo) in line


def test_a_recipe_may_come_from_stdin(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    expected = binary("config", recipe).out
    assert binary("config", "-", input=recipe.read_bytes()).out == expected
    with recipe.open("rb") as stdin:
        assert binary("config", "-", stdin=stdin).out == expected
    reading, writing = os.pipe()
    os.write(writing, recipe.read_bytes())
    os.close(writing)
    assert binary("config", f"/dev/fd/{reading}", pass_fds=(reading,)).out == expected, "config <(...)"
    os.close(reading)


# --- JSON lines --------------------------------------------------------------------------------------------------


def test_json_lines_are_recognised(seqloom: Command, run: Path, tmp_path: Path) -> None:
    records = '{"source": "abc", "target": "x"}\n{"source": "bc"}\n'
    plain = seqloom("predict", run, write(tmp_path, "abc\nbc\n", "in.txt")).out
    for name in ("in.jsonl", "IN.NDJSON"):
        path = write(tmp_path, records, name)
        answer = seqloom("predict", run, path)
        assert answer.out == plain
        assert f"{path}: read as JSON lines" in answer.err
        assert seqloom("predict", run, path, "--json-input", "-q").out == plain
    assert "read as" not in seqloom("predict", run, path, "-q").err
    as_text = seqloom("predict", run, path, "--no-json-input", "--on-long", "skip", "--json")
    assert json.loads(as_text.out.splitlines()[0])["source"] == records.splitlines()[0]
    for text in ("abc\nbc\n", '["abc"]\n', '{"src": "abc"}\n'):
        odd = write(tmp_path, text, "odd.jsonl")
        answer = seqloom("predict", run, odd)
        assert answer.code == 0, answer.err
        assert f"caution: {odd}: read as plain text" in answer.err
        assert answer.out.count("\n") == text.count("\n")
    assert "E_DATA" in seqloom("predict", run, write(tmp_path, '{"source": "a"}\nbc\n', "half.jsonl")).err


# --- what fits 80 columns ----------------------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_and_speaks_plainly(name: str, seqloom: Command) -> None:
    answer = seqloom(*([name] if name else []), "--help")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    for odd in ("<str>", "<path>", "<int", "<bool>", "<list", "INTEGER", "FLOAT", "[[", "x>=", "╭"):
        assert odd not in answer.out, odd
    assert "..." not in answer.out.partition("Commands:")[2], "a list of commands that breaks off"
    assert f"Usage: seqloom {name}".rstrip() in answer.out
    assert "--help" in answer.out


@pytest.mark.usefixtures("narrow")
def test_every_option_says_what_is_typed(seqloom: Command) -> None:
    told = seqloom("evaluate", "--help").out
    for row in ("--plot FOLDER ", "--beam NUMBER ", "--part train|dev|test ", "--device TEXT ", "[RUN ...]"):
        assert row in told
    assert re.search(r"--set KEY=VALUE +Change a key of the run's recipe. \(repeatable\)", told)
    assert "(default: test)" in told
    assert "[a-z], ." in seqloom("predict", "--help").out
    assert "end (EOS) counts as a token" in seqloom("score", "--help").out


@pytest.mark.usefixtures("narrow")
def test_tables_are_never_broken_into_soup(seqloom: Command, run: Path) -> None:
    told = seqloom("config").out
    assert max(map(len, told.splitlines())) <= 80
    assert "data.limits.max_ratio: null  # number" in told
    assert "    the longer side over the shorter\n" in told
    report = seqloom("compare", run, run, "--metric", "exact", "--metric", "string_error", "--show", "0").out
    _, head, first, second, *_ = report.splitlines()
    assert head.split()[0] == "metric"
    assert [first.split()[0], second.split()[0]] == ["exact", "SER"], "one line for each metric"
    assert len({len(line) for line in (head, first, second)}) == 1
    assert len(head) <= 80


def test_a_table_that_is_too_wide_becomes_a_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [["exact [bold]", "1" * 30, "2" * 30], ["BLEU", "3" * 30, ""]]
    monkeypatch.delenv("COLUMNS", raising=False)
    say.table("scores", ["metric", "a", "long name"], rows, ["a note " * 20])
    wide = capsys.readouterr().out.splitlines()
    assert len(wide) == 5, "whole lines in a pipe, the note as well"
    assert wide[2].split() == ["exact", "[bold]", "1" * 30, "2" * 30], "what looks like markup is text"
    monkeypatch.setenv("COLUMNS", "50")
    say.table("scores", ["metric", "a", "long name"], rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "scores",
        "exact [bold]",
        f"  a          {'1' * 30}",
        f"  long name  {'2' * 30}",
        "BLEU",
        f"  a          {'3' * 30}",
        "  long name",
    ]


def test_percentages_have_one_style(seqloom: Command, run: Path) -> None:
    told = seqloom("evaluate", run, "--search-errors", "3").out + seqloom("info", run).out
    told += seqloom("predict", run, "-t", "abc").err
    assert not re.findall(r"\d%", told)
    shares = re.findall(r"([\d.]+) %(?! interval)", told)
    assert shares
    assert all(re.fullmatch(r"\d+\.\d", share) for share in shares)
    assert say.percent(0.9999) == "100.0 %"


def test_a_reliability_plot_names_its_run(run: Path, seqloom: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    plots = pytest.importorskip("matplotlib.figure")
    titles: list[str] = []

    def saved(figure: object, path: Path) -> None:
        titles.extend(axes.get_title(loc="left") for axes in figure.axes)  # type: ignore[attr-defined]
        Path(path).write_bytes(b"")

    monkeypatch.setattr(plots.Figure, "savefig", saved)
    assert seqloom("evaluate", run, "--plot", run / "plots", "--search", "greedy,beam=2", "--json").code == 0
    reliability = [title for title in titles if "Reliability" in title]
    assert [title.splitlines()[0] for title in reliability] == ["run, greedy", "run, beam 2"]


def test_a_folder_of_seeds_is_an_ensemble(seqloom: Command, tmp_path: Path) -> None:
    for name in ("seed-10", "seed-2", "seed-1"):
        shutil.copytree(trained(), tmp_path / "seeds" / name)
    assert [run.name for run in members([tmp_path / "seeds"])] == ["seed-1", "seed-2", "seed-10"]
    assert members([trained()]) == [trained()]
    together = seqloom("predict", tmp_path / "seeds", "--ensemble", "-t", "abc")
    assert together.code == 0
    assert together.out == seqloom("predict", *members([tmp_path / "seeds"]), "--ensemble", "-t", "abc").out
    line = seqloom("predict", tmp_path / "seeds", "-t", "abc").refused("E_BUNDLE", 4)
    assert "a folder of 3 runs" in line
    assert "seed-1" in line
    for command in (
        ("predict", trained(), "-t", "abc"),
        ("evaluate", trained()),
        ("distill", trained(), "-o", "x.tsv"),
    ):
        assert "needs several runs" in seqloom(*command, "--ensemble").refused("E_USAGE", 2)

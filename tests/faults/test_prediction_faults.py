"""FAULTS.md, table "Prediction", through the command line: lines in are lines out, and nothing is cut silently."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from commands import Command, binary, command_line, environment

pytest_plugins = ["command_fixtures"]

LONG = "ab" * 15  # 30 characters; the recipe's maximum is 20


def write(folder: Path, text: str | bytes, name: str = "in.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# --- lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ("\n", 1),
        ("abc", 1),
        ("abc\n\n   \nbc\n", 4),
        ("abc\r\n\r\nbc\r\n", 3),
        ("a\u2028b\u0085c\x0bd\x1ce\nb\n", 2),
        ("ab\tc\n\t\n", 2),
        ("\ufeffabc\n", 1),
        ("a\x00b\n", 1),
    ],
)
@pytest.mark.parametrize("options", [(), ("--buffer", "1"), ("--split",), ("--greedy", "--format", "jsonl")])
def test_lines_in_are_lines_out(text: str, lines: int, options: tuple[str, ...], seqloom: Command, run: Path) -> None:
    answer = seqloom("predict", run, write(run, text), *options)
    assert answer.code == 0, answer.err
    assert answer.out.count("\n") == lines
    assert f"{lines:,} line" in answer.err


def test_blank_lines_give_blank_answers(seqloom: Command, run: Path) -> None:
    assert seqloom("predict", run, write(run, "abc\n\n \nbc\n")).out.split("\n")[1:3] == ["", ""]
    rows = seqloom("predict", run, write(run, "\nabc\n"), "--n-best", "2").out.splitlines()
    assert [row.split("\t")[:2] for row in rows] == [["1", "1"], ["2", "1"], ["2", "2"]], "with the input's number"


def test_several_outputs_are_never_mixed_into_plain_lines(seqloom: Command, run: Path) -> None:
    line = seqloom("predict", run, "-t", "abc", "--n-best", "2", "--format", "text").refused("E_USAGE", 2)
    assert "--format tsv or --format jsonl" in line


def test_unknown_characters_only(seqloom: Command, run: Path) -> None:
    answer = seqloom("predict", run, "-t", "日本語", "--json")
    told = json.loads(answer.out)
    assert told["unknown"] == 1.0
    assert told["hypotheses"][0]["log_prob"] > -1000
    assert "100.0 % of source tokens unknown" in answer.err


# --- long sources ------------------------------------------------------------------------------------------------


def test_a_long_source_is_found_before_the_first_output(seqloom: Command, run: Path) -> None:
    path = write(run, "abc\n" * 5000 + LONG + "\n")
    answer = seqloom("predict", run, path, "--greedy", "--output", run / "out.txt")
    line = answer.refused("E_LONG", 3)
    assert f"{path}:5001" in line
    assert "30 tokens" in line
    assert "20" in line
    assert "--on-long" in line
    assert answer.out == ""
    assert not (run / "out.txt").exists()
    zipped = write(run, gzip.compress(f"a\n{LONG}\n".encode()), "in.gz")
    assert f"{zipped}:2" in seqloom("predict", run, zipped).refused("E_LONG", 3)
    assert "--text:1" in seqloom("predict", run, "--text", LONG).refused("E_LONG", 3)


def test_a_long_source_in_a_pipe_names_its_line(run: Path) -> None:
    line = binary("predict", run, input=f"abc\n{LONG}\n".encode()).refused("E_LONG", 3)
    assert "<stdin>:2" in line


def test_long_sources_are_skipped_or_split_on_demand_and_counted(seqloom: Command, run: Path) -> None:
    words = " ".join(["abcdef"] * 6)
    path = write(run, f"abc\n{words}\nbc\n")
    skipped = seqloom("predict", run, path, "--on-long", "skip")
    assert skipped.out.split("\n")[1] == ""
    assert "1 over-long skipped" in skipped.err
    told = [json.loads(line) for line in seqloom("predict", run, path, "--on-long", "skip", "--json").out.splitlines()]
    assert [one["skipped"] for one in told] == [False, True, False]
    assert told[1]["source"] == words
    split = seqloom("predict", run, path, "--on-long", "split")
    assert split.code == 0
    assert split.out.count("\n") == 3
    assert split.out.split("\n")[1] != ""
    assert "30 tokens" in seqloom("predict", run, "-t", LONG, "--on-long", "split").refused("E_LONG", 3)


# --- impossible wishes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--beam", "3", "--n-best", "4"], "n_best 4 is over the beam's size 3"),
        (["--n-best", "9"], "n_best 9 is over the beam's size 5"),
        (["--greedy", "--n-best", "2"], "greedy search has one hypothesis"),
        (["--beam", "0"], "beam"),
        (["--beam", "-1"], "beam"),
        (["--n-best", "0"], "n_best"),
        (["--min-length", "9", "--max-length", "3"], "min_length 9 is over max_length 3"),
        (["--min-ratio", "3", "--max-ratio", "1"], "min_ratio 3.0 is over max_ratio 1.0"),
        (["--max-length", "0"], "max_length"),
        (["--max-ratio", "nan"], "max_ratio"),
        (["--sample", "--temperature", "0"], "temperature"),
        (["--sample", "--top-p", "1.5"], "top_p"),
        (["--no-repeat", "0"], "no_repeat"),
        (["--on-long", "cut"], "on_long"),
        (["--on-bad-utf8", "guess"], "--on-bad-utf8"),
        (["--device", "toaster"], "toaster"),
        (["--device", "cuda:77"], "cuda:77"),
        (["--set", "search.limits.extra=0"], "extra"),
    ],
)
def test_wishes_that_cannot_be_met(options: list[str], said: str, seqloom: Command, run: Path) -> None:
    answer = seqloom("predict", run, "-t", "abc", *options)
    name = "E_RECIPE" if "--set" in options else "E_USAGE"
    assert said in answer.refused(name, 2), answer.err
    assert answer.out == ""


def test_a_model_that_never_ends_is_cut_and_flagged(seqloom: Command, run: Path) -> None:
    answer = seqloom("predict", run, "-t", "abcdef", "--max-length", "1", "--json")
    told = json.loads(answer.out)["hypotheses"][0]
    assert told["truncated"] is True
    assert len(told["tokens"]) == 1
    assert "1 truncated" in answer.err


# --- where outputs go --------------------------------------------------------------------------------------------


def test_a_reader_that_leaves_is_no_error(run: Path) -> None:
    """`seqloom predict ... | head -1`: exit 0, and not a word."""
    path = write(run, "abc\n" * 20_000)
    with subprocess.Popen(
        command_line("predict", run, path, "--greedy", "--quiet"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
        assert (process.wait(60), said) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_stdout(run: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command_line("predict", run, "-t", "abc"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
        )
    assert done.returncode == 6
    assert b"error[E_DISK]" in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_an_output_file_is_whole_or_absent(seqloom: Command, run: Path) -> None:
    path = write(run, "abcdef\n" * 3000)
    out = write(run, "of yesterday", "out.txt")

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))

    line = binary("predict", run, path, "--greedy", "--output", out, preexec_fn=small).refused("E_DISK", 6)
    assert str(out) in line
    assert out.read_text() == "of yesterday"
    assert not list(run.glob(".*.tmp"))
    assert seqloom("predict", run, path, "--greedy", "--output", out).code == 0
    assert out.read_text().count("\n") == 3000


@pytest.mark.parametrize("place", ["nowhere/out.txt", "."])
def test_an_output_that_cannot_be(place: str, seqloom: Command, run: Path) -> None:
    assert seqloom("predict", run, "-t", "abc", "--output", run / place).refused("E_FILE", 6)


def test_the_input_is_never_overwritten(seqloom: Command, run: Path) -> None:
    path = write(run, "abc\n")
    assert "replace the input" in seqloom("predict", run, path, "--output", path).refused("E_USAGE", 2)
    assert path.read_text() == "abc\n"


# --- inputs that cannot be read ----------------------------------------------------------------------------------


def test_bytes_that_are_not_utf8(seqloom: Command, run: Path) -> None:
    path = write(run, b"abc\nb\xffc\nab\n")
    answer = seqloom("predict", run, path, "--output", run / "out.txt")
    assert f"{path}:2" in answer.refused("E_UTF8", 3)
    assert not (run / "out.txt").exists()
    for policy in ("skip", "replace"):
        mended = seqloom("predict", run, path, "--on-bad-utf8", policy)
        assert mended.out.count("\n") == 3
        assert "1 bad utf8" in mended.err


@pytest.mark.parametrize("make", ["missing", "loop", "folders"])
def test_an_input_that_is_no_file(make: str, seqloom: Command, run: Path) -> None:
    path = run / "input"
    if make == "loop":
        path.symlink_to(path)
    answer = seqloom("predict", run, run / "bundle" if make == "folders" else path)
    if make == "folders":
        assert "--ensemble" in answer.refused("E_USAGE", 2), "a folder is a run, and there are two"
    else:
        assert str(path) in answer.refused("E_FILE", 6)


def test_a_truncated_archive(seqloom: Command, run: Path) -> None:
    path = write(run, gzip.compress(b"abc\n" * 1000)[:-9], "in.gz")
    assert str(path) in seqloom("predict", run, path).refused("E_GZIP", 3)


def test_a_pipe_is_read(run: Path) -> None:
    """`seqloom predict RUN <(zcat x.gz)`"""
    reading, writing = os.pipe()
    os.write(writing, b"abc\nbc\n")
    os.close(writing)
    answer = binary("predict", run, f"/dev/fd/{reading}", pass_fds=(reading,))
    os.close(reading)
    assert answer.code == 0, answer.err
    assert answer.out.count("\n") == 2


def test_what_is_no_run(seqloom: Command, tmp_path: Path) -> None:
    assert str(tmp_path / "no") in seqloom("predict", tmp_path / "no", "-t", "a").refused("E_FILE", 6)
    assert "no bundle here" in seqloom("predict", tmp_path, "-t", "a").refused("E_BUNDLE", 4)
    assert "folder" in seqloom("predict", write(tmp_path, "x"), "-t", "a").refused("E_BUNDLE", 4)


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["evaluate", "RUN", "--threads", "99999"], "E_RECIPE", 2),
        (["evaluate", "RUN", "--beam", "999999999999999999999"], "E_RECIPE", 2),
        (["evaluate", "RUN", "--samples", "99999999999999999999"], "E_USAGE", 2),
        (["evaluate", "RUN", "--fail-under", "cer=nan"], "E_USAGE", 2),
        (["evaluate", "RUN", "--reference", "PAIRS"], "E_USAGE", 2),
        (["evaluate", "RUN", "--data", "PAIRS", "--write-outputs", "PAIRS"], "E_USAGE", 2),
        (["evaluate", "--outputs", "PAIRS", "--data", "PAIRS", "--beam", "3"], "E_USAGE", 2),
        (["compare", "RUN", "RUN", "--reference", "PAIRS"], "E_USAGE", 2),
        (["average", "RUN", "--output", "PAIRS"], "E_FILE", 6),
        (["average", "RUN", "--output", "FOLDER"], "E_USAGE", 2),
    ],
)
def test_what_would_hang_break_or_overwrite_is_refused(
    arguments: list[str], code: str, exit_code: int, seqloom: Command, run: Path, tmp_path: Path
) -> None:
    pairs, folder = tmp_path / "pairs.tsv", tmp_path / "folder"
    pairs.write_text("abc\tcba\n")
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    places = {"RUN": run, "PAIRS": pairs, "FOLDER": folder}
    seqloom(*[places.get(word, word) for word in arguments]).refused(code, exit_code)
    assert pairs.read_text() == "abc\tcba\n"
    assert (folder / "letter.txt").read_text() == "dear"

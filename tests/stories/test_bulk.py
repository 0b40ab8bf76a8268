"""`seqloom predict --shards`: made by any scheduler, in any order and more than once, they are one prediction."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import LETTERS, Command, command_line, environment, trained
from seqloom.api.bulk import Bulk
from seqloom.data.files import Part, raw_lines

pytest_plugins = ["command_fixtures"]


def written(path: Path, count: int) -> Path:
    lines = [LETTERS[i % 8 :][: 1 + i % 5] + LETTERS[i % 3 : 3 + i % 4] for i in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return path


def shard(seqloom: Command, source: Path, out: Path, number: int, of: int, *options: object) -> str:
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", of, "--shard", number, "--greedy", *options)
    assert answer.code == 0, answer.err
    return answer.err


# --- what shards are -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"\n", b"").replace(b"\x1f", b"")), max_size=30),
    ends=st.booleans(),
    shards=st.integers(1, 7),
    buffer=st.one_of(st.none(), st.integers(1, 9)),
    packed=st.booleans(),
)
def test_the_lines_of_all_shards_are_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    ends: bool,
    shards: int,
    buffer: int | None,
    packed: bool,
) -> None:
    """Whatever stands in it, however it ends, packed or not: each line once, in order, with its number."""
    folder = tmp_path_factory.mktemp("bulk")
    data = b"\n".join(lines) + (b"\n" if ends else b"")
    (folder / "in").write_bytes(gzip.compress(data) if packed else data)
    bulk = Bulk(str(folder / "in"), folder / "out", shards, {"card.json": "x"}, {}, buffer)
    found = []
    for number in range(shards):
        bulk.refuse_changed(number)
        found += [line for unit in bulk.units(number) for line in unit.lines]
    assert found == list(raw_lines(str(folder / "in")))
    assert bulk.work.input.lines == len(found)
    assert sum(span.size for span in bulk.work.shards) == len(data)


def test_a_part_of_a_file_is_read_from_its_place(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\nthree\nfour")
    part = Part(first=2, lines=2, offset=4, size=10)
    assert [(line.number, line.data) for line in raw_lines(str(tmp_path / "in"), part)] == [(2, b"two"), (3, b"three")]


# --- making and joining --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "tsv", "jsonl"])
def test_joined_shards_are_one_prediction(form: str, seqloom: Command, tmp_path: Path) -> None:
    """To the byte, made in any order: numbers of lines and scores included."""
    source, out = written(tmp_path / "in.txt", 110), tmp_path / "out"
    options = ("--format", form, "--buffer", 20, "--greedy", "--workers", 1)
    whole = tmp_path / "whole"
    assert seqloom("predict", trained(), source, "-o", whole, *options).code == 0
    for number in (2, 0, 3, 1):
        shard(seqloom, source, out, number, 4, "--format", form, "--buffer", 20, "--workers", 1)
    assert not out.exists()
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 4, "--join", "--greedy", "--format", form)
    assert answer.code == 0, answer.err
    assert "110 lines of 4 shards" in answer.err
    assert out.read_bytes() == whole.read_bytes()


def test_few_lines_are_shared_by_all_shards(seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 10), tmp_path / "out"
    said = [shard(seqloom, source, out, number, 4) for number in range(4)]
    assert all(f"shard {number} of 4: {3 if number < 3 else 1} line" in line for number, line in enumerate(said))
    assert seqloom("predict", trained(), source, "-o", out, "--shards", 4, "--join", "--greedy").code == 0
    assert out.read_text().count("\n") == 10


def test_an_empty_file_gives_an_empty_file(seqloom: Command, tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("")
    for number in range(2):
        shard(seqloom, source, out, number, 2)
    assert seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--join", "--greedy").code == 0
    assert out.read_bytes() == b""


def test_a_shard_that_is_done_says_so_and_stays(seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 20), tmp_path / "out"
    shard(seqloom, source, out, 1, 2)
    manifest = tmp_path / "out.shards" / "00001-of-00002.json"
    before = manifest.stat().st_mtime_ns
    assert "shard 1 of 2 is done already" in shard(seqloom, source, out, 1, 2)
    assert manifest.stat().st_mtime_ns == before
    told = json.loads(manifest.read_text())
    assert told["options"] == {"--greedy": "true"}
    assert len(told["input"]) == len(told["bundles"]["card.json"]) == 64


@pytest.mark.parametrize("damage", [b"", b"no longer what it was\n"])
def test_a_damaged_shard_is_made_again(damage: bytes, seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 20), tmp_path / "out"
    shard(seqloom, source, out, 0, 1)
    made = tmp_path / "out.shards" / "00000-of-00001.out"
    before = made.read_bytes()
    made.write_bytes(damage)
    line = seqloom("predict", trained(), source, "-o", out, "--shards", 1, "--join", "--greedy").refused("E_DATA", 3)
    assert "1 of 1 shards are missing or damaged: 0" in line
    assert "done already" not in shard(seqloom, source, out, 0, 1)
    assert made.read_bytes() == before


# --- refusals ------------------------------------------------------------------------------------------------------


def test_joining_names_what_is_missing_and_writes_nothing(seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 20), tmp_path / "out"
    shard(seqloom, source, out, 1, 4)
    line = seqloom("predict", trained(), source, "-o", out, "--shards", 4, "--join", "--greedy").refused("E_DATA", 3)
    assert "3 of 4 shards are missing or damaged: 0, 2, 3" in line
    assert not out.exists()


def test_other_options_are_refused_with_what_differs(seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 20), tmp_path / "out"
    shard(seqloom, source, out, 0, 2)
    beam = seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--shard", 1, "--beam", 3)
    line = beam.refused("E_RUN", 2)
    assert "option --beam: none there, 3 asked for" in line
    assert "option --greedy: true there, none asked for" in line
    more = seqloom("predict", trained(), source, "-o", out, "--shards", 3, "--shard", 1, "--greedy")
    assert "2 shards there, 3 asked for" in more.refused("E_RUN", 2)


def test_another_bundle_is_refused(seqloom: Command, run: Path, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 20), tmp_path / "out"
    shard(seqloom, source, out, 0, 2)
    card = run / "bundle" / "card.json"
    card.write_text(card.read_text() + "\n")
    answer = seqloom("predict", run, source, "-o", out, "--shards", 2, "--shard", 1, "--greedy")
    assert "bundle card.json: " in answer.refused("E_CHANGED", 4)


@pytest.mark.parametrize("done", [True, False])
def test_another_input_is_refused(done: bool, seqloom: Command, tmp_path: Path) -> None:
    """Of the same size, and whether or not this shard was made of the old one."""
    source, out = written(tmp_path / "in.txt", 20), tmp_path / "out"
    shard(seqloom, source, out, 0 if done else 1, 2)
    text = source.read_text()
    source.write_text(("h" if text[0] == "a" else "a") + text[1:])
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--shard", 0, "--greedy")
    assert "the input is not the one that these shards were made of" in answer.refused("E_CHANGED", 4)
    source.write_text(text + "abc\n")
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--shard", 0, "--greedy")
    answer.refused("E_CHANGED", 4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shard", 0], "--shard without --shards"),
        (["--join"], "--join without --shards"),
        (["--quarantine"], "--quarantine without --shards"),
        (["--engine", "ray"], "--engine ray without --shards"),
        (["--shards", 2], "--shards with nothing to do"),
        (["--shards", 2, "--shard", 0, "--join"], "--shard and --join"),
        (["--shards", 2, "--shard", 2], "0 to 1"),
        (["--shards", 2, "--shard", 1], "--output"),
    ],
)
def test_what_has_no_meaning_is_refused(options: list[object], said: str, seqloom: Command, tmp_path: Path) -> None:
    source = written(tmp_path / "in.txt", 4)
    assert said in seqloom("predict", trained(), source, *options).refused("E_USAGE", 2)


def test_a_pipe_and_a_text_have_no_shards(seqloom: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = seqloom("predict", trained(), "-", "-o", out, "--shards", 2, "--shard", 1)
    assert "can be read again" in one.refused("E_USAGE", 2)
    two = seqloom("predict", trained(), "-t", "abc", "-o", out, "--shards", 2, "--shard", 1)
    assert "--text is one text" in two.refused("E_USAGE", 2)


def test_a_line_that_cannot_be_answered_is_named_by_its_number_in_the_file(seqloom: Command, tmp_path: Path) -> None:
    source, out = written(tmp_path / "in.txt", 20), tmp_path / "out"
    lines = source.read_text().splitlines()
    lines[15] = "a" * 30
    source.write_text("\n".join(lines))
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--shard", 1, "--greedy")
    assert "in.txt:16" in answer.refused("E_LONG", 3)
    assert not list((tmp_path / "out.shards").glob("*.out"))
    assert not list((tmp_path / "out.shards").glob(".*"))


# --- lines that fail -----------------------------------------------------------------------------------------------


def test_poison_is_quarantined_and_all_else_is_answered(seqloom: Command, tmp_path: Path) -> None:
    source, out, whole = written(tmp_path / "in.txt", 40), tmp_path / "out", tmp_path / "whole"
    assert seqloom("predict", trained(), source, "-o", whole, "--greedy").code == 0
    lines = source.read_bytes().splitlines()
    lines[4], lines[31] = b"\xff\xfe", b"a" * 30
    source.write_bytes(b"\n".join(lines) + b"\n")
    for number in range(2):
        shard(seqloom, source, out, number, 2, "--quarantine")
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--join", "--greedy", "--quarantine")
    assert "40 lines of 2 shards, 2 of them quarantined" in answer.err
    expected = whole.read_text().splitlines()
    expected[4] = expected[31] = ""
    assert out.read_text().splitlines() == expected
    told = [json.loads(line) for line in (tmp_path / "out.quarantine.jsonl").read_text().splitlines()]
    assert [bad["line"] for bad in told] == [5, 32]
    assert "E_UTF8" in told[0]["error"]
    assert "E_LONG" in told[1]["error"]
    assert "aaa" not in told[1]["error"], "the text of a line is not told"


def test_more_than_a_few_bad_lines_are_no_poison(
    seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.api.bulk.MOST_POISON", 3)
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_bytes(b"\xff\n" * 8)
    answer = seqloom("predict", trained(), source, "-o", out, "--shards", 1, "--shard", 0, "--quarantine")
    assert "more than 3 lines of shard 0 could not be answered" in answer.refused("E_DATA", 3)


# --- workers that die ----------------------------------------------------------------------------------------------


def test_a_shard_worker_that_dies_is_run_again(seqloom: Command, tmp_path: Path) -> None:
    """kill -9 in the middle of a shard: nothing is left that joining could take for a shard, and a rerun completes."""
    source, out, whole = written(tmp_path / "in.txt", 4000), tmp_path / "out", tmp_path / "whole"
    options = ("--buffer", "10", "--greedy", "--workers", "1", "--quiet")
    command = command_line("predict", trained(), source, "-o", out, "--shards", 2, "--shard", 0, *options)
    with subprocess.Popen(command, env=environment()) as process:
        deadline = time.monotonic() + 60
        folder = tmp_path / "out.shards"
        while not any(part.stat().st_size for part in folder.glob(".*.out.*.tmp")) and time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert not list(folder.glob("00000*"))
    shard(seqloom, source, out, 1, 2, "--buffer", 10, "--workers", 1)
    seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--join", "--greedy").refused("E_DATA", 3)
    shard(seqloom, source, out, 0, 2, "--buffer", 10, "--workers", 1)
    assert seqloom("predict", trained(), source, "-o", out, "--shards", 2, "--join", "--greedy").code == 0
    assert seqloom("predict", trained(), source, "-o", whole, *options).code == 0
    assert out.read_bytes() == whole.read_bytes(), "no line lost, doubled or reordered"
    assert not list(folder.glob(".*.tmp")), "nothing of the dead one is left"

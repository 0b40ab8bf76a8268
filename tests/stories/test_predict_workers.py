"""`seqloom predict --workers`: the same lines as one process writes, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import LETTERS, Command, binary, command_line, environment, trained
from seqloom.api.reading import CHUNK_LINES

pytest_plugins = ["command_fixtures"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")


def written(path: Path, count: int) -> Path:
    lines = [LETTERS[i % 8 :][: 1 + i % 5] + LETTERS[i % 3 : 3 + i % 4] for i in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_outputs_are_those_of_one_process_line_for_line(seqloom: Command, tmp_path: Path) -> None:
    """More lines than are read at once: what was written before the second fork is written once."""
    lines = written(tmp_path / "lines.txt", CHUNK_LINES + 300)
    found = {}
    for workers in (1, 2):
        out = tmp_path / f"{workers}.txt"
        answer = seqloom("predict", trained(), lines, "--workers", workers, "--output", out, "--greedy")
        assert answer.code == 0, answer.err
        found[workers] = out.read_text()
    assert found[1].count("\n") == CHUNK_LINES + 300
    assert found[1] == found[2]


def test_through_pipes_of_the_real_binary(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines.txt", 600)
    one, two = (binary("predict", trained(), "--workers", n, "-q", input=lines.read_bytes()) for n in (1, 2))
    assert (one.code, two.code, two.err) == (0, 0, "")
    assert one.out == two.out


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines.txt", 2 * CHUNK_LINES)
    command = command_line("predict", trained(), lines, "--workers", 2, "-q")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_interrupted_it_says_nothing_and_leaves_nobody_behind(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines.txt", 3 * CHUNK_LINES)
    command = command_line("predict", trained(), lines, "--workers", 2, "--beam", 8, "-o", tmp_path / "out.txt", "-q")
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells ignore it for what runs behind them
    )
    for _ in range(400):
        if len(_members(process.pid)) > 1:
            break
        time.sleep(0.05)
    assert len(_members(process.pid)) > 1, "no workers were started"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    try:
        assert process.communicate(timeout=60)[1] == b""
    finally:
        process.kill()
    assert process.returncode == 130
    assert not (tmp_path / "out.txt").exists()
    for _ in range(100):
        if not _members(process.pid):
            return
        time.sleep(0.05)
    pytest.fail("workers outlived their command")


def _members(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(own) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def test_what_cannot_be_is_refused(seqloom: Command) -> None:
    line = seqloom("predict", trained(), "--text", "abc", "--workers", 2, "--threads", 1).refused("E_USAGE", 2)
    assert "a worker has one thread" in line
    seqloom("predict", trained(), "--text", "abc", "--workers", 0).refused("E_USAGE", 2)
    for engine in ("onnx", "ctranslate2"):
        refused = seqloom("predict", trained(), "--text", "abc", "--workers", 2, "--engine", engine)
        assert "--workers is not for" in refused.refused("E_USAGE", 2)
    assert "at most" in seqloom("predict", trained(), "--text", "abc", "--workers", 10**6).refused("E_USAGE", 2)

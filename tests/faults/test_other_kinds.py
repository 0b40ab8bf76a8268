"""A sound for a run that reads pictures, a picture for one that reads texts: said as what it is, not as bad UTF-8."""

from __future__ import annotations

from pathlib import Path

import served_runs
from commands import Command, trained
from signals import write_waves

pytest_plugins = ["command_fixtures"]


def picture() -> Path:
    return served_runs.pictures().parent / "blocks" / "0.png"


def clip() -> Path:
    return served_runs.sound().parent / "tones" / "0.wav"


def test_each_kind_is_told_from_the_others(seqloom: Command, tmp_path: Path) -> None:
    write_waves(tmp_path, 1)
    array = tmp_path / "waves" / "0.npy"
    cases = [
        (served_runs.pictures(), clip(), "this run reads pictures, and this is a sound by its name"),
        (served_runs.pictures(), array, "this run reads pictures, and this is an array by its name"),
        (served_runs.sound(), picture(), "this run reads sounds, and this is a picture by its name"),
        (trained(), picture(), "this run reads texts, and this is a picture by its name"),
        (trained(), clip(), "this run reads texts, and this is a sound by its name"),
    ]
    for run, file, said in cases:
        line = seqloom("predict", run, file).refused("E_DATA", 3)
        assert said in line
        assert str(file) in line


def test_a_text_may_be_called_anything(seqloom: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.au").write_text("abc\nü\n", encoding="utf-8")
    answer = seqloom("predict", trained(), tmp_path / "notes.au")
    assert (answer.code, len(answer.out.splitlines())) == (0, 2)

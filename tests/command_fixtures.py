"""Fixtures of the command line's tests: `pytest_plugins = ["command_fixtures"]` in a test file brings them in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commands import Answer, Command, trained
from seqloom.cli.main import main


@pytest.fixture
def seqloom(capsys: pytest.CaptureFixture[str]) -> Command:
    """Give a command inside this process: quick, and everything but the operating system's part of it is real."""

    def give(*arguments: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, said.out, said.err)

    return give


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a tiny trained run, to use and to spoil; trained once per process."""
    return Path(shutil.copytree(trained(), tmp_path / "run"))

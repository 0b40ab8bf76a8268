"""The demonstration's conversations: found where the package put them, and laid out as rows."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from seqloom.errors import SeqloomError
from seqloom.reply import demo


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(demo, "files", missing)
    with pytest.raises(SeqloomError, match=r"E_EXTRA.*seqloom\[demo\]"):
        demo.dataset_file()


def test_rows_have_no_tabs_and_what_is_there_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "dataset.json"
    source.write_text(
        '{"a": {"messages": [[{"text": "Hi\\tthere\\nyou", "sender": "x"}], [], [{"text": "Yo", "sender": "y"}]]}}'
    )
    assert list(demo.rows(source)) == [("a", "x", "Hi there you"), ("a", "y", "Yo")]
    monkeypatch.setattr(demo, "dataset_file", lambda: source)
    path = demo.write_chat(tmp_path / "demo")
    assert path.read_text() == "conversation\tauthor\ttext\na\tx\tHi there you\na\ty\tYo\n"
    path.write_text("mine")
    assert demo.write_chat(tmp_path / "demo").read_text() == "mine"

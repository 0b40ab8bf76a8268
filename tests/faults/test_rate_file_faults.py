"""Pictures and sounds that a study cannot show, and people who would like to see other files through its server."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from commands import Command
from rated_files import file_study, listed
from rating import serving
from seqloom.rate import media

pytest_plugins = ["command_fixtures"]


def new(seqloom: Command, folder: Path) -> Callable[[str, int], str]:
    answer = seqloom("rate", "new", folder / "study", folder / "one", folder / "two", "--source", folder / "names.txt")
    return answer.refused


def big(path: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(path)


FAULTS: dict[str, tuple[Callable[[Path], object], str, int, str]] = {
    "missing": (lambda path: path.unlink(), "E_FILE", 6, "No such file"),
    "text": (lambda path: path.write_text("<script>alert(1)</script>"), "E_DATA", 3, "not a picture"),
    "empty": (lambda path: path.write_bytes(b""), "E_DATA", 3, "not a picture"),
    "drawing": (
        lambda path: path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>"),
        "E_DATA",
        3,
        "not a picture",
    ),
    "bomb": (big, "E_DATA", 3, "20,000 x 20,000 pixels"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "E_FILE", 6, "a folder, not a file"),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "E_FILE", 6, "not a plain file"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_picture_is_named_with_its_line(name: str, seqloom: Command, tmp_path: Path) -> None:
    spoil, code, status, said = FAULTS[name]
    listed(tmp_path, "picture")
    spoil(tmp_path / "blocks/1.png")
    line = new(seqloom, tmp_path)(code, status)
    assert said in line
    assert f"{tmp_path / 'names.txt'}:2" in line
    assert not (tmp_path / "study").exists()


def test_a_file_that_is_too_large(seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(tmp_path, "picture")
    monkeypatch.setattr(media, "MOST_BYTES", 10)
    assert "at most 10 are shown" in new(seqloom, tmp_path)("E_DATA", 3)


def test_a_bad_sound(seqloom: Command, tmp_path: Path) -> None:
    listed(tmp_path, "sound")
    (tmp_path / "tones/2.wav").write_bytes(b"RIFF")
    line = new(seqloom, tmp_path)("E_DATA", 3)
    assert "not a sound" in line
    assert f"{tmp_path / 'names.txt'}:3" in line


def test_only_files_of_the_study_and_only_for_its_raters(tmp_path: Path) -> None:
    with serving(file_study(tmp_path, "picture")) as served, served.client() as client:
        assert client.get("/api/tasks/1/media").status_code == 200
        stranger = client.get("/api/tasks/1/media", headers={"Authorization": "Bearer x"})
        assert (stranger.status_code, stranger.json()["error"]["code"]) == (401, "E_KEY")
        for path in ("/api/tasks/9/media", "/api/tasks/0/media", "/api/tasks/-1/media", "/api/tasks/x/media"):
            assert client.get(path).status_code == 404, path
        for path in (
            "/blocks/0.png",
            "/api/tasks/1/media/../../../etc/passwd",
            "/..%2f..%2fetc%2fpasswd",
            "//etc/passwd",
        ):
            assert client.get(path).status_code == 404, path
        assert client.post("/api/tasks/1/media").status_code == 405
        foreign = client.get("/api/tasks/1/media", headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        policy = client.get("/").headers["content-security-policy"]
        assert "img-src 'self' blob:" in policy
        assert "media-src blob:" in policy


def test_a_file_that_is_gone_or_another_is_said_without_its_path(tmp_path: Path) -> None:
    with serving(file_study(tmp_path, "picture", 1)) as served, served.client() as client:
        (tmp_path / "blocks/0.png").write_bytes(b"something else")
        gone = client.get("/api/tasks/1/media")
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "E_NOT_FOUND")
        assert gone.json()["error"]["message"] == "the picture of this item is not there any more as it was"
        assert str(tmp_path) not in gone.text
        assert client.get("/api/tasks/1").status_code == 200


def test_a_text_has_no_file(tmp_path: Path) -> None:
    from rating import study

    with serving(study(tmp_path / "texts")) as served, served.client() as client:
        assert client.get("/api/tasks/1/media").status_code == 404


def test_a_study_that_was_tampered_with_is_refused(seqloom: Command, tmp_path: Path) -> None:
    path = file_study(tmp_path, "picture")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        plan = json.loads(file.execute("SELECT value FROM study WHERE key = 'plan'").fetchone()[0])
        plan["items"][0]["media"]["type"] = "text/html"
        file.execute("UPDATE study SET value = ? WHERE key = 'plan'", (json.dumps(plan),))
    assert "not a study, or a damaged one" in seqloom("rate", "results", path).refused("E_DATA", 3)

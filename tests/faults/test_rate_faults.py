"""What `seqloom rate` must survive: bad files, bad requests, strangers, other programs; each refused by name."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from commands import Command
from rating import BAD, GOOD, REFERENCES, SOURCES, Served, serving, study
from seqloom.rate import store as stores
from seqloom.web import door

pytest_plugins = ["command_fixtures"]

JSON = {"content-type": "application/json"}
GOOD_CLICK = {"output": "A", "question": "adequate", "value": True}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, lines in (("s", SOURCES), ("r", REFERENCES), ("good", GOOD), ("bad", BAD[:-1]), ("empty", [])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "latin").write_bytes(b"gr\xfc\xdfe\n" * 12)
    return tmp_path


# --- making a study --------------------------------------------------------------------------------------------------

NEW = [
    (["good", "bad", "--source", "s"], "E_ALIGN", 3, "11 outputs for 12 sources; {}/bad"),
    (["bad", "--source", "s", "--reference", "r"], "E_ALIGN", 3, "11 outputs for 12"),
    (["good", "--source", "s", "--reference", "bad"], "E_ALIGN", 3, "12"),
    (["empty", "--source", "s"], "E_ALIGN", 3, "0 outputs for 12 sources"),
    (["empty", "--source", "empty"], "E_EMPTY", 3, "no sources"),
    (["latin", "--source", "s"], "E_UTF8", 3, "latin:1"),
    (["none", "--source", "s"], "E_FILE", 6, "none"),
    (["good"], "E_USAGE", 2, "output files need sources"),
    (["--source", "s"], "E_USAGE", 2, "nothing to rate: no outputs are named"),
    (["good", "--reference", "r"], "E_USAGE", 2, "--source FILE"),
    (["good", "--source", "s", "--questions", "adequat"], "E_USAGE", 2, 'did you mean "adequate"'),
    (["good", "--source", "s", "--questions", "rank"], "E_USAGE", 2, "one system alone has no rank"),
    (["good", "--source", "s", "--checks", "13"], "E_USAGE", 2, "13 checks, but only 12 items"),
    (["good", "--source", "s", "--items", "0"], "E_USAGE", 2, "--items"),
    (["good", "--source", "s", "--items", "10001"], "E_USAGE", 2, "at most 10,000 items"),
    (["good", "--source", "s", "--rater", "../x"], "E_USAGE", 2, "not a name for a rater: '../x'"),
    (["x=good", "x=good", "--source", "s"], "E_USAGE", 2, "two systems are called 'x'"),
    (["good", "--source", "s", "--port", "9"], "E_USAGE", 2, "new knows no --port"),
]


@pytest.mark.parametrize(("given", "name", "code", "words"), NEW, ids=[" ".join(row[0]) for row in NEW])
def test_what_cannot_be_rated(
    seqloom: Command, files: Path, given: list[str], name: str, code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    named = [
        str(files / word) if word in ("s", "r", "good", "bad", "empty", "latin", "none") else word for word in given
    ]
    line = seqloom("rate", "new", "study", *named).refused(name, code)
    assert words.format(files) in line
    assert not (files / "study").exists()


def test_a_study_that_exists_is_refused_before_any_work(seqloom: Command, files: Path) -> None:
    path = study(files / "study")
    line = seqloom("rate", "new", path, files / "none", "--source", files / "s").refused("E_USAGE", 2)
    assert "studies are never overwritten" in line
    assert f"seqloom rate open {path}" in line


def test_a_folder_that_cannot_be_written(seqloom: Command, files: Path) -> None:
    (files / "file").write_text("")
    seqloom("rate", "new", files / "file" / "study", files / "good", "--source", files / "s").refused("E_FILE", 6)


def test_actions_and_their_options(seqloom: Command, tmp_path: Path) -> None:
    path = study(tmp_path / "study")
    assert 'did you mean "results"' in seqloom("rate", "result", path).refused("E_USAGE", 2)
    assert "open knows no systems" in seqloom("rate", "open", path, "x").refused("E_USAGE", 2)
    assert "results knows no --items" in seqloom("rate", "results", path, "--items", 3).refused("E_USAGE", 2)
    assert "no such rater: 'bea'" in seqloom("rate", "results", path, "--without", "bea").refused("E_USAGE", 2)
    assert "overwrite the study" in seqloom("rate", "results", path, "--csv", path).refused("E_USAGE", 2)
    assert "both write to stdout" in seqloom("rate", "results", path, "--csv", "-", "--json").refused("E_USAGE", 2)
    assert "bleuu" in seqloom("rate", "results", path, "--metric", "bleuu").refused("E_USAGE", 2)


# --- studies that are not what they were -----------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["open", "results"])
def test_no_study(seqloom: Command, tmp_path: Path, action: str) -> None:
    assert "no such study" in seqloom("rate", action, tmp_path / "none").refused("E_FILE", 6)
    assert "a study is a file" in seqloom("rate", action, tmp_path).refused("E_FILE", 6)
    (tmp_path / "text").write_text("hello\n" * 1000)
    line = seqloom("rate", action, tmp_path / "text").refused("E_DATA", 3)
    assert "not a study, or a damaged one" in line
    (tmp_path / "empty").write_bytes(b"")
    assert "not a study" in seqloom("rate", action, tmp_path / "empty").refused("E_DATA", 3)
    assert (tmp_path / "empty").read_bytes() == b""


def test_another_programs_database_is_left_as_it_is(seqloom: Command, tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE study (key TEXT, value TEXT)")
    before = path.read_bytes()
    seqloom("rate", "results", path).refused("E_DATA", 3)
    assert path.read_bytes() == before


CHANGES = [
    ("DROP TABLE clicks", "E_DATA", 3),
    ("DELETE FROM study WHERE key = 'secret'", "E_DATA", 3),
    ("UPDATE study SET value = 'x' WHERE key = 'secret'", "E_DATA", 3),
    ("UPDATE study SET value = '{' WHERE key = 'plan'", "E_DATA", 3),
    ("UPDATE study SET value = replace(value, 'adequate', 'adept') WHERE key = 'plan'", "E_DATA", 3),
    ("UPDATE study SET value = replace(value, '\"item\":3', '\"item\":99') WHERE key = 'plan'", "E_DATA", 3),
    ("UPDATE study SET value = '3' WHERE key = 'format'", "E_FORMAT", 4),
    ("INSERT INTO clicks VALUES (1, 'anna', 999, 0, 'adequate', 'true', '')", "E_DATA", 3),
    ("INSERT INTO clicks VALUES (1, 'anna', 0, 0, 'adequate', '{', '')", "E_DATA", 3),
    ("INSERT INTO clicks VALUES (1, 'anna', 0, 0, 'adequate', 'true', 'soon')", "E_DATA", 3),
]


@pytest.mark.parametrize(("change", "name", "code"), CHANGES, ids=[row[0][:60] for row in CHANGES])
def test_a_damaged_study(seqloom: Command, tmp_path: Path, change: str, name: str, code: int) -> None:
    path = study(tmp_path / "study")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(change)
    assert str(path) in seqloom("rate", "results", path).refused(name, code)


def test_half_a_study(seqloom: Command, tmp_path: Path) -> None:
    path = study(tmp_path / "study")
    os.truncate(path, path.stat().st_size // 2)
    seqloom("rate", "results", path).refused("E_DATA", 3)


def test_a_port_in_use(seqloom: Command, tmp_path: Path) -> None:
    path = study(tmp_path / "study")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = seqloom("rate", "open", path, "--port", taken.getsockname()[1]).refused("E_USAGE", 2)
    assert "cannot listen there" in line
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DELETE FROM raters")
    assert "no raters" in seqloom("rate", "open", path, "--port", 0).refused("E_USAGE", 2)
    assert "--port" in line


# --- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = study(tmp_path_factory.mktemp("study") / "study", questions="adequate,adequacy,direct,errors,rank")
    with serving(path, names=["rate.example"], patience=0.2) as opened:
        yield opened


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


PUTS = [
    ('{"output', 400, "E_MALFORMED", "an object of JSON"),
    ("[1]", 400, "E_MALFORMED", "an object of JSON"),
    ("", 400, "E_MALFORMED", "an object of JSON"),
    ("[" * 4000, 400, "E_MALFORMED", ""),
    (b"\xff\xfe{}", 400, "E_MALFORMED", ""),
    ("{}", 422, "E_VALUE", "output: must be given"),
    (json.dumps({**GOOD_CLICK, "output": "Z"}), 422, "E_VALUE", "has no output 'Z'"),
    (json.dumps({**GOOD_CLICK, "output": "AB"}), 422, "E_VALUE", "at most 1 character"),
    (json.dumps({**GOOD_CLICK, "output": 1}), 422, "E_VALUE", "output: expected text"),
    (json.dumps({**GOOD_CLICK, "question": "adequate!"}), 422, "E_VALUE", 'did you mean "adequate"'),
    (json.dumps({**GOOD_CLICK, "question": "fluent"}), 422, "E_VALUE", "'fluent' is not asked"),
    (json.dumps({**GOOD_CLICK, "value": 1}), 422, "E_VALUE", "value: expected true or false"),
    (json.dumps({**GOOD_CLICK, "question": "adequacy", "value": 6}), 422, "E_VALUE", "from 1 to 5"),
    (json.dumps({**GOOD_CLICK, "question": "direct", "value": 1e300}), 422, "E_VALUE", "from 0 to 100"),
    ('{"output": "A", "question": "direct", "value": NaN}', 422, "E_VALUE", ""),
    (json.dumps({**GOOD_CLICK, "question": "errors", "value": [{}]}), 422, "E_VALUE", "start and end"),
    (json.dumps({**GOOD_CLICK, "sytem": "x"}), 422, "E_VALUE", "unknown key"),
]


@pytest.mark.parametrize(("body", "status", "code", "words"), PUTS, ids=[str(row[0])[:60] for row in PUTS])
def test_a_bad_click_is_refused_by_name(
    client: httpx.Client, served: Served, body: str, status: int, code: str, words: str
) -> None:
    answer = client.put("/api/tasks/1/rating", content=body, headers=JSON)
    assert answer.status_code == status, answer.text
    told = answer.json()["error"]
    assert told["code"] == code
    assert words in told["message"]
    assert served.store.clicks("anna") == []


@pytest.mark.parametrize("number", ["0", "999", "-1", "x", "1e3", "9" * 400])
def test_an_item_that_does_not_exist(client: httpx.Client, number: str) -> None:
    for answer in (client.get(f"/api/tasks/{number}"), client.put(f"/api/tasks/{number}/rating", json=GOOD_CLICK)):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "E_NOT_FOUND"


@pytest.mark.parametrize(
    "name", ["nothing", "app.py", "..%2fapp.py", "%2e%2e/app.py", "static/main.js", "index.html/", "docs"]
)
def test_no_other_file_is_served(client: httpx.Client, name: str) -> None:
    assert client.get(f"/{name}").status_code == 404


def test_wrong_verbs_and_types(client: httpx.Client) -> None:
    assert client.post("/api/study").status_code == 405
    assert client.get("/api/undo").status_code == 405
    answer = client.put("/api/tasks/1/rating", content=json.dumps(GOOD_CLICK), headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "E_MEDIA")


@pytest.mark.parametrize("token", [None, "x", "ü".encode(), "A" * 43, "A" * 20_000])
def test_an_unknown_rater(served: Served, token: str | bytes | None) -> None:
    headers = (
        {} if token is None else {b"authorization": b"Bearer " + (token.encode() if isinstance(token, str) else token)}
    )
    with httpx.Client(base_url=served.url, headers=headers) as stranger:  # type: ignore[arg-type]
        for verb, path in (
            ("GET", "/api/study"),
            ("GET", "/api/tasks/1"),
            ("PUT", "/api/tasks/1/rating"),
            ("POST", "/api/undo"),
        ):
            answer = stranger.request(verb, path, json=GOOD_CLICK if verb == "PUT" else None)
            assert answer.status_code == 401
            assert answer.json()["error"]["message"] == "this link does not open the study"
        assert stranger.get("/").status_code == 200


def test_a_large_body(client: httpx.Client, served: Served) -> None:
    large = json.dumps({**GOOD_CLICK, "more": "x" * 70_000}).encode()
    answer = client.put("/api/tasks/1/rating", content=large, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "E_LARGE")
    chunked = client.put(
        "/api/tasks/1/rating", content=(large[i : i + 4096] for i in range(0, len(large), 4096)), headers=JSON
    )
    assert chunked.status_code == 413
    assert served.store.clicks("anna") == []


def test_a_body_that_does_not_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "BODY_SECONDS", 0.3)
    head = (
        f"PUT /api/tasks/1/rating HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.store.token('anna')}\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{{".encode())
        assert b" 408 " in connection.recv(1000)


def test_names_and_origins(client: httpx.Client, served: Served) -> None:
    for host, status in (("rate.example", 200), ("evil.example", 400), ("", 400), ("127.0.0.1:99", 200)):
        assert client.get("/api/study", headers={"host": host}).status_code == status
    foreign = client.put("/api/tasks/1/rating", json=GOOD_CLICK, headers={"origin": "http://evil.example"})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "E_ORIGIN")
    assert "access-control-allow-origin" not in foreign.headers
    assert served.store.clicks("anna") == []


def test_what_browsers_are_told(client: httpx.Client) -> None:
    for path in ("/", "/main.js", "/api/study", "/api/tasks/0"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"


def test_a_locked_study_is_busy_and_recovers(client: httpx.Client, served: Served) -> None:
    with closing(sqlite3.connect(served.store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = client.put("/api/tasks/1/rating", json=GOOD_CLICK)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "E_BUSY")
        assert answer.headers["retry-after"] == "1"
        assert client.get("/api/study").status_code == 200, "reading goes on"
        other.execute("ROLLBACK")
    assert client.put("/api/tasks/1/rating", json=GOOD_CLICK).status_code == 200
    client.post("/api/undo")


def test_a_locked_study_on_the_command_line(seqloom: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = study(tmp_path / "study")
    monkeypatch.setattr(stores, "PATIENCE", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        line = seqloom("rate", "results", path).refused("E_LOCKED", 6)
    assert "another program writes to the study" in line


def test_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    with serving(study(tmp_path / "study")) as served, served.client() as client:
        (pages,) = served.store._file.execute("PRAGMA page_count").fetchone()
        served.store._file.execute(f"PRAGMA max_page_count = {pages}")
        kept = 0
        while (answer := client.put("/api/tasks/1/rating", json={**GOOD_CLICK, "value": bool(kept % 2)})).is_success:
            kept += 1
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "E_DISK")
        assert len(served.store.clicks("anna")) == kept
        served.store._file.execute(f"PRAGMA max_page_count = {pages + 100}")
        assert client.put("/api/tasks/1/rating", json={**GOOD_CLICK, "value": bool(kept % 2)}).status_code == 200


def test_one_answer_is_not_changed_for_ever(
    client: httpx.Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MOST_CHANGES", 3)
    statuses = [
        client.put("/api/tasks/1/rating", json={**GOOD_CLICK, "value": bool(i % 2)}).status_code for i in range(4)
    ]
    assert statuses == [200, 200, 200, 422]
    for _ in range(3):
        client.post("/api/undo")
    assert served.store.clicks("anna") == []

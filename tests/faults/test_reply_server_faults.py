"""What a server of Smart Reply must survive: bodies that are refused before they come, and a run that changes."""

from __future__ import annotations

import logging
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

import served_runs
from replying import replying
from replying_served import serving_replies
from seqloom.reply import bundle
from seqloom.serve import server
from seqloom.serve.batcher import Batcher
from seqloom.serve.keys import Keys
from seqloom.serve.limits import Limits
from seqloom.web import logs
from seqloom.web.refusals import Refusal
from serving import serving

QUESTION = {"message": "are you coming to the party tonight?"}
ROUTES = ("/v1/reply", "/v1/reply/feedback")


def announced(client: httpx.Client, path: str, size: int = 400, kind: str = "application/json") -> bytes:
    """What a server says to who has a body to send and has sent nothing of it. A server that waits for it says 408."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=20) as connection:
        connection.sendall(head.encode())
        told = b""
        while part := connection.recv(65536):
            told += part
            if b"}}" in told:
                break
        return told


# --- refused before it is read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ROUTES)
def test_without_a_smart_reply_no_body_is_awaited(path: str) -> None:
    with serving(served_runs.reversing()) as (client, _):
        told = announced(client, path)
        assert told.startswith(b"HTTP/1.1 404")
        assert b"no Smart Reply is served here" in told
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("path", ROUTES)
def test_what_is_refused_anyway_is_refused_before_its_body_comes(tmp_path: Path, path: str) -> None:
    with serving_replies(limits=Limits(body=5000, rate="3/minute")) as client:
        assert announced(client, path, size=5001).startswith(b"HTTP/1.1 413")
        assert announced(client, path, kind="text/plain").startswith(b"HTTP/1.1 415")
        for _ in range(2):
            assert client.get("/v1/reply").status_code == 200
        told = announced(client, path)
        assert told.startswith(b"HTTP/1.1 429")
        assert b"retry-after" in told.lower()
    with serving_replies(keys=Keys(tmp_path / "keys.sqlite")) as client:
        assert announced(client, path).startswith(b"HTTP/1.1 401")


def test_a_full_queue_is_said_before_a_message_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Batcher) -> None:
        raise Refusal("E_BUSY", "too much waits already")

    with serving_replies() as client:
        monkeypatch.setattr(Batcher, "refuse_full", full)
        assert announced(client, "/v1/reply").startswith(b"HTTP/1.1 503")
        assert client.get("/v1/reply").status_code == 200  # what is served can be asked all the same
        monkeypatch.undo()
        assert client.post("/v1/reply", json=QUESTION).status_code == 200


# --- a run that changes ----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(server, "WATCH_SECONDS", 0.05)
    return Path(shutil.copytree(replying(), tmp_path / "run"))


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        (bundle.CARD, b'{"format": 1'),
        (bundle.RESPONSES, b"no table\n"),
        (bundle.SETTINGS, b"threshhold: 1\n"),
    ],
)
def test_a_damaged_smart_reply_leaves_the_old_one_serving(
    run: Path, name: str, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logs.LOGGER.name)
    file = run / bundle.FOLDER / name
    good = file.read_bytes()
    with serving_replies(run=run) as client:
        before = client.post("/v1/reply", json=QUESTION).json()
        assert before["suggestions"]
        file.write_bytes(damaged)
        _until(lambda: reloads(client, "refused") == 1)
        assert client.post("/v1/reply", json=QUESTION).json() == before
        (said,) = [record.fields for record in caplog.records if record.getMessage() == "reload refused"]
        assert said["run"] == "run"
        assert name in str(said["where"])
        time.sleep(0.3)
        assert reloads(client, "refused") == 1  # it is not tried again until it changes
        file.write_bytes(good)
        _until(lambda: reloads(client, "loaded") == 1)
        assert client.post("/v1/reply", json=QUESTION).json() == before


def test_weights_that_are_not_those_of_the_card_are_refused(run: Path) -> None:
    weights = next((run / bundle.FOLDER / bundle.MODEL).glob("*.safetensors"))
    with serving_replies(run=run) as client:
        before = client.post("/v1/reply", json=QUESTION).json()
        weights.write_bytes(weights.read_bytes()[:-1])
        (run / bundle.FOLDER / bundle.CARD).touch()
        _until(lambda: reloads(client, "refused") == 1)
        assert client.post("/v1/reply", json=QUESTION).json() == before


def test_an_edit_is_served_without_a_pause(run: Path) -> None:
    table = run / bundle.FOLDER / bundle.RESPONSES
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    with serving_replies(run=run) as client:
        count = client.get("/v1/reply").json()["replies"]
        table.write_text("".join(lines[:-1]), encoding="utf-8")
        _until(lambda: client.get("/v1/reply").json()["replies"] == count - 1)
        assert reloads(client, "refused") == 0


def test_a_run_that_is_gone_leaves_the_old_one_serving(run: Path) -> None:
    with serving_replies(run=run) as client:
        before = client.post("/v1/reply", json=QUESTION).json()
        shutil.rmtree(run)
        time.sleep(0.3)
        assert client.post("/v1/reply", json=QUESTION).json() == before


def reloads(client: httpx.Client, outcome: str) -> int:
    wanted = f'seqloom_reloads_total{{outcome="{outcome}"}} '
    lines = client.get("/metrics").text.splitlines()
    return next((int(float(line.removeprefix(wanted))) for line in lines if line.startswith(wanted)), 0)


def _until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)

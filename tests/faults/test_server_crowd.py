"""A thousand sockets that ask for nothing, or too slowly: they are closed, and whoever asks meanwhile is answered."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

import httpx
import pytest

import served_runs
from commands import trained
from crowds import Asked, all_at_once, many_files, place_of
from seqloom.serve.limits import Limits
from seqloom.web import door, listening
from serving import serving

COUNT = 1000
SECONDS = 3.0  # instead of ten
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SLOW = {
    "idle": b"",
    "slow headers": HEAD[:60],
    "slow body": HEAD + b'Content-Length: 100\r\n\r\n{"inp',
    "slow chunks": HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"inp\r\n',
}


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADER_SECONDS", SECONDS)
    monkeypatch.setattr(door, "BODY_SECONDS", SECONDS)


def held(client: httpx.Client, begun: bytes, count: int) -> list[socket.socket]:
    """Connections on which no more than this is said."""
    found = []
    for _ in range(count):
        found.append(socket.create_connection(place_of(client), timeout=30))
        found[-1].sendall(begun)
    return found


def ends(connections: Sequence[socket.socket]) -> set[bytes]:
    """The first line that each is told before it is closed; empty: nothing."""
    told = set()
    for connection in connections:
        with connection:
            said = b""
            while part := connection.recv(65536):
                said += part
            told.add(said.split(b"\r\n")[0])
    return told


@pytest.mark.parametrize("kind", SLOW)
def test_a_thousand_sockets_are_closed_and_a_normal_client_is_served(kind: str) -> None:
    with many_files(3 * COUNT), serving(trained(), limits=Limits(rate="none")) as (client, _):
        crowd = held(client, SLOW[kind], COUNT)
        wanted = b"HTTP/1.1 408 Request Timeout" if "body" in kind or "chunks" in kind else b""
        for _ in range(5):
            asked = all_at_once(place_of(client), [Asked.json("/v1/predict", inputs="abc")] * 4)
            assert [one.status for one in asked] == [200] * 4
        assert ends(crowd) == {wanted}
        assert client.post("/v1/predict", json={"inputs": "abc"}).status_code == 200


def test_a_byte_now_and_then_gains_no_time() -> None:
    """Ten drip a byte every tenth of a second: the whole must have come in time, not the next part of it."""
    with serving(trained()) as (client, _):
        crowd = held(client, HEAD[:30], 10)
        until = time.monotonic() + 4 * SECONDS
        closed = 0
        while closed < len(crowd) and time.monotonic() < until:
            time.sleep(0.1)
            closed = sum(not _drips(connection) for connection in crowd)
        assert closed == len(crowd)
        for connection in crowd:
            connection.close()


def _drips(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
        connection.setblocking(False)
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.setblocking(True)


def test_files_that_arrive_slowly_keep_no_other_out() -> None:
    """A hundred begin to send a file and stop: one more is answered at once."""
    begun = HEAD.replace(b"/v1/predict", b"/v1/predict/file").replace(
        b"application/json", b"multipart/form-data; boundary=x"
    )
    picture = (served_runs.pictures().parent / "blocks" / "0.png").read_bytes()
    with many_files(1024), serving(served_runs.pictures(), limits=Limits(rate="none")) as (client, _):
        crowd = held(client, begun + b"Content-Length: 5000000\r\n\r\n--x\r\n", 100)
        assert client.post("/v1/predict/file", files={"file": ("0.png", picture)}).status_code == 200
        assert ends(crowd) == {b"HTTP/1.1 408 Request Timeout"}


def test_who_does_not_read_an_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty ask for 24 MB each and read none of it: what the system does not take for them is thrown away."""
    monkeypatch.setattr(listening, "READ_SECONDS", SECONDS)
    path = "/static-offline-docs/swagger-ui-bundle.js"
    with many_files(1024), serving(trained()) as (client, _):
        size = len(client.get(path).content)
        crowd = []
        for _ in range(50):
            crowd.append(socket.socket())
            crowd[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            crowd[-1].connect(place_of(client))
            crowd[-1].sendall(16 * f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.post("/v1/predict", json={"inputs": "abc"}).status_code == 200
        time.sleep(2 * SECONDS)
        assert max(map(_rest, crowd)) < 16 * size
        with client.stream("GET", path) as slow:  # who reads a little at a time is served to the end
            assert sum(len(part) for part in slow.iter_raw(65_536) if time.sleep(0.05) is None) == size


def _rest(connection: socket.socket) -> int:
    """Bytes that are there to be read before the connection ends."""
    connection.settimeout(30)
    count = 0
    with connection:
        try:
            while part := connection.recv(65536):
                count += len(part)
        except ConnectionResetError:
            pass
    return count

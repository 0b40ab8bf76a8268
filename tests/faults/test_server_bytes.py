"""Bytes that no client sends: each is refused or its connection closed, and the next client is served as before."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from commands import trained
from crowds import place_of
from seqloom.serve.limits import Limits
from seqloom.web import door, listening
from serving import serving

JSON = b"Content-Type: application/json\r\n"
BODY = b'{"inputs": "ab"}'
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n" + JSON
GOOD = HEAD + b"Content-Length: 16\r\n\r\n" + BODY
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CASES: dict[str, tuple[bytes, set[int]]] = {  # what is sent, and the statuses that may come; 0: closed without a word
    "both lengths": (HEAD + b"Content-Length: 16\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GOOD, {400}),
    "two lengths": (HEAD + b"Content-Length: 16\r\nContent-Length: 17\r\n\r\n" + BODY, {400}),
    "a negative length": (HEAD + b"Content-Length: -1\r\n\r\n" + BODY, {400}),
    "a length in words": (HEAD + b"Content-Length: many\r\n\r\n" + BODY, {400}),
    "a length of twenty digits": (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", {400, 413}),
    "a length in other digits": (HEAD + "Content-Length: ١٦\r\n\r\n".encode() + BODY, {400}),
    "chunks of no size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", {400, 0}),
    "a chunk of endless size": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n", {400, 413, 0}),
    "an unknown encoding": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "no name of a host": (b"GET /v1/models HTTP/1.1\r\n\r\n", {400}),
    "two names of a host": (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", {400}),
    "a whole address": (b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", {404, 400}),
    "a header of 1 MB": (
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        {400, 431, 0},
    ),
    "a path of 1 MB": (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 414, 0}),
    "ten thousand headers": (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        {200, 400, 431},
    ),
    "a nul in the path": (b"GET /v1/\x00models HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 404}),
    "an escaped nul": (b"GET /page/%00app.js HTTP/1.1\r\nHost: localhost\r\n\r\n", {404}),
    "out of the folder": (b"GET /page/../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", {404}),
    "out of the folder, escaped": (
        b"GET /static-offline-docs/%2e%2e%2f%2e%2e%2fetc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        {404},
    ),
    "bytes that are no text": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, {400, 0}),
    "line ends alone": (b"\r\n" * 1000, {400, 0}),
    "another protocol": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505, 0}),
    "an old protocol": (b"GET /ready HTTP/1.0\r\n\r\n", {200, 400}),
    "a socket for messages": (
        UPGRADE,
        {200, 400},
    ),
    "a header that ends a line": (
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://x\rSet-Cookie: a\r\n\r\n",
        {400, 403},
    ),
    "an origin that is none": (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n", {403}),
    "an address with brackets": (b"GET /v1/models HTTP/1.1\r\nHost: [::1\r\n\r\n", {400}),
    "a verb nobody knows": (b"BREW /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", {405}),
    "asked to go on": (HEAD + b"Expect: 100-continue\r\nContent-Length: 16\r\n\r\n" + BODY, {100, 200}),
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(trained(), limits=Limits(rate="none")) as (found, _):
        yield found


@pytest.mark.parametrize("case", CASES)
def test_bytes_that_no_client_sends(client: httpx.Client, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "BODY_SECONDS", 1.0)
    monkeypatch.setattr(listening, "HEADER_SECONDS", 1.0)
    sent, statuses = CASES[case]
    told = b""
    with socket.create_connection(place_of(client), timeout=30) as connection:
        try:
            connection.sendall(sent)
            while part := connection.recv(65536):
                told += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    first = int(told.split()[1]) if told else 0
    assert first in statuses, told[:300]
    assert b"Traceback" not in told
    assert b"root:" not in told
    assert told.lower().count(b"set-cookie") == 0
    answer = client.post("/v1/predict", content=BODY, headers={"content-type": "application/json"})
    assert answer.status_code == 200


def test_requests_in_one_breath_are_answered_in_order(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADER_SECONDS", 1.0)
    asked = [GOOD.replace(b"ab", word) for word in (b"ab", b"cd", b"ef")]
    with socket.create_connection(place_of(client), timeout=30) as connection:
        connection.sendall(b"".join(asked))
        told = b""
        while part := connection.recv(65536):
            told += part
    assert [told.count(b'"source":"' + word) for word in (b"ab", b"cd", b"ef")] == [1, 1, 1]
    assert told.index(b'"source":"ab') < told.index(b'"source":"cd') < told.index(b'"source":"ef')

"""Very many connections to one server, for tests: each is held before its last byte, and all are let go at once."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

Place = tuple[str, int]


def place_of(client: httpx.Client) -> Place:
    return client.base_url.host, client.base_url.port or 80


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """So many files may be open meanwhile."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most == resource.RLIM_INFINITY or most >= count, "this system lets a process open too few files"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, count), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@dataclass(frozen=True)
class Asked:
    """One request; who `leaves` does not wait for the answer."""

    path: str
    body: bytes
    leaves: bool = False
    kind: str = field(default="application/json")

    @staticmethod
    def json(path: str, **body: object) -> Asked:
        return Asked(path, json.dumps(body).encode())

    @property
    def sent(self) -> bytes:
        head = f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {self.kind}\r\n"
        return f"{head}Connection: close\r\nContent-Length: {len(self.body)}\r\n\r\n".encode() + self.body


@dataclass(frozen=True)
class Told:
    """What came back: a status (0: nothing) and a body, as it was sent."""

    status: int
    body: bytes


def all_at_once(place: Place, asked: Sequence[Asked]) -> list[Told]:
    """The answers to all of these, in order: the last byte of each is sent when all others have arrived."""
    return asyncio.run(_crowd(place, asked))


async def _crowd(place: Place, asked: Sequence[Asked]) -> list[Told]:
    ready, go = asyncio.Barrier(len(asked) + 1), asyncio.Event()

    async def one(request: Asked) -> Told:
        reader, writer = await asyncio.open_connection(*place)
        writer.write(request.sent[:-1])
        await writer.drain()
        await ready.wait()
        await go.wait()
        writer.write(request.sent[-1:])
        await writer.drain()
        if request.leaves:
            writer.close()
            return Told(0, b"")
        answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            body = _joined(body)
        return Told(int(head.split()[1]) if head else 0, body)

    waiting = [asyncio.create_task(one(request)) for request in asked]
    async with asyncio.timeout(120):
        await ready.wait()
        go.set()
        return list(await asyncio.gather(*waiting))


def _joined(chunks: bytes) -> bytes:
    """What chunks hold."""
    found = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        found += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return found

"""What a server asks of a request before anything reads it: a name it answers to, a page of its own, a bounded body.

The answers that pages get say what a browser may do with them. Nothing here knows what is served.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from seqloom.web.refusals import Refusal

BODY_SECONDS = 10.0  # for a whole body to arrive
JSON, FORM = ("application/json", "a body of JSON"), ("multipart/form-data", "a form with a file")


def page_headers(**more: str) -> dict[str, str]:
    """What a browser may do with a page of ours: its own scripts and styles, nothing of any other place.

    `more` are further sources by their kind: img="'self' data:".
    """
    own = dict.fromkeys(("script", "style", "img", "connect"), "'self'")
    sources = [f"{kind}-src {places}" for kind, places in {"default": "'none'", **own, **more}.items()]
    never = [f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors")]
    return {
        "Content-Security-Policy": "; ".join([*sources, *never]),
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


class Body:
    """The body of one request: no more of it is read than `most` bytes, and it is not waited for for ever."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most = receive, most
        self._read, self._whole = 0, False
        self._until = time.monotonic() + BODY_SECONDS

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()  # only a client that leaves
        try:
            async with asyncio.timeout(self._until - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise Refusal("E_SLOW", f"the body did not arrive within {BODY_SECONDS:g} s") from None
        self._whole = not message.get("more_body", False)
        self._read += len(message.get("body", b""))
        if self._read > self._most:
            raise _large(self._most)
        return message


def refuse_large(headers: Headers, most: int) -> None:
    """E_LARGE for a body that says itself that it is over the cap."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _large(most)


def _large(most: int) -> Refusal:
    return Refusal("E_LARGE", f"the body is over {most:,} bytes", fix="ask for less at once")


def refuse_other_types(headers: Headers, wanted: str = JSON[0], told: str = JSON[1]) -> None:
    """E_MEDIA for a body that is something else."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != wanted:
        raise Refusal("E_MEDIA", f"{told} is expected", fix=f"Content-Type: {wanted}")


def refuse_foreign(headers: Headers, names: Collection[str], told: str) -> None:
    """E_HOST for a name that somebody's DNS gave our address to; E_ORIGIN, as `told`, for a page that is not ours."""
    host = headers.get("host", "").lower()
    name = _place(f"//{host}").hostname or ""
    if name not in ("localhost", *names) and not _is_address(name):
        raise Refusal("E_HOST", "this server does not answer to that name", fix="start it with --name NAME")
    origin = headers.get("origin")
    if origin is not None and _place(origin.lower()).netloc != host:
        raise Refusal("E_ORIGIN", told)


def bearer(headers: Headers) -> str | None:
    """What stands after `Authorization: Bearer`."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "local"


def _place(url: str) -> SplitResult:
    """The parts of an address; of one that is none, nothing."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""The door of the server: every request passes here first, and every answer last.

It knows which names and origins the server answers to, reads no more of a body than the cap and waits for none for
ever, lets pages of any origin use the contract's routes and none the others, and counts and logs what happened.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqloom.serve.limits import Limits
from seqloom.serve.service import ClientGoneError, Service
from seqloom.web import logs
from seqloom.web.door import FORM, JSON, Body, address, bearer, refuse_foreign, refuse_large, refuse_other_types
from seqloom.web.refusals import Refusal, refused

CONTRACT = ("/translate", "/detect", "/languages", "/frontend/settings", "/health")  # those of LibreTranslate
OPEN = (*CONTRACT, "/ready", "/v1/openapi.json")  # that need no key of /v1
UPLOADS = ("/v1/predict/file", "/v1/explain/file")
# those that a model answers
ASKING = ("/translate", "/v1/predict", "/v1/score", "/v1/explain", "/v1/neighbours", "/v1/rank", "/v1/reply", *UPLOADS)
REPLYING = ("/v1/reply", "/v1/reply/feedback")  # a Smart Reply
MOST_UPLOADS = 16  # of the largest size may be in memory at once, until they are answered
VERBS = ("GET", "HEAD", "POST", "OPTIONS")
ELSEWHERE = "pages of another origin may use the routes of /translate only"
GONE = 499  # in logs and figures: the client left
CORS = {"Access-Control-Allow-Origin": "*"}
PREFLIGHT = {**CORS, "Access-Control-Allow-Methods": "GET, POST", "Access-Control-Allow-Headers": "Content-Type"}


@dataclass
class Guard:
    """Around the whole app."""

    app: ASGIApp
    service: Service
    routes: Collection[str]  # paths that exist; all others are one in the figures
    names: Collection[str] = field(default_factory=tuple)  # of this server, besides localhost and plain addresses
    held: int = 0  # bytes of files that arrive or wait: who sends slowly holds little, and keeps nobody out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        exchange = _Exchange(scope, receive, send, self.service)
        started_at = time.monotonic()
        try:
            answer = self._at_the_door(scope)
            if answer is not None:
                await answer(scope, exchange.receive, exchange.send)
            else:
                receive = self._held(exchange) if scope["path"] in UPLOADS else exchange.receive
                await self.app(scope, receive, exchange.send)
        except ClientGoneError:
            exchange.status = GONE
        except Exception as error:
            logs.trouble("failed", error, route=self._route(scope))
            await exchange.fail(refused(error))
        finally:
            self.held -= exchange.held
        elapsed, route = time.monotonic() - started_at, self._route(scope)
        self.service.figures.request(route, exchange.status, elapsed)
        verb = scope["method"] if scope["method"] in VERBS else "other"
        logs.note("request", method=verb, route=route, status=exchange.status, ms=round(1000 * elapsed, 1))

    def _held(self, exchange: _Exchange) -> Receive:
        """The body of a file, counted while it arrives."""

        async def receive() -> Message:
            message = await exchange.receive()
            size = len(message.get("body", b""))
            exchange.held += size
            self.held += size
            self._refuse_crowd()
            return message

        return receive

    def _refuse_crowd(self) -> None:
        if self.held > MOST_UPLOADS * self.service.limits.upload:
            refusal = Refusal("E_BUSY", "too many files wait already", fix="ask again in a moment")
            refusal.headers = {**(refusal.headers or {}), "Connection": "close"}  # the rest of the body is not read
            raise refusal

    def _route(self, scope: Scope) -> str:
        path: str = scope["path"]
        return path if path in self.routes else "other"

    def _at_the_door(self, scope: Scope) -> Response | None:
        """An answer that needs no app: a refusal, or what a browser asks before a request of another origin."""
        headers, path = Headers(scope=scope), scope["path"]
        try:
            refuse_large(headers, cap(path, self.service.limits))
            asks = path in ASKING and scope["method"] == "POST"
            if asks:  # before anything is read: under a flood refusals must cost little
                self.service.batcher.refuse_full()
            if path in UPLOADS:
                self._refuse_crowd()
            if path in CONTRACT:
                return Response(status_code=204, headers=PREFLIGHT) if scope["method"] == "OPTIONS" else None
            refuse_foreign(headers, self.names, ELSEWHERE)
            if (path.startswith("/v1/") and path not in OPEN) or path == "/metrics":
                self.service.admit(_key(headers), address(scope))
            if path in REPLYING:
                self.service.smart_reply()  # where there is none, no body is read
            if path.startswith("/v1/") and scope["method"] == "POST":
                refuse_other_types(headers, *(FORM if path in UPLOADS else JSON))
        except Refusal as refusal:
            body = refusal.body if path not in CONTRACT else {"error": refusal.what}
            return JSONResponse(body, refusal.status_code, refusal.headers)
        return None


class _Exchange:
    """One request and its answer, watched."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, service: Service) -> None:
        self._receive, self._send, self._service = receive, send, service
        self._scope = scope
        self.receive = Body(receive, cap(scope["path"], service.limits)).receive
        self.status = 0  # 0: nothing was answered yet
        self.held = 0  # bytes of its file

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "no-referrer"
            if self._scope["path"] in CONTRACT:
                headers.update(CORS)
            if self._service.draining:
                headers["Connection"] = "close"
        await self._send(message)

    async def fail(self, refusal: Refusal) -> None:
        """Say that we failed, if nothing was said yet."""
        if self.status == 0:
            body = refusal.body if self._scope["path"] not in CONTRACT else {"error": refusal.what}
            await JSONResponse(body, refusal.status_code)(self._scope, self._receive, self.send)


def _key(headers: Headers) -> str | None:
    return bearer(headers) or headers.get("x-api-key")


def cap(path: str, limits: Limits) -> int:
    """Bytes that a body may have there."""
    return limits.upload if path in UPLOADS else limits.body

"""The server of a study: the page, and what it asks. It tells a rater texts and letters, never who said what.

A rater is known by the token of their link, which the page sends with every question; it stands after the `#` of the
address, so that no log and no other server sees it. Every answer is on disk before it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.resources import files

from fastapi import Depends, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqloom.errors import SeqloomError, nearest
from seqloom.rate.blind import View
from seqloom.rate.media import content
from seqloom.rate.questions import QUESTIONS, Shown
from seqloom.rate.store import Store
from seqloom.web import logs
from seqloom.web.door import Body, bearer, page_headers, refuse_foreign, refuse_large, refuse_other_types
from seqloom.web.refusals import Refusal, invalid, refused

BODY = 64_000  # bytes
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
FILES = (
    "index.html",
    "style.css",
    "icon.svg",
    "main.js",
    "asking.js",
    "task.js",
    "answers.js",
    "marking.js",
    "media.js",
)


class Rating(BaseModel):
    """One click: what is said of an output. Null takes it back."""

    model_config = ConfigDict(extra="forbid", strict=True)
    output: str = Field(max_length=1)
    question: str = Field(max_length=40)
    value: JsonValue = None


class Rates:
    """The routes."""

    def __init__(self, store: Store) -> None:
        self.store, self.plan = store, store.plan
        self._views: dict[str, View] = {}

    def join(self, app: FastAPI) -> None:
        admitted = [Depends(self._rater)]
        routes = (
            ("/api/study", self.study, "GET"),
            ("/api/tasks/{number}", self.task, "GET"),
            ("/api/tasks/{number}/media", self.media, "GET"),
            ("/api/tasks/{number}/rating", self.rate, "PUT"),
            ("/api/undo", self.undo, "POST"),
        )
        for path, answer, verb in routes:
            app.add_api_route(path, answer, methods=[verb], response_model=None, dependencies=admitted)

    def study(self, request: Request) -> dict[str, JsonValue]:
        """What is asked, and how far this rater is."""
        view = self._view(request)
        asked: list[JsonValue] = [dict(QUESTIONS[name].told()) for name in self.plan.questions]
        return {"rater": view.rater, "questions": asked, **self._progress(view)}

    def task(self, number: int, request: Request) -> dict[str, JsonValue]:
        """One item as this rater sees it, with what they have said of it."""
        view = self._view(request)
        place = self._place(view, number)
        item = self.plan.items[self.plan.tasks[place].item]
        answers = self.store.answers(view.rater, place)
        outputs: list[JsonValue] = []
        for letter, candidate in view.letters(place).items():
            said = {name: answers.get((place, candidate, name)) for name in self.plan.questions}
            given: dict[str, JsonValue] = {name: click.answer for name, click in said.items() if click is not None}  # type: ignore[misc]
            text = self.plan.tasks[place].candidates[candidate].text
            outputs.append({"letter": letter, "text": text, "answers": given})
        references: list[JsonValue] = list(item.references) if self.plan.shows_reference else []
        told: dict[str, JsonValue] = {"number": number, "references": references, "outputs": outputs}
        if item.media is None:
            return {**told, "source": item.source}
        return {**told, "source": item.media.caption, "media": item.media.kind}  # the name of a file may tell too much

    def media(self, number: int, request: Request) -> Response:
        """The picture or sound of an item."""
        media = self.plan.items[self.plan.tasks[self._place(self._view(request), number)].item].media
        if media is None:
            raise Refusal("E_NOT_FOUND", f"item {number} is a text")
        try:
            return Response(content(media), media_type=media.type)
        except SeqloomError as error:
            logs.note("no media", code=error.code, what=error.what, where=error.where)
            what = f"the {media.kind} of this item is not there any more as it was"
            raise Refusal("E_NOT_FOUND", what, fix="tell whoever made the study") from None

    def rate(self, number: int, rating: Rating, request: Request) -> dict[str, JsonValue]:
        """Keep a click."""
        view = self._view(request)
        place = self._place(view, number)
        letters = view.letters(place)
        if rating.output not in letters:
            what = f"output: item {number} has no output {rating.output!r}"
            raise Refusal("E_VALUE", what, fix=f"there are {', '.join(letters)}")
        if rating.question not in self.plan.questions:
            what = f"question: {rating.question!r} is not asked{nearest(rating.question, self.plan.questions)}"
            raise Refusal("E_VALUE", what, fix=f"asked: {', '.join(self.plan.questions)}")
        candidate = letters[rating.output]
        shown = Shown(self.plan.tasks[place].candidates[candidate].text, len(letters))
        answer = None
        if rating.value is not None:
            try:
                answer = QUESTIONS[rating.question].form.checked(rating.value, shown)
            except ValueError as error:
                raise Refusal("E_VALUE", f"value: {error}") from None
        self.store.save(view.rater, (place, candidate, rating.question), answer)
        return {"saved": True, **self._progress(view)}

    def undo(self, request: Request) -> dict[str, JsonValue]:
        """Take the newest click back; says of which item it was, null where there was none."""
        view = self._view(request)
        click = self.store.undo(view.rater)
        return {"number": None if click is None else view.number(click.task), **self._progress(view)}

    def _progress(self, view: View) -> dict[str, JsonValue]:
        """How many items are done, and the first that is not; past the last where all are."""
        answered: dict[int, int] = {}
        for task, _, _ in self.store.answers(view.rater):
            answered[task] = answered.get(task, 0) + 1
        done = 0
        first = len(view) + 1
        for number in range(len(view), 0, -1):
            place = self._place(view, number)
            if answered.get(place, 0) >= len(self.plan.tasks[place].candidates) * len(self.plan.questions):
                done += 1
            else:
                first = number
        return {"items": len(view), "done": done, "next": first}

    def _place(self, view: View, number: int) -> int:
        found = view.task(number)
        if found is None:
            raise Refusal("E_NOT_FOUND", f"there is no item {number}: there are {len(view)}")
        return found[0]

    def _rater(self, request: Request) -> None:
        """E_KEY where nobody's link is sent."""
        rater = self.store.rater_of(bearer(request.headers) or "")
        if rater is None:
            raise Refusal("E_KEY", "this link does not open the study", fix="open the link that you were given, whole")
        request.state.rater = rater

    def _view(self, request: Request) -> View:
        rater: str = request.state.rater
        if rater not in self._views:
            self._views[rater] = View(self.plan, rater)
        return self._views[rater]


def app_of(store: Store, names: Collection[str] = ()) -> Door:
    """The whole of the server, ready for uvicorn. `names` are further ones that it is reached by."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    Rates(store).join(app)
    Pages().join(app)
    app.add_exception_handler(RequestValidationError, _refusal)
    app.add_exception_handler(HTTPException, _refusal)
    app.add_exception_handler(SeqloomError, _refusal)
    app.add_exception_handler(Exception, _refusal)  # our own mistakes, which the door logs
    return Door(app, tuple(name.lower() for name in names))


class Pages:
    """The files of the page, read once. Nothing else is ever served from a disk."""

    def __init__(self) -> None:
        folder = files("seqloom.rate") / "static"
        self._files = {name: (folder / name).read_bytes() for name in FILES}

    def join(self, app: FastAPI) -> None:
        app.add_api_route("/", self.page, methods=["GET"], response_model=None)
        app.add_api_route("/{name}", self.page, methods=["GET"], response_model=None)

    async def page(self, name: str = "index.html") -> Response:
        if name not in self._files:
            raise Refusal("E_NOT_FOUND", "there is nothing of that name")
        return Response(self._files[name], media_type=TYPES[name.rpartition(".")[2]])


class Door:
    """Around the whole app: what is asked of a request before it is read, and what every answer says."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        answered = False

        async def sent(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            self._refuse(Headers(scope=scope), scope["method"])
            await self.app(scope, Body(receive, BODY).receive, sent)
        except Exception as error:
            if not isinstance(error, Refusal):
                logs.trouble("failed", error)
            if not answered:
                refusal = refused(error)
                answer = JSONResponse(refusal.body, refusal.status_code, refusal.headers)
                await answer(scope, receive, sent)

    def _refuse(self, headers: Headers, verb: str) -> None:
        refuse_large(headers, BODY)
        refuse_foreign(headers, self.names, "pages of another origin may not rate")
        if verb == "PUT":
            refuse_other_types(headers)


ALLOWED = page_headers(img="'self' blob:", media="blob:")  # pictures and sounds are asked for by the page's own script
HEADERS: Mapping[str, str] = {**ALLOWED, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        found = [item["loc"][0] for item in error.errors()]
        error = Refusal("E_NOT_FOUND", "items are numbers") if "path" in found else invalid(error, "", "")
    elif isinstance(error, HTTPException) and not isinstance(error, Refusal):  # the framework's own
        error = Refusal({404: "E_NOT_FOUND", 405: "E_METHOD"}.get(error.status_code, "E_MALFORMED"), error.detail)
    elif isinstance(error, SeqloomError):
        logs.note("refused", code=error.code)
        if error.code == "E_LOCKED":
            error = Refusal("E_BUSY", error.what, fix=error.fix)
    refusal = refused(error)
    return JSONResponse(refusal.body, refusal.status_code, refusal.headers)

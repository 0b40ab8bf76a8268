"""The app: the page and the contract's routes at the root, our own under /v1, and what keeps a server in order."""

from __future__ import annotations

from collections.abc import Collection

from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from seqloom import __version__
from seqloom.errors import SeqloomError
from seqloom.serve.guard import ASKING, CONTRACT, REPLYING, Guard
from seqloom.serve.libretranslate import ContractError, LibreTranslate, in_contract
from seqloom.serve.page import PATHS, Page
from seqloom.serve.replying import ReplyRoutes
from seqloom.serve.service import Service
from seqloom.serve.smart_reply import Replying
from seqloom.serve.v1 import V1
from seqloom.web import logs
from seqloom.web.refusals import Refusal, invalid, refused


def guarded(service: Service, names: Collection[str] = (), replying: Replying | None = None) -> Guard:
    """The whole of a server, ready for uvicorn. `names` are further ones that it is reached by."""
    service.replying = replying
    app = FastAPIOffline(title="seqloom", version=__version__, openapi_url="/v1/openapi.json", redoc_url=None)
    app.include_router(LibreTranslate(service).router)
    app.include_router(V1(service).router)
    app.include_router(ReplyRoutes(service).router)
    app.include_router(Page(replies_only=replying is not None and not service.runs.names).router)
    Upkeep(service).join(app)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refusal)
    app.add_exception_handler(SeqloomError, _refusal)
    app.add_exception_handler(Exception, _refusal)  # our own mistakes, which the guard logs
    routes = {str(getattr(route, "path", "")) for route in app.routes}
    routes |= {*CONTRACT, *ASKING, *REPLYING, *PATHS, "/v1/models"}
    return Guard(app, service, routes, tuple(name.lower() for name in names))


class Upkeep:
    """For machines that look after this one."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def join(self, app: FastAPI) -> None:
        app.add_api_route("/ready", self.ready, methods=["GET"], response_model=None)
        app.add_api_route("/metrics", self.metrics, methods=["GET"], response_model=None)

    async def ready(self) -> Response:
        """200 where requests are welcome, 503 where the server ends."""
        if self.service.ready:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "stopping"}, 503, {"Retry-After": "1"})

    async def metrics(self) -> Response:
        """Counts in Prometheus's form."""
        return Response(self.service.figures.text(), media_type="text/plain; version=0.0.4")


async def _invalid(request: Request, error: Exception) -> Response:
    """What pydantic found wrong with a body, in our words."""
    assert isinstance(error, RequestValidationError)
    return _said(request, invalid(error, "/docs shows which", "/docs shows what can be asked"))


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, ContractError):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    if isinstance(error, HTTPException) and not isinstance(error, Refusal):  # the framework's own
        name = {404: "E_NOT_FOUND", 405: "E_METHOD"}.get(error.status_code, "E_MALFORMED")
        error = Refusal(name, error.detail, fix="/docs shows what can be asked")
    refusal = refused(error)
    if refusal.status_code == 500 and isinstance(error, SeqloomError):
        logs.trouble("failed", error, code=refusal.code)
    return _said(request, refusal)


def _said(request: Request, refusal: Refusal) -> Response:
    if request.url.path in CONTRACT:
        told = in_contract(refusal)
        return JSONResponse({"error": told.detail}, told.status_code, told.headers)
    return JSONResponse(refusal.body, refusal.status_code, refusal.headers)

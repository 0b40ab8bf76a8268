"""The page at the root and that of Smart Reply: files of HTML, modules and style sheets, as they lie in the package.

Those that draw an answer are the probe's own (`probe/static`), those that ask and react are in `static/`; a browser
sees one folder, `/page`. The policy lets the page use what this server sends and ask this server, and nobody else;
nothing inline works.
"""

from __future__ import annotations

import hashlib
from importlib import resources

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from seqloom.web.door import page_headers

TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
OF_THE_PROBE = ("elements.js", "wording.js", "weights.js", "maps.js", "beam.js", "view.js", "page.css")
OWN = ("app.js", "asking.js", "panel.js", "keeping.js", "exporting.js", "recording.js", "app.css", "icon.svg")
OF_REPLY = ("reply.js", "told.js", "reply.css")
PATHS = ("/", "/reply", *(f"/page/{name}" for name in (*OF_THE_PROBE, *OWN, *OF_REPLY)))


class Page:
    """Its routes; the files are read once."""

    def __init__(self, replies_only: bool = False) -> None:
        """`replies_only`: nothing else is served, so the page of Smart Reply is at the root as well."""
        self.router = APIRouter(include_in_schema=False)
        self._add("/", _file("serve", "reply.html" if replies_only else "index.html"), "text/html; charset=utf-8")
        self._add("/reply", _file("serve", "reply.html"), "text/html; charset=utf-8")
        for package, names in (("probe", OF_THE_PROBE), ("serve", (*OWN, *OF_REPLY))):
            for name in names:
                self._add(f"/page/{name}", _file(package, name), TYPES[name[name.rindex(".") :]])

    def _add(self, path: str, body: bytes, kind: str) -> None:
        mark = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"ETag": mark, "Cache-Control": "no-cache", **page_headers(img="'self' data: blob:", media="blob:")}

        async def sent(request: Request) -> Response:
            if request.headers.get("if-none-match") == mark:
                return Response(status_code=304, headers=headers)
            return Response(body, media_type=kind, headers=headers)

        self.router.add_api_route(path, sent, methods=["GET", "HEAD"], response_model=None)


def _file(package: str, name: str) -> bytes:
    return (resources.files(f"seqloom.{package}") / "static" / name).read_bytes()

"""What the server refuses, and how it says so: a stable name, words, what to do, and a status.

Errors of `errors.py` keep their names over HTTP; those that only a server can have are listed here.
"""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from seqloom import wording
from seqloom.errors import SeqloomError

STATUSES: dict[str, int] = {
    "E_MALFORMED": 400,  # a body that is not what its type says
    "E_HOST": 400,  # a name that this server does not answer to
    "E_KEY": 401,  # no key, or one that does not open
    "E_ORIGIN": 403,  # a page of another origin
    "E_NOT_FOUND": 404,
    "E_METHOD": 405,
    "E_SLOW": 408,  # a body that does not come
    "E_LARGE": 413,  # a body over the cap
    "E_MEDIA": 415,  # a body of another type than is expected
    "E_VALUE": 422,  # a key or value that cannot be
    "E_LIMIT": 422,  # over a limit of this server
    "E_RATE": 429,  # over the rate limit
    "E_BUSY": 503,  # the queue is full, or the server stops
    "E_DEADLINE": 504,  # not answered in time
}
MALFORMED = ("json_invalid", "missing", "model_type", "model_attributes_type", "dict_type")  # to pydantic
OF_THE_CLIENT = ("E_USAGE", "E_RECIPE", "E_VOCABULARY", "E_DATA", "E_UTF8", "E_LONG", "E_EMPTY")
RETRIED = ("E_RATE", "E_BUSY")  # worth another try: these say when


class Refusal(HTTPException):
    """One refusal over HTTP. Of starlette's family, so that it passes through whatever reads a body for us."""

    def __init__(self, code: str, what: str, *, fix: str = "", retry_after: float = 1.0) -> None:
        self.code, self.what, self.fix = code, what, fix
        status = STATUSES.get(code, 422 if code in OF_THE_CLIENT else 500)
        headers = {"Retry-After": str(max(1, round(retry_after)))} if code in RETRIED else {}
        if status in (408, 413):  # the rest of the body is not read
            headers["Connection"] = "close"
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, what, headers)

    @property
    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": self.code, "message": self.what, **({"fix": self.fix} if self.fix else {})}}


def refused(error: Exception) -> Refusal:
    """Any error as a refusal. What is our own mistake says nothing of the inside, nor of anybody's text."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, SeqloomError) and error.code in OF_THE_CLIENT:
        what = "; ".join(part for part in (error.what, error.where) if part)
        return Refusal(error.code, what, fix=error.fix.replace("--on-long ", "on_long: "))
    if isinstance(error, SeqloomError):
        return Refusal(error.code, "the server could not answer", fix="its log says more")
    return Refusal("E_INTERNAL", "the server made a mistake", fix="its log says more")


def invalid(error: RequestValidationError, see: str, fix: str) -> Refusal:
    """What pydantic found wrong with a body, in our words. `see` and `fix` say where what is right can be read."""
    found = error.errors()
    if any((item["type"] in MALFORMED and len(item["loc"]) <= 1) or item["type"] == "json_invalid" for item in found):
        return Refusal("E_MALFORMED", "an object of JSON is expected", fix=see)
    problems = [f"{wording.path(tuple(item['loc'][1:]))}{wording.problem(item)}" for item in found]
    return Refusal("E_VALUE", "; ".join(problems), fix=fix)

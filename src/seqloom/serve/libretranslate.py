"""The LibreTranslate contract at the root, so that its clients work unchanged. Written from its public description.

Parameters come as JSON, as a form or in the query. Errors are `{"error": "..."}`: 400 for bad values and a missing
key, 403 for a wrong one, 429, 500; never 415 or 422. Texts and HTML (`markup.py`), no files.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from seqloom.api.model import Model
from seqloom.api.options import BEAMS, Options
from seqloom.config import kind_of
from seqloom.data.languages import Detector, name_of
from seqloom.serve.markup import Markup
from seqloom.serve.runs import languages
from seqloom.serve.service import Service, while_there
from seqloom.web.door import address
from seqloom.web.refusals import Refusal

Parameters = Mapping[str, object]
DETECTED = 5.0  # percent: languages that are less likely are not told


class ContractError(HTTPException):
    """A refusal in the contract's words."""


def in_contract(refusal: Refusal) -> ContractError:
    """One of our refusals with a status that the contract has."""
    status = {"E_KEY": 403, "E_DEADLINE": 500}.get(refusal.code, refusal.status_code)
    status = 400 if status in (415, 422) else status
    if refusal.code == "E_RATE":
        return ContractError(429, f"Slowdown: {refusal.what}", refusal.headers)
    return ContractError(status, refusal.what, refusal.headers)


@dataclass
class _Wanted:
    """One translation as it was asked for."""

    texts: list[str]
    single: bool
    source: str
    target: str
    alternatives: int
    html: bool = False


class LibreTranslate:
    """The routes of one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.detector = Detector()
        self.router = APIRouter()
        routes = (
            ("/translate", self.translate, ["POST"]),
            ("/detect", self.detect, ["POST"]),
            ("/languages", self.languages, ["GET"]),
            ("/frontend/settings", self.settings, ["GET"]),
            ("/health", self.health, ["GET"]),
        )
        for path, answer, verbs in routes:
            self.router.add_api_route(path, answer, methods=verbs, response_model=None)

    async def translate(self, request: Request) -> Response:
        """`q` (a text or a list of them) from `source` (a code or auto) to `target`; `alternatives`: so many more."""
        given = await self._admitted(request)
        wanted = self._wanted(given)
        detected: list[dict[str, object]] = []
        if wanted.source == "auto":
            read = [" ".join(_markup(text).texts) for text in wanted.texts] if wanted.html else wanted.texts
            detected = await asyncio.to_thread(self._detected, read, wanted.target)
            sources = [str(one["language"]) for one in detected]
        else:
            sources = [wanted.source] * len(wanted.texts)
        models = [self._model(source, wanted.target) for source in sources]
        told = await while_there(request, self._all(models, wanted))
        answer: dict[str, object] = {"translatedText": [said[0] for said in told]}
        if wanted.alternatives:
            answer["alternatives"] = [said[1:] for said in told]
        if detected:
            answer["detectedLanguage"] = detected
        return JSONResponse({key: value[0] for key, value in answer.items()} if wanted.single else answer)  # type: ignore[index]

    async def _all(self, models: Sequence[Model], wanted: _Wanted) -> list[list[str]]:
        """Of every text its translation, and alternatives."""
        found: dict[int, list[str]] = {}
        try:
            for model in {id(model): model for model in models}.values():
                places = [place for place, own in enumerate(models) if own is model]
                texts = [wanted.texts[place] for place in places]
                translated = self._marked_up if wanted.html else self._translated
                found |= zip(places, await translated(model, texts, wanted.alternatives), strict=True)
        except Refusal as refusal:
            raise in_contract(refusal) from None
        return [found[place] for place in range(len(models))]

    async def _marked_up(self, model: Model, texts: Sequence[str], alternatives: int) -> list[list[str]]:
        """The same of HTML: what stands between its tags is translated, all of it together."""
        documents = [_markup(text) for text in texts]
        parts = [part for document in documents for part in document.texts]
        if len(parts) > self.service.limits.entries:
            what = f"Invalid request: {len(parts):,} texts between tags, the limit is {self.service.limits.entries:,}"
            raise ContractError(400, what)
        options = self.service.options(model, {"on_long": "split"})
        if alternatives:
            found = [said for part in parts for said in await self._translated(model, [part], alternatives)]
        else:
            answers = await self.service.answers(model, parts, options, sum(map(len, parts))) if parts else []
            found = [[one.text] for one in answers]
        told, left = [], iter(found)
        for document in documents:
            own = [next(left) for _ in document.texts]
            ranks = range(max(map(len, own), default=1))
            told.append([document.filled([said[min(rank, len(said) - 1)] for said in own]) for rank in ranks])
        return told

    async def _translated(self, model: Model, texts: Sequence[str], alternatives: int) -> list[list[str]]:
        if not alternatives:
            options = self.service.options(model, {"on_long": "split"})
            return [[one.text] for one in await self.service.predict(model, texts, options)]
        # Sentence by sentence, because hypotheses are those of one search; the n-th of each make the n-th text.
        options = self._several(model, alternatives + 1)
        splitting = options.with_(n_best=1)
        plans = [model.reader.read(text, splitting, "q")[2] for text in texts]
        parts = [part for plan in plans for part, _ in plan]
        characters = sum(map(len, parts))
        found = iter(await self.service.answers(model, parts, options, characters) if parts else [])
        told = []
        for plan in plans:
            answers = [([output.text for output in next(found).hypotheses], gap) for _, gap in plan]
            rows = [
                "".join(said[min(rank, len(said) - 1)] + gap for said, gap in answers)
                for rank in range(alternatives + 1)
            ]
            told.append(list(dict.fromkeys(rows)))
        return told

    def _several(self, model: Model, count: int) -> Options:
        """The recipe's beam, wide enough for so many."""
        chosen = model.recipe.search.strategy
        own = int(chosen.model_dump().get("size", 1)) if kind_of(chosen) in BEAMS else 1
        wishes = {"n_best": count, "on_long": "split", **({"beam": count} if count > own else {})}
        return self.service.options(model, wishes)

    async def detect(self, request: Request) -> Response:
        """The languages that `q` may be in, the likeliest first."""
        given = await self._admitted(request)
        texts, _ = _texts(given, self.service.limits.characters, self.service.limits.batch)
        ranked = await asyncio.to_thread(self.detector.ranked, " ".join(texts))
        likely = [one for one in ranked if one[1] >= DETECTED] or ranked[:1]
        return JSONResponse([{"confidence": share, "language": code} for code, share in likely])

    async def languages(self) -> Response:
        """Codes that can be translated from, and to what."""
        targets: dict[str, list[str]] = {}
        for source, target in dict.fromkeys(map(languages, self.service.runs.translators)):  # two runs may do the same
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
        told = [{"code": code, "name": name_of(code), "targets": found} for code, found in targets.items()]
        return JSONResponse(told)

    async def settings(self) -> Response:
        """What a page needs to know before it asks."""
        source, target = next(map(languages, self.service.runs.translators), ("", ""))
        return JSONResponse(
            {
                "apiKeys": self.service.keys is not None,
                "charLimit": self.service.limits.characters,
                "frontendTimeout": 500,
                "keyRequired": self.service.keys is not None,
                "language": {
                    "source": {"code": source, "name": name_of(source)},
                    "target": {"code": target, "name": name_of(target)},
                },
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
            }
        )

    async def health(self) -> Response:
        return JSONResponse({"status": "ok"})

    # --- what was asked ----------------------------------------------------------------------------------------------

    async def _admitted(self, request: Request) -> Parameters:
        """The parameters of one who may ask."""
        given = await _parameters(request)
        key = given.get("api_key")
        if self.service.keys is not None and not key:
            self._count(request)
            raise ContractError(400, "Please contact the server operator to get an API key")
        try:
            self.service.admit(str(key) if key else None, address(request.scope))
        except Refusal as refusal:
            if refusal.code == "E_KEY":
                raise ContractError(403, "Invalid API key") from None
            raise in_contract(refusal) from None
        return given

    def _count(self, request: Request) -> None:
        try:
            self.service.rates.count(address(request.scope))
        except Refusal as refusal:
            raise in_contract(refusal) from None

    def _wanted(self, given: Parameters) -> _Wanted:
        texts, single = _texts(given, self.service.limits.characters, self.service.limits.batch)
        form = given.get("format") or "text"
        if form not in ("text", "html"):
            raise ContractError(400, f"{form} format is not supported")
        source, target = (_word(given, name) for name in ("source", "target"))
        return _Wanted(texts, single, source, target, self._alternatives(given), form == "html")

    def _alternatives(self, given: Parameters) -> int:
        try:
            count = int(str(given.get("alternatives") or 0))
        except ValueError:
            raise ContractError(400, "Invalid request: alternatives must be a number") from None
        most = self.service.limits.n_best - 1
        if not 0 <= count <= most:
            raise ContractError(400, f"Invalid request: alternatives must be from 0 to {most}")
        return count

    def _detected(self, texts: Sequence[str], target: str) -> list[dict[str, object]]:
        """Of every text the likeliest of the languages that can be translated from."""
        sources = [source for source, reached in map(languages, self.service.runs.translators) if reached == target]
        if not sources:
            raise ContractError(400, f"{target} is not supported")
        likeliest = [next(iter(self.detector.ranked(text, sources)), (sources[0], 0.0)) for text in texts]
        return [{"confidence": share, "language": code} for code, share in likeliest]

    def _model(self, source: str, target: str) -> Model:
        found = self.service.runs.between(source, target)
        if found is not None:
            return found
        known = {code for model in self.service.runs.translators for code in languages(model)}
        for code in (source, target):
            if code not in known:
                raise ContractError(400, f"{code} is not supported")
        what = f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})"
        raise ContractError(400, what)


def _markup(text: str) -> Markup:
    try:
        return Markup(text)
    except ValueError as error:
        raise ContractError(400, f"Invalid request: not HTML that can be read: {error}") from None


def _texts(given: Parameters, characters: int, batch: int) -> tuple[list[str], bool]:
    q = given.get("q")
    if q is None or q == "":
        raise ContractError(400, "Invalid request: missing q parameter")
    given_texts: list[object] = q if isinstance(q, list) else [q]
    texts = [text for text in given_texts if isinstance(text, str)]
    if not texts or len(texts) < len(given_texts):
        raise ContractError(400, "Invalid request: q must be a text or a list of texts")
    if len(texts) > batch:
        raise ContractError(400, f"Invalid request: request ({len(texts)}) exceeds batch limit ({batch})")
    if any("\ud800" <= sign <= "\udfff" for text in texts for sign in text):
        raise ContractError(400, "Invalid request: q is not valid Unicode")
    count = sum(map(len, texts))
    if count > characters:
        raise ContractError(400, f"Invalid request: request ({count}) exceeds text limit ({characters})")
    return texts, not isinstance(q, list)


def _word(given: Parameters, name: str) -> str:
    value = given.get(name)
    if not value:
        raise ContractError(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise ContractError(400, f"Invalid request: {name} must be a language code")
    return value


async def _parameters(request: Request) -> Parameters:
    """From JSON, a form, or the query; what the body says counts more."""
    asked = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        form = await _form(request)
        return {**asked, **form}
    body = await request.body()
    if kind == "application/json":
        try:
            read = json.loads(body)
        except (ValueError, RecursionError):
            raise ContractError(400, "Invalid JSON format") from None
        if not isinstance(read, dict):
            raise ContractError(400, "Invalid request: an object of JSON is expected")
        return {**asked, **read}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        raise ContractError(400, "Invalid request: the form cannot be read") from None
    return {**asked, **dict(pairs)}


async def _form(request: Request) -> dict[str, object]:
    try:
        async with request.form(max_files=0, max_fields=100) as form:
            return {name: value for name, value in form.items() if isinstance(value, str)}
    except Refusal:
        raise
    except HTTPException:
        raise ContractError(400, "Invalid request: the form cannot be read") from None

"""seqloom's own routes: predict, score, explain, neighbours, rank, models; and files for runs that read them."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from seqloom.api import asked as plainly
from seqloom.api.matched import explain_match
from seqloom.api.model import Model, PairScore
from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.api.stream import refuse_streaming
from seqloom.config import Plain, Settings, kind_of
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.probe.explain import Explanation
from seqloom.serve.asked import Asked, Text
from seqloom.serve.explaining import ExplainFile, Explaining, ExplainRequest, Looked, bounded
from seqloom.serve.nearby import Nearby
from seqloom.serve.runs import Loaded
from seqloom.serve.service import Service, while_there
from seqloom.serve.uploads import Upload, received
from seqloom.web.refusals import Refusal, refused
from seqloom.wiring import parameters

Part = Literal["tokens", "scores", "alignment", "attention", "beam"]
T = TypeVar("T", bound=Asked)
FORM: dict[str, object] = {  # how /docs describes a form with a file
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "request": {"type": "string", "description": "JSON: as without a file, extras for the input"},
                    },
                }
            }
        }
    }
}


class PredictRequest(Asked):
    """Texts to answer. A text is a source, or the source and every extra by its name."""

    inputs: Text | list[Text]
    model: str | None = None  # null: the first that is served
    n_best: int | None = Field(None, ge=1)
    prefix: str | None = None
    options: dict[str, object] = Field(default_factory=dict)  # those of `seqloom predict`
    wanted: list[Part] = Field(["tokens", "scores"])  # what of each answer is told, besides its text
    stream: bool = False  # one text, told while it is made, as server-sent events


class Pair(Settings):
    source: Text
    target: str


class ScoreRequest(Asked):
    """Pairs whose probability is asked for."""

    pairs: list[Pair] = Field(min_length=1)
    model: str | None = None


class PredictFile(Asked):
    """How a file that is sent beside it is answered; `extras` are further sources by name."""

    extras: dict[str, str] = Field(default_factory=dict)
    model: str | None = None
    n_best: int | None = Field(None, ge=1)
    prefix: str | None = None
    options: dict[str, object] = Field(default_factory=dict)
    wanted: list[Literal["tokens", "scores"]] = Field(["tokens", "scores"])


class NearbyRequest(Asked):
    """A text whose nearest training examples are asked for."""

    input: Text
    model: str | None = None
    count: int = Field(5, ge=1, le=50)


class RankRequest(Asked):
    """A text to rank the candidates of an index for."""

    input: Text
    model: str | None = None
    top: int = Field(5, ge=1)
    match: bool = False  # which words carried the best one's match


class V1:
    """The routes of one service."""

    def __init__(self, service: Service) -> None:
        self.service, self.nearby = service, Nearby()
        self.router = APIRouter(prefix="/v1")
        self.router.add_api_route("/predict", self.predict, methods=["POST"], response_model=None)
        self.router.add_api_route("/score", self.score, methods=["POST"], response_model=None)
        self.router.add_api_route("/explain", self.explain, methods=["POST"], response_model=None)
        self.router.add_api_route("/neighbours", self.neighbours, methods=["POST"], response_model=None)
        self.router.add_api_route("/rank", self.rank, methods=["POST"], response_model=None)
        for path, answer in (("/predict/file", self.predict_file), ("/explain/file", self.explain_file)):
            self.router.add_api_route(path, answer, methods=["POST"], response_model=None, openapi_extra=FORM)
        self.router.add_api_route("/models", self.models, methods=["GET"], response_model=None)

    async def predict(self, request: Request, asked: PredictRequest) -> Response:
        """Answers to texts: each as a line of `seqloom predict --format jsonl`. `stream`: server-sent events."""
        model = self.service.runs.model(asked.model)
        options = self._wishes(model, asked.options, asked.n_best, asked.prefix)
        texts: Sequence[Inputs] = asked.inputs if isinstance(asked.inputs, list) else [asked.inputs]
        if asked.stream:
            return self._streamed(model, texts, options)
        found = await while_there(request, self.service.predict(model, texts, options))
        told = [_told(prediction, asked.wanted) for prediction in found]
        if inside := [part for part in asked.wanted if part in INSIDE]:
            for text, record in zip(texts, told, strict=True):
                if not record["skipped"]:
                    shown = await while_there(request, self._inside(model, text, options, inside, str(record["text"])))
                    record |= shown
        return JSONResponse({"model": model.name, "predictions": told})

    def _streamed(self, model: Model, texts: Sequence[Inputs], options: Options) -> Response:
        if len(texts) != 1:
            raise Refusal("E_VALUE", f"stream: {len(texts)} inputs, one can be streamed", fix="give one text")
        self.service.limits.refuse_texts(texts)
        refuse_streaming(options)
        pieces = self.service.stream(lambda: model.stream(texts[0], **dict(options)))
        return _sent(pieces)

    async def _inside(
        self, model: Model, text: Inputs, options: Options, parts: Sequence[str], said: str
    ) -> dict[str, Plain]:
        def look() -> dict[str, Plain]:
            explanation = bounded(model.explain(text, **dict(options)))
            if explanation.answer != said:
                what = f"{parts[0]} is that of one search over one sentence"
                raise Refusal("E_VALUE", what, fix="ask one sentence at a time, without risk and penalties")
            return {part: INSIDE[part](explanation) for part in parts}

        return await self.service.alone(look, len(said))

    async def score(self, request: Request, asked: ScoreRequest) -> Response:
        """log P(target given source) of every pair, in all and per token. Null: the model cannot say it at all."""
        model = self.service.runs.model(asked.model)
        pairs = [(pair.source, pair.target) for pair in asked.pairs]
        found = await while_there(request, self.service.score(model, pairs))
        return JSONResponse({"model": model.name, "scores": [_scored(score) for score in found]})

    async def explain(self, request: Request, asked: ExplainRequest) -> Response:
        """Why the model answers as it does: weights, probabilities, the beam; as `seqloom explain --json`."""
        model = self.service.runs.model(asked.model)
        look = self._look(model, asked, None)
        characters = self.service.limits.refuse_texts([asked.input]) + asked.characters
        if asked.stream:
            return _sent(self.service.stream(lambda: look.steps(asked.input)))

        def answer() -> bytes:  # written in the thread that answers, too: it may be long
            return _last(look.steps(asked.input)) if asked.reference is not None else look.whole(asked.input)

        body = await while_there(request, self.service.alone(answer, characters))
        return Response(body, media_type="application/json")

    def _look(self, model: Model, asked: Explaining, name: str | None) -> Looked:
        if asked.characters > self.service.limits.characters:
            what = f"characters: {asked.characters:,} characters, the limit is {self.service.limits.characters:,}"
            raise Refusal("E_LIMIT", what, fix="ask for less at once")
        return Looked(model, asked, self.service.options(model, asked.options), name)

    async def explain_file(self, request: Request) -> Response:
        """The same of a file, for runs that read pictures, sound or arrays: parts `request` (JSON) and `file`."""
        upload = await received(request, self.service.limits.upload)
        asked = _read(ExplainFile, upload)
        look = self._look(self.service.runs.model(asked.model, files=True), asked, upload.name)
        self.service.limits.refuse_texts([asked.extras])

        def steps() -> Iterator[str | bytes]:
            with upload.on_disk() as path:
                yield from look.steps({"source": path, **asked.extras})

        if asked.stream:
            return _sent(self.service.stream(steps))
        body = await while_there(request, self.service.alone(lambda: _last(steps()), len(upload.content)))
        return Response(body, media_type="application/json")

    async def predict_file(self, request: Request) -> Response:
        """The answer to a file: parts `request` (JSON) and `file`."""
        upload = await received(request, self.service.limits.upload)
        asked = _read(PredictFile, upload)
        model = self.service.runs.model(asked.model, files=True)
        options = self._wishes(model, asked.options, asked.n_best, asked.prefix)
        self.service.limits.refuse_texts([asked.extras])

        def answer() -> dict[str, Plain]:
            with upload.on_disk() as path:
                (found,) = model.predict([{"source": path, **asked.extras}], options)
            return {**_told(found, asked.wanted), "source": upload.name}

        told = await while_there(request, self.service.alone(answer, len(upload.content)))
        return JSONResponse({"model": model.name, "predictions": [told]})

    async def neighbours(self, request: Request, asked: NearbyRequest) -> Response:
        """The training examples whose states are nearest to a text's, where this server shows them."""
        if not self.service.shows_examples:
            what = "training examples are not shown to others"
            raise Refusal("E_VALUE", what, fix="whoever serves the run may start it with --examples")
        model = self.service.runs.model(asked.model)
        self.service.limits.refuse_texts([asked.input])

        async def found() -> dict[str, Plain]:
            told: dict[str, Plain] = {}
            async for step in self.service.stream(lambda: self.nearby.steps(model, asked.input, asked.count)):
                told = step if isinstance(step, dict) else told
            return told

        return JSONResponse({"model": model.name, **await while_there(request, found())})

    async def rank(self, request: Request, asked: RankRequest) -> Response:
        """The candidates of a run's index that suit a text best; as `seqloom predict --top --format jsonl`."""
        ranker = self.service.runs.ranker(asked.model)
        characters = self.service.limits.refuse_texts([asked.input])
        if asked.top > self.service.limits.n_best:
            what = f"n_best: {asked.top:,} outputs, the limit is {self.service.limits.n_best:,}"
            raise Refusal("E_LIMIT", what, fix="ask for less at once")

        def answer() -> dict[str, Plain]:
            top = min(asked.top, len(ranker.index))
            (ranking,) = ranker.predict([asked.input], plainly.Asked(n_best=top, split=False), name="input")
            match = {"match": explain_match(ranker, asked.input).as_dict()} if asked.match else {}
            return {**ranking.as_dict(), **match}

        told = await while_there(request, self.service.alone(answer, characters))
        return JSONResponse({"model": ranker.name, **told})

    async def models(self) -> Response:
        """The runs that are served here, and how much may be asked of them."""
        told = [{**_about(loaded), **self._home(path)} for path, loaded in self.service.runs.loaded]
        shows = {"examples": self.service.shows_examples, "reply": self.service.replying is not None}
        return JSONResponse({"models": told, "limits": self.service.limits.model_dump(), **shows})

    def _home(self, path: Path) -> dict[str, Plain]:
        """Where a run lies, for who sits at this machine: command lines need it."""
        return {"path": str(path)} if self.service.at_home else {}

    def _wishes(self, model: Model, options: Mapping[str, object], n_best: int | None, prefix: str | None) -> Options:
        short = {"n_best": n_best, "prefix": prefix}
        return self.service.options(
            model, {**options, **{name: value for name, value in short.items() if value is not None}}
        )


def _about(loaded: Loaded) -> dict[str, Plain]:
    """What a client must know of a run before it asks."""
    if loaded.ranker is not None:
        ranker = loaded.ranker
        return {
            "name": ranker.name,
            "languages": ranker.recipe.languages.model_dump(),
            "extras": list(ranker.codecs.extras),
            "parameters": parameters(ranker.network),
            "attention": False,
            "reads": "text",
            "writes": "ranking",
            "candidates": len(ranker.index),
        }
    model = loaded.writer
    assert model is not None
    codec = model.codecs.source
    return {
        "name": model.name,
        "languages": model.recipe.languages.model_dump(),
        "extras": list(model.codecs.extras),
        "parameters": parameters(model.network),
        "attention": bool(model.network.attention_taps),
        "reads": kind_of(codec.settings),
        **({"files": list(codec.suffixes)} if codec.settings.in_files else {}),
        "writes": _writes(model),
    }


def _writes(model: Model) -> str:
    """What its outputs are, in a word."""
    kinds = model.recipe.model
    known = {"continuation": kinds.continues, "tags": kinds.in_place, "number": kinds.measures, "span": kinds.points}
    known |= {"labels": kinds.labels}
    return next((name for name, is_so in known.items() if is_so), "text")


def _read(form: type[T], upload: Upload) -> T:
    """What was asked beside a file, judged as bodies are."""
    try:
        return form.model_validate_json(upload.request)
    except ValidationError as error:
        found = [{**item, "loc": ("request", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(found) from None


def _last(steps: Iterator[str | bytes]) -> bytes:
    """What is told at the end."""
    *_, last = steps
    assert isinstance(last, bytes)
    return last


def _told(prediction: Prediction, wanted: Sequence[str]) -> dict[str, Plain]:
    """A prediction without what nobody asked for."""
    hidden = {"tokens"} - set(wanted) | (set() if "scores" in wanted else {"score", "log_prob", "token_scores"})
    told = prediction.as_dict()
    outputs = [output.as_dict() for output in prediction.hypotheses]
    told["hypotheses"] = [{key: value for key, value in one.items() if key not in hidden} for one in outputs]
    return told


def _scored(score: PairScore) -> dict[str, Plain]:
    return {
        "log_prob": _finite(score.log_prob),
        "perplexity": _finite(score.perplexity),
        "tokens": list(score.tokens),
        "token_scores": [_finite(value) for value in score.token_scores],
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def _alignment(shown: Explanation) -> Plain:
    """Of every output token the source token that was looked at most, both counted from 0."""
    if not len(shown.weights):
        raise SeqloomError("E_USAGE", "this model has no attention to align by")
    return [[int(place), step] for step, place in enumerate(shown.mean.argmax(-1))]


def _attention(shown: Explanation) -> Plain:
    told = shown.as_dict()
    return {name: told[name] for name in ("source_tokens", "weights")}


def _beam(shown: Explanation) -> Plain:
    return None if shown.tree is None else shown.tree.as_dict()


INSIDE = {"alignment": _alignment, "attention": _attention, "beam": _beam}


def _sent(pieces: AsyncIterator[str] | AsyncIterator[str | bytes]) -> Response:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(pieces), media_type="text/event-stream", headers=headers)


async def _events(pieces: AsyncIterator[str] | AsyncIterator[str | bytes]) -> AsyncIterator[bytes]:
    """Pieces as server-sent events, then one that says it was all, or what went wrong. JSON is told as it is."""
    said, last = "", b""
    try:
        async for piece in pieces:
            if isinstance(piece, bytes):
                last = piece
                continue
            said += piece
            yield _event("piece", _json({"text": piece}))
    except Exception as error:
        yield _event("error", _json(refused(error).body))
        return
    yield _event("done", last or _json({"text": said}))


def _json(told: object) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode()


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"

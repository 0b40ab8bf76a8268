"""seqloom's own routes: predict, score, explain, models."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Literal, Self

from fastapi import APIRouter
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from seqloom.api.model import Model, PairScore
from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.api.stream import refuse_streaming
from seqloom.config import Plain, Settings
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.probe.edits import Edits, Look, Silence
from seqloom.probe.explain import Explanation
from seqloom.serve.service import Service, while_there
from seqloom.web.refusals import Refusal, refused
from seqloom.wiring import parameters

MOST_WEIGHTS = 1_000_000  # numbers of one explanation
Part = Literal["tokens", "scores", "alignment", "attention", "beam"]
Text = str | dict[str, str]


class Asked(Settings):
    """What every body must be."""

    @model_validator(mode="after")
    def _is_unicode(self) -> Self:
        """JSON can write halves of characters (`\\ud800`), which no text has."""
        try:
            json.dumps(self.model_dump(), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text is not valid Unicode: it holds half of a surrogate pair") from None
        return self


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


class ExplainRequest(Asked):
    """A text to look at closely: its answer, or what the model thinks of a given target."""

    input: Text
    model: str | None = None
    target: str | None = None
    likeliest: int = Field(5, ge=1, le=100)
    attend: list[str] = Field(default_factory=list, max_length=1000)  # STEP=POSITION: look there instead
    mask_heads: list[str] = Field(default_factory=list, max_length=1000)  # LAYER.HEAD
    options: dict[str, object] = Field(default_factory=dict)


class V1:
    """The routes of one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.router = APIRouter(prefix="/v1")
        self.router.add_api_route("/predict", self.predict, methods=["POST"], response_model=None)
        self.router.add_api_route("/score", self.score, methods=["POST"], response_model=None)
        self.router.add_api_route("/explain", self.explain, methods=["POST"], response_model=None)
        self.router.add_api_route("/models", self.models, methods=["GET"], response_model=None)

    async def predict(self, request: Request, asked: PredictRequest) -> Response:
        """Answers to texts: each as a line of `seqloom predict --format jsonl`. `stream`: server-sent events."""
        model = self.service.runs.model(asked.model)
        short = {"n_best": asked.n_best, "prefix": asked.prefix}
        wishes = {**asked.options, **{name: value for name, value in short.items() if value is not None}}
        options = self.service.options(model, wishes)
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
        return StreamingResponse(_events(pieces), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _inside(
        self, model: Model, text: Inputs, options: Options, parts: Sequence[str], said: str
    ) -> dict[str, Plain]:
        def look() -> dict[str, Plain]:
            explanation = _bounded(model.explain(text, **dict(options)))
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
        options = self.service.options(model, asked.options)
        characters = self.service.limits.refuse_texts([asked.input]) + len(asked.target or "")
        edits = Edits(tuple(map(Look.parse, asked.attend)), tuple(map(Silence.parse, asked.mask_heads)))

        def look() -> bytes:  # written in the thread that answers, too: it may be long
            shown = model.explain(asked.input, asked.target, edits, asked.likeliest, **dict(options))
            told = {"model": model.name, **_bounded(shown).as_dict()}
            return json.dumps(told, ensure_ascii=False, allow_nan=False).encode()

        return Response(await while_there(request, self.service.alone(look, characters)), media_type="application/json")

    async def models(self) -> Response:
        """The runs that are served here, and how much may be asked of them."""
        told = [
            {
                "name": model.name,
                "languages": model.recipe.languages.model_dump(),
                "extras": list(model.codecs.extras),
                "parameters": parameters(model.network),
                "attention": bool(model.network.attention_taps),
            }
            for model in self.service.runs.models
        ]
        return JSONResponse({"models": told, "limits": self.service.limits.model_dump()})


def _told(prediction: Prediction, wanted: Sequence[Part]) -> dict[str, Plain]:
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


def _bounded(shown: Explanation) -> Explanation:
    count = shown.weights.size + shown.within_source.size + shown.within_output.size
    if count > MOST_WEIGHTS:
        what = f"{count:,} weights, the limit is {MOST_WEIGHTS:,}"
        raise Refusal("E_LIMIT", what, fix="explain a shorter text")
    return shown


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


async def _events(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Pieces as server-sent events, then one that says it was all, or what went wrong."""
    said = ""
    try:
        async for piece in pieces:
            said += piece
            yield _event("piece", {"text": piece})
    except Exception as error:
        yield _event("error", refused(error).body)
        return
    yield _event("done", {"text": said})


def _event(name: str, told: object) -> str:
    return f"event: {name}\ndata: {json.dumps(told, ensure_ascii=False)}\n\n"

"""Smart Reply over HTTP: suggestions for a message, and a log of what became of them.

`POST /v1/reply` answers with everything that led to the answer, as `seqloom reply explain --json`. Nothing is ever sent
from here: `POST /v1/reply/feedback` writes a line to the log that whoever serves has named, and does nothing else. What
is written holds replies and no message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from seqloom import wording
from seqloom.config import Plain
from seqloom.reply import feedback
from seqloom.reply.messages import Message, looks_like_mail, read_chat, read_mail
from seqloom.reply.replier import Suggestions
from seqloom.serve.asked import Asked
from seqloom.serve.batcher import Question
from seqloom.serve.service import Service, while_there
from seqloom.web.refusals import Refusal


class ReplyRequest(Asked):
    """A message that somebody received."""

    message: str
    form: Literal["auto", "text", "mail"] = "auto"  # mail: as it came over the wire, headers and all
    subject: str = ""  # of a text
    language: str | None = Field(None, pattern="^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$")  # null: it is detected
    anyway: bool = False  # rank replies also where none is likely


class FeedbackRequest(Asked):
    """What became of suggestions."""

    shown: list[str] = Field(default_factory=list, max_length=10)
    chosen: str | None = None  # the one that was selected; null: all were ignored
    sent: str | None = None  # what the person wrote in the end; null: nothing
    probability: float | None = Field(None, ge=0, le=1)  # of the answer that is spoken of


class ReplyRoutes:
    """The routes of one service; without a Smart Reply each says so."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.router = APIRouter(prefix="/v1/reply")
        self.router.add_api_route("", self.about, methods=["GET"], response_model=None)
        self.router.add_api_route("", self.reply, methods=["POST"], response_model=None)
        self.router.add_api_route("/feedback", self.feedback, methods=["POST"], response_model=None)

    async def about(self) -> Response:
        """What is served: how many replies, in which languages, and whether a log is kept."""
        served = self.service.smart_reply()
        replier = served.loaded
        told: dict[str, Plain] = {
            "model": served.name,
            "replies": len(replier.responses),
            "languages": list(replier.settings.prepare.languages),
            "threshold": replier.threshold,
            "log": served.log is not None,
            "limits": {"characters": self.service.limits.characters},
        }
        return JSONResponse(told)

    async def reply(self, request: Request, asked: ReplyRequest) -> Response:
        """At most three replies of different intents, or none and the reason; and how that came about."""
        served = self.service.smart_reply()
        characters = self.service.limits.refuse_texts([asked.message + asked.subject])
        message, replier = _message(asked), served.loaded  # of this moment: another may take its place meanwhile

        def answer(every: Sequence[Message]) -> list[Suggestions]:
            return replier.suggest_all(every, asked.anyway)

        question = Question(("reply", id(replier), asked.anyway), [message], characters, answer)
        (found,) = await while_there(request, self.service.batcher.ask(question))
        return JSONResponse({"model": served.name, **found.as_dict()})

    async def feedback(self, asked: FeedbackRequest) -> Response:
        """A line in the log, where one is kept. Nothing is sent to anybody."""
        served = self.service.smart_reply()
        if served.log is None:
            fix = "whoever serves may name one: seqloom serve RUN --reply-log FILE"
            raise Refusal("E_VALUE", "this server keeps no log", fix=fix)
        self.service.limits.refuse_texts([*asked.shown, asked.chosen or "", asked.sent or ""])
        try:
            event = feedback.Event.model_validate(asked.model_dump())
        except ValidationError as error:
            raise Refusal("E_VALUE", wording.first_problem(error)) from None
        await asyncio.to_thread(feedback.append, served.log, event)
        return JSONResponse({"outcome": event.outcome})


def _message(asked: ReplyRequest) -> Message:
    data = asked.message.encode()
    if asked.form == "mail" or (asked.form == "auto" and looks_like_mail(data)):
        found = read_mail(data)
    else:
        chat = read_chat(asked.message)
        found = Message(chat.body, asked.subject, chat.author)
    return Message(found.body, found.subject, found.author, asked.language)

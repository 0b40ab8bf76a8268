"""Smart Reply: from a message to three suggestions of different intents, or to none and the reason.

    replier = seqloom.reply.load("runs/reply")
    replier.suggest("Are you coming tonight?").texts

Importing the package costs nothing: what is heavy is loaded by the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqloom.reply.bundle import load
    from seqloom.reply.conversations import Exchange, read
    from seqloom.reply.evaluation import evaluate
    from seqloom.reply.messages import Message, read_chat, read_mail
    from seqloom.reply.replier import Replier, Suggestions
    from seqloom.reply.responses import Response, ResponseSet, canonical
    from seqloom.reply.settings import ReplySettings
    from seqloom.reply.training import train

_HOMES = {
    "load": "bundle",
    "Exchange": "conversations",
    "read": "conversations",
    "evaluate": "evaluation",
    "Message": "messages",
    "read_chat": "messages",
    "read_mail": "messages",
    "Replier": "replier",
    "Suggestions": "replier",
    "Response": "responses",
    "ResponseSet": "responses",
    "canonical": "responses",
    "ReplySettings": "settings",
    "train": "training",
}

__all__ = [
    "Exchange",
    "Message",
    "Replier",
    "ReplySettings",
    "Response",
    "ResponseSet",
    "Suggestions",
    "canonical",
    "evaluate",
    "load",
    "read",
    "read_chat",
    "read_mail",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"seqloom.reply.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'seqloom.reply' has no attribute {name!r}")

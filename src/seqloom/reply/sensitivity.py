"""Messages that no ready-made reply fits: bad news, illness, death, legal matters, money, passwords."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqloom.reply.messages import Message
from seqloom.reply.prepare import Prepared


@dataclass(frozen=True)
class Verdict:
    """`why` names the category and the phrase, or the classifier; it is empty where nothing is sensitive."""

    sensitive: bool
    why: str


class Sensitivity:
    """Rules and a small classifier; `extra` is a person's own file of phrases."""

    def __init__(self, lists: Path | None = None, extra: Path | None = None) -> None:
        raise NotImplementedError

    def __call__(self, prepared: Prepared, message: Message) -> Verdict:
        raise NotImplementedError

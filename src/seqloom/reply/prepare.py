"""A message made ready for a model: one line of lower-cased tokens, and every step on the way there.

The line is `SUBJECT <subject> SENTENCE <s> SENTENCE`: tokens with single blanks between them, punctuation as tokens of
its own, `<s>` between sentences, the subject (where there is one) first and closed by `<subject>`. Entities are
`<name> <url> <mail> <phone> <date> <time> <amount> <number>`, words outside of a given list `<rare>`. A text cannot
spell any of these: what a person writes as "<s>" becomes three tokens.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pydantic import Field

from seqloom import config
from seqloom.reply.messages import Message

SENTENCE, SUBJECT, RARE = "<s>", "<subject>", "<rare>"
ENTITIES = ("<name>", "<url>", "<mail>", "<phone>", "<date>", "<time>", "<amount>", "<number>")
SPECIALS = (SENTENCE, SUBJECT, RARE, *ENTITIES)


@dataclass(frozen=True)
class Step:
    """What stands after a step, and what it did, in a few words."""

    name: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class Prepared:
    """`text` is what a model reads; `reason` says why there can be no suggestion, and is None where there can be."""

    text: str
    language: str | None
    steps: tuple[Step, ...]
    reason: str | None


class Preprocess:
    """From a message to what a model reads. `words`, where given, are those it knows: others become `<rare>`."""

    class Settings(config.Settings):
        languages: tuple[str, ...] = ("en", "pt", "es")
        max_tokens: int = Field(100, ge=1, le=10_000)
        detect: bool = True  # which language it is in (needs the extra serve); otherwise the first of `languages`
        subject: bool = True
        lists: str | None = None  # a folder of one's own lists, LANGUAGE/NAME.txt, in place of the shipped ones

    def __init__(self, settings: Settings | None = None, words: Collection[str] | None = None) -> None:
        self.settings = settings or self.Settings()
        self.words = None if words is None else frozenset(words)

    def __call__(self, message: Message) -> Prepared:
        raise NotImplementedError

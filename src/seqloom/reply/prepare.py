"""A message made ready for a model: one line of lower-cased tokens, and every step on the way there.

The line is `SUBJECT <subject> SENTENCE <s> SENTENCE`: tokens with single blanks between them, punctuation as tokens of
its own, `<s>` between sentences, the subject (where there is one) first and closed by `<subject>`. Entities are
`<name> <url> <mail> <phone> <date> <time> <amount> <number>`, words outside of a given list `<rare>`. A text cannot
spell any of these: what a person writes as "<s>" becomes three tokens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator

from seqloom import config
from seqloom.errors import nearest
from seqloom.reply.entities import TOKENS, Entities
from seqloom.reply.greetings import Greetings
from seqloom.reply.language import Languages, told
from seqloom.reply.lists import Lists
from seqloom.reply.messages import MOST_TEXT, Message, cleaned
from seqloom.reply.quotes import Parts, Quotes
from seqloom.reply.tokens import sentences, tokens

SENTENCE, SUBJECT, RARE = "<s>", "<subject>", "<rare>"
ENTITIES = tuple(TOKENS.values())
SPECIALS = (SENTENCE, SUBJECT, RARE, *ENTITIES)

EMPTY = "there is no text in it"
QUOTED = "nothing of its own: all of it is quoted or forwarded"
SIGNED = "nothing but a signature"
WORDLESS = "there is no word in it"
_PREFIX = re.compile(
    r"^\s*(?:\[[^\]]{1,40}\]\s*|(?:re|aw|sv|antw|odp|r|rif|res|ref|fw|fwd|wg|enc|rv|tr|vs|doorst)(?:\[\d+\])?\s*:\s*)",
    re.IGNORECASE,
)


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
        languages: tuple[str, ...] = Field(("en", "pt", "es"), min_length=1)
        max_tokens: int = Field(100, ge=1, le=10_000)
        detect: bool = True  # which language it is in (needs the extra serve); otherwise the first of `languages`
        subject: bool = True  # is read as well
        lists: str | None = None  # a folder of one's own lists, LANGUAGE/NAME.txt, in place of the shipped ones

        @field_validator("languages")
        @classmethod
        def _are_codes(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
            for code in languages:
                if not re.fullmatch("[a-z]{2,3}", code):
                    raise ValueError(f"{code!r} is no code of a language{nearest(code, ('en', 'pt', 'es'))}")
            return languages

    def __init__(self, settings: Settings | None = None, words: Collection[str] | None = None) -> None:
        self.settings = settings or self.Settings()
        self.words = None if words is None else frozenset(words)
        own = self.settings.lists
        self._lists = Lists(None if own is None else Path(own))
        self._quotes = Quotes(self._lists)
        self._languages = Languages(self.settings.languages)
        if self.settings.detect:
            self._languages.check()
        self._greetings = Greetings(*map(self._phrases, ("greetings", "hellos", "closings")))
        self._entities = {code: Entities(self._lists, (code,)) for code in self.settings.languages}

    def _phrases(self, name: str) -> list[str]:
        return [phrase for code in self.settings.languages for phrase in self._lists.entries(code, name)]

    def parts(self, message: Message) -> Parts:
        """The author's own lines, the quoted and the forwarded ones."""
        return self._quotes.split(cleaned(message.body[:MOST_TEXT]))

    def __call__(self, message: Message) -> Prepared:
        steps: list[Step] = []
        reason, own = self._own(message, steps)
        subject = _bare_subject(message.subject) if self.settings.subject else ""
        if reason is not None:
            return Prepared("", None, tuple(steps), reason)
        language, foreign = self._language(message, f"{subject}\n{own}".strip(), steps)
        greeted = self._greetings.without_greeting(own)
        closed = self._greetings.without_closing(greeted.text)
        for name, taken in (("greeting", greeted), ("closing", closed)):
            steps.append(Step(name, taken.text, f"taken off: {_short(taken.off)}" if taken.off else "none"))
        text = self._tokens(subject, closed.text, greeted.names + closed.names, language, steps)
        if foreign:
            reason = f"in {told(language)}; suggestions are made in {', '.join(self.settings.languages)}"
        elif not any(token in ENTITIES or token[0].isalnum() for token in text.split()):
            reason = WORDLESS
        return Prepared(text, language, tuple(steps), reason)

    def _own(self, message: Message, steps: list[Step]) -> tuple[str | None, str]:
        """Why there is nothing to reply to, or None; and the author's own text."""
        body = cleaned(message.body[:MOST_TEXT])
        shorter = f"only the first {MOST_TEXT:,} characters" if len(message.body) > MOST_TEXT else ""
        steps.append(Step("text", body, shorter))
        if not body and not (self.settings.subject and _bare_subject(message.subject)):
            return EMPTY, ""
        parts = self._quotes.split(body)
        removed = {"quoted": parts.quoted, "forwarded": parts.forwarded}
        notes = [f"{len(part.splitlines())} {kind} lines" for kind, part in removed.items() if part]
        steps.append(Step("quotes", parts.own, f"taken off: {', '.join(notes)}" if notes else "none"))
        if body and not parts.own:
            return QUOTED, ""
        own, signature = self._quotes.without_signature(parts.own)
        steps.append(Step("signature", own, f"taken off: {_short(signature)}" if signature else "none"))
        return (SIGNED if body and not own else None), own

    def _language(self, message: Message, text: str, steps: list[Step]) -> tuple[str, bool]:
        """(code, is it foreign)."""
        configured = self.settings.languages
        if message.language is not None:
            code = message.language.partition("-")[0].lower()
            known, how = code in configured, "as the message says"
        elif self.settings.detect:
            (code, known), how = self._languages.of(text), "as its words are"
        else:
            code, known, how = configured[0], True, "detection is off"
        steps.append(Step("language", code, how if known else f"{how}; not one of {', '.join(configured)}"))
        return code, not known

    def _tokens(self, subject: str, own: str, names: Iterable[str], language: str, steps: list[Step]) -> str:
        """The line that a model reads."""
        entities = self._entities.get(language) or next(iter(self._entities.values()))
        marked, counts = entities.marked(own, names)
        title, more = entities.marked(subject, names)
        for token, count in more.items():
            counts[token] = counts.get(token, 0) + count
        found = ", ".join(f"{count} {token}" for token, count in counts.items())
        steps.append(Step("entities", _shown(marked), found or "none"))
        parts = sentences(marked)
        noun = "sentence" if len(parts) == 1 else "sentences"
        steps.append(Step("sentences", "\n".join(map(_shown, parts)), f"{len(parts)} {noun}"))
        line = [*tokens(title), SUBJECT] if title.strip() else []
        for number, part in enumerate(parts):
            line += [SENTENCE] * (number > 0) + tokens(part)
        if self.words is not None:
            rare = [token for token in line if token not in self.words and token not in SPECIALS]
            line = [token if token in self.words or token in SPECIALS else RARE for token in line]
            steps.append(Step("rare words", " ".join(line), f"{len(rare)} are not known"))
        cut = len(line) - self.settings.max_tokens
        text = " ".join(line[: self.settings.max_tokens])
        note = f"{len(line)} token{'s' * (len(line) != 1)}" + (f", the last {cut:,} left out" if cut > 0 else "")
        steps.append(Step("tokens", text, note))
        return text


def known_words(texts: Iterable[str], min_count: int = 3) -> frozenset[str]:
    """Tokens of prepared texts that are frequent enough to be learned; give them to `Preprocess(words=...)`."""
    counts: dict[str, int] = {}
    for text in texts:
        for token in text.split():
            counts[token] = counts.get(token, 0) + 1
    return frozenset(token for token, count in counts.items() if count >= min_count and token not in SPECIALS)


def _bare_subject(subject: str) -> str:
    """Without "Re:", "Fwd:" and the tags of mailing lists."""
    subject = " ".join(cleaned(subject[:1000]).split())
    for _ in range(10):
        shorter = _PREFIX.sub("", subject)
        if shorter == subject:
            break
        subject = shorter
    return subject.strip()


def _shown(text: str) -> str:
    for mark, token in TOKENS.items():
        text = text.replace(mark, token)
    return text.strip()


def _short(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= most else f'"{line[: most - 3]}..."'

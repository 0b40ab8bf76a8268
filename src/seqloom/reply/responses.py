"""The response set R: the replies that may be suggested, and nothing else ever is.

R is mined from replies that people sent: short ones that many sent alike, written by enough different authors that none
of them is somebody's own (privacy), and none that a block list names. It is kept as a plain file that a person can
edit; what is read back is checked line by line. Nothing here knows a model.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from seqloom import config
from seqloom.errors import SeqloomError, nearest
from seqloom.files import atomic_write, file_error

Polarity = Literal["positive", "negative", "neutral"]
POLARITIES: tuple[Polarity, ...] = get_args(Polarity)
COLUMNS = ("reply", "count", "polarity", "intent", "language")
MOST_RESPONSES = 100_000
MOST_CHARACTERS = 200  # of one reply
MOST_BYTES = 50_000_000  # of the file

_APOSTROPHES = re.compile(r"(?<=\w)['\u2019\u02bc`\u00b4](?=\w)")
_LAUGHTER = re.compile(r"[abm]?((?:[hj][aeiu])(?:[hj]+[aeiu]+)+|(?:rs){2,})[hj]*")
_DRAWN_OUT = re.compile(r"([^\W\d_])\1{2,}")
_PRIVATE = re.compile(r"https?:|www\.|@|\d{3,}|<")  # addresses, numbers of telephones, marks of the preprocessing


@lru_cache(maxsize=1 << 16)
def canonical(reply: str) -> str:
    """What replies that say the same in the same words share: words alone, without case, accents and drawn-out letters.

    "That's  coool!!" and "thats cool" are one; "hahahaha" is "haha". A reply without any word is its signs: ":)".
    """
    text = unicodedata.normalize("NFC", "".join(_plain(unicodedata.normalize("NFKC", reply).casefold())))
    words = "".join(one if _in_words(one) else " " for one in _APOSTROPHES.sub("", text)).split()
    if not words:
        return "".join(reply.split())
    return " ".join(_settled(word) for word in words)


def _plain(text: str) -> Iterable[str]:
    """Latin letters without their accents; other scripts need their marks."""
    latin = False
    for character in unicodedata.normalize("NFKD", text):
        if not unicodedata.combining(character):
            latin = character < "\u0250"
            yield character
        elif not latin:
            yield character


def _in_words(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def _settled(word: str) -> str:
    if laughter := _LAUGHTER.fullmatch(word):
        return laughter[1][:2] * 2
    return _DRAWN_OUT.sub(r"\1\1", word)


@dataclass(frozen=True)
class Sent:
    """A reply that somebody sent; an author that is not known is None."""

    text: str
    author: str | None = None
    language: str | None = None


@dataclass(frozen=True)
class Response:
    """A reply that may be suggested, and how often it was sent."""

    reply: str
    count: int = 0
    polarity: Polarity = "neutral"
    intent: str = ""
    language: str = ""  # of the messages it answers; empty: any

    @property
    def key(self) -> str:
        """Its canonical form: what the model writes."""
        return canonical(self.reply)


class Mining(config.Settings):
    """Which replies become part of R."""

    size: int = Field(2_000, ge=1, le=MOST_RESPONSES)  # at most so many, the most frequent
    min_count: int = Field(3, ge=1)  # sent so often at least
    min_authors: int = Field(3, ge=1)  # by so many people at least, where authors are known
    max_words: int = Field(8, ge=1, le=30)


@dataclass(frozen=True)
class Mined:
    """What was found: responses still without polarity and intent, and what became of all replies."""

    responses: tuple[Response, ...]
    fates: Mapping[
        str, int
    ]  # kept, rare, few authors, long, private, blocked, over the size: replies as they were sent


def mine(sent: Iterable[Sent], settings: Mining, blocked: Blocked) -> Mined:
    """The most frequent short replies. Of forms that differ in signs and case alone, the most frequent one is shown."""
    groups: dict[tuple[str, str], _Group] = defaultdict(_Group)
    fates: Counter[str] = Counter()
    for one in sent:
        key = canonical(one.text)
        if fate := _unfit(one.text, key, settings):
            fates[fate] += 1
        else:
            groups[one.language or "", key].add(one)
    kept: list[Response] = []
    for (language, key), group in sorted(groups.items(), key=lambda item: (-item[1].count, item[0])):
        fate = group.fate(settings) or ("blocked" if blocked(key) else "")
        fate = fate or ("over the size" if len(kept) == settings.size else "kept")
        fates[fate] += group.count
        if fate == "kept":
            kept.append(Response(group.shown, group.count, language=language))
    return Mined(tuple(kept), dict(fates))


def _unfit(text: str, key: str, settings: Mining) -> str:
    if not key:
        return "empty"
    if len(key.split()) > settings.max_words or len(text) > MOST_CHARACTERS:
        return "long"
    return "private" if _PRIVATE.search(text) else ""


class _Group:
    """All replies of one canonical form."""

    def __init__(self) -> None:
        self.forms: Counter[str] = Counter()
        self.authors: set[str] = set()
        self.unsigned = 0

    def add(self, one: Sent) -> None:
        self.forms[" ".join(one.text.split())] += 1
        if one.author is None:
            self.unsigned += 1
        else:
            self.authors.add(one.author)

    @property
    def count(self) -> int:
        return self.forms.total()

    def fate(self, settings: Mining) -> str:
        if self.count < settings.min_count:
            return "rare"
        return "few authors" if not self.unsigned and len(self.authors) < settings.min_authors else ""

    @property
    def shown(self) -> str:
        form = min(self.forms, key=lambda form: (-self.forms[form], form))
        return form[:1].upper() + form[1:]


class Blocked:
    """What is never suggested: phrases of a list, wherever they stand in a reply, and whole replies (`= phrase`)."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        given = [line.partition("#")[0].strip() for line in lines]
        self.whole = frozenset(canonical(line.removeprefix("=")) for line in given if line.startswith("="))
        parts = {canonical(line) for line in given if line and not line.startswith("=")}
        self.phrases = frozenset(tuple(part.split()) for part in parts if part)
        self.longest = max(map(len, self.phrases), default=0)

    def __call__(self, key: str) -> bool:
        words = key.split()
        spans = ((i, j) for i in range(len(words)) for j in range(i + 1, min(len(words), i + self.longest) + 1))
        return key in self.whole or any(tuple(words[i:j]) in self.phrases for i, j in spans)


class ResponseSet:
    """R, in order of frequency."""

    def __init__(self, responses: Iterable[Response]) -> None:
        self.responses = tuple(sorted(responses, key=lambda one: (-one.count, one.key)))
        if not self.responses:
            raise SeqloomError("E_EMPTY", "the response set is empty", fix="add a reply to it")

    def __len__(self) -> int:
        return len(self.responses)

    def __iter__(self) -> Iterator[Response]:
        return iter(self.responses)

    @cached_property
    def _by_key(self) -> Mapping[tuple[str, str], Response]:
        return {(one.language, one.key): one for one in self.responses}

    def find(self, reply: str, language: str | None = None) -> Response | None:
        """The response that says this, in this language or in any; None where R has none."""
        key = canonical(reply)
        return self._by_key.get((language or "", key)) or self._by_key.get(("", key))

    def of(self, language: str | None) -> tuple[Response, ...]:
        """Those for messages in a language: its own and those of any."""
        return tuple(one for one in self.responses if language is None or one.language in ("", language))

    def prior(self, response: Response) -> float:
        """log P(r): how often it was sent among all that R holds, each counted once more (Laplace)."""
        return math.log((response.count + 1) / self._total)

    @cached_property
    def _total(self) -> int:
        return sum(one.count + 1 for one in self.responses)

    # --- on disk -----------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        rows = ((one.reply, str(one.count), one.polarity, one.intent, one.language) for one in self.responses)
        lines = ["\t".join(COLUMNS), *map("\t".join, rows)]
        atomic_write(path, "".join(f"{line}\n" for line in lines).encode("utf-8"))

    @classmethod
    def load(cls, path: Path) -> ResponseSet:
        """Read the file as a person left it; E_DATA names the first line that cannot be."""
        found: dict[tuple[str, str], int] = {}
        responses = []
        for number, line in enumerate(_lines(path), start=1):
            where = f"{path}:{number}"
            if number == 1:
                _check_head(line, where)
            elif line.strip() and not line.startswith("#"):
                one = _parsed(line, where)
                first = found.setdefault((one.language, one.key), number)
                if first != number:
                    what = f"{one.reply!r} says the same as line {first}"
                    raise SeqloomError("E_DATA", what, where=where, fix="keep one of both")
                responses.append(one)
        if not responses:
            raise SeqloomError("E_EMPTY", "the response set is empty", where=str(path), fix="add a reply to it")
        if len(responses) > MOST_RESPONSES:
            what = f"{len(responses):,} replies, at most {MOST_RESPONSES:,}"
            raise SeqloomError("E_DATA", what, where=str(path), fix="keep the most frequent")
        return cls(responses)


def _lines(path: Path) -> Sequence[str]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SeqloomError("E_DATA", f"over {MOST_BYTES:,} bytes", where=str(path), fix="keep the most frequent")
        return path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise file_error(error, path, "read") from None
    except UnicodeDecodeError as error:
        raise SeqloomError(
            "E_UTF8", "not UTF-8", where=f"{path}, byte {error.start:,}", fix="save it as UTF-8"
        ) from None


def _check_head(line: str, where: str) -> None:
    if tuple(line.rstrip("\r").split("\t")) != COLUMNS:
        fix = f"put it back: {', '.join(COLUMNS)}, with tabs between them"
        raise SeqloomError("E_DATA", "the first line does not name the columns", where=where, fix=fix)


def _parsed(line: str, where: str) -> Response:
    cells = [cell.strip() for cell in line.rstrip("\r").split("\t")]
    if len(cells) not in (len(COLUMNS) - 1, len(COLUMNS)):
        what = f"{len(cells)} columns instead of {len(COLUMNS)}"
        raise SeqloomError("E_DATA", what, where=where, fix=f"{', '.join(COLUMNS)}, with tabs between them")
    reply, count, polarity, intent, language = [*cells, ""][: len(COLUMNS)]
    if not canonical(reply) or len(reply) > MOST_CHARACTERS:
        what = "an empty reply" if not reply else f"a reply of {len(reply):,} characters"
        raise SeqloomError("E_DATA", what, where=where, fix=f"1 to {MOST_CHARACTERS} characters")
    if not count.isdecimal() or len(count) > 12:
        raise SeqloomError("E_DATA", f"count {count!r}", where=where, fix="how often it was sent, 0 if never")
    if polarity not in POLARITIES:
        what = f"polarity {polarity!r}{nearest(polarity, POLARITIES)}"
        raise SeqloomError("E_DATA", what, where=where, fix="positive, negative or neutral")
    if not intent:
        raise SeqloomError(
            "E_DATA", "no intent", where=where, fix="a word of your own: replies that share it are alike"
        )
    return Response(reply, int(count), polarity, intent, language)

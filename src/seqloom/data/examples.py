"""One example as a person wrote it: its texts, what it counts, and which of its words answer which.

Besides source and target an example may have further sources (`extras`: tags, a language, a second sentence), each
under a name. What is wrong with a weight or an alignment is an error that says where it stands; this file opens none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator

from seqloom.errors import SeqloomError

Inputs = str | Mapping[str, str]  # what a model is asked: a source, or {"source": ..., and every extra by its name}
Links = tuple[tuple[int, int], ...]  # (word of the source, word of the target), words counted from 0
ITEMS = ";"  # between the items of a list or record that is read as one extra
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def _named(name: str) -> str:
    if not _NAME.fullmatch(name) or name in ("source", "target"):
        raise ValueError(f"{name!r}: an extra's name is small letters, digits and _, and not 'source' or 'target'")
    return name


ExtraName = Annotated[str, AfterValidator(_named)]


@dataclass(frozen=True)
class Example:
    """One pair as a person wrote it, with every accepted reference and the place it stands in."""

    source: str
    references: tuple[str, ...]
    file: str
    line: int
    extras: Mapping[str, str] = field(default_factory=dict)  # further sources by name
    weight: float = 1.0  # how much it counts in the loss
    links: Links | None = None  # gold alignment of the first reference; None: not known
    corpus: int = 0  # which of several mixed corpora it is from
    name: str = ""  # of a source that is a file: how the data write it, wherever they lie

    @property
    def target(self) -> str:
        return self.references[0]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def inputs(self) -> Inputs:
        """What a model is asked: the source, with its extras where there are any."""
        return {"source": self.source, **self.extras} if self.extras else self.source

    @property
    def shown(self) -> str:
        """The inputs on one line, as a person is shown them: `walk [V;PST]`."""
        source = self.name or self.source
        return f"{source} [{', '.join(self.extras.values())}]" if self.extras else source

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two inputs the same one: source and extras, in whatever order these were named.

        A text without a source is known by itself.
        """
        return (
            self.name or self.source or self.target,
            *(text for item in sorted(self.extras.items()) for text in item),
        )

    def told(self) -> AbstractContextManager[None]:
        """Inside, an error about a file that is this example's source says which line names it."""
        return named_at(self.source, self.where)


@contextmanager
def named_at(source: str, where: str) -> Iterator[None]:
    """Inside, an error about a file that is a source says where it is named as well."""
    try:
        yield
    except SeqloomError as error:
        if not error.where or error.where != source or where.startswith(source):
            raise
        raise SeqloomError(error.code, error.what, where=f"{where}: {source}", fix=error.fix) from None


def weight_of(value: object, where: str) -> float:
    """A weight as it was read: a number from 0 up, or the text of one."""
    try:
        weight = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise SeqloomError("E_DATA", f"weight {value!r}: a number from 0 up is expected", where=where)
    return weight


def links_of(text: str, source: str, target: str, where: str) -> Links | None:
    """An alignment in Pharaoh's form, `0-0 1-2`, of the words between blanks; nothing where it is blank."""
    words = len(source.split()), len(target.split())
    links = []
    for item in text.split():
        match = _LINK.fullmatch(item)
        if match is None:
            fix = "write SOURCE-TARGET pairs between blanks: 0-0 1-2, words counted from 0"
            raise SeqloomError("E_DATA", f"alignment {item[:40]!r}", where=where, fix=fix)
        link = int(match[1]), int(match[2])
        if link[0] >= words[0] or link[1] >= words[1]:
            what = f"alignment {item}: the source has {words[0]} word(s), the target {words[1]}, counted from 0"
            raise SeqloomError("E_DATA", what, where=where, fix="align the words between blanks of the raw texts")
        links.append(link)
    return tuple(links) or None


def pharaoh(links: Links) -> str:
    """The inverse of `links_of`."""
    return " ".join(f"{source}-{target}" for source, target in links)


def joined_items(value: object, key: str, where: str) -> str:
    """A string, a list of strings or a flat record as the text of one extra: items joined, a record's by its keys."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        items = [f"{name}={_scalar(value[name], key, where)}" for name in sorted(value)]
    elif isinstance(value, Sequence):
        items = [_scalar(item, key, where) for item in value]
    else:
        items = [_scalar(value, key, where)]
    for item in items:
        if ITEMS in item:
            what = f"{key!r} has an item with {ITEMS!r} in it, which separates items: {item[:40]!r}"
            raise SeqloomError("E_DATA", what, where=where, fix="write it in another way, or give one string")
    return ITEMS.join(items)


def _scalar(value: object, key: str, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    what = f"{key!r} must be a string, a list of strings or a flat record, it holds {type(value).__name__}"
    raise SeqloomError("E_DATA", what, where=where)


def words_of_pieces(surfaces: Sequence[str], text: str) -> Iterator[int]:
    """For every piece of a text the word (between blanks) that it begins in; -1 for what is no part of a word.

    Pieces are found one after the other, so characters that no piece shows (separators, marks) are passed over.
    """
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    word = -1
    for ends in offsets_of_pieces(surfaces, text):
        if ends is None:
            yield -1
            continue
        while word + 1 < len(starts) and starts[word + 1] <= ends[0]:
            word += 1
        yield word


def offsets_of_pieces(surfaces: Sequence[str], text: str) -> Iterator[tuple[int, int] | None]:
    """For every piece where it begins and ends in a text, blanks around it left out; None for what is not found."""
    place = 0
    for surface in surfaces:
        core = surface.strip()
        found = text.find(core, place) if core else -1
        if found >= 0:
            place = found + len(core)
        yield None if found < 0 else (found, place)

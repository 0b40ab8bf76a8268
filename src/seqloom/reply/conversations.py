"""Messages and what was answered, from a chat log or from mails.

A chat is rows of (conversation, author, text), tab-separated or as JSON lines; mails are a folder of `.eml` files or an
mbox, and a mail belongs to the one that it names as answered. A message is all that one person wrote before another
one did; its reply is the first thing that the other wrote. Mails are read by `messages.py`; nothing here prepares
text for a model.
"""

from __future__ import annotations

import hashlib
import mailbox
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from email.policy import compat32
from itertools import groupby, pairwise
from pathlib import Path
from typing import Literal

from seqloom.data.files import Tally, decoded, raw_lines
from seqloom.data.records import json_object, one_string
from seqloom.errors import SeqloomError
from seqloom.files import file_error
from seqloom.reply.messages import Message, read_mail

COLUMNS = ("conversation", "author", "text")
MOST_MAIL_BYTES = 30_000_000
PARAGRAPH = "\n\n"  # between the lines of a chat: each is a thing said, as a paragraph of a mail is
Part = Literal["train", "dev", "test"]


@dataclass(frozen=True)
class Exchange:
    """A message and its reply; `reply` is None where nobody answered (mails alone: a chat just ends)."""

    conversation: str
    message: Message
    reply: Message | None


def read(path: Path) -> list[Exchange]:
    """All exchanges of a chat file, an mbox or a folder of mails; E_EMPTY where there is none."""
    if path.is_dir():
        exchanges = list(answered(_folder_mails(path)))
    elif _is_mbox(path):
        exchanges = list(answered(_mbox_mails(path)))
    else:
        exchanges = list(chat_exchanges(rows(path)))
    if not any(one.reply is not None for one in exchanges):
        fix = "give a folder of .eml files, an mbox, or rows of conversation, author and text (.tsv, .jsonl)"
        raise SeqloomError("E_EMPTY", "no message here has a reply by another author", where=str(path), fix=fix)
    return exchanges


def part_of(conversation: str, seed: int = 1, dev: float = 0.05, test: float = 0.1) -> Part:
    """The set that a whole conversation belongs to, by a hash of its name: no message of it stands in two."""
    digest = hashlib.blake2b(f"{seed}\0{conversation}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    if place < test:
        return "test"
    return "dev" if place < test + dev else "train"


# --- chats -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of a chat."""

    conversation: str
    author: str | None
    text: str


def rows(path: Path) -> Iterator[Row]:
    """The rows of a chat file, plain or gzipped; E_DATA names the first line that is none."""
    tally: Tally = Counter()
    as_json = path.name.removesuffix(".gz").endswith((".jsonl", ".json"))
    for line in raw_lines(str(path)):
        where = f"{path}:{line.number}"
        text = decoded(line, str(path), "error", tally)
        if text is None or not text.strip():
            continue
        if as_json:
            record = json_object(text, where)
            cells = [one_string(record, name, where) for name in COLUMNS]
        else:
            cells = text.split("\t")
        if len(cells) != len(COLUMNS):
            what = f"{len(cells)} column{'' if len(cells) == 1 else 's'} instead of {len(COLUMNS)}"
            fix = f"{', '.join(COLUMNS)}, with tabs between them, or JSON lines with these keys (.jsonl)"
            raise SeqloomError("E_DATA", what, where=where, fix=fix)
        if line.number == 1 and tuple(cell.strip().lower() for cell in cells) == COLUMNS:
            continue
        yield Row(cells[0], cells[1].strip() or None, cells[2])


def chat_exchanges(given: Iterable[Row]) -> Iterator[Exchange]:
    """Turn after turn of every conversation; rows of several conversations may be mixed."""
    talks: dict[str, list[Row]] = {}
    for row in given:
        talks.setdefault(row.conversation, []).append(row)
    for name, talk in talks.items():
        turns = list(_turns(talk))
        for before, after in pairwise(turns):
            message = Message(PARAGRAPH.join(row.text for row in before), author=before[0].author)
            yield Exchange(name, message, Message(after[0].text, author=after[0].author))


def _turns(talk: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows that one author wrote in a row; where authors are not known, every row is a turn."""
    keyed = ((row.author if row.author is not None else f"\0{place}", row) for place, row in enumerate(talk))
    for _, group in groupby(keyed, key=lambda pair: pair[0]):
        yield [row for _, row in group]


# --- mails -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mail:
    """A mail, its own name and those of the mails before it, the oldest first."""

    name: str
    before: tuple[str, ...]
    message: Message


def mail_of(data: bytes, number: int) -> Mail:
    """A mail with what its headers say of its place in a conversation."""
    headers = BytesHeaderParser(policy=compat32).parsebytes(data[:200_000])
    names = [*_names(headers.get("References")), *_names(headers.get("In-Reply-To"))]
    own = _names(headers.get("Message-ID"))
    return Mail(own[0] if own else f"mail {number}", tuple(dict.fromkeys(names)), read_mail(data))


def _names(header: object) -> list[str]:
    """The names in angle brackets that a header holds."""
    return [part.partition(">")[0].strip() for part in str(header or "").split("<")[1:]]


def answered(mails: Iterable[Mail]) -> Iterator[Exchange]:
    """Every mail with each reply that another author sent to it, or with none."""
    known = {mail.name: mail for mail in mails}
    replies: dict[str, list[Mail]] = {}
    for mail in known.values():
        direct = next((name for name in reversed(mail.before) if name in known and name != mail.name), None)
        if direct is not None and known[direct].message.author != mail.message.author:
            replies.setdefault(direct, []).append(mail)
    for mail in known.values():
        talk = _root(mail, known)
        found = replies.get(mail.name, [])
        yield from (Exchange(talk, mail.message, reply.message) for reply in found)
        if not found:
            yield Exchange(talk, mail.message, None)


def _root(mail: Mail, known: dict[str, Mail]) -> str:
    """The first mail of a conversation, as far as it is known; a circle of mails that name each other ends it."""
    seen = {mail.name}
    while mail.before:
        first = mail.before[0]
        if first in seen or first not in known:
            return first if first not in seen else min(seen)
        seen.add(first)
        mail = known[first]
    return mail.name


def _folder_mails(folder: Path) -> Iterator[Mail]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".eml", ".mbox") and path.is_file())
    if not paths:
        fix = "it should hold .eml or .mbox files; a chat is one file (.tsv, .jsonl)"
        raise SeqloomError("E_EMPTY", "no mails in this folder", where=str(folder), fix=fix)
    for number, path in enumerate(paths):
        if path.suffix.lower() == ".mbox":
            yield from _mbox_mails(path)
            continue
        try:
            if path.stat().st_size <= MOST_MAIL_BYTES:
                yield mail_of(path.read_bytes(), number)
        except OSError as error:
            raise file_error(error, path, "read") from None


def _is_mbox(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(5) == b"From " or path.suffix.lower() == ".mbox"
    except OSError as error:
        raise file_error(error, path, "read") from None


def _mbox_mails(path: Path) -> Iterator[Mail]:
    box = mailbox.mbox(path, create=False)
    try:
        for number, key in enumerate(box.iterkeys()):
            yield mail_of(box.get_bytes(key), number)
    finally:
        box.close()

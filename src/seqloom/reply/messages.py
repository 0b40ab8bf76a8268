"""Messages: what somebody received, as text, whether it came as a mail or from a chat.

Mails are read by the standard library, under limits: of size, of parts, of the length of a header. A mail can be broken
in every way and still gives a message: what cannot be read is left out, and an empty body is a body like others, of
which `prepare` says that there is nothing to reply to. Attachments are never looked at.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from email.header import decode_header
from email.message import Message as Mail
from email.policy import Compat32
from email.utils import parseaddr

from seqloom.reply.hypertext import text_of

MOST_BYTES = 10_000_000  # of a mail that are looked at
MOST_LINES = 200_000
MOST_PARTS = 200  # parts that hold parts, and ten times as many in all; what follows is left out
MOST_HEADER = 2_000  # characters of a header
MOST_TEXT = 100_000  # characters of a body

_HOLDERS = re.compile(rb"(?:multipart|message)/", re.IGNORECASE)
_BOUNDARY = re.compile(rb"(?:^|\n)--")
_NAMED = re.compile(rb"([A-Za-z][A-Za-z0-9-]*):")
_LINE = re.compile(rb"\n")
_ODD = frozenset(("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"))  # no charsets of mails
_LINES = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
_SAID = re.compile(
    r"^\[?(?:\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4},? (?:at )?)?\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]\.?m\.?)?\]?(?: -)? "
    r"(?P<who>[^:\n]{1,60}): ?(?P<what>.*)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Message:
    """One message as a person would read it; `author` is an opaque name (an address), `language` a code if known."""

    body: str
    subject: str = ""
    author: str | None = None
    language: str | None = None


class _Bounded(Compat32):
    """Headers are cut on the way in: the library's work on a header grows with the square of its length."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        first, length = [], 0
        for line in sourcelines:
            first.append(line[:MOST_HEADER])
            length += len(line)
            if length > MOST_HEADER:
                break
        name, value = super().header_source_parse(first)
        return name, value[:MOST_HEADER]


def read_mail(data: bytes) -> Message:
    """The message in an RFC 5322 mail. Never fails: what cannot be read is left out."""
    data = _bounded(data[:MOST_BYTES])
    try:
        mail: Mail = message_from_bytes(data, policy=_Bounded())
        return Message(
            body=cleaned(_text(mail)),
            subject=" ".join(cleaned(_header(mail, "subject"))[:MOST_HEADER].split()),
            author=_author(mail),
        )
    except Exception:  # the library promises to raise nothing, and there are broken mails where it does
        _, _, rest = data.replace(b"\r\n", b"\n").partition(b"\n\n")
        return Message(body=cleaned(_decoded(rest[: 4 * MOST_TEXT], "utf-8")))


def looks_like_mail(data: bytes) -> bool:
    """Does it begin with headers, one of which only a mail has?"""
    head = data[:20_000].replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    lines = [line for line in head.split(b"\n") if line and line[:1] not in b" \t"]
    names = [found[1].lower() for line in lines if (found := _NAMED.match(line))]
    lines = [line for line in lines if not line.startswith(b"From ")]
    return len(names) == len(lines) and bool({b"from", b"subject", b"mime-version", b"message-id"} & set(names))


def read_chat(text: str) -> Message:
    """A line of a chat, or a text somebody pasted. Of a log with times the last person's last lines are the message."""
    lines = cleaned(text).split("\n")
    turns = [_SAID.match(line[:MOST_HEADER]) for line in lines]
    if turns[0] is None:
        return Message(body="\n".join(lines))
    author, said = turns[0]["who"], [turns[0]["what"]]
    for line, turn in zip(lines[1:], turns[1:], strict=True):
        if turn is None:
            said.append(line)
        elif turn["who"] == author:
            said.append(turn["what"])
        else:
            author, said = turn["who"], [turn["what"]]
    return Message(body="\n".join(said).strip(), author=author.strip())


def cleaned(text: str) -> str:
    """Lines that end in a line feed, composed characters, nothing that controls a terminal or turns text around."""
    text = _LINES.sub("\n", text[: 2 * MOST_TEXT]).replace("\t", " ").replace("\u00a0", " ")
    text = unicodedata.normalize("NFC", text)
    kept = "".join(char for char in text if char == "\n" or unicodedata.category(char) not in _UNSEEN or char in _JOINS)
    return "\n".join(line.rstrip() for line in kept[:MOST_TEXT].split("\n")).strip()


_HIGH = bytes(range(0x80, 0x100))
_UNSEEN = frozenset(("Cc", "Cf", "Co", "Cs", "Cn"))
_JOINS = "\u200c\u200d"  # which emoji and some scripts are written with


def _bounded(data: bytes) -> bytes:
    """The beginning of a mail, up to where it has too many lines or parts."""
    for pattern, most in ((_LINE, MOST_LINES), (_HOLDERS, MOST_PARTS), (_BOUNDARY, 10 * MOST_PARTS)):
        for count, match in enumerate(pattern.finditer(data)):
            if count == most:
                data = data[: match.start()]
                break
    return data


def _text(mail: Mail) -> str:
    """The first text that is not empty; of alternatives the plain one, unless it is empty."""
    plain, marked = "", ""
    for part in _texts(mail):
        subtype = part.get_content_subtype().strip("\0 ")
        if subtype == "plain":
            plain = _payload(part, MOST_TEXT)
        elif subtype == "html" and not marked.strip():
            marked = text_of(_payload(part, MOST_BYTES), MOST_TEXT)
        if plain.strip() or (marked.strip() and not _is_choice(mail)):
            break
    return plain if plain.strip() else marked


def _is_choice(mail: Mail) -> bool:
    return any(part.get_content_type() == "multipart/alternative" for part in mail.walk())


def _texts(mail: Mail) -> Iterator[Mail]:
    """Texts to be read, in order: no attachments, and nothing of mails within the mail."""
    waiting = [mail]
    while waiting:
        part = waiting.pop()
        if part.get_content_maintype() == "multipart":
            children = part.get_payload()
            if isinstance(children, list):
                waiting += [child for child in reversed(children) if isinstance(child, Mail)]
        elif part.get_content_maintype() == "text" and part.get_content_disposition() != "attachment":
            yield part


def _payload(part: Mail, most: int) -> str:
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes):
        return ""
    charset = part.get_param("charset")
    name = charset[2] if isinstance(charset, tuple) else charset
    if len(raw) > 4 * most:
        raw = raw[: 4 * most].rstrip(_HIGH)  # not cut in the middle of a character
    return _decoded(raw, name if isinstance(name, str) else "utf-8")[:most]


def _decoded(data: bytes, charset: str) -> str:
    """Text of bytes whose charset may be unknown or wrong: UTF-8 where they are, otherwise what most others write."""
    try:
        known = codecs.lookup(charset.strip().strip("\"'")[:40])
        if known._is_text_encoding and known.name.replace("-", "_") not in _ODD:
            return data.decode(known.name)
    except (LookupError, ValueError):  # UnicodeError is a ValueError
        pass
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _header(mail: Mail, name: str) -> str:
    """A header with its encoded words decoded."""
    parts = []
    for value, charset in decode_header(str(mail.get(name, ""))):
        parts.append(_decoded(value, charset or "utf-8") if isinstance(value, bytes) else value)
    return "".join(parts)


def _author(mail: Mail) -> str | None:
    address = parseaddr(_header(mail, "from"))[1].strip().lower()
    return address or None

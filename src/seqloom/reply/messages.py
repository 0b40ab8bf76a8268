"""Messages: what somebody received, as text, whether it came as a mail or from a chat."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One message as a person would read it; `author` is an opaque name (an address), `language` a code if known."""

    body: str
    subject: str = ""
    author: str | None = None
    language: str | None = None


def read_mail(data: bytes) -> Message:
    """The message in an RFC 5322 mail. Never fails: what cannot be read is left out."""
    raise NotImplementedError


def read_chat(text: str) -> Message:
    """A line of a chat, or a text somebody pasted."""
    raise NotImplementedError

"""A demonstration of Smart Reply on conversations that anyone can get: the Chit-Chat Challenge of BYU.

The data is MIT-licensed and comes inside the PyPI package `chitchat-dataset`; the file is found through the package's
metadata and read, and the package is never imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, file_error
from seqloom.reply.settings import ReplySettings

NAME = "reply"
ABOUT = "three short replies to a chat message, from the Chit-Chat Challenge's conversations"
INSTALL = "pip install 'seqloom[demo]'"
SETTINGS = ReplySettings.model_validate({"prepare": {"languages": ("en",), "detect": False}})
QUESTIONS = ("How are you doing today?", "Do you want to come to the game tonight?", "I just got a new puppy!")


def dataset_file() -> Path:
    """Where the installed conversations lie; E_EXTRA when they are not there."""
    try:
        found = [file for file in files("chitchat-dataset") or () if file.name == "dataset.json"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise SeqloomError("E_EXTRA", "the Chit-Chat conversations are not installed", fix=INSTALL)
    return Path(str(found[0].locate()))


def rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """(conversation, author, text) of every message; what cannot stand in a column becomes a blank."""
    try:
        talks = json.loads(path.read_bytes())
    except OSError as error:
        raise file_error(error, path, "read") from None
    for name, talk in talks.items():
        for turn in talk["messages"]:
            for message in turn:
                yield name, str(message["sender"]), " ".join(str(message["text"]).split())


def write_chat(folder: Path) -> Path:
    """The conversations as rows, for a person to read; what stands there already is kept."""
    path = folder / "chat.tsv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(error, folder, "make the folder") from None
    if not path.exists():
        lines = ("\t".join(row) + "\n" for row in [("conversation", "author", "text"), *rows(dataset_file())])
        atomic_write(path, "".join(lines).encode("utf-8"))
    return path

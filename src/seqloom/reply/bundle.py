"""A trained Smart Reply on disk: one folder, nothing in it is pickle and nothing of it is evaluated.

    model/          the encoder-decoder, a bundle of its own
    trigger/        does a message want a short reply?
    words.txt       what is no rare word
    responses.tsv   R: for people to read and edit
    settings.yaml   what may be chosen: for people to edit
    reply.json      the card: what it learned from, and the sha256 of what is not to be edited

What the card names must be as it was written; what people may edit is checked line by line instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from seqloom import __version__, cards
from seqloom.api.load import load as load_model
from seqloom.cards import Card, listed_files
from seqloom.config import Plain, read_yaml, render_yaml, validated
from seqloom.errors import SeqloomError
from seqloom.files import atomic_folder, read_bounded, recover_folder
from seqloom.reply.prepare import Preprocess
from seqloom.reply.replier import Replier
from seqloom.reply.responses import ResponseSet
from seqloom.reply.selection import Selection
from seqloom.reply.sensitivity import Sensitivity
from seqloom.reply.settings import ReplySettings
from seqloom.reply.trigger import Trigger

CARD, MODEL, TRIGGER, WORDS = "reply.json", "model", "trigger", "words.txt"
RESPONSES, SETTINGS = "responses.tsv", "settings.yaml"
FOLDER = "reply"  # the bundle within a run
FIX = "copy the folder again, or train again"
_MAX_WORDS_BYTES = 50_000_000


class ReplyCard(Card):
    """What the folder says of itself."""

    NAME = "Smart Reply"
    seqloom: str
    about: dict[str, object]


def save(
    folder: Path,
    model: Path,
    trigger: Trigger,
    edited: tuple[ResponseSet, ReplySettings],
    words: Iterable[str],
    about: Mapping[str, Plain],
) -> None:
    """Write the folder whole; `model` is the bundle of the encoder-decoder, which is copied."""
    responses, settings = edited
    with atomic_folder(folder) as new:
        shutil.copytree(model, new / MODEL)
        (new / TRIGGER).mkdir()
        trigger.save(new / TRIGGER)
        (new / WORDS).write_text("".join(f"{word}\n" for word in sorted(words)), encoding="utf-8")
        files = listed_files(new)
        responses.save(new / RESPONSES)
        (new / SETTINGS).write_text(render_yaml(settings), encoding="utf-8")
        card = {"format": ReplyCard.FORMAT, "seqloom": __version__, "files": files, "about": dict(about)}
        (new / CARD).write_bytes(cards.written(ReplyCard.model_validate(card)))


def find(path: str | Path) -> Path:
    """The bundle of a run of `seqloom reply train`, or the folder itself where it is one."""
    folder = Path(path)
    if not folder.exists():
        fix = "give the folder that 'seqloom reply train' filled"
        raise SeqloomError("E_FILE", "no such folder", where=str(folder), fix=fix)
    inner = folder / FOLDER
    recover_folder(inner)
    if (inner / CARD).is_file():
        return inner
    if not (folder / CARD).is_file():
        fix = "give the folder that 'seqloom reply train' filled"
        raise SeqloomError("E_BUNDLE", f"no Smart Reply here: {CARD} is missing", where=str(folder), fix=fix)
    return folder


def read_card(folder: Path) -> ReplyCard:
    """The card of a bundle, its files checked; E_BUNDLE or E_FORMAT where it cannot be trusted."""
    card = cards.read(folder / CARD, ReplyCard, FIX)
    cards.check_files(folder, card, FIX)
    return card


def load(path: str | Path, *, device: str = "auto", threads: int | None = None) -> Replier:
    """`seqloom.reply.load("runs/reply")`: a trained Smart Reply, checked on the way in."""
    folder = find(path)
    read_card(folder)
    settings = validated(ReplySettings, read_yaml(folder / SETTINGS), str(folder / SETTINGS))
    responses = ResponseSet.load(folder / RESPONSES)
    model = load_model(folder / MODEL, device=device, threads=threads)
    selection = Selection(model, responses, settings.selection)
    selection.refuse_unspeakable(folder / RESPONSES)
    lists = None if settings.prepare.lists is None else Path(settings.prepare.lists)
    return Replier(
        Preprocess(settings.prepare, read_bounded(folder / WORDS, _MAX_WORDS_BYTES).decode("utf-8").split()),
        Sensitivity(lists),
        Trigger.load(folder / TRIGGER),
        selection,
        settings,
        folder,
    )

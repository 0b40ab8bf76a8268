"""`seqloom reply`: learn short replies from mails or chats, suggest three of them, and say how good they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.errors import INTERRUPTED, PREEMPTED, SeqloomError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seqloom.reply.conversations import Exchange
    from seqloom.reply.messages import Message
    from seqloom.reply.settings import ReplySettings

RUN = Path("runs/reply")
OPTIONS: dict[str, set[str]] = {  # which of them each action understands
    "train": {"run", "responses", "language", "detect", "settings", "assignments", "replace", "device", "threads"},
    "suggest": {"mail", "chat", "text", "as_json", "device", "threads"},
    "explain": {"mail", "chat", "text", "as_json", "device", "threads"},
    "evaluate": {"data", "log", "free", "as_json", "device", "threads"},
}
MOST_BYTES = 30_000_000  # of a message on stdin


def command(
    context: typer.Context,
    action: str = typer.Argument(..., metavar="train|suggest|explain|evaluate"),
    place: Path = typer.Argument(
        None,
        metavar="[DATA|RUN]",
        help="train: a folder of .eml files, an mbox, or a chat (.tsv, .jsonl). Otherwise the run (runs/reply).",
    ),
    run: Path = typer.Option(RUN, "--run", metavar="FOLDER", help="train: where the run goes."),
    responses: Path = typer.Option(None, metavar="FILE", help="train: a response set to use; none is mined then."),
    language: list[str] = typer.Option(None, metavar="CODE", help="train: languages of the messages (en, pt, es)."),
    detect: bool = typer.Option(
        True, "--detect/--no-detect", help="train: tell languages apart (needs seqloom[serve])."
    ),
    settings: list[str] = typer.Option(
        [], "--with", metavar="KEY=VALUE", help="train: over the settings, such as responses.min_authors=2."
    ),
    assignments: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="train: over the model's recipe, such as training.epochs=3."
    ),
    replace: bool = typer.Option(False, "--replace", help="train: begin anew where the folder holds another run."),
    text: str = typer.Option(None, "--text", help="suggest, explain: the message itself, instead of stdin."),
    mail: bool = typer.Option(
        False, "--mail", help="suggest, explain: it is a mail (RFC 5322), whatever it looks like."
    ),
    chat: bool = typer.Option(False, "--chat", help="suggest, explain: it is plain text."),
    data: Path = typer.Option(None, metavar="DATA", help="evaluate: other mails or another chat than those held out."),
    log: Path = typer.Option(None, metavar="FILE", help="evaluate: tell what people did, from a feedback log."),
    free: bool = typer.Option(True, "--free/--no-free", help="evaluate: compare with free generation as well."),
    as_json: bool = typer.Option(False, "--json", help="suggest, explain, evaluate: JSON on stdout."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
) -> None:
    """Suggest short replies to mails and chat messages.

    Nothing is ever sent: what is suggested is for a person to take, change or leave.
    """
    if action not in OPTIONS:
        what = f"no such action: {action!r}{nearest(action, OPTIONS)}"
        raise SeqloomError("E_USAGE", what, fix="train, suggest, explain or evaluate")
    _refuse_others(context, action)
    machine = (device, threads)
    if action == "train":
        if place is None:
            raise SeqloomError("E_USAGE", "train needs DATA", fix="a folder of .eml files, an mbox, or a chat file")
        chosen = _settings(language or [], detect, settings)
        return _train(place, run, chosen, (responses, assignments, replace), machine)
    if action == "evaluate" and log is not None:
        return _tell_log(log, as_json)
    if action == "evaluate":
        return _evaluate(place or RUN, data, free, as_json, machine)
    message = _message(text, mail, chat)
    _suggest(place or RUN, message, action == "explain", as_json, machine)


def _refuse_others(context: typer.Context, action: str) -> None:
    """E_USAGE for what was given and means nothing to this action."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in {"action", "place", *OPTIONS[action]} or source is None or source.name != "COMMANDLINE":
            continue
        whose = " and ".join(other for other, known in OPTIONS.items() if name in known)
        what = f"{action} knows no {max(parameter.opts, key=len)}"
        raise SeqloomError("E_USAGE", what, fix=f"leave it out: it is for {whose}")


# --- train -----------------------------------------------------------------------------------------------------------


def _settings(languages: Sequence[str], detect: bool, assignments: Sequence[str]) -> ReplySettings:
    from seqloom.config import override, validated
    from seqloom.reply.settings import ReplySettings

    prepare: dict[str, object] = {"detect": detect}
    if languages:
        prepare["languages"] = languages
    return validated(ReplySettings, override({"prepare": prepare}, assignments), "--with")


def _train(
    data: Path,
    run: Path,
    settings: ReplySettings,
    wishes: tuple[Path | None, Sequence[str], bool],
    machine: tuple[str, int | None],
) -> None:
    from seqloom.reply.conversations import read

    say.talk(f"reading {say.shown(data)}")
    exchanges = read(data)
    responses, assignments, replace = wishes
    named = {"runtime.device": None if machine[0] == "auto" else machine[0], "runtime.threads": machine[1]}
    changed = [*assignments, *(f"{key}={value}" for key, value in named.items() if value is not None)]
    learn(exchanges, run, settings, responses, changed, replace)
    say.talk(f"try: {say.to_type(f'seqloom reply suggest {say.shown(run)}')} --text 'Are you coming tonight?'")


def learn(
    exchanges: Sequence[Exchange],
    run: Path,
    settings: ReplySettings,
    responses: Path | None = None,
    assignments: Sequence[str] = (),
    replace: bool = False,
) -> None:
    """Train with live progress. Ctrl-C saves the run, and the same command goes on with it."""
    from seqloom.api.train import Wishes as TrainingWishes
    from seqloom.reply.training import Wishes, train
    from seqloom.training.console import Console
    from seqloom.training.signals import Signals

    with Console() as console, Signals() as stop:
        training = TrainingWishes(observers=[console], stop=stop, tell=say.talk, replace=replace)
        wishes = Wishes(responses, tuple(assignments), training)
        trained = train(exchanges, run, settings, wishes)
    if trained.reason in ("interrupted", "preempted"):
        say.talk("saved; the same command goes on from here")
        raise typer.Exit(INTERRUPTED if trained.reason == "interrupted" else PREEMPTED)
    say.talk(f"{say.shown(run / 'reply')}: responses.tsv and settings.yaml in it are yours to edit")


# --- suggest and explain ---------------------------------------------------------------------------------------------


def _message(text: str | None, mail: bool, chat: bool) -> Message:
    from seqloom.reply.messages import looks_like_mail, read_chat, read_mail

    if mail and chat:
        raise SeqloomError("E_USAGE", "--mail and --chat: it cannot be both", fix="leave one out")
    if text is not None:
        data = text.encode("utf-8", "surrogateescape")
    else:
        if sys.stdin.isatty():
            say.talk("type a message, then Ctrl-D")
        data = sys.stdin.buffer.read(MOST_BYTES)
    if mail or (not chat and looks_like_mail(data)):
        return read_mail(data)
    return read_chat(data.decode("utf-8", "replace"))


def _suggest(run: Path, message: Message, explain: bool, as_json: bool, machine: tuple[str, int | None]) -> None:
    from seqloom.reply.bundle import load

    found = load(run, device=machine[0], threads=machine[1]).suggest(message, anyway=explain)
    if as_json:
        told = found.as_dict()
        brief = {key: told[key] for key in ("suggestions", "reason", "language", "trigger")}
        return say.as_json(told if explain else brief)
    if explain:
        from seqloom.cli.replied import print_explanation

        return print_explanation(found)
    for reply in found.texts:
        say.data(reply)
    if found.reason is not None:
        say.talk(f"no suggestion: {found.reason}")


# --- evaluate --------------------------------------------------------------------------------------------------------


def _evaluate(run: Path, data: Path | None, free: bool, as_json: bool, machine: tuple[str, int | None]) -> None:
    from seqloom.cli.replied import print_evaluation
    from seqloom.reply.bundle import load
    from seqloom.reply.evaluation import evaluate, gathered, training_pairs

    replier = load(run, device=machine[0], threads=machine[1])
    found = evaluate(replier, gathered(replier, run, data), training_pairs(run), free)
    if as_json:
        say.as_json(found.as_dict())
    else:
        print_evaluation(found)


def _tell_log(log: Path, as_json: bool) -> None:
    from seqloom.cli.replied import print_usage
    from seqloom.reply.feedback import read, usage

    found = usage(read(log))
    if as_json:
        say.as_json(found.as_dict())
    else:
        print_usage(found)

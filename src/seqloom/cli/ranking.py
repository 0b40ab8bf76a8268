"""What `predict`, `evaluate` and `explain` do with a run that ranks texts (a dual encoder), and what they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.matched import Match, Word
    from seqloom.api.ranking import Protocol

PREDICTS = {
    *("places", "output", "text", "extra", "json_input", "form", "as_json", "top", "index", "on_long", "on_bad_utf8"),
    *("settings", "allow_nonfinite", "buffer", "device", "threads", "quiet"),
    *("engine", "workers", "shards", "shard", "join", "quarantine"),
}
EVALUATES = {
    *("runs", "data", "source", "reference", "part", "among", "metric", "write_outputs", "fail_under", "settings"),
    *("samples", "as_json", "device", "threads", "no_report"),
}
EXPLAINS = {"run", "text", "target", "extra", "as_json", "device", "threads"}


def ranks(run: str | Path) -> bool:
    """Is this a run that ranks texts?"""
    from seqloom.api.retriever import ranks as does

    return does(run)


def refuse_others(context: typer.Context, known: set[str], run: str | Path) -> None:
    """E_USAGE for options that were given and are of no meaning to a run that ranks texts."""
    given = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name is not None and parameter.name not in known and is_given(context, parameter.name)
    ]
    if given:
        what = f"this run ranks texts and cannot do: {', '.join(given)}"
        raise SeqloomError("E_USAGE", what, where=str(run), fix="leave it out")


def refuse_ours(context: typer.Context, names: Sequence[str], run: str | Path) -> None:
    """E_USAGE for options that are only for runs that rank texts."""
    given = [f"--{name}" for name in names if is_given(context, name)]
    if given:
        what = f"{', '.join(given)}: only for a run that ranks texts (model: dual)"
        raise SeqloomError("E_USAGE", what, where=str(run), fix="leave it out")


def is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def protocol_of(among: str | None) -> Protocol | None:
    """`all`, or the n of "1 of n"; nothing where the recipe is to say."""
    from seqloom.api.ranking import Protocol

    if among is None:
        return None
    if among == "all":
        return Protocol(None)
    if not among.isdecimal() or not 2 <= int(among) <= 1_000_000:
        raise SeqloomError("E_USAGE", f"--among {among}", fix="all, or a number from 2 up, such as 100")
    return Protocol(int(among))


def print_match(found: Match) -> None:
    """Both texts, word by word."""
    best = "the best of the index" if found.rank is not None else "as given"
    say.data(f"{found.candidate}  ({best}; similarity {found.score:.3f})\n")
    for title, words in (("source", found.source_words), ("candidate", found.candidate_words)):
        pooled = any(word.pooled is not None for word in words)
        columns = ("word", "lost without it", *(["pooled"] if pooled else []))
        say.table(title, columns, [_row(word) for word in words])
        say.data("")


def _row(word: Word) -> list[object]:
    share = [] if word.pooled is None else [say.percent(word.pooled)]
    return [word.text, f"{word.lost:+.3f}", *share]

"""`predict` and `evaluate` as torchrun starts them: several processes share the work of one, rank 0 writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING

import typer

from seqloom.errors import SeqloomError
from seqloom.ranks.launch import launched

if TYPE_CHECKING:
    from seqloom.api.model import Model
    from seqloom.ranks.group import Group

AGAIN = "look at what it says, and give the same command again; torchrun --max-restarts 3 does so by itself"
ALONE = "leave it out, or torchrun"


def together(command: Callable[..., None]) -> Callable[..., None]:
    """A command that several processes may do together; `group_of` is for its context. What fails for one, or for all,
    is said once, and ends all."""

    @wraps(command)
    def run(context: typer.Context, **given: object) -> None:
        if launched() is None:
            command(context, **given)
            return
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else a lost process costs a page, besides our one line

        from seqloom.api.shared import same
        from seqloom.ranks.several import joined

        code = 0
        with joined(AGAIN) as ranks:
            same(ranks, json.dumps(context.params, default=str), "were given different options", "the command line")
            context.obj = ranks
            try:
                command(context, **given)
            except typer.Exit as stop:  # its work is done: no fault that the others would have to share
                code = stop.exit_code
        if code:
            raise typer.Exit(code)

    return run


def group_of(context: typer.Context) -> Group | None:
    """The group of this process; None where it is alone."""
    found: Group | None = context.obj
    return found


def leads(context: typer.Context) -> bool:
    """Does this process write and talk?"""
    ranks = group_of(context)
    return ranks is None or ranks.leads


def workers(context: typer.Context, asked: int) -> int:
    """How many processes each of these may have to help it: none, where they help each other."""
    return asked if group_of(context) is None else 1


@contextmanager
def sharing(context: typer.Context, model: Model) -> Iterator[Model]:
    """The model as all ranks ask it, at the same time; where this process is alone, as it is."""
    ranks = group_of(context)
    if ranks is None:
        yield model
        return
    from seqloom.api.shared import shared

    with shared(model, ranks) as found:
        yield found


# --- what is refused ---------------------------------------------------------------------------------------------


def refuse(context: typer.Context, wishes: Mapping[str, bool], device: str) -> None:
    """E_USAGE for what several processes cannot do together: the first of the wishes that was given."""
    if group_of(context) is None:
        return
    for name, is_given in wishes.items():
        if is_given:
            raise SeqloomError("E_USAGE", f"several processes, and {name}: that is for one", fix=ALONE)
    if ":" in device:
        what = f"several processes, and one device for all of them: {device}"
        raise SeqloomError("E_USAGE", what, where="--device", fix="cuda alone: each process takes its own")


def refuse_unread(context: typer.Context, path: str) -> None:
    """E_USAGE for an input that not every process can read from its beginning."""
    from seqloom.data.files import is_regular, shown

    if group_of(context) is not None and not is_regular(path):
        what = "several processes need a file that each of them can read"
        raise SeqloomError("E_USAGE", what, where=shown(path), fix="save what comes through a pipe in a file first")

"""What `seqloom COMMAND --help` looks like: plain lines for 80 columns, every value by the word for what is typed.

typer knows types of Python; a person types a PATH, a TEXT or a NUMBER. Nothing here parses anything.
"""

from __future__ import annotations

import types
from enum import StrEnum
from pathlib import Path
from typing import Protocol, cast, get_args, get_origin, get_type_hints

from typer.core import TyperCommand

WORDS: dict[object, str] = {Path: "PATH", str: "TEXT", int: "NUMBER", float: "NUMBER", bool: ""}


class Parameter(Protocol):
    """What typer and click, of whichever version, tell of an option or argument."""

    param_type_name: str
    name: str
    opts: list[str]
    secondary_opts: list[str]
    metavar: str | None
    help: str | None
    required: bool
    default: object


class PlainCommand(TyperCommand):
    """A command whose help is written here. (The types of the base are typer's own click or the public one.)"""

    def format_help(self, ctx, formatter) -> None:  # type: ignore[no-untyped-def]
        assert self.callback is not None
        hints = get_type_hints(self.callback)
        known = cast(list[Parameter], self.params)
        arguments = [one for one in known if one.param_type_name == "argument"]
        options = [one for one in known if one.param_type_name != "argument"]
        formatter.write_usage(ctx.command_path, " ".join(["[OPTIONS]", *map(shown_name, arguments)]))
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(self.help or "")
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(shown_name(one), described(one, None)) for one in arguments])
        with formatter.section("Options"):
            formatter.write_dl([*(option_row(one, hints[one.name]) for one in options), ("-h, --help", "Show this.")])


def shown_name(argument: Parameter) -> str:
    return argument.metavar or f"[{argument.name.upper()}]"


def option_row(option: Parameter, hint: object) -> tuple[str, str]:
    """`-b, --beam NUMBER` and what it means."""
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        names += f" / {', '.join(option.secondary_opts)}"
    return f"{names} {option.metavar or typed(hint)}".rstrip(), described(option, hint)


def described(parameter: Parameter, hint: object) -> str:
    """Its meaning, and whether it may or must be given, or what it is otherwise."""
    notes = ["repeatable"] if list in (get_origin(hint), *map(get_origin, get_args(hint))) else []
    if parameter.required and hint is not None:
        notes.append("required")
    default = parameter.default
    if (
        isinstance(default, (str, Path, int, float))
        and not isinstance(default, bool)
        and str(default) not in ("", "0.0")
    ):
        notes.append(f"default: {default}")
    return (parameter.help or "") + (f" ({'; '.join(notes)})" if notes else "")


def typed(hint: object) -> str:
    """The word for a value of this type; nothing for what is only switched on."""
    if get_origin(hint) in (list, types.UnionType):
        return next(typed(part) for part in get_args(hint) if part is not types.NoneType)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return "|".join(hint)
    return WORDS[hint]

"""`seqloom data list` and `seqloom data prepare NAME PATH`: public sets for the recipes."""

from __future__ import annotations

from pathlib import Path

import typer

from seqloom.cli import say
from seqloom.errors import SeqloomError, nearest

ACTIONS = ("list", "prepare")


def command(
    action: str = typer.Argument(..., metavar="list|prepare"),
    name: str | None = typer.Argument(None, metavar="[NAME]", help="A set; 'list NAME' tells all of it."),
    path: Path | None = typer.Argument(None, metavar="[PATH]", help="prepare: the folder with its files."),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="prepare: where to lay it out; a folder NAME by default."
    ),
    any_count: bool = typer.Option(False, "--any-count", help="prepare: take files of other sizes as they are."),
    as_json: bool = typer.Option(False, "--json", help="As JSON on stdout."),
) -> None:
    """Name the public sets of the recipes, and lay out their files.

    Nothing is fetched: get the files where they live, under their licence. 'prepare' turns them into what the recipes
    read, or links to them where they have that form already.
    """
    if action not in ACTIONS:
        what = f"no such action: {action!r}{nearest(action, ACTIONS)}"
        raise SeqloomError("E_USAGE", what, fix="list or prepare")
    if action == "list":
        if path is not None:
            raise SeqloomError("E_USAGE", "list takes a NAME and no PATH")
        return _list(name, as_json)
    if name is None or path is None:
        raise SeqloomError("E_USAGE", "prepare needs a NAME and a PATH", fix="seqloom data prepare multi30k downloads/")
    return _prepare(name, path, output, any_count, as_json)


def _list(name: str | None, as_json: bool) -> None:
    from seqloom.api.public.catalogue import SETS, named

    if name is not None:
        one = named(name)
        if as_json:
            return say.as_json({"name": name, **one.as_dict()})
        told = {"where": one.home, "licence": one.licence, "cite": one.citation}
        told["recipes"] = ", ".join(one.recipes) or "none yet"
        say.data(f"{name}: {one.what}")
        for key, value in told.items():
            say.data(f"  {key}: {value}")
        for file, lines in one.files.items():
            say.data(f"  {file}" + (f"  {lines:,} lines" if lines else ""))
        return say.data(f"  then: {one.then}") if one.then else None
    if as_json:
        return say.as_json([{"name": key, **one.as_dict()} for key, one in SETS.items()])
    for key, one in SETS.items():
        size = f"{one.lines:,} lines" if one.lines else "no lines"
        say.data(f"{key}: {one.what}; {size}; {one.licence}; {one.home}")
    say.talk("'seqloom data list NAME' tells citation and files; 'seqloom data prepare NAME PATH' lays a set out")
    return None


def _prepare(name: str, path: Path, output: Path | None, any_count: bool, as_json: bool) -> None:
    from seqloom.api.public.catalogue import named
    from seqloom.api.public.prepare import prepare

    made = prepare(name, path, output, any_count=any_count)
    if as_json:
        return say.as_json(made.as_dict())
    say.talk(f"{'linked' if made.linked else 'wrote'} {len(made.lines)} files in {made.folder}")
    for file, lines in made.lines.items():
        odd = "  (another number than the catalogue's)" if file in made.differing else ""
        say.talk(f"  {file}" + (f"  {lines:,} lines" if lines else "") + odd)
    if then := named(name).then:
        say.talk(f"  then: {then}")
    return None

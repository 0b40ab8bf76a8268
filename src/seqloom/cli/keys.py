"""`seqloom keys`: who may use a server. Keys are shown once, when they are made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from seqloom.cli import say
from seqloom.errors import SeqloomError, nearest

ACTIONS = ("add", "list", "revoke")


def command(
    action: str = typer.Argument(..., metavar="add|list|revoke"),
    which: str = typer.Argument(None, metavar="[NAME|ID]", help="add: a name for it; revoke: the id of a key."),
    file: Path = typer.Option(Path("keys.sqlite"), "--file", metavar="FILE", help="The file that keeps them."),
    rate: str = typer.Option(None, help="add: requests allowed, such as 100/minute; by default as the server says."),
    as_json: bool = typer.Option(False, "--json", help="list: as JSON."),
) -> None:
    """Make, list and revoke the API keys of a server."""
    from seqloom.cli.serve import refuse_missing

    if action not in ACTIONS:
        what = f"no such action: {action!r}{nearest(action, ACTIONS)}"
        raise SeqloomError("E_USAGE", what, fix="add, list or revoke")
    if (which is None) == (action != "list"):
        what = f"{action} needs {'a NAME' if action == 'add' else 'the ID of a key'}"
        raise SeqloomError("E_USAGE", what if action != "list" else "list takes no argument")
    if action != "add" and not file.exists():
        raise SeqloomError("E_FILE", "no such file of keys", where=str(file), fix="'seqloom keys add NAME' makes one")
    refuse_missing()
    from seqloom.serve.keys import Keys
    from seqloom.serve.limits import checked_rate

    keys = Keys(file)
    if action == "add":
        say.data(keys.add(which, None if rate is None else checked_rate(rate)))
        return say.talk(f"this is the only time that the key is shown; {file} keeps its hash")
    if action == "revoke":
        return say.talk(f"revoked: {which} ({keys.revoke(which).name})")
    if as_json:
        return say.as_json([asdict(key) for key in keys.all()])
    rows = [(key.id, key.name, key.rate or "", key.created_at, key.revoked_at or "") for key in keys.all()]
    say.table(str(file), ("id", "name", "rate", "made", "revoked"), rows)

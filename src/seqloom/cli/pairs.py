"""Pairs that a command line names: one file of them, standard input, or two files side by side."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from seqloom.cli import say
from seqloom.errors import SeqloomError


def named_pairs(pairs: str | None, source: str | None, target: str | None) -> str | Mapping[str, str]:
    """What `named_dataset` reads; a person who is to type them is told how."""
    if source is not None and target is not None and pairs is None:
        return {"source": source, "target": target}
    if source is not None or target is not None:
        raise SeqloomError("E_USAGE", "pairs are one FILE, or --source FILE --target FILE")
    if (pairs or "-") == "-" and sys.stdin.isatty():
        say.talk("type source, tab, target, one pair per line; Ctrl-D ends")
    return pairs or "-"

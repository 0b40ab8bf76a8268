"""Further sources on a command line: `--extra NAME=TEXT`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqloom.errors import SeqloomError, nearest

if TYPE_CHECKING:
    from seqloom.data.codecs import Codecs


def given_extras(codecs: Codecs, assignments: Sequence[str]) -> dict[str, str]:
    """Texts by the name of their extra; E_USAGE for one that the model does not know."""
    names = list(codecs.extras)
    given: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise SeqloomError("E_USAGE", f"--extra {assignment!r} is not of the form NAME=TEXT")
        if name not in names:
            fix = f"this model reads: {', '.join(['source', *names])}"
            raise SeqloomError("E_USAGE", f"--extra {name!r}: no such input{nearest(name, names)}", fix=fix)
        if name in given:
            raise SeqloomError("E_USAGE", f"--extra {name} is given twice")
        given[name] = value
    return given


def refuse_missing(missing: Sequence[str]) -> None:
    """E_USAGE where a model reads what nobody gave."""
    if missing:
        what = f"this model also reads {', '.join(missing)}"
        raise SeqloomError("E_USAGE", what, fix=" ".join(f"--extra {name}=TEXT" for name in missing))

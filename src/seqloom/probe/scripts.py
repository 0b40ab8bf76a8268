"""The scripts of `static/`: ES modules. A server sends them as they are; a file that stands alone holds them in one.

Browsers import no modules from disk, so `joined` puts a module behind those that it imports, in one scope. That asks
three things of the modules, which are checked here: an import is one line and names what it takes, exports are marked
where they are declared, and no two modules give one name to two things.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_IMPORT = re.compile(r"^import \{[^}]+\} from '\./(\w+\.js)';\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_NAME = re.compile(r"^(?:async )?(?:function|const|let|class) (\w+)", re.MULTILINE)


@cache
def static(name: str) -> str:
    """One file of `static/`."""
    return (resources.files("seqloom.probe") / "static" / name).read_text("utf-8")


@cache
def joined(entry: str) -> str:
    """A module and all that it imports, as one script."""
    order: list[str] = []
    _follow(entry, order)
    bodies = [_EXPORT.sub("", _IMPORT.sub("", static(name))) for name in order]
    names = [name for body in bodies for name in _NAME.findall(body)]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"{', '.join(sorted(twice))}: one name for two things among {', '.join(order)}"
    assert not any(re.search(r"^(?:import|export)\b", body, re.MULTILINE) for body in bodies), order
    return "\n".join(["'use strict';", "(() => {", *bodies, "})();"])


def _follow(name: str, order: list[str]) -> None:
    for needed in _IMPORT.findall(static(name)):
        if needed not in order:
            _follow(needed, order)
    order.append(name)

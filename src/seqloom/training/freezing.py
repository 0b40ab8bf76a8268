"""Parts of a model that stay as they are: parameters chosen by name.

A pattern is a name, the beginning of one up to a dot, or a glob: `encoder`, `encoder.*`, `*.bias`. A frozen parameter
has no gradient, no weight decay and no optimiser state. A tied weight is frozen by any of its names.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from seqloom.errors import SeqloomError, nearest


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze what the patterns name; E_RECIPE for one that names nothing, and when nothing is left to train."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in named(patterns, list(parameters), "training.freeze"):
        parameters[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise SeqloomError("E_RECIPE", "every parameter is frozen: nothing is left to train", where="training.freeze")


def named(patterns: Sequence[str], names: list[str], where: str) -> list[str]:
    """What patterns choose of these names; E_RECIPE for one that chooses nothing."""
    found: dict[str, None] = {}
    for pattern in patterns:
        chosen = [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not chosen:
            raise _unmatched(pattern, names, where)
        found |= dict.fromkeys(chosen)
    return list(found)


def _unmatched(pattern: str, names: list[str], where: str) -> SeqloomError:
    """The nearest names, of parts as well as of parameters: people mean either."""
    parts = dict.fromkeys(
        ".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)
    )
    first = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
    what = f"{pattern!r} names no parameter{nearest(pattern.removesuffix('.*'), parts)}"
    return SeqloomError("E_RECIPE", what, where=where, fix=f"the parts are: {first}")

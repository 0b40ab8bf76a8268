"""Short names in `--set`: `lr=1e-3` is `training.optimiser.lr=1e-3` where no other key of the recipe ends in `lr`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from seqloom.api.testset import split_outside_brackets
from seqloom.config import override
from seqloom.errors import SeqloomError
from seqloom.recipe import Recipe, recipe_from


def full_keys(raw: Mapping[str, object], assignments: Sequence[str], where: str) -> list[str]:
    """The assignments with their keys written out. A key that could be several is refused; an unknown one is kept,
    for the recipe's own error names it best."""
    done: list[str] = []
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        key = key.strip()
        if separator and key and key.split(".")[0] not in Recipe.model_fields:
            key = _written_out(key, raw, done, where)
        done.append(f"{key}{separator}{value}")
    return done


def _written_out(key: str, raw: Mapping[str, object], done: Sequence[str], where: str) -> str:
    single = [assignment for assignment in done if len(split_outside_brackets(assignment)) == 1]  # the rest: sweeps
    recipe = recipe_from(override(raw, single), where)
    found = [path for path in _paths(recipe.model_dump(mode="json"), "") if f".{path}".endswith(f".{key}")]
    if len(found) > 1:
        raise SeqloomError("E_USAGE", f"--set {key}: which one? {', '.join(found)}", where=where)
    return found[0] if found else key


def _paths(tree: Mapping[str, object], above: str) -> Iterator[str]:
    for key, value in tree.items():
        path = f"{above}.{key}" if above else key
        yield path
        if isinstance(value, Mapping):
            yield from _paths(value, path)

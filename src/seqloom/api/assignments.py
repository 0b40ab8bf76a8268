"""`--set` as people type it: with short names.

`lr=1e-3` is `training.optimiser.lr=1e-3`, the only key of the recipe that ends in `lr`. Of several such keys the least
deep is meant (`steps` is `training.steps`); where two are equally deep, none is. A bare `-` is stdin, not a YAML list,
and a dataset that the recipe gives by its file name alone takes further keys: `data.train.columns=[1,0]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from seqloom.api.testset import split_outside_brackets
from seqloom.config import override
from seqloom.data.files import STDIN
from seqloom.errors import SeqloomError
from seqloom.recipe import Recipe, recipe_from


def full_keys(raw: Mapping[str, object], assignments: Sequence[str], where: str) -> list[str]:
    """The assignments with their keys written out. A key that could be several is refused; an unknown one is kept,
    for the recipe's own error names it best."""
    if not assignments:
        return []
    plain = [assignment for assignment in assignments if _key(assignment).split(".")[0] in Recipe.model_fields]
    effective = _effective(raw, plain, where)
    done: list[str] = []
    for assignment in assignments:
        key, value = _key(assignment), assignment.partition("=")[2]
        if assignment not in plain and key:
            key = _written_out(key, effective, where)
        if value.strip() == STDIN:
            value = f'"{STDIN}"'
        if key.startswith("data."):
            done += _as_mapping(key, override(raw, done))
        done.append(f"{key}={value}" if "=" in assignment else assignment)
    return done


def _as_mapping(key: str, tree: Mapping[str, object]) -> list[str]:
    """What must be set before a key inside a dataset: nothing, or the dataset's bare file name as a mapping."""
    _, name, *inside = key.split(".")
    data = tree.get("data")
    known = data.get(name) if isinstance(data, Mapping) else None
    if not inside or name not in ("train", "dev", "test") or known is None or isinstance(known, Mapping):
        return []
    if isinstance(known, str):
        return [f"data.{name}={{path: {json.dumps(known)}}}"]
    fix = f"give all of them: --set 'data.{name}=[{{path: FILE, {'.'.join(inside)}: ...}}, ...]'"
    raise SeqloomError("E_USAGE", f"--set {key}: data.{name} is a list of datasets, not one", fix=fix)


def _key(assignment: str) -> str:
    return assignment.partition("=")[0].strip() if "=" in assignment else ""


def _effective(raw: Mapping[str, object], assignments: Sequence[str], where: str) -> Mapping[str, object]:
    """The recipe as it would be, every default written out; nothing where it is wrong (which is said later)."""
    single = [assignment for assignment in assignments if len(split_outside_brackets(assignment)) == 1]  # no sweeps
    for tried in (single, []):
        try:
            return recipe_from(override(raw, tried), where).model_dump(mode="json")
        except SeqloomError:
            continue
    return {}


def _written_out(key: str, effective: Mapping[str, object], where: str) -> str:
    found = [path for path in _paths(effective, "") if f".{path}".endswith(f".{key}")]
    found.sort(key=lambda path: path.count("."))
    if len(found) > 1 and found[0].count(".") == found[1].count("."):
        raise SeqloomError("E_USAGE", f"--set {key}: which one? {', '.join(found)}", where=where)
    return found[0] if found else key


def _paths(tree: Mapping[str, object], above: str) -> Iterator[str]:
    for key, value in tree.items():
        path = f"{above}.{key}" if above else key
        yield path
        if isinstance(value, Mapping):
            yield from _paths(value, path)

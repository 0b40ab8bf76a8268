"""Every key a recipe may hold, with type, default and meaning: read off the settings classes themselves.

The meaning of a key is the comment beside it in the source, the meaning of a kind the first line of its class: each is
written once, where the programmer reads it. Nothing is judged or changed here.
"""

from __future__ import annotations

import inspect
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seqloom.config import Kind, Settings, Table, kind_of
from seqloom.data.readers import READERS, Dataset, Datasets
from seqloom.recipe import Recipe

AnyTable = Table[Any]
_WORDS = {str: "text", int: "integer", float: "number", bool: "true|false", NoneType: "null"}


@dataclass(frozen=True)
class Key:
    """One line of a recipe: `path` is what `--set` takes."""

    path: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class KindEntry:
    """One row of a table: the word after `kind:`, what it means, and the keys it brings."""

    kind: str
    meaning: str
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Words:
    """The whole vocabulary of recipes: the keys of the tree, and the tables that `kind:` chooses from."""

    keys: tuple[Key, ...]
    tables: dict[str, tuple[KindEntry, ...]]


def vocabulary() -> Words:
    """Walk the recipe; every table met on the way is listed once, with all its kinds."""
    tables: dict[str, AnyTable] = {}
    keys = tuple(_keys(Recipe, "", tables))
    entries: dict[str, tuple[KindEntry, ...]] = {}
    while pending := [name for name in tables if name not in entries]:  # kinds may bring further tables
        name = pending[0]
        entries[name] = tuple(_entry(tables[name], kind, tables) for kind in tables[name])
    return Words(keys, entries)


def _entry(table: AnyTable, kind: str, tables: dict[str, AnyTable]) -> KindEntry:
    settings = table.settings_class(kind)
    keys = tuple(key for key in _keys(settings, "", tables) if key.path != "kind")
    return KindEntry(kind, _first_line(table[kind].__doc__), keys)


def _keys(
    settings: type[Settings], above: str, tables: dict[str, AnyTable], default: Settings | None = None
) -> Iterator[Key]:
    """The keys of a settings class and of those inside it; `default` is the instance that stands when none is given."""
    meanings = _comments(settings)
    for name, field in settings.model_fields.items():
        path = f"{above}.{name}" if above else name
        value = _value(field, name, default)
        table, inner = _table(field), _settings_class(field.annotation)
        if table is not None:
            tables.setdefault(table.name, table)
        elif (each := _each(field.annotation)) is not None:
            yield Key(path, "{NAME: keys below}", _told(value), meanings.get(name, ""))
            yield from _keys(each, f"{path}.NAME", tables)
            continue
        elif inner is not None:
            meaning = meanings.get(name) or _first_line(inner.__doc__ if inner.__doc__ != Settings.__doc__ else "")
            optional = NoneType in get_args(field.annotation)
            told = "null" if value is None else "(required)" if value is PydanticUndefined else ""
            yield Key(path, "keys below, or null" if optional else "keys below", told, meaning)
            yield from _keys(inner, path, tables, value if isinstance(value, inner) else None)
            continue
        yield Key(path, _type(field, table), _told(value), meanings.get(name, ""))


def _value(field: FieldInfo, name: str, default: Settings | None) -> object:
    """What stands when the key is left out; PydanticUndefined where it must be given."""
    if default is not None:
        return getattr(default, name)
    return PydanticUndefined if field.is_required() else field.get_default(call_default_factory=True, validated_data={})


def _told(value: object) -> str:
    if value is PydanticUndefined:
        return "(required)"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Settings):
        return kind_of(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_told, value)) + "]"
    return f'"{value}"' if isinstance(value, str) and not value.strip() else str(value)


def _table(field: FieldInfo) -> AnyTable | None:
    """The table that a field's `kind` is looked up in, if it has one; lists of kinds, and null beside one, count."""
    marks = [*field.metadata]
    for inner in get_args(field.annotation):
        marks += get_args(inner)[1:] if get_origin(inner) is Annotated else ()
    for mark in marks:
        if isinstance(mark, Kind):
            return mark.table
        if mark in (*get_args(Dataset)[1:], *get_args(Datasets)[1:]):
            return READERS
    return None


def _settings_class(annotation: object) -> type[Settings] | None:
    """The settings class of `X` or `X | None`."""
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    for option in options:
        if inspect.isclass(option) and issubclass(option, Settings) and option is not Settings:
            return option
    return None


def _each(annotation: object) -> type[Settings] | None:
    """The settings class that a mapping from names holds."""
    return _settings_class(get_args(annotation)[1]) if get_origin(annotation) is Mapping else None


def _type(field: FieldInfo, table: AnyTable | None) -> str:
    if table is not None:
        many, optional = get_origin(field.annotation) is tuple, NoneType in get_args(field.annotation)
        also = [get_origin(option) for option in get_args(field.annotation)]
        several = ", or a list" if not many and tuple in also else ""
        return f"{'list of ' if many else 'one of the '}{table.name}{several}{' or null' if optional else ''}"
    limits = [_limit(mark) for mark in field.metadata]
    return " ".join([_named(field.annotation), *(limit for limit in limits if limit)])


def _named(annotation: object) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin is Annotated:
        limits = [_limit(mark) for mark in getattr(inner[1], "metadata", inner[1:])]
        return " ".join([_named(inner[0]), *(limit for limit in limits if limit)])
    if origin in (Union, UnionType):
        return " or ".join(map(_named, inner))
    if origin is tuple:
        return f"list of {_named(inner[0])}"
    if origin is Mapping:
        return f"{{NAME: {_named(inner[1])}}}"
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))  # type: ignore[call-overload,no-any-return]


def _limit(mark: object) -> str:
    signs = {"Ge": (">=", "ge"), "Gt": (">", "gt"), "Le": ("<=", "le"), "Lt": ("<", "lt")}
    sign, name = signs.get(type(mark).__name__, ("", ""))
    return f"{sign} {getattr(mark, name):g}" if sign else ""


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


@cache
def _comments(settings: type[Settings]) -> dict[str, str]:
    """Name -> the comment on the line of its field, for the class and what it inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(settings.__mro__):
        if not issubclass(cls, Settings) or cls is Settings:
            continue
        try:
            source = inspect.getsource(cls)
        except (OSError, TypeError):  # a package without its sources: the keys are still told
            continue
        found |= _commented_fields(source)
    return found


def _commented_fields(source: str) -> dict[str, str]:
    """Field -> comment, of the lines of a class body that read `name: type = default  # comment`."""
    found: dict[str, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc("\n" + source) + "\n").readline):
        if token.type == tokenize.COMMENT and (match := re.match(r"\s*(\w+)\s*:", token.line)):
            text = token.string.lstrip("# ").strip()
            if not text.startswith(("noqa", "type:")):
                found[match[1]] = text
    return found

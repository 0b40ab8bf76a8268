"""One line of JSON as a record: what stands under a key, or an error that says which line lacks it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from seqloom.errors import SeqloomError


def json_object(text: str, where: str) -> Mapping[str, object]:
    """The object that a line holds; E_DATA where it holds none."""
    try:
        record = json.loads(text)
    except RecursionError:
        raise SeqloomError("E_DATA", "JSON nested too deeply", where=where) from None
    except ValueError as error:
        raise SeqloomError("E_DATA", f"not valid JSON: {error}", where=where, fix="one object per line") from None
    if not isinstance(record, dict):
        raise SeqloomError("E_DATA", f"a JSON object is expected, got {type(record).__name__}", where=where)
    return record


def strings(record: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    """One string or a list of strings; a number is as good as its text."""
    value = value_of(record, key, where)
    given = [str(one) if is_number(one) else one for one in (value if isinstance(value, list) else [value])]
    texts = [text for text in given if isinstance(text, str)]
    if not texts or (isinstance(value, list) and len(texts) != len(value)):
        raise SeqloomError("E_DATA", f"{key!r} must be a string or a list of strings", where=where)
    return tuple(encodable(text, key, where) for text in texts)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def one_string(record: Mapping[str, object], key: str, where: str) -> str:
    """Exactly one string."""
    texts = strings(record, key, where)
    if len(texts) != 1:
        raise SeqloomError("E_DATA", f"{key!r} must be one string", where=where)
    return texts[0]


def value_of(record: Mapping[str, object], key: str, where: str) -> object:
    """Whatever stands under a key, which must be there."""
    if key not in record:
        fix = f"keys here: {', '.join(map(repr, list(record)[:10])) or 'none'}"
        raise SeqloomError("E_DATA", f"no key {key!r}", where=where, fix=fix)
    return record[key]


def encodable(text: str, key: str, where: str) -> str:
    """A lone surrogate (`\\ud800`) is no text and is refused here."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        place = f"{where}, character {error.start}"
        raise SeqloomError("E_UTF8", f"{key!r} holds half a surrogate pair", where=place) from None
    return text

"""What pydantic finds wrong, in the words of seqloom: what is expected here, and what was given.

pydantic speaks to programmers ("Input should be a valid integer, unable to parse string as an integer"), a recipe is
written by anybody. Every error type that settings can raise has its words in one table; what is not in the table is
told plainly too, never in pydantic's words. Nothing here judges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from seqloom.errors import nearest

SMALLEST = 1e-30  # of numbers that must be over 0: far smaller ones are 0 in float32, and dividing by them overflows
OURS = ("seqloom", "value_error")  # messages that we wrote, whole

_MOST_SHOWN = 60  # characters of what was given
_WORDS = {
    "missing": "must be given",
    "int_type": "expected an integer",
    "int_parsing": "expected an integer",
    "int_parsing_size": "expected an integer of fewer digits",
    "int_from_float": "expected an integer",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text",
    "string_unicode": "expected text in UTF-8",
    "string_too_short": "expected text of at least {min_length} characters",
    "string_too_long": "expected text of at most {max_length} characters",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    "none_required": "expected null",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
    "too_short": "expected at least {min_length} entries",
    "too_long": "expected at most {max_length} entries",
    "dict_type": "expected a mapping of keys",
    "mapping_type": "expected a mapping of keys",
    "model_type": "expected a mapping of keys",
    "model_attributes_type": "expected a mapping of keys",
    "extra_forbidden": "unknown key",
    "invalid_key": "keys are words",
    "recursion_loop": "it holds itself",
    "recursion_depth_exceeded": "nested too deeply",
}


def problem(item: ErrorDetails) -> str:
    """One problem in plain words, without its key."""
    kind, context, value = item["type"], item.get("ctx", {}), item["input"]
    if kind in OURS:
        return item["msg"].removeprefix("Value error, ")
    if kind in ("missing", "extra_forbidden"):
        return _WORDS[kind]
    return f"{_expected(item, context)} (got {shown(value)})"


def _expected(item: ErrorDetails, context: Mapping[str, object]) -> str:
    kind, value = item["type"], item["input"]
    if kind == NO_CHOICE:
        return item["msg"]
    if kind == "literal_error":
        told = str(context["expected"])
        known = re.findall(r"'([^']*)'", told) or re.split(r", | or ", told)  # words, or numbers
        return f"expected {' or '.join(known)}{nearest(str(value), known)}"
    if kind == "greater_than_equal" and context["ge"] == SMALLEST and isinstance(value, int | float) and value <= 0:
        return "expected more than 0"
    words = _WORDS.get(kind, "not a value that can stand here").format_map(
        {name: _number(limit) if isinstance(limit, int | float) else limit for name, limit in context.items()}
    )
    return words.replace(" 1 characters", " 1 character").replace(" 1 entries", " 1 entry")


def _number(limit: float) -> str:
    """1000000000.0 as 1,000,000,000 and 1e-06 as 1e-06."""
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


NO_CHOICE = "no_choice"  # the error type of a value that is none of several forms; its message says which these are


def shown(value: object) -> str:
    """A value as a person would recognise it, never long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"an integer of about {value.bit_length() * 0.30103:,.0f} digits"
    if isinstance(value, (Mapping, list, tuple)) and len(value):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def path(loc: tuple[int | str, ...]) -> str:
    """`data.train.columns.1: `, or nothing for the whole."""
    return ".".join(str(part) for part in loc if part != "[key]") + ": " if loc else ""


def first_problem(error: ValidationError) -> str:
    """The first of them, with its place: enough for a file that a program wrote and something else spoilt."""
    item = error.errors(include_url=False)[0]
    return f"{path(item['loc'])}{problem(item)}"

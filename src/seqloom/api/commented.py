"""Lines of YAML as a person would write them: plain values on one line, and a comment that says why."""

from __future__ import annotations

import json
import re

from seqloom.config import Plain

COLUMN = 46  # where comments begin


def line(text: str, why: str = "") -> str:
    return f"{text.ljust(COLUMN)}  # {why}" if why else text


def flow(value: Plain) -> str:
    """A value on one line. JSON is YAML; plain names go without quotes, but for words that YAML takes for others."""
    words = ("true", "false", "null", "yes", "no", "on", "off")
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", value) and value.lower() not in words:
        return value
    return json.dumps(value, ensure_ascii=False)

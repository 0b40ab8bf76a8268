"""`seqloom info`."""

from __future__ import annotations


def command() -> None:
    """(being written)"""
    raise SystemExit(1)

"""What a server says of itself: one JSON object per line on stderr, never a client's text, query or key."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

LOGGER = logging.getLogger("seqloom.web")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = getattr(record, "fields", {})
        told = {"time": at, "level": record.levelname.lower(), "event": record.getMessage(), **fields}
        if record.exc_info and record.exc_info[1] is not None:
            told |= place_of(record.exc_info[1])
        return json.dumps(told, ensure_ascii=False, default=str)


def start(level: int = logging.INFO) -> None:
    """Send our lines, and what uvicorn has to say beyond the ordinary, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    for name, least in (("seqloom.web", level), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)


def note(event: str, **fields: object) -> None:
    LOGGER.info(event, extra={"fields": fields})


def trouble(event: str, error: BaseException, **fields: object) -> None:
    """An error of our own: its kind and place. Its message may hold what a client wrote, and is left out."""
    LOGGER.error(event, extra={"fields": {**fields, **place_of(error)}})


def place_of(error: BaseException) -> dict[str, object]:
    frames = traceback.extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "at": [f"{frame.filename}:{frame.lineno}" for frame in frames[-5:]]}

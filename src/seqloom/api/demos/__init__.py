"""The demonstrations by name. Each is data anyone can get, a recipe to read and change, and words for its report."""

from __future__ import annotations

from seqloom.api.demos.base import Demo
from seqloom.api.demos.captions import CAPTIONS
from seqloom.api.demos.dates import DATES
from seqloom.api.demos.digits import DIGITS_DEMO
from seqloom.api.demos.pronunciation import PRONUNCIATION

DEMOS: dict[str, Demo] = {demo.name: demo for demo in (PRONUNCIATION, DATES, CAPTIONS, DIGITS_DEMO)}

__all__ = ["DEMOS", "Demo"]

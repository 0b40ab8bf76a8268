"""How much one client may ask for: sizes of a request, and requests in a time. On by default."""

from __future__ import annotations

import time
from collections.abc import Sequence

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from pydantic import Field, field_validator

from seqloom.api.options import Options
from seqloom.config import Settings
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.tasks.transduce import SearchSettings
from seqloom.web.refusals import Refusal

NO_RATE = "none"


class Limits(Settings):
    """What is over one of these is refused with its name."""

    characters: int = Field(10_000, ge=1)  # of all texts of a request together
    batch: int = Field(64, ge=1)  # texts of a request
    beam: int = Field(10, ge=1)  # hypotheses, samples
    n_best: int = Field(10, ge=1)
    max_length: int = Field(1024, ge=1)  # tokens of an output, where a client sets it
    max_ratio: float = Field(4.0, gt=0)  # the same, per token of the source
    entries: int = Field(1000, ge=1)  # of a list among the options
    body: int = Field(1_000_000, ge=1)  # bytes
    upload: int = Field(10_000_000, ge=1)  # bytes, where a file is sent
    rate: str = "600/minute"  # requests of one key or address; none: no limit

    @field_validator("rate")
    @classmethod
    def _reads(cls, rate: str) -> str:
        rate_of(rate)
        return rate

    def refuse_texts(self, texts: Sequence[Inputs]) -> int:
        """E_LIMIT for too many texts or characters; the number of characters otherwise."""
        self._refuse("batch", len(texts), "texts")
        characters = sum(map(_characters, texts))
        self._refuse("characters", characters, "characters")
        return characters

    def refuse_options(self, options: Options, recipe: SearchSettings) -> None:
        """E_LIMIT for what would take too long. What the run's own recipe says was chosen by whoever serves it."""
        self._refuse("n_best", options.n_best, "outputs")
        if options.beam is not None or options.strategy is not None or options.groups is not None or options.risk:
            self._refuse("beam", options.rows(options.searching(recipe).strategy), "hypotheses")
        for length in (options.max_length, options.min_length):
            self._refuse("max_length", length or 0, "tokens")
        for ratio in (options.max_ratio, options.min_ratio):
            self._refuse("max_ratio", ratio or 0, "tokens per source token")
        lists = (options.banned, options.must, options.one_of or ())
        self._refuse("entries", max(map(len, lists)), "entries")
        said = sum(len(text) for texts in lists for text in texts) + len(options.pattern or "") + len(options.prefix)
        self._refuse("characters", said, "characters of options")

    def _refuse(self, name: str, given: float, unit: str) -> None:
        most = getattr(self, name)
        if given > most:
            raise Refusal("E_LIMIT", f"{name}: {given:,} {unit}, the limit is {most:,}", fix="ask for less at once")


def _characters(inputs: Inputs) -> int:
    return len(inputs) if isinstance(inputs, str) else sum(map(len, inputs.values()))


def rate_of(text: str) -> RateLimitItem | None:
    """`100/minute` as the library reads it; ValueError for anything else."""
    if text == NO_RATE:
        return None
    try:
        return parse(text)
    except ValueError:
        raise ValueError(f"{text!r} is no rate: write 100/minute, 5/second or none") from None


def checked_rate(text: str) -> str:
    """The same for a command line."""
    try:
        rate_of(text)
    except ValueError as error:
        raise SeqloomError("E_USAGE", str(error), where="--rate") from None
    return text


class Rates:
    """Requests counted per key or address, in memory."""

    def __init__(self, usual: str) -> None:
        self.usual = usual
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    def count(self, who: str, rate: str | None = None) -> None:
        """Count one request; E_RATE where it is one too many."""
        item = rate_of(rate or self.usual)
        if item is None or self._limiter.hit(item, who):
            return
        wait = self._limiter.get_window_stats(item, who).reset_time - time.time()
        raise Refusal("E_RATE", f"more than {item}", fix="wait before the next request", retry_after=wait)

"""Errors a person can act on: a stable name, what happened, where, what to do, and an exit code.

Everything seqloom refuses is refused with one of these; a traceback is reserved for our own mistakes.
The names are part of the public contract: the command line prints them and the server returns them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import partial

EXIT_CODES: dict[str, int] = {
    "E_INTERNAL": 1,  # our own mistake
    "E_USAGE": 2,  # a command line that cannot be obeyed
    "E_RECIPE": 2,  # a recipe with unknown keys or impossible values
    "E_VOCABULARY": 2,  # a vocabulary file with duplicates or empty entries
    "E_RUN": 2,  # the run folder holds another recipe
    "E_RANKS": 2,  # processes that work together do not agree
    "E_EXTRA": 2,  # an optional package is missing
    "E_DATA": 3,  # a file that does not have the promised form
    "E_ALIGN": 3,  # parallel files of different length
    "E_UTF8": 3,  # bytes that are not UTF-8
    "E_EMPTY": 3,  # nothing left to work on
    "E_GZIP": 3,  # a truncated or corrupt .gz
    "E_LONG": 3,  # a source over the recipe's maximum
    "E_BUNDLE": 4,  # a bundle or checkpoint that cannot be trusted
    "E_FORMAT": 4,  # a bundle from a newer seqloom
    "E_CHANGED": 4,  # the data changed between run and resume
    "E_DIVERGED": 5,  # the loss is not finite
    "E_FILE": 6,  # a path that cannot be read or written
    "E_DISK": 6,  # no space left
    "E_MEMORY": 6,  # one example does not fit
    "E_LOCKED": 6,  # another process works on this run
    "E_WORKER": 6,  # a helper process died
    "E_QUALITY": 7,  # the quality gate was missed
}

PREEMPTED = 75
INTERRUPTED = 130


class SeqloomError(Exception):
    """One refusal: `what` happened, `where` (file:line or recipe path), and the `fix`."""

    def __init__(self, code: str, what: str, *, where: str = "", fix: str = "") -> None:
        assert code in EXIT_CODES, code
        self.code, self.what, self.where, self.fix = code, what, where, fix
        super().__init__(self.line)

    def __reduce__(self) -> tuple[object, ...]:
        """So that it arrives whole from a process that works for another."""
        return partial(SeqloomError, self.code, self.what, where=self.where, fix=self.fix), ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.code]

    @property
    def line(self) -> str:
        """The one line that the command line prints to stderr."""
        parts = [part.replace("\n", " ") for part in (self.what, self.where, self.fix) if part]
        return f"seqloom: error[{self.code}]: " + "; ".join(parts)


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt name: ` (did you mean "x"?)`, or nothing when none is near."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f' (did you mean "{matches[0]}"?)' if matches else ""

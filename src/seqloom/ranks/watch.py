"""Who is still there? Every process leaves a sign of life at the meeting place, every second, and reads the others'.

A collective operation cannot say whom it waits for, and may wait for ever: for a process that was stopped, a machine
whose link is down, a rank that failed while a GPU waits for it. Threads here can. One beats and judges; the other looks
whether the first still gets an answer, because a dead link gives none, not even an error. What they find ends the
process with one line that names the rank. A process that fails leaves its exit code behind, and the others take it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypedDict

from torch.distributed import Store  # type: ignore[attr-defined]

from seqloom.errors import INTERRUPTED, SeqloomError
from seqloom.ranks.launch import Launch

BEAT = 1.0  # seconds between two signs of life
SUSPECT = 5.0  # seconds of silence that name the culprit where something has failed already
GRACE = 5.0  # seconds to end in peace after another process has failed
PREPARING = 10  # times the limit, where a rank prepares or finishes: a library may hold the interpreter for long


class Sign(TypedDict):
    """What a process leaves: a number that grows, its machine, what it does, and its exit code when it ends."""

    beat: int
    host: str
    step: int | None  # None: it prepares, or finishes
    end: int | None
    code: str  # of the error it ended with
    lost: list[int]  # whom it blames without a word: the lowest rank that is left says `why`
    why: str


@dataclass
class _Heard:
    sign: Sign
    at: float


@dataclass
class Watch:
    """`begin` after all have met. `store` must be a connection of its own: one that waits blocks all who share it."""

    launch: Launch
    store: Store
    timeout: float
    fix: str = ""  # what to do where a rank was lost
    tell: Callable[[str], None] = lambda line: _say(line)
    step: int | None = None
    _heard: dict[int, _Heard] = field(default_factory=dict)
    _answered_at: float = field(default_factory=time.monotonic)  # by the meeting place
    _read_at: float = field(default_factory=time.monotonic)  # when all signs were read last
    _broken_at: float | None = None  # since when the meeting place refuses
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _beat: int = 0
    _blamed: tuple[Sequence[int], str] = ((), "")  # what this process knows, and leaves to another to say

    def __post_init__(self) -> None:
        self.host = socket.gethostname()

    def sign(self, end: int | None = None, code: str = "") -> None:
        """Leave a sign of life, or the last one."""
        self._beat += 1
        lost, why = self._blamed
        sign = Sign(beat=self._beat, host=self.host, step=self.step, end=end, code=code, lost=list(lost), why=why)
        self.store.set(_key(self.launch.rank), json.dumps(sign))

    def sign_now(self) -> None:
        """At once: from the first step on the others are less patient with this process, and must know that."""
        with self._lock:
            self.sign()

    def begin(self) -> None:
        for work in (self._beating, self._listening):
            threading.Thread(target=work, name="seqloom-watch", daemon=True).start()

    def end(self, exit_code: int, code: str) -> None:
        """Leave: with 0 the others go on, else they end too."""
        self._ended.set()
        if self._lock.acquire(timeout=GRACE):  # else a thread waits for an answer that does not come
            with suppress(RuntimeError):  # the meeting place is gone, and so are those who would read this
                self.sign(exit_code, code)
            self._lock.release()

    # --- what the main thread asks -------------------------------------------------------------------------------

    def raise_failure(self) -> None:
        """End as another process did, if one failed."""
        failure = self._failure()
        if failure is not None:
            raise failure

    def verdict(self, problem: str) -> BaseException:
        """Something between the processes failed. Whose fault is it? Waits until that is clear, but not for long."""
        until = time.monotonic() + 3 * SUSPECT
        while time.monotonic() < until:
            failure = self._failure()
            if failure is not None:
                return failure
            if silent := self._silent(SUSPECT):
                return self._blame(silent, "ended without a word, or cannot be reached")
            if self._broken_at is not None and time.monotonic() - self._broken_at > 2 * BEAT:
                return self._blame([0], "ended without a word, or cannot be reached")
            time.sleep(BEAT / 5)
        late = self._late()
        if late:
            return self._blame(late, "did not come to the step that the others wait in")
        return SeqloomError("E_WORKER", f"the processes lost each other: {problem}", where="ranks", fix=self.fix)

    def _failure(self) -> BaseException | None:
        """How another process failed; where it left the word to this one, the error that says it."""
        failed = [sign for sign in self._signs() if sign["end"]]
        for sign in failed:
            if sign["lost"] and self._speaks(sign["lost"]):
                return self._lost(sign["lost"], sign["why"])
        return SystemExit(failed[0]["end"]) if failed else None

    def _blame(self, ranks: Sequence[int], what: str) -> BaseException:
        """The error, on the lowest rank that is left; the others end without a word, and leave it to that one."""
        error = self._lost(ranks, what)
        if self._speaks(ranks):
            return error
        self._blamed = ranks, what
        return SystemExit(error.exit_code)

    def _lost(self, ranks: Sequence[int], what: str) -> SeqloomError:
        return SeqloomError("E_WORKER", f"{self._named(ranks)} {what}", where="ranks", fix=self.fix)

    def _speaks(self, lost: Sequence[int]) -> bool:
        return self.launch.rank == min(rank for rank in range(self.launch.size) if rank not in lost)

    def _named(self, ranks: Sequence[int]) -> str:
        hosts = {rank: self._heard[rank].sign["host"] for rank in ranks if rank in self._heard}
        named = ", ".join(f"{rank} ({hosts[rank]})" if rank in hosts else str(rank) for rank in ranks[:8])
        more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
        return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"

    def _signs(self) -> Iterable[Sign]:
        return [heard.sign for rank, heard in sorted(self._heard.items()) if rank != self.launch.rank]

    def _late(self) -> list[int]:
        steps = {rank: heard.sign["step"] for rank, heard in self._heard.items() if heard.sign["step"] is not None}
        return [rank for rank, step in sorted(steps.items()) if step < max(steps.values())]

    def _silent(self, limit: float) -> list[int]:
        """Ranks without a sign for so long, when they were last read: what this process missed is not their fault."""
        return [
            rank
            for rank, heard in sorted(self._heard.items())
            if rank != self.launch.rank and heard.sign["end"] is None and self._read_at - heard.at > limit
        ]

    # --- the threads ---------------------------------------------------------------------------------------------

    def _beating(self) -> None:
        failed_at: float | None = None
        while not self._ended.wait(BEAT):
            try:
                with self._lock:
                    if self._ended.is_set():
                        return
                    self.sign()
                    self._read(self.store.multi_get([_key(rank) for rank in range(self.launch.size)]))
                self._broken_at = None
            except (RuntimeError, ValueError):  # refused, not silent
                self._broken_at = self._broken_at or time.monotonic()
                if time.monotonic() - self._broken_at > 2 * GRACE:
                    self._leave([0], "cannot be reached any more")
                continue
            failure = self._failure()
            if failure is not None:
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > GRACE and not self._ended.is_set():
                    self._end_as(failure)
            if silent := self._silent_by_limits():
                self._leave(silent, f"gave no sign of life for {self.timeout:g} s")

    def _read(self, answers: Sequence[bytes]) -> None:
        self._answered_at = self._read_at = time.monotonic()
        for rank, answer in enumerate(answers):
            sign: Sign = json.loads(answer)
            known = self._heard.get(rank)
            if known is None or known.sign != sign:
                self._heard[rank] = _Heard(sign, self._read_at)

    def _silent_by_limits(self) -> list[int]:
        patient = self._silent(self.timeout * PREPARING)
        return [rank for rank in self._silent(self.timeout) if rank in patient or self._at_work(rank)]

    def _at_work(self, rank: int) -> bool:
        return self._heard[rank].sign["step"] is not None

    def _listening(self) -> None:
        """No answer at all: the link to the meeting place is down. Time in which this process itself stood still, by a
        signal or for want of the interpreter, does not count."""
        looked_at = time.monotonic()
        while not self._ended.wait(BEAT / 2):
            now = time.monotonic()
            if now - looked_at > SUSPECT:
                self._answered_at = now
            looked_at = now
            limit = self.timeout * (1 if self.step is not None else PREPARING)
            if now - self._answered_at > limit and self._broken_at is None:
                self._leave([0], f"cannot be reached since {limit:g} s, nor the place where all meet", always=True)

    def _leave(self, ranks: Sequence[int], what: str, *, always: bool = False) -> None:
        """End this process, whatever its main thread waits for."""
        if self._ended.is_set():
            return
        if always:  # there is nobody who could be told
            error = self._lost(ranks, what)
            if self._speaks(ranks) or self.launch.local == 0:
                self.tell(error.line)
            _exit(error.exit_code)
        self._end_as(self._blame(ranks, what))

    def _end_as(self, failure: BaseException) -> None:
        """Leave a last sign, so that nobody misses this process too; who holds the meeting place lets it be read."""
        if isinstance(failure, SeqloomError):
            self.tell(failure.line)
        exit_code, code = ending(failure)
        with suppress(RuntimeError):
            self.sign(exit_code, code)
        if self.launch.leads and not self.launch.hosted:
            time.sleep(3 * BEAT)
        _exit(exit_code)


def ending(error: BaseException | None) -> tuple[int, str]:
    """Exit code and error code of a process that ends with this error."""
    match error:
        case None:
            return 0, ""
        case SeqloomError():
            return error.exit_code, error.code
        case SystemExit():
            return (error.code if isinstance(error.code, int) else 1), ""
        case KeyboardInterrupt():
            return INTERRUPTED, ""
    return 1, "E_INTERNAL"


def _key(rank: int) -> str:
    return f"sign/{rank}"


def _say(line: str) -> None:
    shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar may have hidden the cursor
    print(shown + line, file=sys.stderr, flush=True)


def _exit(code: int) -> None:
    sys.stdout.flush()
    os._exit(code)

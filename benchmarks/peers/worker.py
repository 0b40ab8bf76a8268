"""What every contender shares: its job, and the turns that it takes with the others.

A worker builds its model, says that it is ready, and waits. Each line `go` is one window: some training steps, or some
batches of prediction. It answers with one JSON line and waits again, blocked, so that the others have the machine.
Only the standard library here: this file runs in the environment of every peer.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Job:
    """What a contender is asked to do. Paths are absolute."""

    kind: str  # train | predict
    data: str  # a folder as data.py writes it
    scratch: str  # an empty folder of its own
    model: dict[str, Any]  # sizes, as questions.py has them
    threads: int
    steps: int  # in a window: training steps, or batches of prediction
    tokens: int = 0  # training: positions in a batch, rows x the longest sequence of either side; 0: no limit
    rows: int = 0  # training: sequences in a batch; 0: no limit
    batch: int = 64  # prediction: sentences side by side
    beam: int = 5
    length: int | None = None  # prediction: exactly so many tokens for every sentence; None: where the model stops
    bundle: str = ""  # prediction: a trained run of seqloom
    variant: str = ""

    def file(self, name: str) -> Path:
        return Path(self.data) / name

    def pieces(self, name: str) -> list[list[str]]:
        """The lines of a file as pieces."""
        return [line.split(" ") for line in self.lines(name)]

    def lines(self, name: str) -> list[str]:
        return self.file(name).read_text(encoding="utf-8").removesuffix("\n").split("\n")

    def batches(self) -> Iterator[list[str]]:
        """Test sentences, the same for all, for ever: batches of like lengths, or single ones in a random order."""
        lines = self.lines("test.source")
        if self.batch == 1:
            random.Random(1).shuffle(lines)
        while True:
            for start in range(0, len(lines) - self.batch + 1, self.batch):
                yield lines[start : start + self.batch]

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class Count(NamedTuple):
    """What a batch holds: real target tokens, and real ones and positions of both sides."""

    tokens: int
    real: int
    positions: int


class Turns:
    """This worker's side of the protocol. Whatever a library prints goes to the log."""

    def __init__(self, *packages: str) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._about = {package: version(package) for package in packages}
        self._is_ready = False

    def paced(self, batches: Iterable[Any], steps: int, count: Callable[[Any], Count]) -> Iterator[Any]:
        """A trainer's batches, handed on in windows: a trainer that asks for the next one has finished the last.

        Making the batches belongs to the window.
        """
        stream = iter(batches)
        while True:
            started_at = self._wait()
            counts = []
            for _ in range(steps):
                batch = next(stream)
                counts.append(count(batch))
                yield batch
            self._answer(started_at, counts)

    def serve(self, answer: Callable[[list[list[str]]], int], job: Job) -> None:
        """Predict windows of batches; `answer` returns the number of tokens that it found."""
        batches = job.batches()
        while True:
            window = [next(batches) for _ in range(job.steps)]
            started_at = self._wait()
            tokens = answer(window)
            self._say(tokens=tokens, seconds=time.perf_counter() - started_at, sentences=sum(map(len, window)))

    def hear(self, tokens: int, padding: float) -> None:
        """For a trainer that counts by itself: end a window, and wait for the next."""
        self._say(tokens=tokens, seconds=time.perf_counter() - self.started_at, padding=padding)
        self.begin()

    def begin(self) -> None:
        self.started_at = self._wait()

    def _wait(self) -> float:
        if not self._is_ready:
            self._say(ready=self._about)
            self._is_ready = True
        if not sys.stdin.readline():
            os._exit(0)  # nobody asks any more
        return time.perf_counter()

    def _answer(self, started_at: float, counts: list[Count]) -> None:
        elapsed = time.perf_counter() - started_at
        tokens, real, positions = (sum(column) for column in zip(*counts, strict=True))
        self._say(tokens=tokens, seconds=elapsed, padding=1 - real / positions)

    def _say(self, **answer: object) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)


def job() -> Job:
    return Job(**json.loads(sys.argv[1]))

"""A small study and its real server, for tests: uvicorn on a free port, in a thread of the test's own process."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from commands import command_line, environment
from seqloom.rate.app import app_of
from seqloom.rate.making import Wishes, made
from seqloom.rate.material import Material
from seqloom.rate.plan import Item
from seqloom.rate.questions import chosen
from seqloom.rate.store import Store
from seqloom.web.listening import Address, Listening

SOURCES = [f"der Satz Nummer {number} ist hier" for number in range(1, 13)]
REFERENCES = [f"sentence number {number} is here" for number in range(1, 13)]
GOOD = [f"the sentence number {number} is here" for number in range(1, 13)]
BAD = [f"number {number} here the words not good" for number in range(1, 13)]


def material(
    sources: Sequence[str] = SOURCES, references: Sequence[str] = REFERENCES, **outputs: Sequence[str]
) -> Material:
    """Made-up systems on made-up sources; by default a good one and a bad one."""
    said = outputs or {"good": GOOD, "bad": BAD}
    wanted = [(text,) for text in references] if references else [()] * len(sources)
    items = [
        Item(source=source, references=right, where=f"test.tsv:{number}")
        for number, (source, right) in enumerate(zip(sources, wanted, strict=True), start=1)
    ]
    return Material(tuple(said), tuple(items), tuple(tuple(texts) for texts in said.values()))


def study(path: Path, given: Material | None = None, raters: Sequence[str] = ("anna",), **wishes: object) -> Path:
    """Write a study; `questions` are words, the other wishes those of `Wishes`."""
    some = given or material()
    questions = chosen(str(wishes.pop("questions", "adequate,fluent,rank")), len(some.systems))
    made(path, some, Wishes(questions, **wishes), raters)  # type: ignore[arg-type]
    return path


@dataclass
class Served:
    """A study that is open, and where."""

    store: Store
    url: str
    server: Listening

    def link(self, rater: str = "anna") -> str:
        return f"{self.url}/#{self.store.token(rater)}"

    def client(self, rater: str = "anna") -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.store.token(rater)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)


@contextmanager
def serving(path: Path, port: int = 0, names: Sequence[str] = (), patience: float = 5.0) -> Iterator[Served]:
    """The study at `path`, served."""
    with Store(path, patience) as store:
        address = Address(port=port)
        listener = address.bound()
        server = Listening(app_of(store, names))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield Served(store, address.url(listener), server)
        finally:
            server.should_exit = True
            thread.join(10)


@contextmanager
def process(path: Path, *more: object, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The real command, and every rater's link."""
    line = command_line("rate", "open", path, "--port", port, *more)
    running = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert running.stdout is not None
    assert running.stderr is not None
    try:
        running.stderr.readline()  # the last that it says before it serves
        with Store(path) as store:
            count = len(store.raters())
        links = dict(running.stdout.readline().split() for _ in range(count))
        yield running, links
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()

"""How `seqloom predict` answers: lines or texts in, in the form that was asked for, counted on the way."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from seqloom.cli import say
from seqloom.cli.sink import Sink
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.api.predictions import Prediction
    from seqloom.data.examples import Inputs
    from seqloom.data.files import BadUtf8, Tally
    from seqloom.data.inputs import InputForm

STDIN = "-"


def as_one(runs: Sequence[str | Path]) -> list[str]:
    """The members of `--ensemble`, of which there must be several."""
    from seqloom.api.load import members

    found = members(runs)
    if len(found) == 1:
        fix = "name several, or a folder that 'train --seeds' made"
        raise SeqloomError("E_USAGE", "--ensemble needs several runs", where=str(runs[0]), fix=fix)
    return [str(run) for run in found]


A = TypeVar("A", contravariant=True)


class Predictor(Protocol[A]):
    """A model, whoever computes it, and what it can be asked."""

    def predict(
        self, texts: Iterable[Inputs], options: A, chunk: int = ..., name: str = ..., /
    ) -> Iterator[Prediction]: ...

    def refuse_long(self, texts: Iterable[Inputs], options: A, name: str, /) -> None: ...


@dataclass
class Job(Generic[A]):
    """One model, one way to ask it, one form of answers; counts while it answers."""

    model: Predictor[A]
    options: A
    form: str
    on_bad_utf8: BadUtf8
    quiet: bool
    asked: InputForm

    def __post_init__(self) -> None:
        self.lines = self.empty = self.long = self.truncated = 0
        self.unread: list[SeqloomError] = []
        self.tokens = self.source_tokens = 0
        self.unknown = 0.0

    def answer_texts(self, texts: list[str], output: Path | None) -> None:
        """Texts of the command line; line breaks inside them are kept."""
        inputs = [self.asked.inputs(text, "--text") for text in texts]
        self.model.refuse_long(inputs, self.options, "--text")
        self._answer(self.model.predict(inputs, self.options, len(inputs), "--text"), output, keep_breaks=True)

    def answer_lines(self, path: str, output: Path | None, buffer: int | None) -> None:
        """Lines of a file, a pipe or a keyboard."""
        from seqloom.data.files import mending

        with mending("--on-bad-utf8 skip or replace"):
            self._answer_lines(path, output, buffer)

    def _answer_lines(self, path: str, output: Path | None, buffer: int | None) -> None:
        from seqloom.api.reading import CHUNK_LINES
        from seqloom.data.files import Tally, is_regular, shown
        from seqloom.data.inputs import read_inputs

        typed = path == STDIN and sys.stdin.isatty()
        total = None
        if is_regular(path):  # read twice: what cannot be answered is found before the first answer
            counted = _Counted(read_inputs(path, self.asked, on_bad_utf8=self.on_bad_utf8))
            self.model.refuse_long(counted, self.options, shown(path))
            total = counted.count
        if typed and not self.quiet:
            say.talk(f"{self.model!r}\ntype a source and press Enter; Ctrl-D ends")
            self.quiet = True  # how fast a person types is nobody's business
        tally = Tally()
        sources = read_inputs(path, self.asked, on_bad_utf8=self.on_bad_utf8, tally=tally)
        chunk = buffer or (1 if typed else CHUNK_LINES)
        with _progress(total, output) as tick:
            predictions = self.model.predict(sources, self.options, chunk, shown(path))
            self._answer(tick(predictions), output, flush=chunk == 1, tally=tally)

    def _answer(
        self,
        predictions: Iterable[Prediction],
        output: Path | None,
        *,
        keep_breaks: bool = False,
        flush: bool = False,
        tally: Tally | None = None,
    ) -> None:
        started_at = time.monotonic()
        with Sink(output) as out:
            for number, prediction in enumerate(predictions, start=1):
                self._count(prediction)
                out.write(_written(prediction, number, self.form, keep_breaks), flush)
        if not self.quiet:
            say.talk(self._summary(time.monotonic() - started_at, tally))
        self._tell_unread()

    def _tell_unread(self) -> None:
        """A line for each source that could not be read, and the exit code of the first."""
        if len(self.unread) < self.lines:
            for fault in self.unread:
                say.talk(fault.line)
        if not self.unread:
            return
        if len(self.unread) == self.lines:
            raise self.unread[0]
        what = f"{len(self.unread):,} of {self.lines:,} sources could not be read; their answers are empty"
        raise SeqloomError(self.unread[0].code, what, fix="the lines above say which; --on-bad-file error stops")

    def _count(self, prediction: Prediction) -> None:
        self.lines += 1
        self.tokens += len(prediction.tokens)
        self.source_tokens += prediction.length
        self.unknown += prediction.unknown * prediction.length
        self.truncated += prediction.best.truncated
        if prediction.fault is not None:
            self.unread.append(prediction.fault)
        elif prediction.skipped:
            self.empty += not prediction.source.strip()
            self.long += bool(prediction.source.strip())

    def _summary(self, elapsed: float, tally: Tally | None) -> str:
        elapsed = max(elapsed, 1e-9)
        speed = f"{self.lines / elapsed:,.0f} lines/s"
        speed += f", {self.tokens / elapsed:,.0f} tokens/s" if self.tokens else ""  # what is ranked has none
        parts = [f"{self.lines:,} line{'' if self.lines == 1 else 's'} in {elapsed:.1f} s ({speed})"]
        parts.append(f"{say.percent(self.unknown / max(1, self.source_tokens))} of source tokens unknown")
        parts.append(f"{self.truncated:,} truncated")
        if self.empty:
            parts.append(f"{self.empty:,} empty")
        if self.long:
            parts.append(f"{self.long:,} over-long skipped")
        parts += [f"{count:,} {name.replace('_', ' ')}" for name, count in (tally or {}).items()]
        return "; ".join(parts)


@dataclass
class CloseLook:
    """Single texts of the command line, looked at while they are answered."""

    model: Model
    options: Options
    form: str
    asked: InputForm

    def stream(self, texts: list[str], output: Path | None) -> None:
        """Answers told while they are made."""
        with Sink(output) as out:
            for text in texts:
                for piece in self.model.stream(self.asked.inputs(text, "--text"), **dict(self.options)):
                    out.write(piece, flush=True)
                out.write("\n", flush=True)

    def alternatives(self, texts: list[str], count: int, output: Path | None) -> None:
        """For each text what may stand behind the prefix: line, rank, probability, token, output; or JSON."""
        wishes = {name: value for name, value in dict(self.options).items() if name != "prefix"}
        with Sink(output) as out:
            for number, text in enumerate(texts, start=1):
                inputs = self.asked.inputs(text, "--text")
                found = self.model.alternatives(inputs, self.options.prefix, count, **wishes)
                if self.form == "jsonl":
                    told = {"line": number, "source": text, "alternatives": [one.as_dict() for one in found]}
                    out.write(json.dumps(told, ensure_ascii=False, allow_nan=False) + "\n")
                    continue
                for rank, one in enumerate(found, start=1):
                    cells = (_flat(one.token), _flat(one.prediction.text))
                    out.write(f"{number}\t{rank}\t{one.probability:.6f}\t{cells[0]}\t{cells[1]}\n")


def _written(prediction: Prediction, number: int, form: str, keep_breaks: bool) -> str:
    if form == "jsonl":
        return json.dumps({"line": number, **prediction.as_dict()}, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "tsv":
        rows = enumerate(prediction.hypotheses, start=1)
        return "".join(f"{number}\t{rank}\t{one.score:.6f}\t{_flat(one.text)}\n" for rank, one in rows)
    return (prediction.text if keep_breaks else _flat(prediction.text, tabs=True)) + "\n"


def _flat(text: str, tabs: bool = False) -> str:
    """On one line, so that lines in are lines out; in a table also within one cell."""
    text = text.replace("\n", " ")
    return text if tabs else text.replace("\t", " ")


class _Counted:
    """Passes lines on and counts them."""

    def __init__(self, lines: Iterable[Inputs]) -> None:
        self.lines, self.count = lines, 0

    def __iter__(self) -> Iterator[Inputs]:
        for line in self.lines:
            self.count += 1
            yield line


@contextmanager
def _progress(
    total: int | None, output: Path | None
) -> Iterator[Callable[[Iterable[Prediction]], Iterable[Prediction]]]:
    """A bar on stderr where a person watches and the answers go elsewhere."""
    elsewhere = output is not None or not sys.stdout.isatty()
    if total is None or not elsewhere or not sys.stderr.isatty():
        yield lambda predictions: predictions
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield lambda predictions: progress.track(predictions, total=total, description="predicting")

"""How `seqloom predict` answers: lines or texts in, in the form that was asked for, counted on the way."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import typer

from seqloom.cli import say
from seqloom.cli.counts import Counts
from seqloom.cli.sink import Sink
from seqloom.data.files import Tally, shown
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.bulk import Unit
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.api.predictions import Prediction
    from seqloom.data.examples import Inputs
    from seqloom.data.files import BadUtf8, RawLine
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
        self, texts: Iterable[Inputs], options: A, chunk: int = ..., name: str = ..., first: int = ..., /
    ) -> Iterator[Prediction]: ...

    def refuse_long(self, texts: Iterable[Inputs], options: A, name: str = ..., first: int = ..., /) -> None: ...


@dataclass
class Job(Generic[A]):
    """One model, one way to ask it, one form of answers; counts while it answers."""

    model: Predictor[A]
    options: A
    form: str
    on_bad_utf8: BadUtf8
    quiet: bool
    asked: InputForm
    leads: bool = True  # of several processes that answer together one writes and talks

    def __post_init__(self) -> None:
        self.counts, self.tally = Counts(), Tally()

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
        from seqloom.data.files import is_regular
        from seqloom.data.inputs import read_inputs

        typed = path == STDIN and sys.stdin.isatty()
        total = None
        if is_regular(path):  # read twice: what cannot be answered is found before the first answer
            counted = _Counted(read_inputs(path, self.asked, on_bad_utf8=self.on_bad_utf8))
            self.model.refuse_long(counted, self.options, shown(path))
            total = counted.count if self.leads else None
        if typed and not self.quiet:
            say.talk(f"{self.model!r}\ntype a source and press Enter; Ctrl-D ends")
            self.quiet = True  # how fast a person types is nobody's business
        sources = read_inputs(path, self.asked, on_bad_utf8=self.on_bad_utf8, tally=self.tally)
        chunk = buffer or (1 if typed else CHUNK_LINES)
        with _progress(total, output) as tick:
            predictions = self.model.predict(sources, self.options, chunk, shown(path))
            self._answer(tick(predictions), output, flush=chunk == 1)

    def _answer(
        self,
        predictions: Iterable[Prediction],
        output: Path | None,
        *,
        keep_breaks: bool = False,
        flush: bool = False,
    ) -> None:
        if not self.leads:
            deque(predictions, maxlen=0)
            return
        started_at = time.monotonic()
        with Sink(output) as out:
            for number, prediction in enumerate(predictions, start=1):
                self.counts.add(prediction)
                if prediction.fault is not None:
                    say.talk(prediction.fault.line)
                out.write(_written(prediction, number, self.form, keep_breaks), flush)
        if not self.quiet:
            say.talk(self.counts.summary(time.monotonic() - started_at, self.tally))
        if self.counts.faults:
            raise typer.Exit(self.counts.faults[0].exit_code)

    # --- lines of a shard --------------------------------------------------------------------------------------------

    def answer_unit(self, unit: Unit, path: str) -> str:
        """What is written for some lines of a file, as a prediction of all of it would have it."""
        first, inputs = unit.lines[0].number, self._read(unit, path)
        found = list(self.model.predict(inputs, self.options, len(unit.lines), shown(path), first))
        for prediction in found:
            self.counts.add(prediction)
        rows = enumerate(found, start=first)
        return "".join(_written(one, number, self.form, keep_breaks=False) for number, one in rows)

    def refuse_unit(self, unit: Unit, path: str) -> None:
        """Look for lines that cannot be answered, before the first one is."""
        self.model.refuse_long(self._read(unit, path), self.options, shown(path), unit.lines[0].number)

    def passed_over(self, line: RawLine, fault: SeqloomError) -> str:
        """What is written for a line that cannot be answered."""
        from seqloom.api.predictions import passed_over

        self.counts.lines += 1
        extras = dict.fromkeys(self.asked.extras, "")
        return _written(passed_over("", extras, fault), line.number, self.form, keep_breaks=False)

    def _read(self, unit: Unit, path: str) -> Iterator[Inputs]:
        from seqloom.data.readers import source_of

        place = shown(path)
        for line in unit.lines:
            text = source_of(line, path, self.on_bad_utf8, self.tally)
            yield self.asked.inputs(text, f"{place}:{line.number}", place)


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
        if prediction.given is not None:  # the first row is the answer, as it may be given
            rows = enumerate([replace(prediction.best, text=prediction.given)], start=1)
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

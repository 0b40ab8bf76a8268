"""What a person sees while a model trains: a live table on a terminal, plain lines elsewhere.

Everything goes to stderr. Samples of the data are for a person who watches: where lines may be kept, they are of level
debug (`seqloom --debug train`). Colours are rich's business, which obeys NO_COLOR; text of the user is never read as
markup. When whoever read it is gone (a closed pipe, a lost terminal), nothing more is shown, and training goes on.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from seqloom.training.events import Checkpoint, Event, Finished, Logged, Sample, Started, Validated, Validating
from seqloom.training.observers import Stopwatch

LOGGER = logging.getLogger("seqloom.training")
PLAIN_INTERVAL = 10.0  # seconds between lines where nobody watches them live
ROWS = 8  # of the live table


class _Stderr(RichConsole):
    """Where rich would end the process, for a pipe that was closed."""

    def on_broken_pipe(self) -> None:
        _unheard(self)


def _unheard(console: RichConsole) -> None:
    """Show nothing more, and let nobody else stumble over the closed stream either."""
    console.quiet = True
    os.dup2(os.open(os.devnull, os.O_WRONLY), console.file.fileno())


class Console:
    """`with Console() as console:` and then call it with each event."""

    def __init__(self, console: RichConsole | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or _Stderr(stderr=True, highlight=False)
        self.clock = clock
        self.watch = Stopwatch(clock)
        self.rows: list[tuple[str, ...]] = []
        self.status = ""
        self.best = ""
        self.samples: tuple[Sample, ...] = ()
        self._baseline: tuple[float, float] | None = None  # progress and elapsed to measure from
        self._printed_at = -math.inf
        self._live: Live | None = None

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def __call__(self, event: Event) -> None:
        try:
            self._show(event)
        except OSError:  # the terminal is gone
            _unheard(self.console)
            self._stop()

    def _show(self, event: Event) -> None:
        rate = self.watch.rate(event)
        match event:
            case Started():
                self._started(event)
            case Logged():
                self._logged(event, rate or 0.0)
            case Validating():
                self.status = f"validating at step {event.step:,}"
            case Validated():
                self._validated(event)
            case Finished():
                self._stop()
                self._say(f"{_ENDS[event.reason]} at step {event.step:,} after {span(self.watch.elapsed)}")
            case Checkpoint():
                pass
        if self._live is not None:
            self._live.update(self._view())

    def _started(self, event: Started) -> None:
        again = f", resumed at step {event.step:,}" if event.step else ""
        self._say(f"training {event.parameters:,} parameters{again}")
        self._baseline = None if event.step else (0.0, 0.0)
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=False)
            self._live.start()

    def _logged(self, event: Logged, rate: float) -> None:
        row = (
            f"{event.step:,}",
            f"{event.epoch}",
            f"{event.loss:.4f}",
            perplexity(event.nll),
            f"{rate:,.0f}",
            f"{100 * event.padding:.1f} %",
            f"{event.lr:.2e}",
            self.best or "-",
            self._left(event.progress),
        )
        self.status = f"{event.skipped:,} updates skipped (not finite)" if event.skipped else ""
        self.rows = [*self.rows[-(ROWS - 1) :], row]
        if self._live is None and self.clock() - self._printed_at >= PLAIN_INTERVAL:
            self._printed_at = self.clock()
            named = "  ".join(f"{name} {value}" for name, value in zip(COLUMNS, row, strict=True))
            self._say("  ".join(part for part in (named, self.status) if part))

    def _validated(self, event: Validated) -> None:
        self.status = ""
        self.samples = event.samples
        if event.best is not None:
            self.best = f"{event.metric} {event.best:.4g}"
        values = "  ".join(f"{name} {value:.4g}" for name, value in event.values.items())
        verdict = "best so far" if event.improved else f"best {self.best} at step {event.best_step:,}"
        self._say(f"validated at step {event.step:,}: {values}  ({verdict})")
        if self._live is None:
            for line in _sample_lines(event.samples):
                LOGGER.debug(line)

    def _left(self, progress: float | None) -> str:
        """Time left if the rest goes as fast as what this sitting did."""
        if progress is None:
            return "-"
        if self._baseline is None:
            self._baseline = (progress, self.watch.elapsed)
        done, elapsed = progress - self._baseline[0], self.watch.elapsed - self._baseline[1]
        return span(elapsed * (1.0 - progress) / done) if done > 0 else "-"

    def _view(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in COLUMNS:
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        lines = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in _sample_lines(self.samples)]
        return Group(table, *lines, *([Text(self.status)] if self.status else []))

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)

    def _stop(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            try:
                live.stop()
            except OSError:
                _unheard(self.console)


COLUMNS = ("step", "epoch", "loss", "perplexity", "tokens/s", "padding", "lr", "best", "left")

_ENDS = {
    "steps": "all steps done",
    "epochs": "all epochs done",
    "patience": "no improvement any more: stopped",
    "preempted": "asked to stop: saved",
    "interrupted": "interrupted: saved",
}


def _sample_lines(samples: tuple[Sample, ...]) -> list[str]:
    lines: list[str] = []
    for sample in samples:
        mark = "=" if sample.output == sample.reference else "!"
        wanted = "" if mark == "=" else f"   (wanted: {sample.reference})"
        lines.append(f"  {mark} {sample.source} -> {sample.output}{wanted}".replace("\n", " "))
    return lines


def perplexity(nll: float) -> str:
    """exp of the mean negative log-likelihood, as a short word."""
    return f"{math.exp(nll):.3g}" if nll < 100 else "huge"


def span(seconds: float) -> str:
    """A length of time for people: 0:07, 12:30, 3:04:05."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

"""Who listens to the training loop: the metrics file, TensorBoard, the keeper of checkpoints.

An observer is called with each event, in order, before the loop goes on; it may take time, but it cannot change what
is learned. Clocks live here and in `console.py`, never in the loop.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from io import BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Protocol

from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, file_error
from seqloom.training import checkpoints
from seqloom.training.events import Checkpoint, Event, Finished, Logged, Started, Validated, Validating

CLOCK_FIELDS = ("elapsed", "tokens_per_second")  # all that differs between two runs of one recipe


class Observer(Protocol):
    """Hears every event."""

    def __call__(self, event: Event) -> None: ...


class Stopwatch:
    """Target tokens per second between two logs, the time of validations left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started_at = self._since = self._validating_at = clock()

    @property
    def elapsed(self) -> float:
        return self.clock() - self.started_at

    def rate(self, event: Event) -> float | None:
        """Hear an event; at each `Logged`, say how fast its interval was."""
        now = self.clock()
        match event:
            case Started():
                self.started_at = self._since = now
            case Validating():
                self._validating_at = now
            case Validated():
                self._since += now - self._validating_at
            case Logged():
                rate = event.tokens / max(1e-9, now - self._since)
                self._since = now
                return rate
        return None


class JsonLines:
    """`metrics.jsonl`: one line per log and validation, in the file as soon as it is known.

    When a run resumes, lines of steps after the snapshot are cut off, so that the file ends up as that of a run never
    interrupted, but for `CLOCK_FIELDS`. A fresh run begins a fresh file.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.watch = Stopwatch(clock)
        self._before = 0.0  # seconds that earlier sittings took
        self._file: BufferedWriter | None = None

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __call__(self, event: Event) -> None:
        rate = self.watch.rate(event)
        if isinstance(event, Started):
            self._open(event.step)
        if isinstance(event, Checkpoint):
            self._force()
        if not _is_recorded(event):
            return
        line: dict[str, object] = {"event": type(event).__name__.lower(), **asdict(event)}
        line.pop("samples", None)  # text of the data is for who watches, and nothing to keep
        line["elapsed"] = round(self._before + self.watch.elapsed, 3)
        if rate is not None:
            line["tokens_per_second"] = round(rate, 1)
        self._write(json.dumps(_plain(line), ensure_ascii=False, allow_nan=False) + "\n")

    def _open(self, step: int) -> None:
        kept = _lines_until(self.path, step) if step else []
        self._before = float(json.loads(kept[-1])["elapsed"]) if kept else 0.0
        atomic_write(self.path, "".join(f"{line}\n" for line in kept).encode())
        try:
            self._file = self.path.open("ab")
        except OSError as error:
            raise file_error(error, self.path) from None

    def _write(self, line: str) -> None:
        assert self._file is not None, "Started comes first"
        try:
            self._file.write(line.encode())
            self._file.flush()
        except OSError as error:
            raise file_error(error, self.path) from None

    def _force(self) -> None:
        """To disk before a checkpoint is: a power cut must not leave a checkpoint that is ahead of its metrics."""
        if self._file is not None:
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                raise file_error(error, self.path) from None


def _is_recorded(event: Event) -> bool:
    """What an interruption adds is not recorded: the file tells of the run, not of its sittings."""
    match event:
        case Started():
            return event.step == 0
        case Finished():
            return event.reason not in ("preempted", "interrupted")
        case Logged() | Validated():
            return True
    return False


def _lines_until(path: Path, step: int) -> list[str]:
    """Whole lines up to a step; what follows the first that is torn or later is dropped."""
    kept: list[str] = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    except OSError as error:
        raise file_error(error, path, "read") from None
    for line in text.split("\n"):
        try:
            record = json.loads(line)
            if record["step"] > step or record["event"] == "finished":
                break
            float(record["elapsed"])
        except (ValueError, KeyError, TypeError, RecursionError):
            break
        kept.append(line)
    return kept


def _plain(value: object) -> object:
    """JSON has no NaN: what is not finite becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class CheckpointKeeper:
    """Saves each checkpoint the loop offers; keeps the newest `keep` and the best."""

    def __init__(self, run: Path, keep: int = 2) -> None:
        self.run, self.keep = run, max(1, keep)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Checkpoint):
            checkpoints.save(event.snapshot(), self.run, best=event.best)
            checkpoints.prune(self.run, self.keep)


class TensorBoard:
    """Scalars for TensorBoard, where the extra `board` is installed (`available`); E_EXTRA where it is not.

    They are a convenience: where they cannot be written (a full disk, a folder that went), `tell` hears it once, and
    training goes on without them. Nothing is written by a thread, whose errors nobody would catch.
    """

    def __init__(self, path: Path, tell: Callable[[str], None] = lambda line: None) -> None:
        if not self.available():
            raise SeqloomError("E_EXTRA", "tensorboard is not installed", fix="pip install 'seqloom[board]'")
        self.path, self.tell = path, tell
        self._file: Path | None = None

    @staticmethod
    def available() -> bool:
        return find_spec("tensorboard") is not None

    def __call__(self, event: Event) -> None:
        try:
            if isinstance(event, Started):
                self._begin(event.step)
            scalars = _scalars(event)
            if self._file is not None and scalars:
                self._write(_tensorboard_scalars(event.step, scalars))
        except OSError as error:
            self._file = None
            self.tell(f"no more points for TensorBoard: {error.strerror or error} ({self.path})")

    def _begin(self, step: int) -> None:
        """A file of its own for every sitting; what it says of its first step cuts off the points that come later."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._file = self.path / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._write(*_tensorboard_start(step + 1 if step else None))

    def _write(self, *records: bytes) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        assert self._file is not None
        with self._file.open("ab") as file:
            writer = RecordWriter(file)
            for record in records:
                writer.write(record)


def _tensorboard_start(purge: int | None) -> list[bytes]:
    """The version that begins a file, and where points of a sitting that was cut off end."""
    from tensorboard.compat.proto.event_pb2 import Event as Record
    from tensorboard.compat.proto.event_pb2 import SessionLog

    first = Record(wall_time=time.time(), file_version="brain.Event:2")
    if purge is None:
        return [first.SerializeToString()]
    restart = Record(wall_time=time.time(), step=purge, session_log=SessionLog(status=SessionLog.START))
    return [first.SerializeToString(), restart.SerializeToString()]


def _tensorboard_scalars(step: int, values: Mapping[str, float]) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event as Record
    from tensorboard.compat.proto.summary_pb2 import Summary

    points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
    record: bytes = Record(wall_time=time.time(), step=step, summary=Summary(value=points)).SerializeToString()
    return record


def _scalars(event: Event) -> dict[str, float]:
    if isinstance(event, Logged):
        names = ("loss", "nll", "lr", "gradient_norm", "padding")
        return {f"train/{name}": float(getattr(event, name)) for name in names}
    if isinstance(event, Validated):
        return {f"validate/{name}": float(value) for name, value in event.values.items()}
    return {}

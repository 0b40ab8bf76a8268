"""Everything that training changes, in one place, and a snapshot of it from which training goes on exactly.

There are no generator states here: randomness comes from (seed, step). A snapshot is named tensors and plain
numbers; how it lies on disk is the business of `checkpoints.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from torch import nn

from seqloom import weights, wording
from seqloom.errors import SeqloomError
from seqloom.shapes import Tensor
from seqloom.tasks.carried import Carried
from seqloom.training.averaging import Ema
from seqloom.training.optim import Optimiser, Schedule
from seqloom.training.precision import Scaler


@dataclass
class Interval:
    """Sums since the last log."""

    steps: int = 0
    loss: float = 0.0
    nll: float = 0.0
    count: float = 0.0  # what both are divided by: tokens, each weighted like its example
    tokens: int = 0  # of the targets
    norm: float = 0.0
    updates: int = 0  # steps that were not skipped
    positions: int = 0  # of sources and targets
    real: int = 0  # those of them that hold something


@dataclass
class Counted:
    """What this process counted by itself since all last added up theirs: no part of a snapshot."""

    tokens: int = 0
    positions: int = 0
    real: int = 0


@dataclass
class Counters:
    """Where training stands."""

    step: int = 0
    epoch: int = 0  # whole epochs behind us
    batch: int = 0  # batches consumed in this epoch
    epoch_batches: int = 0  # batches of the last whole epoch; 0 when none is behind us
    tokens: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    best: float | None = None
    best_nll: float | None = None  # of the best validation: it decides between equals
    best_step: int = 0
    bad: int = 0
    interval: Interval = field(default_factory=Interval)


T = TypeVar("T")
_COUNTERS = TypeAdapter(Counters)
_NUMBERS = TypeAdapter(dict[str, float])
_SCALER = TypeAdapter(Scaler)

MODEL, EMA, OPTIMISER, CARRIED = "model/", "ema/", "optimiser/", "carried/"


@dataclass(frozen=True)
class Snapshot:
    """Named tensors (on the CPU, shared with nobody) and numbers that JSON can hold."""

    tensors: dict[str, Tensor]
    numbers: dict[str, object]

    def part(self, prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}

    @property
    def step(self) -> int:
        return counters_of(self).step

    def weights(self) -> dict[str, Tensor]:
        """The weights to use: those that validation saw, that is the EMA where there is one."""
        return {**self.part(MODEL), **self.part(EMA)}


def counters_of(snapshot: Snapshot) -> Counters:
    """The snapshot's counters; E_BUNDLE when they are not what this version writes."""
    return _checked(_COUNTERS, snapshot, "counters")


def _checked(adapter: TypeAdapter[T], snapshot: Snapshot, key: str) -> T:
    try:
        return adapter.validate_python(snapshot.numbers.get(key))
    except ValidationError as error:
        what = f"cannot resume: {key}: {wording.first_problem(error)}"
        raise SeqloomError("E_BUNDLE", what, where="snapshot", fix="use another checkpoint") from None


@dataclass
class TrainState:
    """The model, its optimiser, schedule, average and loss scaler, what windows carry, and the counters."""

    model: nn.Module
    optimiser: Optimiser
    schedule: Schedule
    ema: Ema | None
    scaler: Scaler | None = None
    carried: Carried | None = None
    counters: Counters = field(default_factory=Counters)
    counted: Counted = field(default_factory=Counted)

    def snapshot(self) -> Snapshot:
        parts = {MODEL: weights.of_model(self.model), OPTIMISER: self.optimiser.state()}
        if self.ema is not None:
            parts[EMA] = self.ema.averages
        if self.carried is not None:
            parts[CARRIED] = self.carried.tensors()
        tensors = {prefix + name: tensor for prefix, part in parts.items() for name, tensor in part.items()}
        numbers: dict[str, object] = {
            "kinds": self._kinds(),
            "counters": asdict(self.counters),
            "schedule": self.schedule.state(),
            **({"scaler": asdict(self.scaler)} if self.scaler is not None else {}),
        }
        return Snapshot(weights.copied(tensors), numbers)

    def _kinds(self) -> list[str]:
        return [type(self.optimiser).__name__, type(self.schedule).__name__]

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot; E_BUNDLE when it was taken of something else. Law 10 rests on this."""
        self.counters = counters_of(snapshot)
        schedule = _checked(_NUMBERS, snapshot, "schedule")
        if snapshot.numbers.get("kinds") != self._kinds():
            what = f"cannot resume {self._kinds()} from a snapshot of {snapshot.numbers.get('kinds')}"
            raise SeqloomError("E_BUNDLE", what, where="snapshot")
        weights.restore(self.model, snapshot.part(MODEL), "snapshot")
        self.optimiser.load(snapshot.part(OPTIMISER), "snapshot: optimiser")
        self.schedule.load(schedule)
        if self.scaler is not None:
            self.scaler = _checked(_SCALER, snapshot, "scaler")
        if self.ema is not None:
            self.ema.load(snapshot.part(EMA), "snapshot: ema")
        if self.carried is not None:
            self.carried.load(snapshot.part(CARRIED), next(self.model.parameters()).device)

    @contextmanager
    def for_use(self) -> Iterator[nn.Module]:
        """The model as it would be used: not training, with averaged weights where there are any."""
        self.model.eval()
        with self.ema.in_place() if self.ema else nullcontext():
            yield self.model

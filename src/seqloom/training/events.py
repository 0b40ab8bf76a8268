"""What the training loop tells the world: frozen records, without clocks and without files.

Two runs of one recipe yield equal events, and so does a resumed run from where it resumed (law 10). Speed and time
left are therefore not here: observers own clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from seqloom.training.state import Snapshot

Reason = Literal["steps", "epochs", "patience", "preempted", "interrupted"]


class Sample(NamedTuple):
    """One example to look at: what went in, what came out, what was wanted."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Started:
    """Before the first step. `step` is 0, or where a resumed run goes on."""

    step: int
    steps: int | None
    epochs: int | None
    parameters: int  # trainable numbers in the model


@dataclass(frozen=True)
class Logged:
    """Means over the steps since the last one: losses per target token, the gradient's norm per step."""

    step: int
    epoch: int  # counted from 1
    loss: float
    nll: float
    lr: float
    gradient_norm: float
    steps: int  # in this interval
    tokens: int  # target tokens in this interval
    tokens_seen: int  # since step 1
    padding: float  # share of positions that are not real, sources and targets together
    skipped: int  # updates skipped since step 1
    progress: float | None  # share of the run that is done; unknown during the first epoch of a run without `steps`


@dataclass(frozen=True)
class Validating:
    """A validation begins: its time is not training time."""

    step: int


@dataclass(frozen=True)
class Validated:
    """After a validation: its values, whether the watched one improved, and the best of it so far."""

    step: int
    epoch: int
    values: Mapping[str, float]
    metric: str
    improved: bool
    best: float | None
    best_step: int
    bad: int  # validations in a row without improvement
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Checkpoint:
    """A moment worth keeping. `snapshot()` copies it, and must be called before the loop goes on.

    Copying is left to who listens, because it costs a copy of model and optimiser.
    """

    step: int
    best: bool  # the validation of this very step improved
    snapshot: Callable[[], Snapshot] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Finished:
    """The last event, and why."""

    step: int
    reason: Reason


Event = Started | Logged | Validating | Validated | Checkpoint | Finished

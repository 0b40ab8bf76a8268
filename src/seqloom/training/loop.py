"""The training loop: a generator that yields what happened, and does nothing else.

One step: take `accumulate` batches, add up the gradients of their summed losses, divide once by the summed count,
clip, update. It opens no file, prints nothing and reads no clock; whoever iterates decides what to keep and show.
Interrupted at any step and resumed from that step's snapshot, it goes on bit for bit as if nothing had happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Annotated, Literal, Protocol, cast

import torch
from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Batch
from seqloom.config import Kind, Settings, kind_of
from seqloom.errors import SeqloomError, nearest
from seqloom.nn.fusion import fusing
from seqloom.ranks.group import ALONE, Group
from seqloom.runtime import Precision, autocast, seed_step
from seqloom.tasks.base import E, Loss, M, P, Task
from seqloom.tasks.carried import Carried
from seqloom.training import gradients
from seqloom.training.ahead import ahead
from seqloom.training.averaging import Ema
from seqloom.training.events import Checkpoint, Event, Finished, Logged, Reason, Sample, Started, Validated, Validating
from seqloom.training.freezing import freeze
from seqloom.training.gradients import Backward
from seqloom.training.graphs import Graphs
from seqloom.training.optim import OPTIMISERS, SCHEDULES, Optimiser
from seqloom.training.phases import drawn, phase
from seqloom.training.precision import Scaler
from seqloom.training.state import Counted, Interval, Snapshot, TrainState
from seqloom.training.updates import Taken, updates

SKIPS_IN_A_ROW = 20  # under `nonfinite: skip`, more than these is divergence and not bad luck
PREPARED = 128  # groups of batches made ahead while a GPU computes: a pool that is cut anew takes as long as many steps
LOWER_IS_BETTER = ("nll", "loss", "perplexity", "ter", "wer", "cer", "per", "ece")


class Training(Settings):
    """How to train. Steps and epochs: at least one must be given, and what comes first ends the run."""

    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    accumulate: int = Field(default=1, ge=1)  # batches per step; their gradient equals that of one joined batch
    clip: float | None = Field(default=1.0, gt=0)  # longest gradient (per target token, all parameters together)
    optimiser: Annotated[Settings, Kind(OPTIMISERS)] = Field(default_factory=lambda: OPTIMISERS.settings("adam"))
    schedule: Annotated[Settings, Kind(SCHEDULES)] = Field(default_factory=lambda: SCHEDULES.settings("constant"))
    log_every: int = Field(default=50, ge=1)  # steps
    validate_every: int | None = Field(default=None, ge=1)  # steps; null: at the end of each epoch
    checkpoint_every: int | None = Field(default=None, ge=1)  # steps; null: at each validation
    patience: int | None = Field(default=None, ge=1)  # validations in a row without improvement that end the run
    metric: str = "nll"  # the validation value that chooses the best checkpoint
    better: Literal["auto", "lower", "higher"] = "auto"  # auto: lower for losses and error rates, higher for the rest
    keep: Literal["best", "last"] = "best"  # the checkpoint that the run ends with; few dev pairs choose by chance
    ema: float | None = Field(default=None, gt=0, lt=1)  # decay of an average of the weights, used for validation
    average: int | None = Field(default=None, ge=2)  # the run ends with the mean of this many checkpoints
    nonfinite: Literal["stop", "skip"] = "stop"
    extend_vocabulary: bool = False  # with --from: pieces that only the new data have join the vocabularies
    take: tuple[str, ...] = ()  # with --from: only these parts are taken over, by name; the rest is learned anew
    freeze: tuple[str, ...] = ()  # parameters that stay as they are: names, parts or globs (encoder, "*.bias")

    @model_validator(mode="after")
    def _has_an_end(self) -> Training:
        if self.steps is None and self.epochs is None:
            raise ValueError("give steps or epochs, or both")
        return self

    def is_better(self, value: float, best: float | None) -> bool:
        """Whether a validation value improves on the best; one that is not finite never does."""
        if not math.isfinite(value):
            return False
        lower = self.better == "lower" or (self.better == "auto" and self.metric in LOWER_IS_BETTER)
        return best is None or (value < best if lower else value > best)


class Batches(Protocol):
    """The training data: the same epoch number gives the same batches in the same order, whoever asks and when."""

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch | None]:
        """Batches of an epoch (counted from 0) after the first `skip`; None for those that other processes compute."""
        ...

    def count(self, number: int) -> int:
        """How many batches the epoch has, at least about: asked where a schedule must know the end of a run."""
        ...

    def rows(self, longest: int) -> int:
        """The most examples that a batch can have whose longest sequence is so long: asked where steps are recorded."""
        ...


Validate = Callable[[nn.Module], Mapping[str, float]]
Samples = Callable[[nn.Module], Sequence[Sample]]


def fit(
    task: Task[M, E, P],
    model: M,
    batches: Batches,
    settings: Training,
    *,
    validate: Validate,
    seed: int,
    precision: Precision = "float32",
    record: bool = False,
    fuse: bool = False,
    resume: Snapshot | None = None,
    stop: Callable[[], str | None] = lambda: None,
    samples: Samples = lambda model: (),
    tell: Callable[[str], None] = lambda line: None,
    ranks: Group = ALONE,
) -> Iterator[Event]:
    """Train `model` in place, yielding events; `stop` is asked after each step whether to end, and why.

    `record` turns steps into CUDA graphs (`graphs.py`); ask `obstacle` first. `fuse` compiles layers (`nn/fusion.py`).
    `ranks` are the processes that share each step; all of them yield the same events.
    """
    if resume is None:
        ranks.spread([*model.state_dict().values()])
    state = _begin(model, settings, _last_step(settings, batches), precision, resume, task.carried)
    now = state.counters
    device = next(iter(state.optimiser.parameters.values())).device

    def loss_of(batch: Batch) -> Loss:
        with autocast(device, precision), fusing() if fuse else nullcontext():
            return task.loss(model, batch.to(device), now.step + 1)

    parameters = [*state.optimiser.parameters.values()]
    graphs = Graphs(gradients.plain(loss_of), parameters, device, batches.rows, tell) if record else None

    yield Started(
        now.step, settings.steps, settings.epochs, sum(p.numel() for p in state.optimiser.parameters.values())
    )
    ended = _ended(state, settings)
    if ended is not None:
        yield Finished(now.step, ended)
        return

    made = updates(state, settings.clip, device, ends=settings.nonfinite == "stop")
    groups = _groups(batches, now.epoch, now.batch, settings.accumulate)
    for group, epoch_ends in drawn("data", groups if device.type == "cpu" else ahead(groups, PREPARED)):
        backward = graphs or gradients.plain(loss_of, state.scaler.scale if state.scaler else 1.0)
        loss = _summed(backward, state, [part for part in group if part is not None], (seed, ranks.rank), task.splits)
        if ranks.size > 1:
            with phase("exchange"):
                ranks.sum_gradients(parameters, all_there=graphs is not None)
                loss = _joined(loss, ranks, parameters[0])
        own = group if task.splits or ranks.leads else [None] * len(group)  # what all have is counted once
        tokens = _count(state, own, epoch_ends)
        ranks.at_step(now.step)
        with phase("optimiser"):
            made.take(now.step, tokens, loss)
        ended = _ended(state, settings)
        logs = ended or now.step % settings.log_every == 0
        due = epoch_ends if settings.validate_every is None else now.step % settings.validate_every == 0
        often = due if settings.checkpoint_every is None else now.step % settings.checkpoint_every == 0
        _note(state, settings, made.read(bool(logs or due or often)))
        if logs or due or often:
            _settle(state, ranks)

        if logs:
            yield _logged(state, settings)

        improved = False
        if due or ended:
            yield Validating(now.step)
            with phase("validation"):
                validated = _validated(state, settings, seed, validate, samples, ranks)
            improved = validated.improved
            yield validated
            ended = ended or _ended(state, settings)  # patience may just have run out

        asked = ranks.vote(stop())  # also at the end: who is asked knows from here on that there is something to save
        _note(state, settings, made.read(bool(asked)))
        if often or improved or ended or asked:
            _settle(state, ranks)
            if state.carried is not None:
                ranks.join_rows([*state.carried.tensors().values()])
            yield Checkpoint(now.step, improved, state.snapshot)
        if ended or asked:
            yield Finished(now.step, cast(Reason, ended or asked))
            return


def _last_step(settings: Training, batches: Batches) -> int | None:
    """How many steps there will be, for schedules that ask; a pure function of data and recipe, as resuming needs."""
    if not SCHEDULES[kind_of(settings.schedule)].has_end or settings.epochs is None:
        return settings.steps
    by_epochs = settings.epochs * math.ceil(batches.count(0) / settings.accumulate)
    return by_epochs if settings.steps is None else min(settings.steps, by_epochs)


def _begin(
    model: nn.Module,
    settings: Training,
    steps: int | None,
    precision: Precision,
    resume: Snapshot | None,
    carried: Carried | None,
) -> TrainState:
    freeze(model, settings.freeze)
    optimiser: Optimiser = OPTIMISERS.build(settings.optimiser, model=model)
    schedule = SCHEDULES.build(settings.schedule, steps=steps)
    ema = Ema(model, settings.ema) if settings.ema else None
    state = TrainState(model, optimiser, schedule, ema, Scaler() if precision == "fp16" else None, carried)
    if resume is not None:
        state.restore(resume)
    return state


def _groups(batches: Batches, epoch: int, skip: int, size: int) -> Iterator[tuple[list[Batch | None], bool]]:
    """Endless groups of `size` batches, each with whether it ends its epoch. No group spans two epochs."""
    while True:
        iterator = batches.epoch(epoch, skip)
        group = list(islice(iterator, size))
        if not group:
            raise SeqloomError(
                "E_EMPTY", f"epoch {epoch + 1} has no batch after the first {skip}", where="training data"
            )
        while group:
            upcoming = list(islice(iterator, size))
            yield group, not upcoming
            group = upcoming
        epoch, skip = epoch + 1, 0


def _summed(backward: Backward, state: TrainState, group: list[Batch], seeds: tuple[int, int], splits: bool) -> Loss:
    """The step's losses, and their gradients where they belong. `seeds` are the run's and the rank."""
    seed, rank = seeds

    def begin() -> None:
        state.model.train()
        gradients.clear(state.optimiser.parameters.values(), in_place=isinstance(backward, Graphs))
        seed_step(seed, state.counters.step + 1, rank)

    return gradients.summed(backward, group, begin, splits)


def _joined(loss: Loss, ranks: Group, like: nn.Parameter) -> Loss:
    """The sums of all ranks, of one type everywhere: also on a rank that had nothing to compute."""
    mine = [value.to(like.device, torch.float64) for value in (loss.total, loss.count, loss.nll)]
    return Loss(*ranks.sum(torch.stack(mine)).to(like.dtype).unbind())


def _refused(state: TrainState, settings: Training, taken: Taken) -> None:
    """Nothing was updated. Stop with E_DIVERGED, or let the loop count a skipped step."""
    fix = "a lower lr or clip, or "
    if state.scaler is not None:  # an overflow now and then is how a scale is found
        may_go_on, fix = state.scaler.overflowed(), fix + "precision bf16 or float32"
    else:
        may_go_on = settings.nonfinite == "skip" and state.counters.skipped_in_a_row < SKIPS_IN_A_ROW
        fix += "nonfinite: skip"
    if may_go_on:
        return
    place = ""
    if taken.step == state.counters.step:  # else the gradients are those of a later step
        name = gradients.first_nonfinite(state.optimiser.parameters.items())
        place = f", first in the gradient of {name}" if name else ", in the loss, not in a gradient"
    measured = taken.measured
    what = f"loss {measured.loss:g} and gradient norm {measured.norm:g} at step {taken.step}{place}"
    raise SeqloomError("E_DIVERGED", what, where=f"step {taken.step}", fix=fix)


def _count(state: TrainState, group: Sequence[Batch | None], epoch_ends: bool) -> int:
    """Move on by one step; how many tokens this process had of it."""
    now, interval = state.counters, state.counters.interval
    now.step += 1
    interval.steps += 1
    now.batch += len(group)
    if epoch_ends:
        now.epoch, now.epoch_batches, now.batch = now.epoch + 1, now.batch, 0
    tokens = 0
    for batch in (part for part in group if part is not None):
        tokens += batch.target_tokens or len(batch)  # where there are no targets, examples are what is counted
        for part in (*batch.sources.values(), *([batch.target] if batch.target else [])):
            state.counted.positions += part.mask.numel()
            state.counted.real += int(part.mask.sum())
    return tokens


def _note(state: TrainState, settings: Training, steps: Iterable[Taken]) -> None:
    """Add what these steps measured."""
    now, interval = state.counters, state.counters.interval
    for taken in steps:
        measured = taken.measured
        if not measured.finite:
            _refused(state, settings, taken)
            now.skipped += 1
            now.skipped_in_a_row += 1
            continue
        now.skipped_in_a_row = 0
        state.counted.tokens += taken.tokens
        interval.updates += 1
        interval.loss += measured.loss
        interval.nll += measured.nll
        interval.count += measured.count
        interval.norm += measured.norm


def _settle(state: TrainState, ranks: Group) -> None:
    """What every process has counted for itself becomes a part of the run's counts."""
    now, interval, own = state.counters, state.counters.interval, state.counted
    tokens, positions, real = map(int, ranks.sums([own.tokens, own.positions, own.real]))
    state.counted = Counted()
    now.tokens += tokens
    interval.tokens += tokens
    interval.positions += positions
    interval.real += real


def _ended(state: TrainState, settings: Training) -> Reason | None:
    """Why the run is over, if it is."""
    now = state.counters
    if settings.patience is not None and now.bad >= settings.patience:
        return "patience"
    if settings.steps is not None and now.step >= settings.steps:
        return "steps"
    if settings.epochs is not None and now.epoch >= settings.epochs:
        return "epochs"
    return None


def _logged(state: TrainState, settings: Training) -> Logged:
    """The means of the interval, which begins anew."""
    now, interval = state.counters, state.counters.interval
    now.interval = Interval()
    count, updates = interval.count or 1.0, max(1, interval.updates)
    return Logged(
        step=now.step,
        epoch=now.epoch + (1 if now.batch else 0),
        loss=interval.loss / count,
        nll=interval.nll / count,
        lr=state.optimiser.lr * state.schedule.factor(now.step),
        gradient_norm=interval.norm / updates,
        steps=interval.steps,
        tokens=interval.tokens,
        tokens_seen=now.tokens,
        padding=1.0 - interval.real / max(1, interval.positions),
        skipped=now.skipped,
        progress=_progress(state, settings),
    )


def _progress(state: TrainState, settings: Training) -> float | None:
    now = state.counters
    shares = []
    if settings.steps is not None:
        shares.append(now.step / settings.steps)
    if settings.epochs is not None and now.epoch_batches:
        shares.append((now.epoch + now.batch / now.epoch_batches) / settings.epochs)
    return min(1.0, max(shares)) if shares else None


def _validated(
    state: TrainState, settings: Training, seed: int, validate: Validate, samples: Samples, ranks: Group
) -> Validated:
    """Validate the weights that would be used, and take note of whether they are the best."""
    now = state.counters
    seed_step(seed, now.step, stream="validate")
    with torch.no_grad(), state.for_use() as model:
        values = ranks.values(validate(model))
        shown = tuple(samples(model)) if ranks.leads else ()
    if settings.metric not in values:
        what = (
            f"validation gives no {settings.metric!r}{nearest(settings.metric, values)}, it gives: {', '.join(values)}"
        )
        raise SeqloomError("E_RECIPE", what, where="training.metric")
    value, nll = values[settings.metric], values.get("nll")
    equal_but_surer = value == now.best and nll is not None and now.best_nll is not None and nll < now.best_nll
    improved = settings.is_better(value, now.best) or equal_but_surer
    if improved:
        now.best, now.best_nll, now.best_step, now.bad = value, nll, now.step, 0
    else:
        now.bad += 1
    state.schedule.observe(improved)
    epoch = now.epoch + (1 if now.batch else 0)
    return Validated(now.step, epoch, values, settings.metric, improved, now.best, now.best_step, now.bad, shown)

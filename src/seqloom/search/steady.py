"""A search in legs, within which no tensor changes its shape: what a GPU can record once and replay, step after step.

A step of a search is some hundred small kernels; launched one by one they leave a fast GPU waiting. Here caches have
room for tokens to come, the trail is one tensor, sources that are done stay where they are, and how many are done is
asked every few steps only. A leg ends where its room does, or as soon as the sources that are left fit into half of
its rows; the next one has more room, or fewer rows. What comes out is what the loop finds (`loop.py`), to the token.
Sources are padded to a coarse grid of shapes, so that few recordings serve all batches: padding changes no output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Source, Tokens
from seqloom.models.contracts import Holding, Scorer, State
from seqloom.search.frontier import Frontier
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Start, Walk, Wishes, diverged
from seqloom.search.strategies import STRATEGIES
from seqloom.shapes import Float, Int, Tensor
from seqloom.specials import EOS

STRIDE = 4  # steps that are recorded as one, and after which is asked how many sources are done
FIRST_ROOM = 16  # steps that the first leg has room for; the next one has twice as much
FEW_ROWS = 64  # so few rows, whose caches are small, have twice as much at once: to begin a leg takes as long as steps

Steps = tuple[Int[Tensor, "M B K"], Int[Tensor, "M B K"], Float[Tensor, "M B K"], Float[Tensor, "M B K"]]


@dataclass(frozen=True)
class Moment:
    """Everything that one step of a search changes, and nothing else: tensors of one shape from first to last."""

    frontier: Frontier
    states: tuple[State, ...]  # of the scorers
    rules: tuple[State, ...]  # of the constraints
    trail: Steps  # parents, tokens, log-probabilities and advice of M steps, those before this leg left open
    step: Int[Tensor, "1"]

    def tensors(self) -> list[Tensor]:
        carried = [state.rows[name] for state in (*self.states, *self.rules) for name in sorted(state.rows)]
        sources = [state.sources[name] for state in (*self.states, *self.rules) for name in sorted(state.sources)]
        return [*self.frontier.tensors(), *carried, *sources, *self.trail, self.step]

    @torch.inference_mode()
    def clone(self) -> Moment:
        """The same values in memory of its own."""
        return Moment(
            self.frontier.of([tensor.clone() for tensor in self.frontier.tensors()]),
            tuple(state.clone() for state in self.states),
            tuple(state.clone() for state in self.rules),
            _four(tensor.clone() for tensor in self.trail),
            self.step.clone(),
        )

    @torch.inference_mode()
    def copy_(self, other: Moment) -> None:
        """Overwrite in place what differs: a recorded step ends with this."""
        pairs = zip(self.tensors(), other.tensors(), strict=True)
        differ = [(mine, theirs) for mine, theirs in pairs if mine.data_ptr() != theirs.data_ptr()]
        torch._foreach_copy_([mine for mine, _ in differ], [theirs for _, theirs in differ])


Stride = Callable[[Moment], Moment]


class SteadyWalk:
    """A `Walk` before its first step, taken on leg by leg. The walk is consumed."""

    @torch.inference_mode()
    def __init__(self, walk: Walk) -> None:
        assert not walk.steps, "a walk that has begun has lost its first shape"
        self.walk = walk
        self.most = -(-grid(walk.longest + 1) // STRIDE) * STRIDE  # one more to end
        self.steps, self.room = 0, 0
        self.moment = self._leg(walk.frontier, walk.states, walk.rules.states)

    @torch.inference_mode()
    def after(self, moment: Moment) -> Moment:
        """One token further; what `moment` holds may be overwritten."""
        walk, rules = self.walk, self.walk.rules
        walk.frontier, walk.states, rules.states = moment.frontier, list(moment.states), list(moment.rules)
        frontier = walk.plan.advance(moment.frontier, walk.told())
        said = (frontier.parents, frontier.last, frontier.log_probs, frontier.advice)
        for column, values in zip(moment.trail, said, strict=True):
            if values is not moment.frontier.advice:  # where there is none it stays nothing
                column.index_copy_(0, moment.step, values[None])
        if walk.plan.reorders:
            rows = frontier.parent_rows
            walk.states = [state.select(rows) for state in walk.states]
            rules.select(rows, None)
        rules.advance(frontier.last.flatten())
        return Moment(frontier, tuple(walk.states), tuple(rules.states), moment.trail, moment.step + 1)

    def stride(self, moment: Moment) -> Moment:
        """As many tokens further as are recorded together: what they change is copied back once for all of them."""
        for _ in range(STRIDE):
            moment = self.after(moment)
        return moment

    def along(self, stride: Stride, moment: Moment) -> tuple[Moment, int]:
        """To the end of this leg: where that is, and after how many steps of the search."""
        rows, steps = len(moment.frontier.done), self.steps
        while steps < self.room:
            moment, steps = stride(moment), steps + STRIDE
            left = rows - int(moment.frontier.done.sum())  # waits for the device
            if _fewer(left, rows):
                break
        return moment, steps

    @torch.inference_mode()
    def turn(self, moment: Moment, steps: int) -> bool:
        """Write down what a leg has found, and begin the next one; False where all is done.

        It is read back where the interpreter runs: some hundred operations on a few numbers, which a GPU would be
        sent one by one.
        """
        frontier, walk = moment.frontier, self.walk
        columns = [column[self.steps : steps] for column in moment.trail]
        found = _fetched([*columns, *frontier.tensors()])
        read = frontier.of(found[len(columns) :])
        if bool(read.totals.isnan().any()):
            raise diverged()
        walk.trail.extend(read.sources, found[: len(columns)])
        self.steps = steps
        going, gone = (~read.done).nonzero()[:, 0], read.done.nonzero()[:, 0]
        if not len(going) or steps >= self.most:
            walk.frontier = read
            return False
        states, rules = moment.states, moment.rules
        if _fewer(len(going), len(read.done)):
            size = grid(len(going)) - len(going)  # some that are done fill up the grid
            staying = torch.cat([going, gone[:size]])
            walk.left.append(read.only(gone[size:]))
            rows = (staying[:, None] * walk.plan.hypotheses + torch.arange(walk.plan.hypotheses)).flatten()
            staying, rows = (places.to(frontier.done.device, non_blocking=True) for places in (staying, rows))
            frontier = frontier.only(staying)
            states, rules = (tuple(state.select(rows, staying) for state in those) for those in (states, rules))
        self.moment = self._leg(frontier, states, rules)
        return True

    def _leg(self, frontier: Frontier, states: Sequence[State], rules: Sequence[State]) -> Moment:
        """The first moment of a leg, with more room where there is none left."""
        scorers = [scorer for scorer in self.walk.scorers if isinstance(scorer, Holding)]
        if self.steps == self.room:
            first = FIRST_ROOM if frontier.last.numel() > FEW_ROWS else 2 * FIRST_ROOM
            room = min(self.most, 2 * self.room or first)
            more = room - self.room
            states = [scorer.held(state, more) for scorer, state in zip(scorers, states, strict=True)]
            self.room = room
        shape = (self.room, *frontier.last.shape)
        whole, real = frontier.last.new_zeros(shape), frontier.log_probs.new_zeros(shape)
        trail = (whole, whole.clone(), real, real.clone())
        return Moment(frontier, tuple(states), tuple(rules), trail, frontier.lengths.new_full((1,), self.steps))

    def found(self) -> list[list[Hypothesis]]:
        """Of every source, without a recording."""
        while self.turn(*self.along(self.stride, self.moment)):
            pass
        return self.walk.hypotheses()


def _fewer(left: int, rows: int) -> bool:
    """Do the sources that are left fit into half of the rows?"""
    return not left or grid(left) <= rows // 2


def _fetched(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same where the interpreter runs: a GPU is waited for once, not for each of them."""
    if not tensors[0].is_cuda:
        return list(tensors)
    fetched = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for mine, theirs in zip(fetched, tensors, strict=True):
        mine.copy_(theirs, non_blocking=True)
    torch.cuda.current_stream(tensors[0].device).synchronize()
    return fetched


@torch.inference_mode()
def steady(
    scorer: Scorer,
    sources: Mapping[str, Source],
    strategy: config.Settings,
    wishes: Wishes,
    start: Start | None = None,
    home: torch.device | None = None,
) -> SteadyWalk | None:
    """A walk over sources that were padded to the grid, or None where shapes cannot stay or nothing would be gained.

    Sources best lie where the interpreter runs, wherever the scorers' `home` is: much is asked of them at first.
    """
    count = len(next(iter(sources.values())).mask)
    plan = STRATEGIES[config.kind_of(strategy)]
    scorers = [scorer] if wishes.advice is None else [scorer, wishes.advice]
    plain = all(isinstance(source, Tokens) and source.copies is source.words is None for source in sources.values())
    if not (plain and plan.steady and all(isinstance(each, Holding) for each in scorers)) or wishes.phrases is not None:
        return None
    if any(constraint.steady is None for constraint in wishes.constraints):
        return None
    rows = grid(count)
    padded = {name: _padded(source, rows) for name, source in sources.items() if isinstance(source, Tokens)}
    prefixes = wishes.prefixes
    if prefixes is not None:
        prefixes = _padded(prefixes, rows, reads=False)
    walk = Walk(scorer, padded, strategy, replace(wishes, prefixes=prefixes), start, home)
    walk.frontier.done[count:] = True
    return SteadyWalk(walk)


def grid(length: int) -> int:
    """Up to the next of 1 2 3 4 6 8 12 16 24 32 48 ...: at most half as much again."""
    power = 1 << max(0, length.bit_length() - 1)
    return next(size for size in (power, power * 3 // 2, 2 * power) if size >= length)


def _padded(tokens: Tokens, rows: int, reads: bool = True) -> Tokens:
    """The tokens in the corner of a larger batch; rows that are added read one EOS, or nothing."""
    count, length = tokens.ids.shape
    more = (0, grid(max(1, length)) - length, 0, rows - count)
    mask = F.pad(tokens.mask, more)
    mask[count:, 0] = reads
    return Tokens(F.pad(tokens.ids, more, value=EOS), mask)


def _four(tensors: Iterable[Tensor]) -> Steps:
    first, second, third, fourth = tensors
    return first, second, third, fourth

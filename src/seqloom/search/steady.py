"""A search whose tensors never change their shape: what a GPU can record once and replay, step after step.

A step of a search is some hundred small kernels; launched one by one they leave a fast GPU waiting. Here caches have
room for the longest output from the start, the trail is one tensor, sources that are done stay where they are, and
whether all are done is asked every few steps only. What comes out is what the loop finds (`loop.py`), to the token.
Sources are padded to a coarse grid of shapes, so that few recordings serve all batches: padding changes no output.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

import torch
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Source, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Holding, Scorer, State
from seqloom.search.frontier import Endings, Frontier, Trail
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Walk, Wishes, diverged
from seqloom.search.strategies import STRATEGIES
from seqloom.shapes import Float, Int, Tensor
from seqloom.specials import EOS

STRIDE = 4  # steps that are recorded as one, and after which is asked whether all is done
MOST_RECORDINGS = 100  # each holds the caches of its shape

_OWN = tuple(field.name for field in fields(Frontier) if field.name not in ("endings", "notes"))
Steps = tuple[Int[Tensor, "M B K"], Int[Tensor, "M B K"], Float[Tensor, "M B K"], Float[Tensor, "M B K"]]


@dataclass(frozen=True)
class Moment:
    """Everything that one step of a search changes, and nothing else: tensors of one shape from first to last."""

    frontier: Frontier
    states: tuple[State, ...]  # of the scorers
    rules: tuple[State, ...]  # of the constraints
    trail: Steps  # parents, tokens, log-probabilities and advice of M steps
    step: Int[Tensor, "1"]

    def tensors(self) -> list[Tensor]:
        kept = [getattr(self.frontier, name) for name in _OWN]
        notes = [self.frontier.notes[name] for name in sorted(self.frontier.notes)]
        carried = [state.rows[name] for state in (*self.states, *self.rules) for name in sorted(state.rows)]
        sources = [state.sources[name] for state in (*self.states, *self.rules) for name in sorted(state.sources)]
        return [*kept, *self.frontier.endings, *notes, *carried, *sources, *self.trail, self.step]

    @torch.inference_mode()
    def clone(self) -> Moment:
        """The same values in memory of its own."""
        return Moment(
            _mapped(self.frontier, Tensor.clone),
            tuple(state.clone() for state in self.states),
            tuple(state.clone() for state in self.rules),
            _four(tensor.clone() for tensor in self.trail),
            self.step.clone(),
        )

    @torch.inference_mode()
    def copy_(self, other: Moment) -> None:
        """Overwrite in place what differs: a recorded step ends with this."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            if mine is not theirs and mine.data_ptr() != theirs.data_ptr():
                mine.copy_(theirs)


class SteadyWalk:
    """A `Walk` before its first step, taken further without changing a shape. The walk is consumed."""

    @torch.inference_mode()
    def __init__(self, walk: Walk) -> None:
        assert not walk.steps, "a walk that has begun has lost its first shape"
        self.walk, frontier = walk, walk.frontier
        self.most = -(-grid(int(frontier.limits.max()) + 1) // STRIDE) * STRIDE  # one more to end
        shape = (self.most, *frontier.last.shape)
        whole, real = frontier.last.new_zeros(shape), frontier.log_probs.new_zeros(shape)
        scorers = [scorer for scorer in walk.scorers if isinstance(scorer, Holding)]
        held = [scorer.held(state, self.most) for scorer, state in zip(scorers, walk.states, strict=True)]
        trail = (whole, whole.clone(), real, real.clone())
        self.moment = Moment(frontier, tuple(held), tuple(walk.rules.states), trail, frontier.lengths.new_zeros(1))

    @torch.inference_mode()
    def after(self, moment: Moment) -> Moment:
        """One token further; what `moment` holds may be overwritten."""
        walk, rules = self.walk, self.walk.rules
        walk.frontier, walk.states, rules.states = moment.frontier, list(moment.states), list(moment.rules)
        frontier = walk.plan.advance(moment.frontier, walk.told())
        said = (frontier.parents, frontier.last, frontier.log_probs, frontier.advice)
        for column, values in zip(moment.trail, said, strict=True):
            column.index_copy_(0, moment.step, values[None])
        if walk.plan.reorders:
            rows = frontier.parent_rows
            walk.states = [state.select(rows) for state in walk.states]
            rules.select(rows, None)
        rules.advance(frontier.last.flatten())
        return Moment(frontier, tuple(walk.states), tuple(rules.states), moment.trail, moment.step + 1)

    def strides(self, moment: Moment) -> Moment:
        """As many tokens further as are recorded together: what they change is copied back once for all of them."""
        for _ in range(STRIDE):
            moment = self.after(moment)
        return moment

    def found(self) -> list[list[Hypothesis]]:
        """Step by step, without a recording."""
        moment, steps = self.moment, 0
        while steps < self.most and not bool(moment.frontier.done.all()):
            moment, steps = self.strides(moment), steps + STRIDE
        return self.hypotheses(moment, steps)

    @torch.inference_mode()
    def hypotheses(self, moment: Moment, steps: int) -> list[list[Hypothesis]]:
        """Of every source, once all are done, after so many steps.

        They are read back where the interpreter runs: some hundred operations on a few numbers, which a GPU would be
        sent one by one.
        """
        frontier = _mapped(moment.frontier, Tensor.cpu)
        if bool(frontier.totals.isnan().any()):
            raise diverged()
        self.walk.frontier = frontier
        trail = [column[:steps].cpu() for column in moment.trail]
        self.walk.trail = Trail.of([_four(column[step] for column in trail) for step in range(steps)])
        return self.walk.hypotheses()


class Recordings:
    """Searches by recorded steps on one GPU, a recording for every shape that was met.

    A recording can go wrong silently, for example where a library keeps something between two calls. So the first
    search of a shape is made step by step as well, and a recording that finds anything else ends all recording.
    """

    def __init__(self, device: torch.device) -> None:
        self.failure: str | None = None  # why recording ended, where it did
        self._known: dict[Hashable, _Recorded] = {}
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # one for all: no two run at a time

    @property
    def count(self) -> int:
        """How many shapes have a recording."""
        return len(self._known)

    def search(
        self, scorer: Scorer, sources: Mapping[str, Source], strategy: config.Settings, wishes: Wishes
    ) -> list[list[Hypothesis]] | None:
        """What `loop.search` finds; None where a step cannot be recorded."""
        walk = None if self.failure else steady(scorer, sources, strategy, wishes)
        if walk is None:
            return None
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in walk.moment.tensors())
        key = (tuple(map(id, walk.walk.scorers)), strategy.model_dump_json(), walk.walk.rules.steady, shapes)
        if key not in self._known and len(self._known) >= MOST_RECORDINGS:
            return None
        try:
            found = self._known[key].found(walk) if key in self._known else self._first(key, walk)
        except (
            SeqloomError
        ):  # sources that are done read on here, maybe to places that nobody learned: the loop decides
            return None
        return found[: len(next(iter(sources.values())).mask)]

    def _first(self, key: Hashable, walk: SteadyWalk) -> list[list[Hypothesis]]:
        """Step by step, then recorded: the recording serves from now on if both find the same."""
        begun = walk.moment.clone()
        plainly = walk.found()
        walk.moment = begun
        try:
            recorded = self._record(walk)
            same = [_told(one) for one in recorded.found(walk)] == [_told(one) for one in plainly]
            self.failure = None if same else "a recorded search found something else"
        except RuntimeError as error:
            self.failure = str(error).splitlines()[0]
        if self.failure is None:
            self._known[key] = recorded
        else:
            self._known.clear()
        return plainly

    @torch.inference_mode()
    def _record(self, walk: SteadyWalk) -> _Recorded:
        """Nothing is computed by a recording itself: kernels are only written down."""
        moment, graph = walk.moment.clone(), torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream), _own_casts():
            walk.after(walk.moment.clone())  # what libraries make at the first call is made now
            torch.cuda.synchronize(self._device)
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                moment.copy_(walk.strides(moment))
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return _Recorded(walk, moment, graph)


@dataclass(frozen=True)
class _Recorded:
    """A few steps, written down."""

    walk: SteadyWalk  # whose plan and constraints the kernels belong to
    moment: Moment  # what they read and overwrite
    graph: torch.cuda.CUDAGraph

    @torch.inference_mode()
    def found(self, walk: SteadyWalk) -> list[list[Hypothesis]]:
        """What another walk of the same shape leads to."""
        self.moment.copy_(walk.moment)
        steps, done = 0, False
        while steps < walk.most and not done:
            self.graph.replay()
            steps += STRIDE
            done = bool(self.moment.frontier.done.all())
        return walk.hypotheses(self.moment, steps)


def _told(hypotheses: Sequence[Hypothesis]) -> list[tuple[tuple[int, ...], bool]]:
    return [(hypothesis.tokens, hypothesis.truncated) for hypothesis in hypotheses]


@torch.inference_mode()
def steady(
    scorer: Scorer, sources: Mapping[str, Source], strategy: config.Settings, wishes: Wishes
) -> SteadyWalk | None:
    """A walk over sources that were padded to the grid, or None where shapes cannot stay or nothing would be gained."""
    count = len(next(iter(sources.values())).mask)
    plan = STRATEGIES[config.kind_of(strategy)]
    scorers = [scorer] if wishes.advice is None else [scorer, wishes.advice]
    plain = all(isinstance(source, Tokens) and source.copies is None for source in sources.values())
    if not (plain and plan.steady and all(isinstance(each, Holding) for each in scorers)) or wishes.phrases is not None:
        return None
    if any(constraint.steady is None for constraint in wishes.constraints):
        return None
    rows = grid(count)
    padded = {name: _padded(source, rows) for name, source in sources.items() if isinstance(source, Tokens)}
    prefixes = wishes.prefixes
    if prefixes is not None:
        prefixes = _padded(prefixes, rows, reads=False)
    walk = Walk(scorer, padded, strategy, replace(wishes, prefixes=prefixes))
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


def _mapped(frontier: Frontier, change: Callable[[Tensor], Tensor]) -> Frontier:
    own = {name: change(getattr(frontier, name)) for name in _OWN}
    notes = {name: change(tensor) for name, tensor in frontier.notes.items()}
    return Frontier(endings=Endings(*map(change, frontier.endings)), notes=notes, **own)


def _four(tensors: Iterable[Tensor]) -> Steps:
    first, second, third, fourth = tensors
    return first, second, third, fourth


@contextmanager
def _own_casts() -> Iterator[None]:
    """Inside, autocast keeps no weights that it has cast: a recording would use them after they are gone."""
    kept = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(kept)

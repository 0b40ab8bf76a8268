"""Searches on one GPU by recorded steps: a recording for every shape that is met again.

A recording can go wrong silently, for example where a library keeps something between two calls. So the first leg of a
shape is walked step by step as well, and a recording that finds anything else ends all recording. What is met once is
not recorded: to write down a few steps takes as long as many steps. How a search begins, the encoder and what it hands
over, is recorded in the same way; where that cannot be (a library that asks the device for lengths), it is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from seqloom import config
from seqloom.batch import Source, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Scorer, State
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Wishes
from seqloom.search.steady import Moment, SteadyWalk, steady
from seqloom.shapes import Tensor

MOST_RECORDINGS = 400
MOST_MEMORY = 0.25  # of the GPU's, for what recordings read and overwrite
Replay = Callable[[], None]
CLOSE = 1e-2  # how far the first states may be from those computed: recordings go wrong by much, or not at all


class Recorder(Protocol):
    """Something that writes kernels down."""

    room: float  # bytes that recordings may read and overwrite

    def record(self, warm: Callable[[], object], written: Callable[[], object]) -> Replay:
        """What does `written` again, on the same tensors; RuntimeError where it cannot be. `warm` is done before."""
        ...


class Graphs:
    """CUDA graphs of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self.room = MOST_MEMORY * torch.cuda.get_device_properties(device).total_memory
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # one for all: no two run at a time

    def record(self, warm: Callable[[], object], written: Callable[[], object]) -> Replay:
        """Nothing is computed by a recording itself: kernels are only written down."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            warm()
            torch.cuda.synchronize(self._device)
            torch.clear_autocast_cache()  # weights are cast once in each replay: what was cast before will be gone
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                written()
            finally:
                graph.capture_end()
                torch.clear_autocast_cache()
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return graph.replay


class Recordings:
    """What was recorded, and how to search by it."""

    def __init__(self, recorder: Recorder) -> None:
        self.failure: str | None = None  # why recording ended, where it did
        self.starts: dict[Hashable, _Start] = {}
        self._known: dict[Hashable, _Leg] = {}
        self._begins = True  # can the beginning of a search be recorded?
        self._met: Counter[Hashable] = Counter()
        self._recorder, self._bytes = recorder, 0

    @property
    def count(self) -> int:
        """How many shapes of legs have a recording."""
        return len(self._known)

    @torch.inference_mode()
    def search(
        self,
        scorer: Scorer,
        sources: Mapping[str, Source],
        strategy: config.Settings,
        wishes: Wishes,
        home: torch.device | None = None,
    ) -> list[list[Hypothesis]] | None:
        """What `loop.search` finds; None where a step cannot be recorded. `home`: where the scorer is, if elsewhere."""
        try:
            walk = None if self.failure else steady(scorer, sources, strategy, wishes, self._started, home)
            if walk is None:
                return None
            kind = (tuple(map(id, walk.walk.scorers)), strategy.model_dump_json(), walk.walk.rules.steady)
            while walk.turn(*self._leg(kind, walk)):
                pass
            return walk.walk.hypotheses()[: len(next(iter(sources.values())).mask)]
        except SeqloomError:  # who is done reads on here, maybe to places that nobody learned: the loop decides
            return None

    def _leg(self, kind: Hashable, walk: SteadyWalk) -> tuple[Moment, int]:
        """To the end of the leg that begins here, by a recording where there is one."""
        key = (kind, _shapes(walk.moment.tensors()))
        known = self._known.get(key)
        if known is not None:
            known.moment.copy_(walk.moment)
            return walk.along(known.replayed, known.moment)
        if self.failure or not self._again(key, walk.moment.tensors()):
            return walk.along(walk.stride, walk.moment)
        return self._first(key, walk)

    def _again(self, key: Hashable, tensors: Sequence[Tensor]) -> bool:
        """Was this met before, and is there room to record it?"""
        self._met[key] += 1
        needed = sum(tensor.nbytes for tensor in tensors)
        fits = len(self._known) + len(self.starts) < MOST_RECORDINGS and self._bytes + needed <= self._recorder.room
        if fits and self._met[key] > 1:
            self._bytes += needed
            return True
        return False

    def _first(self, key: Hashable, walk: SteadyWalk) -> tuple[Moment, int]:
        """Recorded, then step by step: the recording serves from now on if both lead to the same place."""
        try:
            recorded = self._record(walk)
            mine, steps = walk.along(recorded.replayed, recorded.moment)
        except RuntimeError as error:
            self._give_up(str(error).splitlines()[0])
            return walk.along(walk.stride, walk.moment)
        plainly, taken = walk.along(walk.stride, walk.moment)
        if steps != taken or not _alike(mine, plainly):
            self._give_up("a recorded search found something else")
        else:
            self._known[key] = recorded
        return plainly, taken

    def _give_up(self, why: str) -> None:
        self.failure = why
        self._known.clear()
        self.starts.clear()

    def _record(self, walk: SteadyWalk) -> _Leg:
        moment = walk.moment.clone()
        replay = self._recorder.record(
            lambda: walk.after(walk.moment.clone()),  # what libraries make at the first call is made now
            lambda: moment.copy_(walk.stride(moment)),
        )
        return _Leg((walk.walk.plan, walk.walk.rules, walk.walk.scorers), moment, replay)

    # --- how a search begins -----------------------------------------------------------------------------------------

    def _started(self, scorer: Scorer, sources: Mapping[str, Source], hypotheses: int) -> State:
        """What `Scorer.start` says, by a recording where there is one. It is overwritten by the next search."""
        inputs = {name: source for name, source in sources.items() if isinstance(source, Tokens)}
        tensors = _tensors(inputs)
        key = (id(scorer), tuple(inputs), _shapes(tensors), hypotheses)
        known = self.starts.get(key)
        if known is not None:
            return known.of(tensors)
        begun = scorer.start(sources, hypotheses)
        if self._begins and self._again(key, [*begun.rows.values(), *begun.sources.values()]):
            self._record_start(key, scorer, inputs, hypotheses, begun)
        return begun

    def _record_start(
        self, key: Hashable, scorer: Scorer, inputs: Mapping[str, Tokens], hypotheses: int, begun: State
    ) -> None:
        own = {name: Tokens(tokens.ids.clone(), tokens.mask.clone(), fixed=True) for name, tokens in inputs.items()}
        state = begun.clone()
        try:
            replay = self._recorder.record(
                lambda: scorer.start(own, hypotheses), lambda: state.copy_(scorer.start(own, hypotheses))
            )
            start = _Start(scorer, _tensors(own), state, replay)
            found = start.of(_tensors(inputs))
        except RuntimeError:  # something asks the device, or has another shape
            self._begins = False
            return
        if _close(found, begun):
            self.starts[key] = start
        else:
            self._give_up("a recorded beginning was another")


@dataclass(frozen=True)
class _Leg:
    """A few steps, written down."""

    kept: object  # whose tensors the kernels read
    moment: Moment  # what they read and overwrite
    replay: Replay

    def replayed(self, moment: Moment) -> Moment:
        """A stride further; only its own moment can be taken there."""
        assert moment is self.moment
        self.replay()
        return self.moment


@dataclass(frozen=True)
class _Start:
    """The beginning of a search, written down."""

    scorer: Scorer
    inputs: Sequence[Tensor]
    state: State
    replay: Replay

    def of(self, inputs: Sequence[Tensor]) -> State:
        for mine, theirs in zip(self.inputs, inputs, strict=True):
            mine.copy_(theirs)
        self.replay()
        return State(self.state.rows, self.state.sources)


def _tensors(inputs: Mapping[str, Tokens]) -> list[Tensor]:
    return [tensor for tokens in inputs.values() for tensor in (tokens.ids, tokens.mask)]


def _shapes(tensors: Sequence[Tensor]) -> Hashable:
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)


def _alike(one: Moment, other: Moment) -> bool:
    """The same tokens of the same rows, and the same sources done."""
    pairs = [
        *zip(one.trail[:2], other.trail[:2], strict=True),
        (one.frontier.done, other.frontier.done),
        (one.frontier.ended, other.frontier.ended),
    ]
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def _close(one: State, other: State) -> bool:
    pairs = [(one.rows[name], other.rows[name]) for name in other.rows]
    pairs += [(one.sources[name], other.sources[name]) for name in other.sources]
    return all(torch.allclose(a.float(), b.float(), CLOSE, CLOSE, equal_nan=True) for a, b in pairs)

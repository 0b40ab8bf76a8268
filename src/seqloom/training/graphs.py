"""Training steps as CUDA graphs: the kernels of a batch are recorded once per shape and then replayed as one.

A step of a small model is hundreds of kernels of a few microseconds; launched one by one they leave a fast GPU waiting
for the host most of the time. Batches are padded to a coarse grid of shapes, so that few graphs serve all of them;
padding changes no loss and no gradient (law 3). A shape that is seen for the first time is computed as ever.

What cannot be recorded (`Task.obstacle`) is never tried; where recording fails all the same, the run goes on without.
This file knows tensors and streams, no recipe; it updates no weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from seqloom.batch import EOS, Batch, Source, Tokens
from seqloom.shapes import Tensor
from seqloom.tasks.base import Loss
from seqloom.training.gradients import Backward, is_out_of_memory

MOST_GRAPHS = 200  # each holds a few megabytes; shapes beyond these are computed as ever
Shape = tuple[int, tuple[tuple[str, int], ...], int, bool]  # rows, width of each source, steps, has weights


def rounded(length: int) -> int:
    """Up to the next point of the grid 2 4 6 ... 16 20 24 28 32 40 ...: at most an eighth more, from 8 on."""
    step = _step(length)
    return -(-length // step) * step


def lowest(length: int) -> int:
    """The smallest length that is rounded up to this point of the grid."""
    return length - _step(length - 1) + 1


def _step(length: int) -> int:
    return max(2, 1 << max(0, length.bit_length() - 3))


@dataclass(frozen=True)
class Recorded:
    """A graph, and where it leaves its sums."""

    graph: torch.cuda.CUDAGraph
    loss: Loss

    def replay(self) -> Loss:
        self.graph.replay()
        return Loss(self.loss.total.clone(), self.loss.count.clone(), self.loss.nll.clone())


class Graphs:
    """`backward`, by graphs. Gradients must stay where they are: cleared in place, never thrown away."""

    def __init__(self, backward: Backward, device: torch.device, rows: Callable[[int], int]) -> None:
        """`rows` tells how many examples a batch may have whose longest sequence is so long."""
        self.backward, self.device, self.rows = backward, device, rows
        self.failure: str | None = None  # why recording ended, where it did
        self._inputs: dict[Shape, Batch] = {}  # what the graph of each shape reads
        self._recorded: dict[Shape, Recorded] = {}
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # one for all: no two graphs run at a time

    def __call__(self, batch: Batch) -> Loss:
        shape = None if self.failure else shape_of(batch, self.rows)
        if shape is None or (shape not in self._inputs and len(self._inputs) >= MOST_GRAPHS):
            return self.backward(batch.to(self.device))
        host = padded(batch, shape)
        if shape not in self._inputs:
            self._inputs[shape] = host.to(self.device)
            return self.backward(self._inputs[shape])
        for here, there in zip(_tensors(self._inputs[shape]), _tensors(host), strict=True):
            here.copy_(there, non_blocking=True)
        if shape not in self._recorded:
            try:
                self._recorded[shape] = self._record(self._inputs[shape])
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                self.failure = str(error).splitlines()[0]
                return self.backward(self._inputs[shape])
        return self._recorded[shape].replay()

    def _record(self, batch: Batch) -> Recorded:
        """Nothing is computed here: the kernels are only written down."""
        graph, generator = torch.cuda.CUDAGraph(), torch.cuda.default_generators[self._stream.device_index]
        before = generator.clone_state()
        torch.cuda.synchronize(self.device)
        try:
            with torch.cuda.stream(self._stream):
                # thread_local: the thread that prepares batches may go on
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    loss = self.backward(batch)
                finally:
                    graph.capture_end()
        except RuntimeError:
            generator.graphsafe_set_state(before)  # it would wait for the end of a recording that never comes
            raise
        torch.cuda.current_stream(self.device).wait_stream(self._stream)
        return Recorded(graph, loss)


def shape_of(batch: Batch, rows: Callable[[int], int]) -> Shape | None:
    """The shape of the grid that this batch is padded to; None for what is no plain batch of tokens."""
    target, sources = batch.target, batch.sources
    if target is None or batch.alignment is not None:
        return None
    if not all(isinstance(source, Tokens) and source.copies is None for source in sources.values()):
        return None
    widths = tuple((name, rounded(source.mask.shape[1])) for name, source in sources.items())
    steps = rounded(target.mask.shape[1])
    most = max(1, rows(lowest(max(steps, *(width for _, width in widths)))))
    return (most, widths, steps, batch.weights is not None) if len(batch) <= most else None


def padded(batch: Batch, shape: Shape) -> Batch:
    """The batch in the corner of a larger one, of fixed shapes: its loss and its gradient are the same.

    Rows that are added read one EOS, because a source without a single position has no meaning, and say nothing.
    """
    rows, widths, steps, _ = shape
    sources: dict[str, Source] = {}
    for name, width in widths:
        source = batch.sources[name]
        assert isinstance(source, Tokens), "only tokens are recorded"
        sources[name] = _widened(source, rows, width)
        sources[name].mask[len(batch) :, 0] = True
    assert batch.target is not None
    weights = None
    if batch.weights is not None:
        weights = F.pad(batch.weights, (0, rows - len(batch)))
    return Batch(sources, _widened(batch.target, rows, steps), batch.examples, weights)


def _widened(tokens: Tokens, rows: int, width: int) -> Tokens:
    more = (0, width - tokens.ids.shape[1], 0, rows - tokens.ids.shape[0])
    ids = F.pad(tokens.ids, more, value=EOS)  # any token would do behind the mask
    return Tokens(ids, F.pad(tokens.mask, more), fixed=True)


def _tensors(batch: Batch) -> list[Tensor]:
    parts = [*batch.sources.values(), *([batch.target] if batch.target is not None else [])]
    found = [tensor for part in parts if isinstance(part, Tokens) for tensor in (part.ids, part.mask)]
    return found if batch.weights is None else [*found, batch.weights]

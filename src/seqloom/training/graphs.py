"""Training steps as CUDA graphs: the kernels of a batch are recorded once per shape and then replayed as one.

A step of a small model is hundreds of kernels of a few microseconds; launched one by one they leave a fast GPU waiting
for the host most of the time. Batches are padded to a coarse grid of shapes, so that few graphs serve all of them;
padding changes no loss and no gradient (law 3). A shape that is seen for the first time is computed as ever.

What cannot be recorded (`Task.obstacle`) is never tried; where recording fails all the same, the run goes on without.
This file knows tensors and streams, no recipe; it updates no weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from seqloom.batch import Batch, Source, Tokens
from seqloom.shapes import Tensor
from seqloom.specials import EOS
from seqloom.tasks.base import Loss
from seqloom.training.gradients import Backward, is_out_of_memory
from seqloom.training.phases import phase

MOST_GRAPHS = 200  # each holds a few megabytes; shapes beyond these are computed as ever
MOST_APART = 0.05  # of a parameter's gradient, between a plain and a replayed step
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
        with phase("forward and backward, replayed"):
            self.graph.replay()
        return Loss(self.loss.total.clone(), self.loss.count.clone(), self.loss.nll.clone())


class Graphs:
    """`backward`, by graphs. Gradients must stay where they are: cleared in place, never thrown away.

    Every new graph is asked once for a gradient that is known: recording goes wrong silently, for example where a
    library keeps something between two calls. And a graph knows weights by their address, so when any has moved (a
    recurrent layer of torch does that in `.to`, even to where it is) all are recorded anew.
    """

    def __init__(
        self,
        backward: Backward,
        parameters: Sequence[nn.Parameter],
        device: torch.device,
        rows: Callable[[int], int],
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`rows` says how many examples a batch may have whose longest sequence is so long."""
        self.backward, self.parameters, self.device = backward, parameters, device
        self.rows, self.tell = rows, tell
        self.failure: str | None = None  # why recording ended, where it did
        self._inputs: dict[Shape, Batch] = {}  # what the graph of each shape reads
        self._recorded: dict[Shape, Recorded] = {}
        self._addresses: list[int] = []  # of weights and gradients, when the graphs were recorded
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # one for all: no two graphs run at a time

    def __call__(self, batch: Batch) -> Loss:
        shape = None if self.failure else shape_of(batch, self.rows)
        if shape is None or (shape not in self._inputs and len(self._inputs) >= MOST_GRAPHS):
            return self._plain(batch.to(self.device))
        try:
            return self._of_shape(shape, padded(batch, shape))
        except RuntimeError as error:
            if is_out_of_memory(error):  # halves of the batch would be padded to the same size: these go without
                self._give_up("memory is short")
            raise

    def _give_up(self, why: str) -> None:
        self.failure = why
        self._inputs.clear()
        self._recorded.clear()
        self.tell(f"training steps: from here on one by one, {why}")

    def _of_shape(self, shape: Shape, host: Batch) -> Loss:
        addresses = [tensor.data_ptr() for parameter in self.parameters for tensor in (parameter, _gradient(parameter))]
        if addresses != self._addresses:
            self._recorded.clear()
            self._pool = torch.cuda.graph_pool_handle()  # the old one ended with the last of its graphs
            self._addresses = addresses
        if shape not in self._inputs:
            self._inputs[shape] = host.to(self.device)
            return self._plain(self._inputs[shape])
        for here, there in zip(_tensors(self._inputs[shape]), _tensors(host), strict=True):
            here.copy_(there.pin_memory(), non_blocking=True)  # from other memory it might wait for the device
        if shape not in self._recorded:
            return self._first(shape)
        return self._recorded[shape].replay()

    def _plain(self, batch: Batch) -> Loss:
        """Kernel by kernel, on the stream of recordings: torch remembers where a gradient was last added to."""
        usual = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(usual)
        with torch.cuda.stream(self._stream):
            loss = self.backward(batch)
        usual.wait_stream(self._stream)
        return loss

    def _first(self, shape: Shape) -> Loss:
        """Compute plainly, record, replay, and compare: the graph serves from now on if both gradients agree."""
        batch, generator = self._inputs[shape], torch.cuda.default_generators[self._stream.device_index]
        before, seeded, unbroken = self._gradients(), generator.get_state(), generator.clone_state()
        loss = self._plain(batch)
        after, drawn = self._gradients(), generator.get_state()
        failure = None
        try:
            recorded = self._record(batch)
            self._restore(before)
            generator.set_state(seeded)
            recorded.replay()
            failure = self._difference(before, after)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            failure = str(error).splitlines()[0]
            generator.graphsafe_set_state(unbroken)  # the old one would wait for the end of the recording
        generator.set_state(drawn)
        self._restore(after)
        if failure is None:
            self._recorded[shape] = recorded
        else:
            self._give_up(failure)
        return loss

    def _record(self, batch: Batch) -> Recorded:
        """Nothing is computed here: the kernels are only written down."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(self._stream):
            # thread_local: the thread that prepares batches may go on
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                loss = self.backward(batch)
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.device).wait_stream(self._stream)
        return Recorded(graph, loss)

    def _gradients(self) -> list[Tensor]:
        return [_gradient(parameter).clone() for parameter in self.parameters]

    def _restore(self, values: list[Tensor]) -> None:
        torch._foreach_copy_([_gradient(parameter) for parameter in self.parameters], values)

    def _difference(self, before: list[Tensor], after: list[Tensor]) -> str | None:
        """What a replay added must be what was added plainly, up to the rounding of other kernels."""
        wanted = torch._foreach_sub(after, before)
        apart = torch._foreach_sub(self._gradients(), after)
        sizes, errors = (torch.stack(torch._foreach_norm(values)) for values in (wanted, apart))
        bound = MOST_APART * sizes + MOST_APART / 100 * sizes.norm()
        fine = (errors <= bound) | ~sizes.isfinite()  # a gradient that overflows is not the graph's fault
        return None if bool(fine.all()) else "a replayed step has another gradient than a plain one"


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None, "gradients are made before the first step and cleared in place"
    return parameter.grad


def shape_of(batch: Batch, rows: Callable[[int], int]) -> Shape | None:
    """The shape of the grid that this batch is padded to; None for what is no plain batch of tokens."""
    target, sources = batch.target, batch.sources
    if target is None or batch.alignment is not None:
        return None
    if not all(isinstance(source, Tokens) and source.copies is source.words is None for source in sources.values()):
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

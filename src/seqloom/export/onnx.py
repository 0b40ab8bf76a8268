"""A model as two ONNX graphs, the encoder and one step of the decoder; `OnnxScorer` steps them for our own search.

`start` reads sources and gives the decoder's first state, `step` reads one token per row and a state, and gives
log-probabilities and the next state. Names and kinds of the state's tensors stand in `onnx.json`. In the graphs every
row has a source of its own; the scorer sees to that.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from seqloom import __version__, cards
from seqloom.batch import Source, Tokens
from seqloom.cards import Card, listed_files
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write
from seqloom.models.contracts import State
from seqloom.models.generator import Generator
from seqloom.nn.fusion import any_sizes
from seqloom.nn.recurrent import GRU, LSTM, Bidirectional, Elman, Parts
from seqloom.shapes import Float, Int, Rows, StepLogProbs, Tensor
from seqloom.specials import BOS, SPECIALS

CARD, START, STEP = "onnx.json", "start.onnx", "step.onnx"
FIX = "'seqloom export RUN --to onnx' makes one"
MOST_APART = 1e-3  # log-probabilities of our model and of what was written
HOLD = 1e4  # so much input to a gate opens or shuts it altogether


class OnnxCard(Card):
    """The card of two graphs. `rows` and `sources` are the tensors of a state, by name, with those of their dimensions
    that depend on the input."""

    NAME = "an exported model"
    seqloom: str
    weights: str  # sha256 of the weights that were exported
    rows: dict[str, list[int]]
    sources: dict[str, list[int]]

    @property
    def state(self) -> list[str]:
        """The tensors of a state as the graphs call them."""
        return [*(f"rows.{name}" for name in self.rows), *(f"sources.{name}" for name in self.sources)]


def write(network: Generator, vocabularies: tuple[int, int], folder: Path, weights: str = "") -> None:
    """Two graphs in an existing folder, compared with the network before they are called whole."""
    if network.head.copies:
        raise _refused("an output layer that copies: its vocabulary grows with every source")
    if getattr(network, "extras", None):
        raise _refused("extras with an encoder of their own")
    exported = _exportable(network)
    sources = _drawn(vocabularies[0], (3, 6, 2, 4))
    with torch.no_grad(), _quietly(), any_sizes(distinct=False):
        state = exported.start({"source": sources}, 1)
        for token in (BOS, len(SPECIALS)):  # tensors that grow have then a size that is neither 0 nor 1
            _, state = exported.step(torch.full((len(sources.ids),), token), state)
        layout = _layout(exported, vocabularies[0], state)
        _export_start(exported, sources, layout, folder / START)
        _export_step(exported, state, layout, folder / STEP)
    about = {"seqloom": __version__, "weights": weights, "files": listed_files(folder), **layout.as_dict()}
    card = OnnxCard.model_validate({"format": OnnxCard.FORMAT, **about})
    atomic_write(folder / CARD, cards.written(card))
    _compare(network, OnnxScorer(folder), vocabularies)


def _refused(what: str) -> SeqloomError:
    return SeqloomError("E_USAGE", f"ONNX export does not know {what}", where="--to onnx", fix="predict with the run")


@dataclass(frozen=True)
class Layout:
    """The tensors of a state by name, with those of their dimensions that depend on the input."""

    rows: dict[str, list[int]]
    sources: dict[str, list[int]]

    def as_dict(self) -> dict[str, dict[str, list[int]]]:
        return {"rows": self.rows, "sources": self.sources}


def _layout(network: Generator, vocabulary: int, state: State) -> Layout:
    """Which dimensions depend on the input is seen by another input, with more sources, longer ones, and more steps."""
    other = network.start({"source": _drawn(vocabulary, (9, 8, 5, 7, 3))}, 1)
    for token in (BOS, *[len(SPECIALS)] * 3):
        _, other = network.step(torch.full((5,), token), other)

    def moving(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> dict[str, list[int]]:
        return {
            name: [d for d, (a, b) in enumerate(zip(tensor.shape, two[name].shape, strict=True)) if a != b]
            for name, tensor in one.items()
        }

    return Layout(moving(state.rows, other.rows), moving(state.sources, other.sources))


class _Start(nn.Module):
    def __init__(self, network: Generator, layout: Layout) -> None:
        super().__init__()
        self.network, self.layout = network, layout

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        state = self.network.start({"source": Tokens(ids, mask)}, 1)
        kept = [state.rows[name] for name in self.layout.rows] + [state.sources[name] for name in self.layout.sources]
        return tuple(part.clone() for part in kept)  # an output may not be an input


class _Step(nn.Module):
    def __init__(self, network: Generator, layout: Layout) -> None:
        super().__init__()
        self.network, self.layout = network, layout

    def forward(self, last: Tensor, state: list[Tensor]) -> tuple[Tensor, ...]:
        parts = iter(state)
        rows = {name: next(parts) for name in self.layout.rows}
        sources = {name: next(parts) for name in self.layout.sources}
        log_probs, after = self.network.step(last, State(rows, sources))
        return (log_probs, *(after.rows[name] for name in self.layout.rows))


def _export_start(network: Generator, sources: Tokens, layout: Layout, path: Path) -> None:
    shapes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    names = [*(f"rows.{name}" for name in layout.rows), *(f"sources.{name}" for name in layout.sources)]
    _export(_Start(network, layout), (sources.ids, sources.mask), (shapes, shapes), ["ids", "mask"], names, path)


def _export_step(network: Generator, state: State, layout: Layout, path: Path) -> None:
    last = torch.full((len(next(iter(state.rows.values()))),), len(SPECIALS) + 1)
    given = [state.rows[name].clone() for name in layout.rows]
    given += [state.sources[name].clone() for name in layout.sources]
    moving = [*layout.rows.values(), *layout.sources.values()]
    shapes = ({0: Dim.DYNAMIC}, [dict.fromkeys(dims, Dim.DYNAMIC) for dims in moving])
    names = [*(f"rows.{name}" for name in layout.rows), *(f"sources.{name}" for name in layout.sources)]
    told = ["log_probs", *(f"next.{name}" for name in layout.rows)]
    _export(_Step(network, layout), (last, given), shapes, ["last", *names], told, path)


def _export(
    module: nn.Module, example: tuple[Any, ...], shapes: Any, inputs: list[str], outputs: list[str], path: Path
) -> None:
    try:
        program = torch.onnx.export(
            module.eval(),
            example,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=inputs,
            output_names=outputs,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).split("\n")[0].split(" : ")[0]
        raise _refused(f"this model ({reason})") from error
    assert program is not None
    program.save(str(path), external_data=False)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's remarks on packages that nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


# --- recurrences over padded rows ------------------------------------------------------------------------------------


class Held(nn.Module):
    """A cell that reads padded rows at once: behind a row's end its memory is held, and its last output looked up.

    One more input says "behind the end". Of an LSTM it opens the forget gate and shuts the input gate, c_t = c_{t-1}.
    """

    def __init__(self, cell: LSTM | GRU) -> None:
        super().__init__()
        holds = isinstance(cell, LSTM)
        w, *others = cell.weights()
        self.kernel = (nn.LSTM if holds else nn.GRU)(w.shape[1] + 1, cell.size, batch_first=True)
        column = w.new_zeros(len(w), 1)
        if holds:
            column[: cell.size] = -HOLD  # the input gate
            column[cell.size : 2 * cell.size] = HOLD  # the forget gate
        with torch.no_grad():
            wider = torch.cat([w, column], dim=1)
            for own, given in zip(self.kernel.all_weights[0], (wider, *others), strict=True):
                own.copy_(given)

    def forward(
        self, x: Float[Tensor, "N T I"], state: Parts, lengths: Int[Tensor, "N"]
    ) -> tuple[Float[Tensor, "N T D"], Parts]:
        steps = torch.arange(x.shape[1], device=x.device)
        behind = steps >= lengths[:, None]
        given = tuple(part[None] for part in state)
        marked = torch.cat([x, behind[..., None].to(x.dtype)], dim=-1)
        outputs, final = self.kernel(marked, given if len(given) > 1 else given[0])
        outputs = outputs.index_select(1, steps)  # all of them; but their number is that of the input again
        last = outputs.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, outputs.shape[2])).squeeze(1)
        return outputs, (last, final[1][0]) if isinstance(final, tuple) else (last,)


def _exportable(network: Generator) -> Generator:
    """A copy whose encoder packs nothing: lengths are not known when a graph is made."""
    made = copy.deepcopy(network).cpu().eval()
    for part in made.modules():
        if not isinstance(part, Bidirectional):
            continue
        for index, cell in enumerate(part.cells):
            if isinstance(cell, Elman) or not isinstance(cell, LSTM | GRU):
                raise _refused("an encoder of Elman cells")
            part.cells[index] = Held(cell)
    return made


# --- the other way round -----------------------------------------------------------------------------------------


class OnnxScorer:
    """What was written, as search steps it: ONNX Runtime computes, on a CPU."""

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # graphs were made with one shape and serve all: it would remark on that
        if threads is not None:
            options.intra_op_num_threads = threads
        self.card = cards.read(folder / CARD, OnnxCard, FIX)
        cards.check_files(folder, self.card, FIX, needs=(START, STEP))
        self._rows, self._sources = list(self.card.rows), list(self.card.sources)
        try:
            how = {"sess_options": options, "providers": ["CPUExecutionProvider"]}
            self._start = onnxruntime.InferenceSession(str(folder / START), **how)
            self._step = onnxruntime.InferenceSession(str(folder / STEP), **how)
        except Exception as error:  # the library's errors have no base of their own
            what = f"ONNX Runtime cannot open it: {str(error).splitlines()[0]}"
            raise SeqloomError("E_BUNDLE", what, where=str(folder), fix=FIX) from None
        if [one.name for one in self._start.get_outputs()] != self.card.state:
            raise SeqloomError("E_BUNDLE", "the card and the graphs do not agree", where=str(folder / CARD), fix=FIX)
        self._wanted = {one.name for one in self._step.get_inputs()}  # what a graph does not need it does not take
        self._spread: dict[str, tuple[Tensor, Tensor]] = {}

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        source = sources["source"]
        assert isinstance(source, Tokens), "these graphs read tokens"
        known = {one.name for one in self._start.get_inputs()}
        feed = {"ids": source.ids.numpy(), "mask": source.mask.numpy()}
        found = self._start.run(None, {name: value for name, value in feed.items() if name in known})
        made = [torch.from_numpy(array) for array in found]
        rows = dict(zip(self._rows, made, strict=False))
        return State(
            {name: tensor.repeat_interleave(hypotheses, dim=0) for name, tensor in rows.items()},
            dict(zip(self._sources, made[len(rows) :], strict=True)),
        )

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        feed = {"last": last.numpy()}
        feed |= {f"rows.{name}": state.rows[name].contiguous().numpy() for name in self._rows}
        feed |= {f"sources.{name}": self._of_rows(name, state, len(last)).numpy() for name in self._sources}
        log_probs, *after = self._step.run(None, {name: value for name, value in feed.items() if name in self._wanted})
        rows = dict(zip(self._rows, map(torch.from_numpy, after), strict=True))
        return torch.from_numpy(log_probs), State(rows, state.sources)

    def _of_rows(self, name: str, state: State, rows: int) -> Tensor:
        """A source's tensor for each of its rows; made anew only when sources have left."""
        tensor = state.sources[name]
        copies = rows // tensor.shape[0]
        known = self._spread.get(name)
        if known is None or known[0] is not tensor or known[1].shape[0] != rows:
            known = self._spread[name] = (tensor, tensor.repeat_interleave(copies, dim=0).contiguous())
        return known[1]


def _drawn(vocabulary: int, lengths: tuple[int, ...]) -> Tokens:
    """Sources of these lengths, always the same."""
    generator = torch.Generator().manual_seed(1)
    first = min(len(SPECIALS), vocabulary - 1)
    rows = [torch.randint(first, vocabulary, (length,), generator=generator).tolist() for length in lengths]
    return Tokens.pad(rows)


@torch.inference_mode()
def _compare(network: Generator, scorer: OnnxScorer, vocabularies: tuple[int, int]) -> None:
    """E_INTERNAL where what was written computes something else: better no export than a wrong one."""
    sources = {"source": _drawn(vocabularies[0], (1, 12, 5, 2, 9))}
    ours, theirs = network.start(sources, 2), scorer.start(sources, 2)
    last = torch.full((10,), BOS)
    for step in range(4):
        (expected, ours), (found, theirs) = network.step(last, ours), scorer.step(last, theirs)
        apart = float((expected - found).abs().max())
        if not apart < MOST_APART:
            what = f"the exported graphs differ from the model by {apart:g} in log-probability, at step {step + 1}"
            raise SeqloomError("E_INTERNAL", what, where="--to onnx", fix="please report the recipe")
        last = (torch.arange(10) + step) % (vocabularies[1] - len(SPECIALS)) + len(SPECIALS)

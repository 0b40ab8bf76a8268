"""`seqloom.bench("runs/x")`: how fast a trained model answers on this machine, by batch, beam, device and engine.

All ways take turns in short windows, so that whatever else the machine does hits all of them; a figure is the median of
its windows. The first window of each is thrown away: it loads, allocates and records.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice, product
from pathlib import Path

import torch

from seqloom import runtime
from seqloom.api.asked import Asked
from seqloom.api.engine import Engine, load_engine
from seqloom.api.export import ONNX, load_onnx
from seqloom.api.exported import ENGINE
from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.api.testset import held_out
from seqloom.config import Plain
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError

NATIVE = "seqloom"
INT8 = "int8"  # the same with weights in 8 bits
WIDE = 1_000_000  # tokens: a batch is as large as it was asked for
MOST_TEXTS = 4096

Predict = Callable[[Sequence[Inputs]], list[Prediction]]


@dataclass(frozen=True)
class Way:
    """One way to answer."""

    engine: str
    device: str
    beam: int
    batch: int


@dataclass(frozen=True)
class Speed:
    """What one way reached: medians over windows, and how long single batches took."""

    way: Way
    tokens_per_second: float  # of outputs, their ends not counted
    texts_per_second: float
    seconds: float  # of a batch: the median, and what nineteen of twenty stay under
    seconds_95: float
    windows: int

    def as_dict(self) -> dict[str, Plain]:
        values = asdict(self)
        return {**values.pop("way"), **values}


@dataclass(frozen=True)
class Bench:
    """All speeds that were measured in one run, and where."""

    name: str
    texts: int
    speeds: tuple[Speed, ...]
    machine: dict[str, str | int]

    def as_dict(self) -> dict[str, Plain]:
        return {
            "run": self.name,
            "texts": self.texts,
            "machine": dict(self.machine),
            "speeds": [speed.as_dict() for speed in self.speeds],
        }


def bench(
    run: str | Path,
    texts: Sequence[Inputs] | None = None,
    *,
    beams: Sequence[int] = (1, 5),
    batches: Sequence[int] = (1, 16, 64),
    devices: Sequence[str] = ("auto",),
    engines: Sequence[str] = (NATIVE,),
    seconds: float = 2.0,
    windows: int = 3,
    threads: int | None = None,
    workers: int = 1,
    planned: Callable[[int], None] | None = None,
) -> Bench:
    """Measure every combination: a window answers batches for so many `seconds`. Texts: by default the test set.

    With `workers`, as many processes share each batch on a CPU, as they do in `predict`. `planned` is told how many
    combinations there are, once all of them are known to work.
    """
    first = load(run, device=devices[0], threads=threads)
    machine, count = runtime.describe(), torch.get_num_threads()
    chosen = list(islice(texts if texts is not None else _own_texts(first), MOST_TEXTS))
    if not chosen:
        raise SeqloomError("E_EMPTY", "no texts to measure with", fix="give a file of sources, one per line")
    ways = [Way(*way) for way in product(sorted(engines, key=lambda name: name != NATIVE), devices, beams, batches)]
    known: dict[tuple[str, str, int], Model | Engine] = {}  # one model serves all its batches

    def serving(way: Way) -> Model | Engine:
        key = (way.engine, way.device, way.beam if workers > 1 else 0)  # workers are forked for one kind of question
        if key not in known:
            known[key] = _loaded(run, way, threads, workers)
        return known[key]

    turns = [_Turn(way, _predictor(serving(way), way, count), chosen) for way in ways]
    for turn in turns:
        turn.take(0.0)  # warm-up: one batch at least
    if planned is not None:
        planned(len(ways))
    for _ in range(windows):
        for turn in turns:
            turn.take(seconds, keep=True)
    speeds = tuple(turn.speed() for turn in turns)
    return Bench(first.name, len(chosen), speeds, machine)


def _own_texts(model: Model) -> Iterator[Inputs]:
    try:
        examples = held_out(model.recipe)
    except SeqloomError as error:
        raise SeqloomError(error.code, error.what, where=error.where, fix="give a file of sources") from None
    return (example.inputs for example in examples)


class _Turn:
    """One way, its place in the texts, and what it took so far."""

    def __init__(self, way: Way, predict: Predict, texts: Sequence[Inputs]) -> None:
        self.way, self.predict = way, predict
        self.stream = cycle(texts)
        self.batches: list[float] = []
        self.rates: list[tuple[float, float]] = []  # tokens and texts per second, of each window

    def take(self, seconds: float, keep: bool = False) -> None:
        tokens = texts = 0
        took: list[float] = []
        while not took or sum(took) < seconds:
            batch = list(islice(self.stream, self.way.batch))
            started = time.perf_counter()
            answers = self.predict(batch)
            took.append(time.perf_counter() - started)
            tokens += sum(len(answer.tokens) for answer in answers)
            texts += len(answers)
        if keep:
            self.batches += took
            self.rates.append((tokens / sum(took), texts / sum(took)))

    def speed(self) -> Speed:
        tokens, texts = (statistics.median(column) for column in zip(*self.rates, strict=True))
        ordered = sorted(self.batches)
        late = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        return Speed(self.way, tokens, texts, statistics.median(ordered), late, len(self.rates))


def _loaded(run: str | Path, way: Way, threads: int | None, workers: int) -> Model | Engine:
    if way.engine == ENGINE:
        return load_engine(run, device=way.device, threads=threads)
    if way.engine == ONNX:
        return load_onnx(run, device=way.device, threads=threads)
    return load(run, device=way.device, threads=threads, int8=way.engine == INT8, workers=workers)


def _predictor(model: Model | Engine, way: Way, threads: int) -> Predict:
    wishes = {"beam": way.beam, "batch_tokens": WIDE, "on_long": "skip", "split": False}
    if isinstance(model, Engine):
        asked = Asked.model_validate(wishes)
        return lambda texts: list(model.predict(texts, asked, len(texts)))
    options = Options.model_validate(wishes)

    def predict(texts: Sequence[Inputs]) -> list[Prediction]:
        if model.workers is None:
            torch.set_num_threads(threads)  # another library may have taken them away
        return list(model.predict(texts, options, len(texts)))

    return predict

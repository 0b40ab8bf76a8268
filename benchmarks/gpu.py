"""How fast is one GPU: training and prediction on Multi30k, next to the ceiling of the same work as one CUDA graph.

python benchmarks/gpu.py --data FOLDER [--only train-transformer train-bahdanau predict bundle]

FOLDER holds multi30k/{train,val,test2016}.{de,en}.gz. Figures are real target tokens per second: padding is never
counted, the end of a target is in training and is not in prediction. The ceiling of training is the whole step of the
same model (forward, backward, optimiser) on one batch of fixed shape, recorded once and replayed with nothing around
it; that of prediction is the time that the recorded steps of a pass take by themselves. Recording is timed apart.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from seqloom import runtime
from seqloom.api.evaluate import evaluate
from seqloom.api.load import load
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.train import Wishes, train
from seqloom.batch import Batch, Tokens

RECIPES = Path(__file__).parent.parent / "recipes"
STACK = "{kind: transformer, width: 256, layers: 3, heads: 4, feedforward: 1024, dropout: 0.1}"
QUESTIONS = ("train-transformer", "train-bahdanau", "predict", "bundle")
TRANSFORMER = [f"model.encoder={STACK}", f"model.decoder={STACK}", "task.r_drop=0"]
LENGTH, ROWS = 16, 256  # of the batch of fixed shape: 4,096 target tokens
REPLAYS, SENTENCES = 200, 200


def settings(data: Path, *more: str) -> list[str]:
    sets = (("train", "train"), ("dev", "val"), ("test", "test2016"))
    files = [f"data.{name}={{source: {data}/{file}.de.gz, target: {data}/{file}.en.gz}}" for name, file in sets]
    return [*files, "batching.tokens=4096", "runtime.precision=bf16", "runtime.device=cuda", *more]


# --- training ----------------------------------------------------------------------------------------------------


def training(recipe: str, data: Path, folder: Path, more: Sequence[str]) -> dict[str, object]:
    """Windows of the real training loop, the first ones, in which steps are recorded, apart."""
    asked = settings(data, *more, "training.epochs=12", "training.validate_every=1000000", "training.log_every=25")
    done = train(RECIPES / recipe, folder, asked, Wishes(tell=print))
    windows = [float(str(line["tokens_per_second"])) for line in done.metrics if line["event"] == "logged"]
    later = windows[len(windows) // 2 :]
    measured = statistics.median(later)
    ceiling = training_ceiling(load(folder, device="cuda"))
    return {
        "tokens_per_second": round(measured),
        "windows": [round(window) for window in later],
        "while_recording": round(statistics.median(windows[: max(1, len(windows) // 8)])),
        "ceiling": round(ceiling),
        "share_of_ceiling": round(measured / ceiling, 3),
    }


def training_ceiling(model: Model) -> float:
    """The same network on one batch of fixed shape, its whole step replayed."""
    network = model.network.train()
    torch.manual_seed(1)

    def tokens(vocabulary: int) -> Tokens:
        ids = torch.randint(6, vocabulary, (ROWS, LENGTH), device="cuda")
        return Tokens(ids, torch.ones_like(ids, dtype=torch.bool), fixed=True)

    batch = Batch({"source": tokens(len(model.source.vocabulary))}, tokens(len(model.target.vocabulary)))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True, capturable=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = network.losses(batch, smoothing=0.1)[0].sum() / (ROWS * LENGTH)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return ROWS * LENGTH / replayed(step)


def replayed(work: Callable[[], None]) -> float:
    """Seconds of one replay of recorded work."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return timed(graph.replay, REPLAYS)


def timed(work: Callable[[], object], times: int) -> float:
    """Mean seconds of work that is done many times, after one time for nothing."""
    work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


# --- prediction --------------------------------------------------------------------------------------------------


class Clocked:
    """A recorded step whose replays are timed by the device itself."""

    def __init__(self, replay: Callable[[], None]) -> None:
        self.replay = replay
        self.replays: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __call__(self) -> None:
        begins, ends = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begins.record()
        self.replay()
        ends.record()
        self.replays.append((begins, ends))

    @property
    def seconds(self) -> float:
        return sum(begins.elapsed_time(ends) for begins, ends in self.replays) / 1000


def predicting(run: Path, data: Path) -> dict[str, object]:
    """Test sentences in batches, and one by one; recorded at the first pass, measured at the others."""
    sources = gzip.decompress((data / "test2016.de.gz").read_bytes()).decode("utf-8").splitlines()
    found: dict[str, object] = {"search": "beam 5, stops when 5 hypotheses have ended", "sentences": len(sources)}
    for name, (tokens, precision) in {
        "batches of 64": (64 * 16, "float32"),
        "batches of 4096 tokens": (4096, "float32"),
        "batches of 8192 tokens": (8192, "float32"),
        "batches of 8192 tokens, bf16": (8192, "bf16"),
    }.items():
        model = load(run, device="cuda", settings=[f"precision={precision}"])
        found[name] = passes(model, sources, Options(beam=5, batch_tokens=tokens, split=False))
    model, single = load(run, device="cuda"), Options(beam=5, split=False)
    found["one sentence"] = passes(model, sources[:SENTENCES], single, alone=True)
    return found


def passes(model: Model, sources: list[str], options: Options, alone: bool = False) -> dict[str, object]:
    def run() -> tuple[int, float]:
        began = time.perf_counter()
        asked = [[source] for source in sources] if alone else [sources]
        outputs = [output for part in asked for output in model.predict(part, options)]
        torch.cuda.synchronize()
        return sum(len(output.tokens) for output in outputs), time.perf_counter() - began

    tokens, first = run()
    speeds = [tokens / run()[1] for _ in range(3)]
    recordings = model.recordings
    assert recordings is not None
    known = [*recordings._known.values(), *recordings.starts.values()]
    clocks = [Clocked(recorded.replay) for recorded in known]
    for recorded, clock in zip(known, clocks, strict=True):
        object.__setattr__(recorded, "replay", clock)
    run()
    bare = sum(clock.seconds for clock in clocks)
    return {
        "tokens_per_second": round(statistics.median(speeds)),
        "first_pass_seconds": round(first, 2),
        "recordings": len(known),
        "failure": recordings.failure,
        "ceiling": round(tokens / bare) if bare else None,
        "share_of_ceiling": round(statistics.median(speeds) * bare / tokens, 3) if bare else None,
        "sentences_per_second": round(len(sources) / (tokens / statistics.median(speeds)), 1),
    }


# --- from raw text to a bundle -----------------------------------------------------------------------------------


def bundle(data: Path, folder: Path, more: Sequence[str]) -> dict[str, object]:
    """A new process reads raw text and ends with a bundle; then its BLEU on test2016."""
    asked = [f"--set={setting}" for setting in settings(data, *more)]
    recipe = RECIPES / "translation-transformer.yaml"
    began = time.perf_counter()
    command = [sys.executable, "-m", "seqloom", "train", recipe, "--run", folder, "--no-report", *asked]
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - began
    score = evaluate(load(folder, device="cuda")).scores["bleu"]
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    elapsed = {event["event"]: event["elapsed"] for event in events}  # of the last of each kind
    return {
        "seconds": round(seconds, 1),
        "seconds_of_training": elapsed["finished"],
        "bleu": round(score.value, 2),
        "signature": score.signature,
        "set": [*more, "--no-report"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    parser.add_argument(
        "--set", dest="more", action="append", default=[], help="for the bundle: settings of its recipe"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "gpu.json")
    arguments = parser.parse_args()
    data = arguments.data / "multi30k"
    with tempfile.TemporaryDirectory() as place:
        transformer, bahdanau = Path(place) / "transformer", Path(place) / "bahdanau"
        answers: dict[str, Callable[[], dict[str, object]]] = {
            "train-transformer": lambda: training("translation-transformer.yaml", data, transformer, TRANSFORMER),
            "train-bahdanau": lambda: training("translation-bahdanau.yaml", data, bahdanau, []),
            "predict": lambda: predicting(transformer, data),
            "bundle": lambda: bundle(data, Path(place) / "bundle", arguments.more),
        }
        asked = [question for question in QUESTIONS if question in arguments.only]
        if "predict" in asked and "train-transformer" not in asked:
            asked.insert(0, "train-transformer")  # whose run it predicts with
        for question in asked:
            answer = {"date": datetime.now(UTC).date().isoformat(), "machine": runtime.describe(), "seed": 1}
            written(arguments.output, question, {**answer, **answers[question]()})


def written(output: Path, question: str, answer: dict[str, object]) -> None:
    """Beside the answers to other questions: what comes later may fail."""
    known = json.loads(output.read_text()) if output.exists() else {}
    output.write_text(json.dumps({**known, question: answer}, indent=1) + "\n")
    print(json.dumps({question: answer}, indent=1), flush=True)


if __name__ == "__main__":
    main()

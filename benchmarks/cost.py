"""What does attention cost? Time against length with and without it, score functions by width, encoders by length.

python benchmarks/cost.py [--quick]   # some minutes; writes results/cost.{json,png} and words into README.md

The lecture's claim: O(n + m) without attention, O(n m) with it. Source and target are equally long here, n = m. All
curves take turns, length by length, so that noise hits all of them; a point is the median of its turns, and the
exponent p of time ~ n^p is fitted to the longest lengths, where what every step costs besides no longer hides it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from torch import nn

from seqloom import runtime
from seqloom.batch import Batch, Tokens
from seqloom.config import validated
from seqloom.models.model import EncoderDecoder
from seqloom.models.tables import ENCODERS
from seqloom.nn.frontends import Learned
from seqloom.nn.scores import SCORES

RESULTS = Path(__file__).parent / "results"
README = RESULTS.parent / "README.md"
BEGIN, END = "<!-- cost: begin (cost.py writes this) -->", "<!-- cost: end -->"
VOCABULARY, WIDTH, ROWS = 50, 64, 4
FITTED = 3  # of the longest lengths
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # told apart by the colour-blind too

Work = Callable[[], None]

DECODERS: dict[str, dict[str, object]] = {
    "no attention": {"kind": "rnn", "width": WIDTH},
    "attention, dot": {"kind": "luong", "width": WIDTH, "attention": {"score": "dot"}},
    "attention, additive": {"kind": "luong", "width": WIDTH, "attention": {"score": "additive"}},
}
STACKS: dict[str, dict[str, object]] = {
    "LSTM": {"kind": "rnn", "width": 128, "layers": 2},
    "convolution": {"kind": "convolution", "width": 128, "layers": 2, "dropout": 0.0},
    "Transformer": {"kind": "transformer", "width": 128, "layers": 2, "heads": 4, "dropout": 0.0},
}


def seconds(works: Sequence[Work], turns: int) -> list[float]:
    """The median time of each, all of them in turns; the first turn only warms up."""
    took: list[list[float]] = [[] for _ in works]
    for turn in range(turns + 1):
        for times, work in zip(took, works, strict=True):
            started_at = time.perf_counter()
            work()
            if turn:
                times.append(time.perf_counter() - started_at)
    return [statistics.median(times) for times in took]


def exponent(lengths: Sequence[int], times: Sequence[float]) -> float:
    """p of time ~ length^p, by least squares of the logarithms of the longest."""
    x = [math.log(length) for length in lengths[-FITTED:]]
    y = [math.log(max(value, 1e-9)) for value in times[-FITTED:]]
    middle = statistics.mean(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


# --- time against length ---------------------------------------------------------------------------------------------


def network(decoder: dict[str, object]) -> EncoderDecoder:
    embedding = {"width": WIDTH}
    raw = {
        "source_embedding": embedding,
        "target_embedding": embedding,
        "encoder": {"width": WIDTH},
        "decoder": decoder,
    }
    torch.manual_seed(1)
    settings = validated(EncoderDecoder.Settings, {**raw, "decoder": decoder}, "benchmark")
    return EncoderDecoder(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)


def training(model: EncoderDecoder, length: int) -> Work:
    ids = torch.randint(6, VOCABULARY, (ROWS, length))
    tokens = Tokens(ids, torch.ones_like(ids, dtype=torch.bool))
    batch = Batch({"source": tokens}, tokens)

    def work() -> None:
        model.zero_grad()
        model.nll(batch).sum().backward()

    return work


def decoding(model: EncoderDecoder, length: int) -> Work:
    """As many steps as there are source tokens, whatever the model would say."""
    ids = torch.randint(6, VOCABULARY, (ROWS, length))
    sources = {"source": Tokens(ids, torch.ones_like(ids, dtype=torch.bool))}

    @torch.inference_mode()
    def work() -> None:
        state = model.start(sources, 1)
        for step in range(length):
            _, state = model.step(ids[:, step], state)

    return work


def cost_of_attention(lengths: Sequence[int], turns: int) -> dict[str, object]:
    found: dict[str, object] = {"lengths": list(lengths)}
    for name, kind in {"training": training, "decoding": decoding}.items():
        curves: dict[str, list[float]] = {label: [] for label in DECODERS}
        models = [network(decoder) for decoder in DECODERS.values()]
        for length in lengths:
            works = [kind(model, length) for model in models]
            for label, value in zip(DECODERS, seconds(works, turns), strict=True):
                curves[label].append(value)
        bare = curves["no attention"]
        added = {
            label: exponent(lengths, [with_it - without for with_it, without in zip(values, bare, strict=True)])
            for label, values in curves.items()
            if label != "no attention"
        }
        found[name] = {
            "seconds": curves,
            "exponents": {label: exponent(lengths, values) for label, values in curves.items()},
            "exponents_of_what_attention_adds": added,
        }
    return found


# --- score functions by width ----------------------------------------------------------------------------------------


def score_functions(widths: Sequence[int], turns: int, rows: int = 8, length: int = 64) -> dict[str, object]:
    """Queries and keys are drawn from a normal distribution of variance 1, as layers are meant to keep them."""
    names = ["dot", "scaled_dot", "bilinear", "additive"]
    table: dict[str, dict[str, list[float]]] = {
        name: {"seconds": [], "megabytes": [], "variance": [], "largest_weight": []} for name in names
    }
    for width in widths:
        torch.manual_seed(width)
        query, memory = torch.randn(rows, length, width), torch.randn(rows, length, width)
        made = [SCORES.build(SCORES.settings(name), query=width, key=width) for name in names]
        works = [_scored(score, query, memory) for score in made]
        for name, score, took in zip(names, made, seconds(works, turns), strict=True):
            scores = score(query, score.keys(memory)).detach()
            column = table[name]
            column["seconds"].append(took)
            column["megabytes"].append(_kept(works[names.index(name)]) / 1e6)
            column["variance"].append(float(scores.var()))
            column["largest_weight"].append(float(scores.softmax(-1).amax(-1).mean()))
    return {"widths": list(widths), "queries": rows * length, "keys": length, "scores": table}


def _scored(score: nn.Module, query: torch.Tensor, memory: torch.Tensor) -> Work:
    asked, known = query.clone().requires_grad_(), memory.clone().requires_grad_()

    def work() -> None:
        weights = score(asked, score.keys(known)).softmax(-1)  # type: ignore[operator]
        weights.square().sum().backward()

    return work


def _kept(work: Work) -> int:
    """Bytes that the forward pass keeps for the backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        work()
    return sum(kept.values())


# --- encoders by length ----------------------------------------------------------------------------------------------


def encoders(lengths: Sequence[int], turns: int, tokens: int = 4096) -> dict[str, object]:
    """Tokens per second of a forward and a backward pass; batches of equally many tokens."""
    rates: dict[str, list[float]] = {name: [] for name in STACKS}
    torch.manual_seed(1)
    embedding = Learned(Learned.Settings(width=128), vocabulary=VOCABULARY)
    made = [ENCODERS.build(ENCODERS.settings(raw), embedding=embedding) for raw in STACKS.values()]
    for length in lengths:
        ids = torch.randint(6, VOCABULARY, (max(1, tokens // length), length))
        source = Tokens(ids, torch.ones_like(ids, dtype=torch.bool))
        works = [_encoded(encoder, source) for encoder in made]
        for name, took in zip(STACKS, seconds(works, turns), strict=True):
            rates[name].append(ids.numel() / took)
    return {"lengths": list(lengths), "batch_tokens": tokens, "tokens_per_second": rates}


def _encoded(encoder: nn.Module, source: Tokens) -> Work:
    def work() -> None:
        encoder(source).states.square().sum().backward()

    return work


# --- what came out ---------------------------------------------------------------------------------------------------


def draw(found: dict[str, dict[str, object]], path: Path) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    attention = found["attention"]
    for place, name in zip(axes[0, :2], ("training", "decoding"), strict=True):
        part: dict[str, dict[str, object]] = attention[name]  # type: ignore[assignment]
        for colour, (label, values) in zip(COLOURS, part["seconds"].items(), strict=False):
            told = f"{label}: n^{part['exponents'][label]:.2f}"
            place.plot(attention["lengths"], values, "o-", color=colour, label=told)
        place.set_yscale("log")
        _labelled(place, f"{name}: seconds for {ROWS} sequences", "length n of source and target")
    rates = found["encoders"]
    for colour, (label, values) in zip(COLOURS, rates["tokens_per_second"].items(), strict=False):  # type: ignore[attr-defined]
        axes[0, 2].plot(rates["lengths"], values, "o-", color=colour, label=label)
    _labelled(axes[0, 2], f"encoders: tokens/s, {rates['batch_tokens']:,} tokens a batch", "length of a sequence")
    scores = found["scores"]
    shown = {
        "seconds": "scores: seconds, forward and back",
        "variance": "scores: variance",
        "largest_weight": "softmax: mean largest weight",
    }
    for place, (key, title) in zip(axes[1], shown.items(), strict=True):
        for colour, (label, columns) in zip(COLOURS, scores["scores"].items(), strict=True):  # type: ignore[attr-defined]
            place.plot(scores["widths"], columns[key], "o-", color=colour, label=label)
        if key != "largest_weight":
            place.set_yscale("log")
        _labelled(place, title, "width d of queries and keys")
    figure.savefig(path, dpi=110)


def _labelled(place: plt.Axes, title: str, below: str) -> None:
    place.set_title(title)
    place.set_xlabel(below)
    place.set_xscale("log", base=2)
    place.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    place.grid(which="major", color="#e6e9ef")
    place.legend(frameon=True, framealpha=0.8, edgecolor="none")


def describe(result: dict[str, Any]) -> str:
    """What came out, in words; for the README."""
    train, decode = (result["attention"][name]["exponents"] for name in ("training", "decoding"))
    machine = result["machine"]
    bare, additive, dot = ("no attention", "attention, additive", "attention, dot")
    return (
        "With source and target equally long, time grows as n^p. Without attention p is "
        f"{train[bare]:.2f} in training and {decode[bare]:.2f} in decoding; with additive attention "
        f"{train[additive]:.2f} and {decode[additive]:.2f}. Products are so cheap that with a dot product the square "
        "shows late: "
        f"{train[dot]:.2f} and {decode[dot]:.2f} up to {result['attention']['lengths'][-1]:,} tokens. The variance of "
        "a plain dot product grows with the width, and with it the softmax saturates; scaled by the root of the width "
        f"neither does. ({result['date']}, {machine['processor']}, threads: {machine['threads']}.)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short lengths and few turns: does it run?")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    turns = 1 if asked.quick else 5
    lengths = [16, 32, 64, 128] if asked.quick else [16, 32, 64, 128, 256, 512, 1024]
    widths = [16, 64] if asked.quick else [16, 32, 64, 128, 256, 512, 1024]
    found: dict[str, dict[str, object]] = {
        "attention": cost_of_attention(lengths, turns),
        "scores": score_functions(widths, turns),
        "encoders": encoders(lengths, turns),
    }
    about = {"date": datetime.now(UTC).date().isoformat(), "machine": runtime.describe(), "turns": turns, "seed": 1}
    asked.output.mkdir(parents=True, exist_ok=True)
    (asked.output / "cost.json").write_text(json.dumps({**about, **found}, indent=1) + "\n")
    if asked.output == RESULTS:
        before, after = README.read_text().split(BEGIN)[0], README.read_text().split(END)[1]
        README.write_text(f"{before}{BEGIN}\n{describe({**about, **found})}\n{END}{after}")
    draw(found, asked.output / "cost.png")
    for name in ("training", "decoding"):
        part = found["attention"][name]
        print(name, {label: round(p, 2) for label, p in part["exponents"].items()})  # type: ignore[index]
        print("  what attention adds", {k: round(p, 2) for k, p in part["exponents_of_what_attention_adds"].items()})  # type: ignore[index]


if __name__ == "__main__":
    main()

"""How fast are training and prediction, next to a bare PyTorch loop of the same model? Run: `make bench`.

The bare loop is what a person would write by hand: nn.LSTM, one bilinear attention, Adam, teacher forcing, on batches
that are ready in memory. seqloom's side is its real training loop, batching included. Both take turns in windows of
some steps in one process, so that noise hits both; the result is the median of the windows, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from seqloom import runtime
from seqloom.api.train import train
from seqloom.batch import Batch
from seqloom.data.batching import Batching, TokenBatches
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.data.corpus import Corpus, Limits
from seqloom.data.readers import Example
from seqloom.models.model import EncoderDecoder
from seqloom.recipe import Recipe, recipe_from
from seqloom.runtime import Runtime
from seqloom.specials import BOS
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training.loop import Training, fit

WINDOW = 15  # steps per turn
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(count: int, seed: int) -> list[Example]:
    """Made-up words with a made-up pronunciation, of the lengths that a dictionary has."""
    rng = random.Random(seed)
    made = ["".join(rng.choice(LETTERS) for _ in range(round(rng.gauss(8, 2)) % 14 + 2)) for _ in range(count)]
    return [Example(word, (" ".join(word[: -1 or None].upper()),), "made", i) for i, word in enumerate(made)]


class Bare(nn.Module):
    """The same network by hand: bidirectional LSTM, LSTM decoder, bilinear attention, tanh readout."""

    def __init__(self, source: int, target: int, embedding: int, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(source, embedding), nn.Embedding(target, embedding)
        self.encoder = nn.LSTM(embedding, width // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(embedding, width, batch_first=True)
        self.score, self.readout = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width)
        self.out = nn.Linear(width, target)

    def forward(self, batch: Batch) -> torch.Tensor:
        source, target = batch.sources["source"], batch.target
        memory, (h, c) = self.encoder(self.source(source.ids))
        first = tuple(part.transpose(0, 1).reshape(1, len(part[0]), -1).contiguous() for part in (h, c))
        inputs = torch.roll(target.ids, 1, 1)
        inputs[:, 0] = BOS
        states, _ = self.decoder(self.target(inputs), first)
        scores = (states @ self.score(memory).transpose(1, 2)).masked_fill(~source.mask[:, None], -torch.inf)
        features = torch.tanh(self.readout(torch.cat([scores.softmax(-1) @ memory, states], -1)))
        return F.cross_entropy(self.out(features[target.mask]), target.ids[target.mask])


def bare_windows(batches: list[Batch], sizes: tuple[int, int], width: int) -> Iterator[float]:
    """Target tokens per second, window after window."""
    model = Bare(*sizes, width // 2, width)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while True:
        started_at, tokens = time.perf_counter(), 0
        for _ in range(WINDOW):
            batch = batches[step % len(batches)]
            step += 1
            optimiser.zero_grad()
            model(batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            tokens += batch.target_tokens
        yield tokens / (time.perf_counter() - started_at)


def loom_windows(corpus: Corpus, sizes: tuple[int, int], width: int, budget: int) -> Iterator[float]:
    """The same through seqloom's own loop: one `Logged` event per window."""
    side = {"kind": "learned", "width": width // 2}
    settings = EncoderDecoder.Settings.model_validate(
        {
            "source_embedding": side,
            "target_embedding": side,
            "encoder": {"width": width},
            "decoder": {"kind": "luong", "width": width, "start": "state"},
        }
    )
    model = EncoderDecoder(settings, source_vocabulary=sizes[0], target_vocabulary=sizes[1])
    task = Transduce(Transduce.Settings(), vocabularies=sizes, searching=SearchSettings())
    training = Training(steps=10**9, log_every=WINDOW, validate_every=10**9)
    events = fit(
        task, model, TokenBatches(corpus, Batching(tokens=budget), 1), training, validate=lambda model: {}, seed=1
    )
    next(events)  # Started
    while True:
        started_at = time.perf_counter()
        yield next(events).tokens / (time.perf_counter() - started_at)


def training_speed(windows: int, width: int, budget: int) -> dict[str, float]:
    examples = words(20_000, 1)
    raw = {"tokenizer": "characters"}
    source = TextCodec.train(
        TextCodec.Settings.model_validate(raw), lambda: (example.source for example in examples), 1
    )
    target = TextCodec.train(
        TextCodec.Settings.model_validate({"tokenizer": "symbols"}), lambda: (example.target for example in examples), 1
    )
    sizes = (len(source.vocabulary), len(target.vocabulary))
    with tempfile.TemporaryDirectory() as folder:
        corpus, _ = Corpus.build(examples, Codecs(source, target), Path(folder) / "corpus", Limits())
        batches = TokenBatches(corpus, Batching(tokens=budget), 1)
        ready = list(batches.epoch(0))
        bare, loom = bare_windows(ready, sizes, width), loom_windows(corpus, sizes, width, budget)
        rates: dict[str, list[float]] = {"bare": [], "seqloom": []}
        for _ in range(windows):
            rates["bare"].append(next(bare))
            rates["seqloom"].append(next(loom))
        padding = batches.padding(0)
    medians = {name: statistics.median(values[2:]) for name, values in rates.items()}
    return {**medians, "ratio": medians["seqloom"] / medians["bare"], "padding": padding}


def prediction_speed(folder: Path) -> dict[str, dict[str, float]]:
    """Sentences and target tokens per second of a small trained model, by search."""
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{one.source}\t{one.target}\n" for one in words(4_000, 2)))
    model = train(_tiny(pairs), folder / "run").model
    sources = [one.source for one in words(1_000, 3)]
    found: dict[str, dict[str, float]] = {}
    for name, options in {"greedy": {"beam": 1}, "beam 5": {"beam": 5}}.items():
        model(sources[:64], **options)
        started_at = time.perf_counter()
        tokens = sum(len(prediction.tokens) for prediction in model(sources, **options))
        elapsed = time.perf_counter() - started_at
        found[name] = {"sentences_per_second": len(sources) / elapsed, "tokens_per_second": tokens / elapsed}
    return found


def _tiny(pairs: Path) -> Recipe:
    raw = {
        "data": {"train": str(pairs)},
        "source": {"tokenizer": "characters"},
        "target": {"tokenizer": "symbols"},
        "model": {"encoder": {"width": 256}, "decoder": {"width": 256}},
        "training": {"steps": 150, "optimiser": {"kind": "adam", "lr": 3e-3}, "validate_every": 150},
        "evaluation": {"metrics": ["string_error"], "validate_examples": 0},
    }
    return recipe_from(raw, "benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    runtime.apply(Runtime(device="cpu", threads=arguments.threads))
    with tempfile.TemporaryDirectory() as folder:
        result = {
            "what": "target tokens per second, character LSTM 256 with attention",
            "date": datetime.now(UTC).date().isoformat(),
            "machine": runtime.describe(),
            "windows": arguments.windows,
            "steps_per_window": WINDOW,
            "training": training_speed(arguments.windows, 256, 2048),
            "prediction": prediction_speed(Path(folder)),
        }
    output = arguments.output or Path(__file__).parent / "results" / "speed.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

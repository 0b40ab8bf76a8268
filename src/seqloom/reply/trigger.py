"""Does a message want a short reply? A feed-forward model on the mean of embeddings of n-grams.

    p = sigmoid(w2 . relu(W1 mean of e(n-gram) + b1) + b2)

N-grams of the prepared text are hashed into a table of fixed size, so there is no vocabulary to keep. Messages are held
out by a hash of their text: some decide when training ends, others what threshold reaches the precision aimed at, so
that neither is chosen on what was learned by heart. Suggestions are made where p reaches the threshold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zlib import crc32

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom import config, weights, wording
from seqloom.errors import SeqloomError
from seqloom.files import atomic_write, read_json, sha256
from seqloom.runtime import derived_seed

WEIGHTS, CARD = "trigger.safetensors", "trigger.json"
FORMAT = 1
LEAST = 20  # messages of either kind that can be learned from
MOST_TOKENS = 1_000  # of a message that are looked at
FIX = "train it again: 'seqloom reply train'"


@dataclass(frozen=True)
class Point:
    """What one threshold gives: of those that get suggestions how many want them, of those that want them how many."""

    threshold: float
    precision: float
    recall: float
    share: float  # of all messages that get suggestions


@dataclass(frozen=True)
class Curve:
    """Area under the ROC curve, and precision against recall from the highest threshold to the lowest."""

    auc: float
    points: tuple[Point, ...]


class _Network(nn.Module):
    def __init__(self, settings: Trigger.Settings) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(settings.buckets, settings.width, mode="mean")
        self.hidden = nn.Linear(settings.width, settings.hidden)
        self.output = nn.Linear(settings.hidden, 1)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, ids: Tensor, starts: Tensor) -> Tensor:
        found = self.embedding(ids, starts)  # B D
        features = F.relu(self.hidden(self.dropout(found)))
        logits: Tensor = self.output(self.dropout(features)).squeeze(-1)  # B
        return logits


class Trigger:
    """P(a short reply is wanted | message), and the threshold above which suggestions are made."""

    class Settings(config.Settings):
        precision: float = Field(0.8, gt=0, le=1)  # aimed at when the threshold is chosen
        ngrams: int = Field(3, ge=1, le=5)  # the longest, in tokens
        buckets: int = Field(32_768, ge=16, le=4_194_304)  # of the table of n-grams
        width: int = Field(32, ge=1, le=1024)
        hidden: int = Field(32, ge=1, le=1024)
        dropout: float = Field(0.2, ge=0, lt=1)
        lr: float = Field(0.01, gt=0, le=1)
        batch: int = Field(128, ge=1, le=65_536)
        epochs: int = Field(20, ge=1, le=1000)
        patience: int = Field(3, ge=1)  # epochs without a better loss on held-out messages
        held_out: float = Field(0.2, gt=0, lt=1)  # half of it ends the training, half of it sets the threshold

    def __init__(self, network: _Network, settings: Settings, threshold: float) -> None:
        self._network = network.eval()
        self.settings = settings
        self.threshold = threshold

    @classmethod
    def fit(cls, messages: list[str], wanted: list[bool], settings: Settings | None = None, seed: int = 1) -> Self:
        """Learn from prepared texts; the threshold is chosen on messages that are held out of the training."""
        settings = settings or cls.Settings()
        if len(messages) != len(wanted):
            raise SeqloomError("E_ALIGN", f"{len(messages):,} messages and {len(wanted):,} answers for the trigger")
        parts = _parted(messages, wanted, settings, seed)
        for kind, word in ((True, "want a short reply"), (False, "do not")):
            if (count := sum(answer is kind for answer in wanted)) < LEAST:
                what = f"{count} messages that {word}, and a trigger learns from {LEAST} or more of either kind"
                raise SeqloomError("E_EMPTY", what, fix="give more messages")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(seed, 0, stream="trigger"))
            network = _Network(settings)
            _train(network, parts["train"], parts["stop"], settings)
        made = cls(network, settings, 0.5)
        texts, answers = parts["threshold"].texts, parts["threshold"].wanted
        made.threshold = _threshold(made.curve(texts, answers), settings.precision, len(texts))
        return made

    def probability(self, texts: list[str]) -> list[float]:
        """Of each prepared text."""
        found: list[float] = []
        with torch.inference_mode():
            for start in range(0, len(texts), 1024):
                rows = [_ids(text, self.settings) for text in texts[start : start + 1024]]
                found += torch.sigmoid(self._network(*_bagged(rows))).tolist()
        return found

    def wants(self, text: str) -> bool:
        """Is a short reply likely enough?"""
        return self.probability([text])[0] >= self.threshold

    def curve(self, messages: list[str], wanted: list[bool]) -> Curve:
        """Precision and recall at every threshold that tells messages apart, and the area under the ROC curve."""
        assert len(messages) == len(wanted)
        ranked = sorted(zip(self.probability(messages), wanted, strict=True), key=lambda row: -row[0])
        positives = sum(wanted)
        points: list[Point] = []
        hits = 0
        area = 0.0  # pairs of a wanted and an unwanted message in the right order; ties count a half
        tied_hits = tied = 0
        for place, (score, answer) in enumerate(ranked, start=1):
            hits, tied_hits, tied = hits + answer, tied_hits + answer, tied + 1
            if place == len(ranked) or ranked[place][0] != score:
                area += (tied - tied_hits) * (hits - tied_hits / 2)
                points.append(Point(score, hits / place, hits / max(1, positives), place / len(ranked)))
                tied_hits = tied = 0
        pairs = positives * (len(ranked) - positives)
        return Curve(area / pairs if pairs else 0.5, tuple(points))

    def save(self, folder: Path) -> None:
        """Weights, and a card with settings, threshold and checksum."""
        data = weights.to_bytes(weights.of_model(self._network))
        card = {
            "format": FORMAT,
            "settings": self.settings.model_dump(),
            "threshold": self.threshold,
            "size": len(data),
            "sha256": sha256(data),
        }
        atomic_write(folder / WEIGHTS, data)
        atomic_write(folder / CARD, json.dumps(card, allow_nan=False, indent=1).encode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """E_BUNDLE where it is not what `save` wrote; E_FORMAT where a newer seqloom wrote it."""
        path = folder / CARD
        card = read_json(path, 100_000, "a card of a trigger", FIX)
        form, size, threshold = card.get("format"), card.get("size"), card.get("threshold")
        if isinstance(form, int) and form > FORMAT:
            raise SeqloomError("E_FORMAT", f"a trigger of format {form}", where=str(path), fix="use a newer seqloom")
        if not (form == FORMAT and isinstance(size, int) and isinstance(threshold, int | float)):
            raise SeqloomError("E_BUNDLE", "not a card of a trigger", where=str(path), fix=FIX)
        try:
            settings = cls.Settings.model_validate(card.get("settings"))
        except ValidationError as error:
            what = f"not the settings of a trigger: {wording.first_problem(error)}"
            raise SeqloomError("E_BUNDLE", what, where=str(path), fix=FIX) from None
        network = _Network(settings)
        tensors = weights.read(folder / WEIGHTS, size=size, checksum=str(card.get("sha256")))
        weights.restore(network, tensors, str(folder / WEIGHTS))
        return cls(network, settings, float(threshold))


@dataclass(frozen=True)
class _Part:
    texts: list[str]
    wanted: list[bool]


def _parted(messages: Sequence[str], wanted: Sequence[bool], settings: Trigger.Settings, seed: int) -> dict[str, _Part]:
    """Messages for training, for its end and for the threshold, by a hash of their texts: equal texts stay together."""
    parts = {name: _Part([], []) for name in ("train", "stop", "threshold")}
    for text, answer in zip(messages, wanted, strict=True):
        place = crc32(f"{seed} {text}".encode()) / 2**32
        name = "train" if place >= settings.held_out else "stop" if place >= settings.held_out / 2 else "threshold"
        parts[name].texts.append(text)
        parts[name].wanted.append(answer)
    return parts


def _ids(text: str, settings: Trigger.Settings) -> list[int]:
    """Buckets of a text's n-grams, of its ends and of its rough length."""
    tokens = text.split()
    length = f"length {min(8, len(tokens).bit_length())}"
    framed = ["^", *tokens[:MOST_TOKENS], "$"]
    grams = [length]
    for order in range(1, settings.ngrams + 1):
        grams += [" ".join(framed[place : place + order]) for place in range(len(framed) - order + 1)]
    return [crc32(gram.encode()) % settings.buckets for gram in grams]


def _bagged(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """All ids in a row, and where each text's begin."""
    starts = [0]
    for row in rows[:-1]:
        starts.append(starts[-1] + len(row))
    return torch.tensor([one for row in rows for one in row]), torch.tensor(starts)


def _batches(rows: list[list[int]], answers: Tensor, order: list[int], size: int) -> Iterator[tuple[Tensor, ...]]:
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield *_bagged([rows[place] for place in chosen]), answers[chosen]


def _train(network: _Network, train: _Part, stop: _Part, settings: Trigger.Settings) -> None:
    """Adam on the cross-entropy, until it grows on held-out messages; the best weights are kept."""
    rows = [_ids(text, settings) for text in train.texts]
    answers = torch.tensor(train.wanted, dtype=torch.float32)
    held, goal = [_ids(text, settings) for text in stop.texts], torch.tensor(stop.wanted, dtype=torch.float32)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.lr)
    best, kept, waited = float("inf"), weights.copied(weights.of_model(network)), 0
    for epoch in range(settings.epochs):
        network.train()
        order = torch.randperm(len(rows)).tolist()
        for ids, starts, wanted in _batches(rows, answers, order, settings.batch):
            optimiser.zero_grad()
            F.binary_cross_entropy_with_logits(network(ids, starts), wanted).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        loss = _loss(network.eval(), held, goal) if held else -float(epoch)
        if loss < best:
            best, kept, waited = loss, weights.copied(weights.of_model(network)), 0
        elif (waited := waited + 1) >= settings.patience:
            break
    weights.restore(network, kept, WEIGHTS)


def _loss(network: _Network, rows: list[list[int]], answers: Tensor) -> float:
    total = 0.0
    with torch.no_grad():
        for ids, starts, wanted in _batches(rows, answers, list(range(len(rows))), 1024):
            total += float(F.binary_cross_entropy_with_logits(network(ids, starts), wanted, reduction="sum"))
    return total / len(rows)


def _threshold(curve: Curve, precision: float, messages: int) -> float:
    """The lowest that reaches the precision, and not by chance: by the lower end of Wilson's interval, 95 % one-sided.

    Where none does, the one that comes nearest on a twentieth of all messages.
    """
    reached = [point for point in curve.points if _at_least(point.precision, point.share * messages) >= precision]
    if reached:
        return reached[-1].threshold
    some = [point for point in curve.points if point.share >= 0.05] or list(curve.points)
    return max(some, key=lambda point: point.precision).threshold if some else 0.5


def _at_least(share: float, count: float, z: float = 1.645) -> float:
    """What a share of so many is at least, 19 times of 20 (Wilson 1927)."""
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (share + z * z / (2 * count) - spread) / (1 + z * z / count)

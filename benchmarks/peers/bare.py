"""A bare PyTorch loop: what a person would write by hand, on batches of like lengths that are ready in memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peers.worker import Count, Job, Turns, job

PAD, UNK, BOS, EOS = range(4)
SPECIALS = 4

Batch = tuple[Tensor, Tensor]  # sources B S and targets B T, both with their ends


class Transformer(nn.Module):
    """torch's own layers, one matrix for both embeddings and the output."""

    def __init__(self, sizes: dict[str, Any], vocabularies: tuple[int, int]) -> None:
        super().__init__()
        width = sizes["width"]
        self.embedding = nn.Embedding(vocabularies[0], width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.dropout = nn.Dropout(sizes["dropout"])
        self.layers = nn.Transformer(
            width,
            sizes["heads"],
            sizes["layers"],
            sizes["layers"],
            sizes["feedforward"],
            sizes["dropout"],
            batch_first=True,
            norm_first=True,
        )
        self.register_buffer("places", _sinusoids(256, width))

    def forward(self, source: Tensor, read: Tensor) -> Tensor:
        hidden, steps = source == PAD, read.shape[1]
        future = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        return self.layers(
            self._entered(source),
            self._entered(read),
            tgt_mask=future,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )

    def _entered(self, ids: Tensor) -> Tensor:
        vectors = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(vectors + self.places[: ids.shape[1]])

    def logits(self, features: Tensor) -> Tensor:
        return F.linear(features, self.embedding.weight)


def _sinusoids(places: int, width: int) -> Tensor:
    angles = torch.arange(places)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class Lstm(nn.Module):
    """A bidirectional LSTM, an LSTM, bilinear attention, a tanh readout; with input feeding a loop over cells."""

    def __init__(self, sizes: dict[str, Any], vocabularies: tuple[int, int]) -> None:
        super().__init__()
        embedding, read, width = sizes["embedding"], sizes["encoder"], sizes["width"]
        self.feeds = sizes["feeding"]
        self.source, self.target = (nn.Embedding(count, embedding) for count in vocabularies)
        self.encoder = nn.LSTM(embedding, read // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Identity() if read == width else nn.Linear(read, width)
        if self.feeds:
            self.cell = nn.LSTMCell(embedding + width, width)
        else:
            self.decoder = nn.LSTM(embedding, width, batch_first=True)
        self.score = nn.Linear(read, width, bias=False)
        self.readout = nn.Linear(read + width, width)
        self.dropout = nn.Dropout(sizes["dropout"])
        self.out = nn.Linear(width, vocabularies[1])

    def forward(self, source: Tensor, read: Tensor) -> Tensor:
        memory, last = self.encoder(self.dropout(self.source(source)))
        first = [self.bridge(part.transpose(0, 1).flatten(1)) for part in last]  # h and c, B D
        known = memory, self.score(memory).transpose(1, 2), source.eq(PAD)[:, None]
        x = self.dropout(self.target(read))
        if not self.feeds:
            states, _ = self.decoder(x, (first[0][None], first[1][None]))
            return self._attentional(states, *known)
        h, c = first
        fed, outputs = torch.zeros_like(h), []
        for step in x.unbind(1):
            h, c = self.cell(torch.cat([step, fed], dim=1), (h, c))
            fed = self._attentional(h[:, None], *known)[:, 0]
            outputs.append(fed)
        return torch.stack(outputs, dim=1)

    def _attentional(self, states: Tensor, memory: Tensor, keys: Tensor, hidden: Tensor) -> Tensor:
        weights = (states @ keys).masked_fill(hidden, -torch.inf).softmax(-1)  # B T S
        return self.dropout(torch.tanh(self.readout(torch.cat([weights @ memory, states], dim=-1))))

    def logits(self, features: Tensor) -> Tensor:
        return self.out(features)


def batches(job: Job) -> Iterator[Batch]:
    """All pairs sorted by their lengths, cut into batches once; their order is random."""
    read = [_reader(job.lines(f"{side}.vocabulary")) for side in ("source", "target")]
    sides = [
        [known(pieces) for pieces in job.pieces(f"train.{name}")]
        for known, name in zip(read, ("source", "target"), strict=True)
    ]
    pairs = sorted(zip(*sides, strict=True), key=lambda pair: (max(map(len, pair)), len(pair[1]), len(pair[0])))
    made: list[list[tuple[list[int], list[int]]]] = [[]]
    longest = 0
    for pair in pairs:
        longest = max(longest, *map(len, pair))
        rows = len(made[-1]) + 1
        if (job.tokens and rows * longest > job.tokens) or (job.rows and rows > job.rows):
            made.append([])
            longest = max(map(len, pair))
        made[-1].append(pair)
    ready = [(_padded([source for source, _ in rows]), _padded([target for _, target in rows])) for rows in made]
    rng = random.Random(1)
    while True:
        yield from rng.sample(ready, len(ready))


def _reader(vocabulary: list[str]) -> Callable[[list[str]], list[int]]:
    ids = {piece: token for token, piece in enumerate(vocabulary, start=SPECIALS)}
    return lambda pieces: [*(ids.get(piece, UNK) for piece in pieces), EOS]


def _padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def count(batch: Batch) -> Count:
    tokens = int(batch[1].ne(PAD).sum())
    return Count(tokens, tokens + int(batch[0].ne(PAD).sum()), batch[0].numel() + batch[1].numel())


def train_in_turns(job: Job, turns: Turns) -> None:
    vocabularies = tuple(len(job.lines(f"{side}.vocabulary")) + SPECIALS for side in ("source", "target"))
    build = Transformer if job.model["kind"] == "transformer" else Lstm
    model = build(job.model, (vocabularies[0], vocabularies[1]))
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    for source, target in turns.paced(batches(job), job.steps, count):
        optimiser.zero_grad()
        read = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
        real = target != PAD
        logits = model.logits(model(source, read)[real])
        F.cross_entropy(logits, target[real], label_smoothing=job.model["label_smoothing"]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


if __name__ == "__main__":
    torch.set_num_threads(job().threads)
    train_in_turns(job(), Turns("torch"))

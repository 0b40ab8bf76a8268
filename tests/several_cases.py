"""Trainings in float64 that several processes and a single one must agree on; `python several_cases.py OUT` runs all of
them as the rank that the environment says, and rank 0 writes what came out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from seqloom import weights
from seqloom.config import validated
from seqloom.data.batching import Batching, TokenBatches
from seqloom.data.codecs import Pair
from seqloom.data.windows import WindowBatches
from seqloom.models.model import MODELS
from seqloom.ranks.group import Group
from seqloom.ranks.several import joined
from seqloom.ranks.share import WHOLE
from seqloom.tasks.carried import Carried
from seqloom.tasks.match import Match
from seqloom.tasks.transduce import SearchSettings, Transduce
from seqloom.training.events import Checkpoint, Logged
from seqloom.training.loop import Training, fit

VOCABULARY = 13


@dataclass(frozen=True)
class Case:
    model: str  # rnn, transformer, or windows: a language model that carries its state
    accumulate: int
    optimiser: str

    @property
    def name(self) -> str:
        return f"{self.model}-{self.accumulate}-{self.optimiser}"


CASES = [
    *(Case("rnn", accumulate, "sgd") for accumulate in (1, 2, 3, 5)),
    *(Case("transformer", accumulate, "adamw") for accumulate in (1, 4)),
    Case("windows", 1, "sgd"),
    Case("windows", 2, "sgd"),
    Case("dual", 1, "sgd"),  # in-batch negatives: gathered across ranks, never split
]


class Pairs:
    """As much of a corpus as batches need: 31 pairs of different lengths, so that last batches are small."""

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        self.pairs = [Pair(self._drawn(rng), self._drawn(rng), index, weight=1 + index % 3) for index in range(31)]

    def _drawn(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        return rng.integers(6, VOCABULARY, rng.integers(1, 9))

    def __len__(self) -> int:
        return len(self.pairs)

    def lengths(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        sides = ([len(pair.source) for pair in self.pairs], [len(pair.target) for pair in self.pairs])
        return np.array(sides[0]), np.array(sides[1])

    def pick(self, indices: npt.NDArray[np.int64]) -> list[Pair]:
        return [self.pairs[index] for index in indices.tolist()]


def _network(case: Case) -> nn.Module:
    torch.manual_seed(2)
    kind = "rnn" if case.model == "rnn" else "transformer"
    part = {"kind": kind, "width": 8, "dropout": 0.0}
    raw: dict[str, object] = {
        "kind": "encoder_decoder",
        "source_embedding": {"width": 8},
        "target_embedding": {"width": 8},
        "encoder": part,
        "decoder": part,
    }
    if case.model == "windows":
        raw = {"kind": "language", "embedding": {"width": 6}, "decoder": {"kind": "rnn", "width": 6}}
    if case.model == "dual":
        raw = {"kind": "dual", "source_embedding": {"width": 8}, "encoder": {"width": 8}, "learned_temperature": True}
    model = MODELS.build(MODELS.settings(raw), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    model.unused = nn.Parameter(torch.ones(3, 3))  # no rank has a gradient of it, so nothing may happen to it
    return model.double()


def trained(case: Case, ranks: Group) -> tuple[dict[str, Tensor], list[dict[str, object]]]:
    """The last snapshot's tensors, and what was logged."""
    raw = {"steps": 9, "accumulate": case.accumulate, "log_every": 1, "clip": 0.5, "optimiser": case.optimiser}
    carries = case.model == "windows"
    share = WHOLE if case.model == "dual" else ranks.share(case.accumulate, rows_only=carries)
    batches: TokenBatches | WindowBatches
    if carries:
        text = np.random.default_rng(3).integers(6, VOCABULARY, 230).astype(np.uint16)
        batches = WindowBatches(text, Batching(tokens=40, window=8), 1, share)
    else:
        batches = TokenBatches(Pairs(), Batching(tokens=40), 1, share=share)  # type: ignore[arg-type]
    task: Transduce | Match = Transduce(
        Transduce.Settings(),
        vocabularies=(VOCABULARY, VOCABULARY),
        searching=SearchSettings(),
        carried=Carried() if carries else None,
    )
    if case.model == "dual":
        task = Match(ranks)
    found: dict[str, Tensor] = {}
    logged: list[dict[str, object]] = []
    settings = validated(Training, raw, "test")
    made = fit(task, _network(case), batches, settings, validate=lambda model: {"nll": 1.0}, seed=1, ranks=ranks)  # type: ignore[arg-type]
    for event in made:
        if isinstance(event, Checkpoint):
            found = event.snapshot().tensors
        if isinstance(event, Logged):
            told = ("step", "epoch", "loss", "gradient_norm", "tokens", "tokens_seen")  # padding may be less
            logged.append({name: getattr(event, name) for name in told})
    return found, logged


def main(arguments: Sequence[str]) -> None:
    """Rank 0 writes; every other rank compares its weights with those of rank 0."""
    out = Path(arguments[0])
    with joined() as ranks:
        ranks.connect(torch.device("cpu"), 60)
        for case in CASES:
            tensors, logged = trained(case, ranks)
            if ranks.leads:
                (out / f"{case.name}.safetensors").write_bytes(weights.to_bytes(tensors))
                (out / f"{case.name}.json").write_text(json.dumps(logged))
            for name, tensor in sorted(tensors.items()):
                theirs = tensor.clone()
                ranks.spread([theirs])
                assert torch.equal(theirs, tensor), f"rank {ranks.rank} has another {name}"
        ranks.disconnect()


if __name__ == "__main__":
    main(sys.argv[1:])

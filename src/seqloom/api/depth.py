"""What depth captures, asked of a model on a test set: what each layer knows, how far it sees, what each head does.

    layer_probes(model, examples, "label")     how well a label is read off each layer's states
    context_reach(model, examples)             from how far away each layer's states take what they know
    attention_heads(model, examples)           the role of every head, and the loss without it

The methods and their papers are named in `probe/depth.py`. Nothing is printed here and no weight changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from seqloom.api.gradients import forced_batches
from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.api.states import asked, labels_of, looked_at
from seqloom.api.testset import metrics_of
from seqloom.batch import Batch
from seqloom.config import Plain
from seqloom.data.batching import in_order
from seqloom.data.codecs import Encoded
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.metrics import Metric
from seqloom.models.memories import joined
from seqloom.nn.tape import Replacement, Tape
from seqloom.probe.depth import (
    MASS,
    Head,
    Reach,
    Roles,
    forced_loss,
    head_taps,
    joined_reach,
    layers,
    places,
    probe_accuracy,
    reaches,
    silenced,
    weights_passed,
)
from seqloom.probe.edits import reduction_of
from seqloom.shapes import Tensor
from seqloom.specials import EOS

BATCH_TOKENS = 4096
HELD_OUT = 0.3  # of the labelled examples: what a probe is judged on
FEW_EXAMPLES = 16  # every position of every one of them is several backward passes, for every layer
Marks = Bool[np.ndarray, "T S"]
Spots = Int64[np.ndarray, "n"]  # places in a sequence


# --- probes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerProbe:
    layer: str
    accuracy: float


@dataclass(frozen=True)
class LayerProbes:
    """How well a label is read off each layer; `majority` is what always saying the most frequent label gives."""

    label: str
    classes: tuple[str, ...]
    train: int
    test: int
    majority: float
    probes: tuple[LayerProbe, ...]

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [asdict(probe) for probe in self.probes]
        about: dict[str, Plain] = {"label": self.label, "classes": list(self.classes), "layers": rows}
        return {**about, "train": self.train, "test": self.test, "majority": self.majority}

    def lines(self, width: int = 80) -> list[str]:
        head = f"{self.label} ({len(self.classes)} classes) read off {self.test:,} states, learned on {self.train:,}"
        rows = [("majority", self.majority), *((probe.layer, probe.accuracy) for probe in self.probes)]
        return [head, *(_bar(name, share, width) for name, share in rows)]


def layer_probes(
    model: Model,
    examples: Sequence[Example],
    label: str,
    labels: Sequence[str] | None = None,
    seed: int = 0,
) -> LayerProbes:
    """A linear probe for each layer of the encoder (of a joint model: of the decoder while it reads the source).

    `label` names a column that was read beside the texts; `labels`, where given, are one for each example. Part of the
    examples, chosen by the seed, judges what the others taught. A label that the model itself reads is no test of it.
    """
    told = labels_of(examples, label) if labels is None else list(labels)
    if len(told) != len(examples):
        raise SeqloomError("E_ALIGN", f"{len(told):,} labels for {len(examples):,} examples")
    order = Random(seed).sample(range(len(told)), len(told))
    test, train = np.split(np.array(order, dtype=np.int64), [round(HELD_OUT * len(told))])
    classes = tuple(sorted({told[i] for i in train}))
    if len(classes) < 2 or not len(test):
        what = (
            f"{label}: {len(classes)} different label(s) in {len(train):,} examples; a probe needs 2, and some to judge"
        )
        raise SeqloomError("E_DATA", what, fix="give more examples, or another column")
    numbers = {name: number for number, name in enumerate(classes)}
    gold = torch.tensor([numbers.get(name, -1) for name in told])  # -1: never learned, and so always wrong
    majority = int(torch.bincount(gold[train]).argmax())
    probes = [
        LayerProbe(name, probe_accuracy(states[train], gold[train], states[test], gold[test], len(classes)))
        for name, states in _pooled(model, examples).items()
    ]
    right = float((gold[test] == majority).double().mean())
    return LayerProbes(label, classes, len(train), len(test), right, tuple(probes))


def _pooled(model: Model, examples: Sequence[Example]) -> dict[str, Tensor]:
    encoded = [model.codecs.encode(looked_at(model, example)) for example in examples]
    found: dict[str, list[Tensor]] = {}
    for batch in _planned(encoded, BATCH_TOKENS):
        pooled = layers(model.network, model.sources([encoded[i] for i in batch])).pooled()
        for name, states in pooled.items():
            rows = found.setdefault(name, [states.new_empty(0)] * len(encoded))
            for row, i in enumerate(batch):
                rows[i] = states[row].float().cpu()
    return {name: torch.stack(rows) for name, rows in found.items()}


def _planned(encoded: Sequence[Encoded], tokens: int) -> list[list[int]]:
    lengths = np.array([read.length for read in encoded], dtype=np.int64)
    return [batch.tolist() for batch in in_order(lengths, tokens)]


# --- reach --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reaches:
    """How far each layer's states depend on the inputs; `why` says why there is nothing to tell, where that is so."""

    examples: int
    layers: tuple[Reach, ...]
    reduction: int = 1  # so many inputs are one state
    why: str | None = None

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [
            {
                "layer": one.layer,
                "reach": one.distance,
                "farthest": one.farthest,
                "here": one.here,
                "before": list(one.before),
                "after": list(one.after),
            }
            for one in self.layers
        ]
        about: dict[str, Plain] = {"examples": self.examples, "mass": MASS, "reduction": self.reduction}
        return {**about, "layers": rows, "why": self.why}

    def lines(self, width: int = 80) -> list[str]:
        if self.why is not None:
            return [f"no reach: {self.why}"]
        head = (
            f"within how many positions lie {100 * MASS:.0f} % of what a state depends on ({self.examples:,} examples)"
        )
        rows = [
            f"{one.layer:>10}  {one.distance:4}   here {100 * one.here:3.0f} %, before {100 * sum(one.before):3.0f} %, "
            f"after {100 * sum(one.after):3.0f} %"
            for one in self.layers
        ]
        note = [f"one state stands for {self.reduction} positions, all of them here"] if self.reduction > 1 else []
        return [head, *(row[:width] for row in rows), *note]


def context_reach(model: Model, examples: Sequence[Example], most: int = FEW_EXAMPLES, seed: int = 0) -> Reaches:
    """Over the first `most` examples' sources; where no distance can be told, the result says why."""
    encoded = [read for example in examples[:most] if (read := model.codecs.encode(looked_at(model, example))).own]
    if not encoded:
        raise SeqloomError("E_EMPTY", "no sources to look at")
    if any(encoder.reads == "pixels" for encoder in model.network.readers()[:1]):
        why = "its states are regions of a picture, in rows and columns, and reach is told along a sequence"
        return Reaches(len(encoded), (), why=why)
    found: dict[str, list[Float64[np.ndarray, "n w"]]] = {}
    for batch in _planned(encoded, BATCH_TOKENS):
        for name, part in reaches(model.network, model.sources([encoded[i] for i in batch]), seed).items():
            found.setdefault(name, []).append(part)
    if not found:
        why = "its encoder reads every token alone, no state depends on another position"
        return Reaches(len(encoded), (), why=why)
    layered = tuple(joined_reach(name, parts) for name, parts in found.items())
    return Reaches(len(encoded), layered, reduction_of(model.network))


# --- heads --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heads:
    """Every head of a model; `loss` is the nll per target token with all of them, `score` the metric's value."""

    examples: int
    heads: tuple[Head, ...]
    loss: float
    metric: str | None = None
    score: float | None = None

    @property
    def ranked(self) -> list[Head]:
        """The heads whose loss would be felt most come first; those that were not silenced come last."""
        return sorted(self.heads, key=lambda head: -np.inf if head.loss_without is None else head.loss_without)[::-1]

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [
            {
                "name": head.name,
                "tap": head.tap,
                "layer": head.layer,
                "head": head.head,
                "role": head.role,
                "roles": {name: {**asdict(share), "above": share.above} for name, share in head.roles.items()},
                "loss_without": head.loss_without,
                "score_without": head.score_without,
            }
            for head in self.heads
        ]
        about: dict[str, Plain] = {"examples": self.examples, "loss": self.loss}
        return {**about, "metric": self.metric, "score": self.score, "heads": rows}

    def lines(self, width: int = 80) -> list[str]:
        whole = f"loss {self.loss:.4f} per token" + ("" if self.score is None else f", {self.metric} {self.score:.2f}")
        many = "1 head" if len(self.heads) == 1 else f"{len(self.heads)} heads"
        lines = [f"{many} over {self.examples:,} examples, {whole}; the most needed first"]
        for head in self.ranked:
            role = head.roles.get(head.role)
            does = "no clear role" if role is None else f"{head.role} {role.share:.2f} (chance {role.chance:.2f})"
            without = "" if head.loss_without is None else f"  without it {head.loss_without - self.loss:+.4f}"
            if head.score_without is not None and self.score is not None:
                without += f", {self.metric} {head.score_without - self.score:+.2f}"
            lines.append(f"{head.name:>14}: {does}{without}"[:width])
        return lines


def attention_heads(model: Model, examples: Sequence[Example], *, prune: bool = True, metric: bool = False) -> Heads:
    """The role of every head over the examples and their first references, and the loss with each silenced alone.

    With `metric` the examples are answered once for every head too, and judged by the recipe's first metric. A
    monotonic decoder's weights are probabilities of its alignment: they have roles but cannot be silenced. E_USAGE for
    a model without any attention.
    """
    model = replace(model, workers=None, scorer=None)  # the tape is heard here, by this network
    batches = forced_batches(model, examples, BATCH_TOKENS)
    kinds = {name: kind for kind, taps in head_taps(model.network).items() for name in taps}
    reading = _Reading.of(model, examples)
    found: dict[str, Roles] = {}
    every: dict[str, int] = {}  # how often a batch passes the tap; further sources' encoders have the same ones
    for batch in batches:
        for name, steps in weights_passed(model.network, batch, list(kinds)).items():
            weights = steps[0] if kinds[name] == "encoder" else torch.cat(steps, dim=2)  # B H T S
            every[name] = len(steps) if kinds[name] == "encoder" else 1
            collected = found.setdefault(name, Roles(weights.shape[1]))
            reading.collect(collected, kinds[name], weights.double().cpu().numpy(), batch)
    if not found:
        what = "this model has no attention, so there are no heads to look at"
        raise SeqloomError("E_USAGE", what, fix="look at a model with attention, such as model.decoder.kind: luong")
    loss = forced_loss(model.network, batches)
    judge = _Judge(model, examples, metrics_of(None, model.recipe)) if metric else None
    heads = []
    for name, roles in found.items():
        layer = int(part) + 1 if (part := name.split(".")[1]).isdigit() else 1
        for head in range(roles.heads):
            told = Head(name, layer, head + 1, roles.shares(head))
            if prune and not (model.network.head.repeats and kinds[name] == "memory"):
                shut = {name: silenced(head, every[name])}
                told = replace(
                    told,
                    loss_without=forced_loss(model.network, batches, shut),
                    score_without=None if judge is None else judge.score(shut),
                )
            heads.append(told)
    score = None if judge is None else judge.score({})
    return Heads(len(examples), tuple(heads), loss, None if judge is None else judge.name, score)


class _Judge:
    """Answers the examples and judges the answers, with something put in place of what passes a tap."""

    def __init__(self, model: Model, examples: Sequence[Example], metrics: Mapping[str, Metric]) -> None:
        self.model, self.examples = model, examples
        self.name, self.metric = next(iter(metrics.items()))

    def score(self, shut: Mapping[str, Replacement]) -> float:
        with Tape(replace=shut):
            said = list(self.model.predict([asked(self.model, one) for one in self.examples], Options(on_long="skip")))
        return self.metric.score([one.text for one in said], [one.references for one in self.examples])


@dataclass(frozen=True)
class _Read:
    """What of one example decides which positions have a role: those that are attended to, each of `reduction`."""

    source: Int64[np.ndarray, "s"]  # ids, EOS included; the first one of every position
    target: Int64[np.ndarray, "t"]  # the same
    rarest: Int64[np.ndarray, "r"]  # source positions
    same: Marks  # t s: the source's piece is the one that is said
    linked: Int64[np.ndarray, "l 2"]


@dataclass(frozen=True)
class _Reading:
    """The examples as roles see them, and whether the model has a memory."""

    model: Model
    read: Sequence[_Read]

    @staticmethod
    def of(model: Model, examples: Sequence[Example]) -> _Reading:
        counts = _counts(model, examples)
        return _Reading(model, [_read(model, example, counts) for example in examples])

    def collect(self, roles: Roles, kind: str, weights: Float64[np.ndarray, "B H T S"], batch: Batch) -> None:
        """Add the rows of one batch, each cut to what is real."""
        network = self.model.network
        memories, stand = network.encode(batch.sources), network.places(batch)
        memory = joined([*memories.values()]).mask.cpu().numpy() if memories else None
        for row, place in enumerate(batch.examples):
            one = self.read[place]
            if kind == "encoder":
                self._encoder(roles, one, weights[row])
            elif kind == "memory":
                assert memory is not None
                self._memory(roles, one, weights[row], memory[row])
            else:
                places = None if stand is None else (stand.read[row].cpu().numpy(), stand.said[row].cpu().numpy())
                self._decoder(roles, one, weights[row], places)

    def _encoder(self, roles: Roles, one: _Read, weights: Float64[np.ndarray, "H T S"]) -> None:
        size = len(one.source)
        seen = weights[:, :size, :size]
        causal = not np.triu(seen, 1).any() and size > 1
        visible = np.tril(np.ones((size, size), dtype=bool)) if causal else np.ones((size, size), dtype=bool)
        roles.add(seen, {**places(size, size), "rarest": _columns((size, size), one.rarest)}, visible)

    def _memory(
        self, roles: Roles, one: _Read, weights: Float64[np.ndarray, "H T S"], mask: Bool[np.ndarray, "S"]
    ) -> None:
        shape = (len(one.target), weights.shape[2])
        seen = weights[:, : shape[0]]
        inner = {**places(shape[0], len(one.source)), "said word": one.same}
        known = {name: np.pad(role, ((0, 0), (0, shape[1] - len(one.source)))) for name, role in inner.items()}
        known["rarest"] = _columns(shape, one.rarest)
        known["aligned"] = np.zeros(shape, dtype=bool)
        known["aligned"][one.linked[:, 0], one.linked[:, 1]] = True
        roles.add(seen, known, np.broadcast_to(mask[None], shape))

    def _decoder(
        self, roles: Roles, one: _Read, weights: Float64[np.ndarray, "H T S"], stand: tuple[Spots, Spots] | None
    ) -> None:
        """What was read and said so far; without an encoder the source and the target as one sequence, where they
        `stand` there."""
        read, said = stand or (np.arange(0), np.arange(len(one.target)))
        said = said[: len(one.target)]
        size = int(said[-1]) + 1
        known = places(size, size)
        del known["next"], known["end"]  # nobody sees them
        if stand is not None:
            known["rarest"] = _columns((size, size), read[one.rarest])
            known["said word"] = np.zeros((size, size), dtype=bool)
            known["said word"][said[:, None], read[None, : len(one.source)]] = one.same
        roles.add(weights[:, :size, :size], known, np.tril(np.ones((size, size), dtype=bool)))


def _read(model: Model, example: Example, counts: Mapping[int, int]) -> _Read:
    pair, encoded = model.codecs.pair(asked(model, example), example.target, 0, example.links)
    if model.recipe.data.in_files:  # places have roles there, words have none
        size = -(-int(model.sources([encoded])["source"].lengths[0]) // reduction_of(model.network))
        target, nothing = np.array([*pair.target.tolist(), EOS]), np.empty((0, 2), dtype=np.int64)
        return _Read(np.zeros(size, np.int64), target, nothing[:, 0], np.zeros((len(target), size), bool), nothing)
    before = len(encoded.source) - encoded.own
    own = encoded.source[before:].tolist()
    least = min((counts.get(token, 0) for token in own), default=0)
    rarest = [before + place for place, token in enumerate(own) if counts.get(token, 0) == least]
    read = [model.source.tokenizer.surface(piece).strip() for piece in model.source.tokens(example.source)]
    said = [model.target.tokenizer.surface(piece).strip() for piece in model.target.tokens(example.target)]
    same = np.zeros((len(said) + 1, len(encoded.source) + 1), dtype=bool)
    for t, piece in enumerate(said):
        same[t, before:-1] = [bool(piece) and piece == other for other in read]
    linked = np.empty((0, 2), dtype=np.int64) if pair.links is None else pair.links.astype(np.int64)
    joined = reduction_of(model.network)
    return _Read(
        np.array([*encoded.source.tolist(), EOS])[::joined],
        np.array([*pair.target.tolist(), EOS]),
        np.unique(np.array(rarest, dtype=np.int64) // joined),
        np.logical_or.reduceat(same, np.arange(0, same.shape[1], joined), axis=1),
        linked // [1, joined],
    )


def _counts(model: Model, examples: Sequence[Example]) -> Mapping[int, int]:
    """How often each source token was seen: in training where the vocabulary counted, else in these examples."""
    if model.recipe.data.in_files:
        return {}
    vocabulary = model.source.vocabulary
    if vocabulary.counts is not None:
        return dict(zip(vocabulary.ids(vocabulary.counts), vocabulary.counts.values(), strict=True))
    return Counter(token for example in examples for token in model.source.encode(example.source))


def _columns(shape: tuple[int, int], wanted: Int64[np.ndarray, "r"]) -> Marks:
    marked = np.zeros(shape, dtype=bool)
    marked[:, wanted] = True
    return marked


def _bar(name: str, share: float, width: int) -> str:
    room = max(4, width - 22)
    return f"{name:>10}  {100 * share:5.1f} %  {'#' * round(share * room)}".rstrip()

"""How well a dual encoder ranks: every source against all candidates of a test set, or against a few that are drawn.

    all        the candidates are all different targets of the set; whichever is a reference of the source is right
    1 of n     its own target and n - 1 others of the set, drawn by a seed, none of them a reference of the source

The first depends on how large the set is, the second does not: that is what most papers on replies report (n = 100).
Which of them it was is a part of every score's signature.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from seqloom.api.evaluate import Judge, RunEvaluation
from seqloom.api.index import distinct
from seqloom.api.retriever import Retriever, load_retriever
from seqloom.api.testset import from_spec, held_out, prepared
from seqloom.data.codecs import Encoded
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.metrics.base import Metric
from seqloom.metrics.ranking import CANDIDATES
from seqloom.metrics.rates import collapse
from seqloom.metrics.significance import SEED
from seqloom.search.nearest import nearest_of
from seqloom.shapes import Float, Int, Tensor

DEPTH = 100  # places of a list that is of all candidates; what stands lower is not found


@dataclass(frozen=True)
class Protocol:
    """What each source is ranked against."""

    among: int | None = None  # null: all candidates there are
    seed: int = SEED
    depth: int = DEPTH

    def deep_enough(self, metrics: Sequence[Metric]) -> Protocol:
        """The same with lists that go as far down as these metrics look."""
        return replace(self, depth=max(self.depth, *(metric.depth for metric in metrics)))

    def within(self, examples: Sequence[Example]) -> Protocol:
        """The same where so many can be drawn, and all candidates where they are too few: for dev sets of any size."""
        most = max((len(example.references) for example in examples), default=0)
        found = len({collapse(text) for example in examples for text in example.references})
        return self if self.among is None or self.among + most <= found else replace(self, among=None)

    def signature(self, candidates: int) -> str:
        """What a score must say besides its metric."""
        if self.among is None:
            return f"candidates:all-{candidates}|depth:{min(self.depth, candidates)}"
        return f"candidates:1-of-{self.among}|drawn-from:{candidates}|seed:{self.seed}"

    def __str__(self) -> str:
        return "all candidates" if self.among is None else f"1 of {self.among}"


@dataclass(frozen=True)
class Asked:
    """A test set as vectors. `rows` are the examples that can be read; of the others nothing is found."""

    candidates: tuple[str, ...]
    vectors: Float[Tensor, "N D"]
    rows: list[int]
    read: list[Encoded]
    queries: Float[Tensor, "R D"]

    @staticmethod
    def of(retriever: Retriever, examples: Sequence[Example]) -> Asked:
        limits, codecs = retriever.recipe.data.limits, retriever.codecs
        every = distinct(text for example in examples for text in example.references)
        kept = tuple(text for text in every if retriever.fits(text))
        encoded = [codecs.encode(example.inputs) for example in examples]
        rows = [row for row, one in enumerate(encoded) if 0 < one.own <= limits.max_source]
        read = [encoded[row] for row in rows]
        return Asked(kept, retriever.candidates(kept), rows, read, retriever.queries(read))


def rankings(retriever: Retriever, examples: Sequence[Example], protocol: Protocol) -> list[str]:
    """For each example its candidates as one text, the best first, with tabs between them."""
    return ranked(Asked.of(retriever, examples), examples, protocol)


def ranked(asked: Asked, examples: Sequence[Example], protocol: Protocol) -> list[str]:
    lists = [""] * len(examples)
    if not asked.rows or not asked.candidates:
        return lists
    if protocol.among is None:
        count = min(protocol.depth, len(asked.candidates))
        places = nearest_of(asked.vectors)(asked.queries, count)[1]
    else:
        drawn = np.stack([*draws(asked.candidates, [examples[row] for row in asked.rows], protocol)])
        places = _ordered(asked, torch.from_numpy(drawn).to(asked.vectors.device))
    for row, found in zip(asked.rows, places.tolist(), strict=True):
        lists[row] = CANDIDATES.join(asked.candidates[place].replace(CANDIDATES, " ") for place in found)
    return lists


def draws(
    candidates: Sequence[str], examples: Sequence[Example], protocol: Protocol
) -> Iterator[npt.NDArray[np.int64]]:
    """The places of what each example is ranked among, in their order; its own target is one of them.

    Of an over-long target, which is no candidate, another takes the place: the example is then wrong.
    """
    assert protocol.among is not None
    places: dict[str, list[int]] = {}
    for place, text in enumerate(candidates):
        places.setdefault(collapse(text), []).append(place)
    for number, example in enumerate(examples):
        own = places.get(collapse(example.target), [])[:1]
        right = {place for text in example.references for place in places.get(collapse(text), ())}
        wanted = protocol.among - len(own)
        if len(candidates) - len(right) < wanted:
            what = f"1 of {protocol.among}: the set has {len(candidates):,} different targets"
            fix = "a smaller number, or more test pairs"
            raise SeqloomError("E_USAGE", what, where=example.where, fix=fix)
        rng = np.random.default_rng((protocol.seed, number))
        some = rng.choice(len(candidates), min(len(candidates), wanted + len(right)), replace=False)
        others = [place for place in some.tolist() if place not in right][:wanted]
        yield np.sort(np.array([*own, *others], dtype=np.int64))


def _ordered(asked: Asked, drawn: Int[Tensor, "R n"]) -> Int[Tensor, "R n"]:
    """Each row's candidates, the best first; of equal ones those that stand first in the set."""
    scores = torch.stack([asked.vectors[row] @ query for row, query in zip(drawn, asked.queries, strict=True)])
    return drawn.gather(1, scores.argsort(dim=1, descending=True, stable=True))


def evaluate_ranking(
    retriever: Retriever | str | Path,
    examples: Sequence[Example] | str | Path | None = None,
    protocol: Protocol | None = None,
    judge: Judge | None = None,
) -> RunEvaluation:
    """Rank the examples (default: the recipe's test set) and judge the lists (default: by the recipe's metrics).

    `protocol` says what each source is ranked among; by default as the recipe has it (`evaluation.among`).
    """
    if isinstance(retriever, (str, Path)):
        retriever = load_retriever(retriever)
    recipe = retriever.recipe
    if isinstance(examples, (str, Path)):
        chosen = from_spec(str(examples), recipe)
    else:
        chosen = held_out(recipe) if examples is None else list(examples)
    items = prepared(chosen, recipe)
    judge = judge or Judge(None, recipe.evaluation.metrics)
    for word, metric in judge.metrics.items():
        if not metric.of_lists:
            what = f"{word} judges one text, and this run ranks many"
            raise SeqloomError("E_USAGE", what, where=retriever.name, fix="--metric recall_at:k=10, or mrr")
    protocol = (protocol or Protocol(recipe.evaluation.among)).deep_enough([*judge.metrics.values()])
    started_at = time.perf_counter()
    asked = Asked.of(retriever, items)
    if not asked.candidates:
        raise SeqloomError("E_EMPTY", "no target of the set can be read", fix="look at the data with 'seqloom check'")
    lists = ranked(asked, items, protocol)
    seconds = time.perf_counter() - started_at
    report = _signed(judge.outputs(retriever.name, lists, items), protocol.signature(len(asked.candidates)))
    return replace(report, ranked=_told(asked, protocol, len(items), seconds))


def _signed(report: RunEvaluation, protocol: str) -> RunEvaluation:
    """The same report, every score saying what was ranked."""
    scores = {word: replace(one, signature=f"{one.signature}|{protocol}") for word, one in report.scores.items()}
    return replace(report, scores=scores, evaluation=replace(report.evaluation, scores=tuple(scores.values())))


def _told(asked: Asked, protocol: Protocol, count: int, seconds: float) -> str:
    """What was ranked among what, in a line."""
    read = sum(len(one.source) for one in asked.read)
    unknown = sum(one.unknown for one in asked.read) / max(1, read)
    return (
        f"{protocol} ({len(asked.candidates):,} different texts): {seconds:.1f} s, {count / max(seconds, 1e-9):,.1f} "
        f"sources/s; {count - len(asked.rows):,} sources skipped; {100 * unknown:.1f} % of their tokens unknown."
    )

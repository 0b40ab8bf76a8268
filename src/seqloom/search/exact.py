"""Exact search: the best hypothesis there is within the limit, or the best found before the budget ran out.

Best first: the partial hypothesis with the highest bound is expanded next (an A* whose heuristic is
`Normalisation.bound`). When no bound beats the best hypothesis that ended, that one is proven. It costs far too much
for daily use; it is here to say how often a beam of size k misses the best output.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from seqloom import config
from seqloom.batch import Source, source_lengths
from seqloom.models.contracts import Scorer, State
from seqloom.search.frontier import NEVER
from seqloom.search.hypotheses import LENGTHS, Hypothesis, Normalisation
from seqloom.search.limits import Limits
from seqloom.search.loop import search
from seqloom.search.strategies import Beam
from seqloom.shapes import Float, Tensor
from seqloom.specials import BOS, EOS, UNSPEAKABLE

TOLERANCE = 1e-6  # scores closer than this are the same: float32 sums in another order


@dataclass(frozen=True)
class ExactResult:
    """`exact`: nothing within the limit scores higher. Otherwise the budget ran out, and this is the best seen."""

    hypothesis: Hypothesis
    exact: bool
    expansions: int


@dataclass(frozen=True)
class _Node:
    """A hypothesis that was expanded: its continuations, likeliest first, and the state after reading it."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    state: State  # of several nodes expanded together
    row: int
    next_tokens: list[int]
    next_log_probs: list[float]
    bounds: list[float]


_Child = tuple[_Node, int]  # the continuation of a node, by rank


@torch.inference_mode()
def best_first(
    scorer: Scorer,
    sources: Mapping[str, Source],
    *,
    limits: Limits | None = None,
    length: config.Settings | None = None,
    budget: int = 10_000,
) -> list[ExactResult]:
    """The best hypothesis of each source under a normalisation (default none), within `budget` expansions each.

    It starts from what a beam finds, so that hopeless continuations are never kept and the answer is never worse.
    """
    limits, length = limits or Limits(), length or LENGTHS.settings("none")
    found = search(scorer, sources, Beam.Settings(length=length), limits=limits)
    least, most = limits.of(source_lengths(sources))
    results = []
    for place, hypotheses in enumerate(found):
        one = {name: source.rows(torch.tensor([place], device=source.mask.device)) for name, source in sources.items()}
        between = (int(least[place]), int(most[place]))
        results.append(_Exact(scorer, LENGTHS.build(length), between, hypotheses[0]).run(one, budget))
    return results


class _Exact:
    """The search for one source: a heap of continuations by bound, and the best hypothesis that ended."""

    TOGETHER = 32  # expansions in one step of the scorer

    def __init__(
        self, scorer: Scorer, normalisation: Normalisation, limits: tuple[int, int], first: Hypothesis
    ) -> None:
        self.scorer, self.normalisation, self.best = scorer, normalisation, first
        self.least, self.most = limits
        self.expansions = 0
        self.device = torch.device("cpu")
        self._heap: list[tuple[float, int, _Child]] = []
        self._arrivals = itertools.count()  # of equal bounds the earlier goes first, and nodes are never compared

    @property
    def _to_beat(self) -> float:
        return NEVER if self.best.truncated else self.best.score

    def run(self, sources: Mapping[str, Source], budget: int) -> ExactResult:
        self.device = next(iter(sources.values())).mask.device
        self._expand([BOS], self.scorer.start(sources, 1), [((), ())])
        while self._heap and self.expansions < budget:
            by_length: dict[int, list[_Child]] = {}  # states of one age have one shape
            for child in self._pop(min(self.TOGETHER, budget - self.expansions)):
                by_length.setdefault(len(child[0].tokens), []).append(child)
            for children in by_length.values():
                self._descend(children)
        exact = not self._heap or -self._heap[0][0] <= self._to_beat
        return ExactResult(self.best, exact, self.expansions)

    def _pop(self, count: int) -> list[_Child]:
        """The most promising continuations, each replaced by its next sibling. A proof empties the heap."""
        children: list[_Child] = []
        while self._heap and len(children) < count:
            bound, _, (node, rank) = heapq.heappop(self._heap)
            if -bound <= self._to_beat:
                self._heap.clear()
                break
            children.append((node, rank))
            self._push(node, rank + 1)
        return children

    def _push(self, node: _Node, rank: int) -> None:
        if rank < len(node.bounds):
            heapq.heappush(self._heap, (-node.bounds[rank], next(self._arrivals), (node, rank)))

    def _descend(self, children: Sequence[_Child]) -> None:
        """Expand continuations of nodes: gather the nodes' states, one row each."""
        rows = [node.state.select(torch.tensor([node.row], device=self.device)) for node, _ in children]
        names = rows[0].rows
        state = State({name: torch.cat([row.rows[name] for row in rows]) for name in names}, rows[0].sources)
        hypotheses = [
            ((*node.tokens, node.next_tokens[rank]), (*node.log_probs, node.next_log_probs[rank]))
            for node, rank in children
        ]
        self._expand([tokens[-1] for tokens, _ in hypotheses], state, hypotheses)

    def _expand(
        self, last: list[int], state: State, hypotheses: Sequence[tuple[tuple[int, ...], tuple[float, ...]]]
    ) -> None:
        """One step of the scorer for hypotheses of one length: end them, and put their continuations on the heap."""
        log_probs, state = self.scorer.step(torch.tensor(last, device=self.device), state)
        log_probs = log_probs.double().cpu()  # N W
        self.expansions += len(hypotheses)
        for row, (tokens, terms) in enumerate(hypotheses):
            if len(tokens) >= self.least:
                self._finish(tokens, (*terms, float(log_probs[row, EOS])))
            if len(tokens) < self.most:
                self._push(self._node(tokens, terms, (state, row), log_probs[row]), 0)

    def _finish(self, tokens: tuple[int, ...], terms: tuple[float, ...]) -> None:
        total = sum(terms)
        score = self._score(torch.tensor(total, dtype=torch.float64), len(tokens)).item()
        if score > self._to_beat:
            self.best = Hypothesis(tokens, terms, total, score, truncated=False)

    def _node(
        self, tokens: tuple[int, ...], terms: tuple[float, ...], at: tuple[State, int], log_probs: Float[Tensor, "W"]
    ) -> _Node:
        """Keep only continuations that can still win."""
        order = log_probs.argsort(descending=True, stable=True)
        order = order[~torch.isin(order, torch.tensor([*UNSPEAKABLE, EOS]))]
        bounds = self._score(sum(terms) + log_probs[order], self.most)
        hopeful = bounds > self._to_beat
        kept = order[hopeful]
        return _Node(tokens, terms, *at, kept.tolist(), log_probs[kept].tolist(), bounds[hopeful].tolist())

    def _score(self, log_probs: Float[Tensor, "*shape"], tokens: int) -> Float[Tensor, "*shape"]:
        """The score with so many tokens; at the limit this is the bound."""
        return self.normalisation.score(log_probs, torch.full(log_probs.shape, tokens))


def search_errors(
    found: Sequence[Hypothesis], exact: Sequence[ExactResult], length: config.Settings
) -> tuple[int, int]:
    """(errors, count): how many of `found` score below a proven best; sources without proof are not counted."""
    normalisation = LENGTHS.build(length)
    errors = count = 0
    for hypothesis, best in zip(found, exact, strict=True):
        if best.exact and not best.hypothesis.truncated:
            log_prob = torch.tensor(hypothesis.log_prob, dtype=torch.float64)
            score = float(normalisation.score(log_prob, torch.tensor(len(hypothesis.tokens))))
            errors += hypothesis.truncated or score < best.hypothesis.score - TOLERANCE
            count += 1
    return errors, count

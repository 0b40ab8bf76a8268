"""The one search loop: any scorer, any strategy, any constraints, batched; finished sources leave the batch.

What comes out for a source depends on the source alone, not on its batch (law 4): limits are per source, ties are
broken by row and token id, randomness is keyed by the source. Attention is not carried through search: a forced pass
over the finished output shows it. Nothing here knows a model class, a string or a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import torch

from seqloom import config
from seqloom.batch import Source, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Scorer, State
from seqloom.search.constraints import AtLeast, Constraint, Prefix, Rules
from seqloom.search.frontier import Endings, Frontier, Trail
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.limits import Limits, source_lengths
from seqloom.search.noise import fingerprints
from seqloom.search.strategies import STRATEGIES, Strategy
from seqloom.shapes import StepLogProbs

Observer = Callable[[int, Frontier], None]  # sees the frontier after every step: what a beam tree is drawn from
LEAVE_SHARE = 1 / 8  # done sources leave the batch once they are so many: moving the memory has a price as well

__all__ = ["Limits", "Observer", "search"]


@torch.inference_mode()
def search(
    scorer: Scorer,
    sources: Mapping[str, Source],
    strategy: config.Settings,
    *,
    limits: Limits | None = None,
    constraints: Sequence[Constraint] = (),
    prefixes: Tokens | None = None,
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of every source, best first; always at least one, truncated if it did not end.

    `prefixes` are forced, one per source; they count towards the limit, which gives way to a longer prefix.
    """
    lengths = source_lengths(sources)
    if not len(lengths):
        return []
    plan = STRATEGIES.build(strategy)
    least, most = (limits or Limits()).of(lengths)
    if prefixes is not None:
        most = torch.maximum(most, prefixes.lengths.to(most.device))
        constraints = [*constraints, Prefix.of(prefixes)]
    if bool(least.any()):
        constraints = [*constraints, AtLeast(least)]
    rules = Rules(constraints, lengths, plan.hypotheses)
    frontier = plan.begin(fingerprints(sources, plan.seed), most)
    return _decoded(scorer, scorer.start(sources, plan.hypotheses), plan, rules, frontier, observer)


def _decoded(
    scorer: Scorer, state: State, plan: Strategy, rules: Rules, frontier: Frontier, observer: Observer | None
) -> list[list[Hypothesis]]:
    """Step until every source is done, then read the hypotheses back from the trail."""
    trail = Trail(len(frontier.sources))
    left: list[Frontier] = []  # sources that are done and no longer in the batch
    for step in itertools.count():
        log_probs, state = scorer.step(frontier.last.flatten(), state)  # N W
        log_probs = _trusted(log_probs, step)
        frontier = plan.advance(frontier, log_probs, rules.allowed(log_probs.shape[-1]))
        trail.record(frontier)
        if observer is not None:
            observer(step, frontier)
        going = (~frontier.done).nonzero()[:, 0]  # b; waits for the device
        if not len(going):
            break
        rows, places = frontier.parent_rows, None
        if len(going) <= len(frontier.done) * (1 - LEAVE_SHARE):
            left.append(frontier.only(frontier.done.nonzero()[:, 0]))
            rows, places, frontier = rows.view(-1, plan.hypotheses)[going].flatten(), going, frontier.only(going)
        if plan.reorders or places is not None:
            state = state.select(rows, places)
            rules.select(rows, places)
        rules.advance(frontier.last.flatten())
    left.append(frontier)
    order = torch.cat([part.sources for part in left]).argsort()
    return trail.read(Endings.joined([plan.end(part) for part in left]).only(order), plan.normalisation)


def _trusted(log_probs: StepLogProbs, step: int) -> StepLogProbs:
    """At least float32, so that sums of many terms stay exact; a model that answers with NaN is refused at once."""
    if step == 0 and bool(log_probs.isnan().any()):
        raise SeqloomError("E_DIVERGED", "the model's log-probabilities are not numbers", fix="check its weights")
    return log_probs if log_probs.dtype == torch.float64 else log_probs.float()

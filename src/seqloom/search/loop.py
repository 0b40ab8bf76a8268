"""The one search loop: any scorer, any strategy, any constraints, batched; finished sources leave the batch.

What comes out for a source depends on the source alone, not on its batch (law 4): limits are per source, ties are
broken by row and token id, randomness is keyed by the source. Attention is not carried through search: a forced pass
over the finished output shows it. Nothing here knows a model class, a string or a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from seqloom import config
from seqloom.batch import Source, Tokens, source_lengths
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Scorer, State
from seqloom.search.constraints import AtLeast, Constraint, Prefix, Rules
from seqloom.search.contracts import Strategy
from seqloom.search.frontier import Endings, Frontier, Offers, Trail
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.limits import Limits
from seqloom.search.noise import fingerprints
from seqloom.search.phrases import Phrases, Wanted
from seqloom.search.strategies import STRATEGIES
from seqloom.shapes import Int, Lengths, StepLogProbs, Tensor
from seqloom.specials import UNK

Observer = Callable[[int, Frontier], None]  # sees the frontier after every step: what a beam tree is drawn from
Start = Callable[[Scorer, Mapping[str, Source], int], State]  # how a scorer's state is begun
LEAVE_SHARE = 1 / 8  # done sources leave the batch once they are so many: moving the memory has a price as well

__all__ = ["Limits", "Observer", "Walk", "Wishes", "search", "searched"]


def search(
    scorer: Scorer,
    sources: Mapping[str, Source],
    strategy: config.Settings,
    *,
    limits: Limits | None = None,
    constraints: Sequence[Constraint] = (),
    prefixes: Tokens | None = None,
    phrases: Wanted | None = None,
    advice: Scorer | None = None,
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of every source, best first; always at least one, truncated if it did not end.

    `prefixes` are forced, one per source; they count towards the limit, which gives way to a longer prefix. `phrases`
    must occur, any number per source; only a strategy that promises it takes them. What `advice` says of each token
    is added when hypotheses are compared: it enters `score`, and never `log_prob`, which is the scorer's alone.
    """
    return searched(
        scorer, sources, strategy, Wishes(limits or Limits(), constraints, prefixes, phrases, advice), observer
    )


def searched(
    scorer: Scorer,
    sources: Mapping[str, Source],
    strategy: config.Settings,
    wishes: Wishes,
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """`search`, its wishes in one."""
    if not len(source_lengths(sources)):
        return []
    walk = Walk(scorer, sources, strategy, wishes)
    while not walk.done:
        walk.step()
        if observer is not None:
            observer(walk.steps - 1, walk.frontier)
    return walk.hypotheses()


@dataclass(frozen=True)
class Wishes:
    """What is asked of outputs, besides being probable; `search` says what each means."""

    limits: Limits = field(default_factory=Limits)
    constraints: Sequence[Constraint] = ()
    prefixes: Tokens | None = None
    phrases: Wanted | None = None
    advice: Scorer | None = None


class Walk:
    """A search that is taken step by step: what `search` does, for those who want to look in between."""

    @torch.inference_mode()
    def __init__(
        self,
        scorer: Scorer,
        sources: Mapping[str, Source],
        strategy: config.Settings,
        wishes: Wishes,
        start: Start | None = None,
        home: torch.device | None = None,
    ) -> None:
        """`home` is where the scorers are, if not where the sources lie; what asks for values is done with these."""
        lengths = source_lengths(sources)
        home = home or lengths.device
        self.plan: Strategy = STRATEGIES.build(strategy)
        constraints, prefixes = list(wishes.constraints), wishes.prefixes
        room = max((constraint.room() for constraint in constraints), default=0)
        least, most = wishes.limits.of(lengths, room)
        if prefixes is not None:
            prefixes = prefixes.to(most.device)
            most = torch.maximum(most, prefixes.lengths)
            _check_prefixes(prefixes, constraints, most)
            constraints.append(Prefix.of(prefixes))
        if bool(least.any()):
            constraints.append(AtLeast(least.to(home)))
        self.rules = Rules(constraints, lengths.to(home), most.to(home), self.plan.hypotheses)
        wanted = _promised(self.plan, strategy, wishes.phrases, most, prefixes)
        self.frontier = self.plan.begin(fingerprints(sources, self.plan.seed), most, wanted).to(home)
        self.longest = int(most.max())  # output that is allowed
        self.trail = Trail(len(lengths))
        self.steps = 0
        self.done = False
        self.scorers = [scorer] if wishes.advice is None else [scorer, wishes.advice]
        there = {name: source.to(home) for name, source in sources.items()}
        self.states = [(start or _begun)(each, there, self.plan.hypotheses) for each in self.scorers]
        self.left: list[Frontier] = []  # sources that are done and no longer in the batch

    @torch.inference_mode()
    def step(self) -> None:
        """One token further for every source that is not done."""
        offers = self.offers()  # before the frontier is looked at: sources may leave it here
        self.frontier = self.plan.advance(self.frontier, offers)
        self.trail.record(self.frontier)
        self.steps += 1
        self.done = bool(self.frontier.done.all())  # waits for the device

    @torch.inference_mode()
    def offers(self) -> Offers:
        """What the scorer and the constraints offer next; asked once a step, because it takes their states further."""
        self._make_way()
        offers = self.told()
        if self.steps == 0 and bool(offers.log_probs.isnan().any()):
            raise diverged()
        return offers

    def told(self) -> Offers:
        """What is offered after the last tokens, states being in their order."""
        last = self.frontier.last.flatten()
        told = [each.step(last, state) for each, state in zip(self.scorers, self.states, strict=True)]
        self.states = [state for _, state in told]
        log_probs, *others = (_exact(log_probs) for log_probs, _ in told)  # N W
        advice = _widened(others[0], log_probs.shape[1]) if others else None
        if self.plan.compares and (ahead := _ahead(self.states[0])):
            gained = torch.stack(ahead).mean(0)  # N W
            gained = gained - gained.gather(1, last[:, None])
            advice = gained if advice is None else advice + gained
        return Offers(log_probs, self.rules.allowed(log_probs.shape[-1]), advice)

    def _make_way(self) -> None:
        """Put states in the order of the rows that continue them; let sources that are done leave the batch."""
        if not self.steps:
            return
        frontier, places = self.frontier, None
        rows, going = frontier.parent_rows, (~frontier.done).nonzero()[:, 0]  # b
        if len(going) <= len(frontier.done) * (1 - LEAVE_SHARE):
            self.left.append(frontier.only(frontier.done.nonzero()[:, 0]))
            rows, places = rows.view(-1, self.plan.hypotheses)[going].flatten(), going
            self.frontier = frontier.only(going)
        if self.plan.reorders or places is not None:
            self.states = [state.select(rows, places) for state in self.states]
            self.rules.select(rows, places)
        self.rules.advance(self.frontier.last.flatten())

    @torch.inference_mode()
    def hypotheses(self) -> list[list[Hypothesis]]:
        """Of every source, best first, read back from the trail; asked once all are done."""
        parts = [*self.left, self.frontier]
        order = torch.cat([part.sources for part in parts]).argsort()
        endings = Endings.joined([self.plan.end(part) for part in parts]).only(order)
        return self.trail.read(endings, self.plan.normalisation, self.plan.keep)


def _begun(scorer: Scorer, sources: Mapping[str, Source], hypotheses: int) -> State:
    return scorer.start(sources, hypotheses)


def _promised(
    plan: Strategy, strategy: config.Settings, phrases: Wanted | None, limits: Lengths, prefixes: Tokens | None
) -> Phrases | None:
    """The phrases as tables, where there are any; E_USAGE where the strategy cannot promise them."""
    if phrases is None or not any(phrases):
        return None
    assert len(phrases) == len(limits), f"phrases of {len(phrases)} sources for {len(limits)}"
    if not plan.promises:
        what = f"{config.kind_of(strategy)} search cannot promise that phrases occur"
        raise SeqloomError("E_USAGE", what, fix="search with strategy: lexical")
    return Phrases.of(phrases, limits, prefixes)


def _check_prefixes(prefixes: Tokens, constraints: Sequence[Constraint], limits: Int[Tensor, "B"]) -> None:
    """E_USAGE where a prefix fits no output that a constraint on whole outputs allows."""
    judges = [constraint for constraint in constraints if constraint.whole]
    if not judges:
        return
    rows = zip(prefixes.ids.tolist(), prefixes.lengths.tolist(), limits.tolist(), strict=True)
    different: dict[tuple[tuple[int, ...], int], int] = {}  # many sources have the same prefix
    for number, (ids, length, limit) in enumerate(rows, start=1):
        different.setdefault((tuple(ids[:length]), limit), number)
    for (ids, limit), number in different.items():
        prefix, most = (torch.tensor(values, dtype=torch.long, device=limits.device) for values in (ids, [limit]))
        for constraint in judges:
            if not constraint.admits(prefix, most):
                what = f"no output that {constraint.whole} allows begins with the prefix"
                fix = "give another prefix, or leave it out"
                raise SeqloomError("E_USAGE", what, where=f"source {number}", fix=fix)


def _widened(advice: StepLogProbs, width: int) -> StepLogProbs:
    """Advice of one's own words only, for a scorer that may also copy others: those are unknown words to it."""
    missing = width - advice.shape[1]
    return advice if missing <= 0 else torch.cat([advice, advice[:, UNK : UNK + 1].expand(-1, missing)], 1)


def _ahead(state: State) -> list[Tensor]:
    """What scorers know of the likeliest rest after each token (`State`); of an ensemble, each of its members.

    What a token gains of it is advice that adds up to the same for all outputs that ended: log p of the likeliest one,
    taken off. So hypotheses are compared by the best that they can become, and greedy search finds the best there is.
    """
    return [tensor for name, tensor in state.rows.items() if name.rpartition("/")[2] == "ahead"]


def _exact(log_probs: StepLogProbs) -> StepLogProbs:
    """At least float32, so that sums of many terms stay exact."""
    return log_probs if log_probs.dtype == torch.float64 else log_probs.float()


def diverged() -> SeqloomError:
    return SeqloomError("E_DIVERGED", "the model's log-probabilities are not numbers", fix="check its weights")

"""Laws 4 and 6 for every entry of the tables of search, on a scorer that remembers everything it read (`oracle.py`)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import pytest
import torch
from oracle import Oracle, exhaustive, forced, letters, rows_of, same, some_sources, spelling

from seqloom.batch import Frames, Tokens
from seqloom.config import Settings, kind_of
from seqloom.models.contracts import State
from seqloom.search.constraints import CONSTRAINTS, Constraint, Prefix
from seqloom.search.exact import best_first, search_errors
from seqloom.search.hypotheses import LENGTHS, length
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import STRATEGIES, Beam
from seqloom.specials import BOS, EOS, MASK, PAD, SEP, UNK

NORMALISATIONS: dict[str, list[Settings]] = {
    "none": [LENGTHS.settings("none")],
    "mean": [LENGTHS.settings("mean")],
    "gnmt": [LENGTHS.settings({"kind": "gnmt", "alpha": alpha}) for alpha in (0.0, 0.6, 1.5)],
    "power": [LENGTHS.settings({"kind": "power", "alpha": alpha}) for alpha in (0.0, 0.6, 1.0)],
}
STRATEGY_CASES: dict[str, list[dict[str, object]]] = {
    "greedy": [{}],
    "beam": [
        {"size": 1},
        {"size": 3, "n_best": 3},
        {"size": 4, "n_best": 2, "stop": "all"},
        {"size": 3, "n_best": 3, "stop": "bound", "length": "mean"},
        {"size": 20, "n_best": 5, "length": {"kind": "gnmt", "alpha": 1.0}},  # wider than the vocabulary
    ],
    "diverse": [
        {"size": 4, "groups": 2, "n_best": 3},
        {"size": 3, "groups": 3, "penalty": 2.0, "stop": "all"},
        {"size": 6, "groups": 2, "n_best": 4, "stop": "bound", "length": {"kind": "gnmt", "alpha": 1.0}},
    ],
    "lexical": [{"size": 3, "n_best": 3}, {"size": 4, "n_best": 2, "stop": "bound"}],  # phrases: test_search_promises
    "sample": [{"samples": 4}, {"samples": 2, "temperature": 0.7, "top_k": 3, "top_p": 0.8, "seed": 5}],
}
ENTRIES = [[6], [7, 7], [6, 7, 6, 7], [6, 7], [7, 7, 6], []]
PATTERN = r"(ab)+|b{2,3}|a?"
CONSTRAINT_CASES: dict[str, tuple[dict[str, object], Callable[[tuple[int, ...]], bool]]] = {
    "banned": ({"tokens": [UNK, 7]}, lambda tokens: not {UNK, 7} & set(tokens)),
    "no_repeat": ({"ngram": 2}, lambda tokens: len(set(itertools.pairwise(tokens))) == max(0, len(tokens) - 1)),
    "length": ({"min_length": 2, "max_length": 3}, lambda tokens: 2 <= len(tokens) <= 3),
    "prefix": ({"tokens": [7, 7]}, lambda tokens: tokens[:2] == (7, 7)),
    "banned_phrases": (
        {"phrases": [[7, 6], [6, 6, 7], [UNK]]},
        lambda tokens: not re.search(r"ba|aab|\?", letters(tokens)),
    ),
    "trie": ({"entries": ENTRIES}, lambda tokens: list(tokens) in ENTRIES),
    "pattern": ({"expression": PATTERN}, lambda tokens: re.fullmatch(PATTERN, letters(tokens)) is not None),
}
SIZES = {"pattern": {"spelling": spelling()}}  # what a constraint learns only when it is built
every_normalisation = pytest.mark.parametrize("normalisation", [*itertools.chain(*NORMALISATIONS.values())], ids=str)
every_strategy = pytest.mark.parametrize(
    "strategy",
    [STRATEGIES.settings({"kind": kind, **case}) for kind in STRATEGIES for case in STRATEGY_CASES[kind]],
    ids=str,
)


def test_every_entry_of_every_table_has_a_case() -> None:
    assert set(NORMALISATIONS) == set(LENGTHS)
    assert set(STRATEGY_CASES) == set(STRATEGIES)
    assert set(CONSTRAINT_CASES) == set(CONSTRAINTS)


def constraints(kind: str) -> list[Constraint]:
    chosen = CONSTRAINTS.settings({"kind": kind, **CONSTRAINT_CASES[kind][0]})
    return [CONSTRAINTS.build(chosen, **SIZES.get(kind, {}))]


# --- law 4 -------------------------------------------------------------------------------------------------------


@every_strategy
@pytest.mark.parametrize("kind", [None, *CONSTRAINTS])
def test_law_4_together_equals_alone_in_any_order(strategy: Settings, kind: str | None) -> None:
    count = 13 if kind is None else 6
    scorer, sources = Oracle(words=5, ending=0.5), some_sources(count)
    how = {"limits": Limits(max_ratio=1.0, extra=2), "constraints": constraints(kind) if kind else []}
    together = search(scorer, sources, strategy, **how)
    order = [5, 0, 3, 3, 1, 2, 4, *range(count - 1, 5, -1)]
    shuffled = search(scorer, rows_of(sources, order), strategy, **how)
    for place, number in enumerate(order):
        same(shuffled[place], together[number])
    for number in range(count):
        same(search(scorer, rows_of(sources, [number]), strategy, **how)[0], together[number])


@every_strategy
def test_law_4_frames_and_padding(strategy: Settings) -> None:
    values = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(5) < torch.tensor([5, 2, 3, 1])[:, None]
    wide = torch.cat([values, torch.full((4, 2, 3), 9.0)], 1)
    scorer = Oracle(words=3)
    short = search(scorer, {"source": Frames(values, mask)}, strategy)
    padded = search(scorer, {"source": Frames(wide, torch.nn.functional.pad(mask, (0, 2)))}, strategy)
    for one, other in zip(short, padded, strict=True):
        same(one, other)


@every_strategy
def test_finished_sources_leave_the_batch(strategy: Settings) -> None:
    scorer = Oracle(words=5, ending=1.0)
    search(scorer, some_sources(16), strategy)
    assert scorer.batches == sorted(scorer.batches, reverse=True)
    assert scorer.batches[-1] < scorer.batches[0]


@every_strategy
def test_ties_are_broken_alike_in_any_batch(strategy: Settings) -> None:
    class Indifferent(Oracle):
        def step(self, last: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
            log_probs, state = super().step(last, state)
            return torch.full_like(log_probs, -math.log(self.width)), state

    scorer, sources = Indifferent(words=200, dtype=torch.float32), some_sources(9)
    together = search(scorer, sources, strategy, limits=Limits(max_length=4))
    for number in range(9):
        same(search(scorer, rows_of(sources, [number]), strategy, limits=Limits(max_length=4))[0], together[number])
    if kind_of(strategy) == "greedy":
        assert together[0][0].tokens == (UNK,) * 4  # the lowest id that may be said


# --- law 6 -------------------------------------------------------------------------------------------------------


@every_normalisation
@pytest.mark.parametrize("kind", [None, *CONSTRAINTS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_law_6_beam_of_one_equals_greedy(normalisation: Settings, kind: str | None, dtype: torch.dtype) -> None:
    scorer, sources = Oracle(words=6, dtype=dtype), some_sources(30)
    rules = constraints(kind) if kind else []
    greedy = search(scorer, sources, STRATEGIES.settings("greedy"), constraints=rules)
    beam = search(scorer, sources, Beam.Settings(size=1, length=normalisation), constraints=rules)
    for one, other in zip(greedy, beam, strict=True):
        assert len(one) == len(other) == 1
        assert one[0].tokens == other[0].tokens
        assert one[0].token_log_probs == other[0].token_log_probs
        assert one[0].truncated == other[0].truncated
    assert len({h[0].truncated for h in greedy}) == 2 or kind is not None  # both ways to stop occur


@every_normalisation
@pytest.mark.parametrize("ending", [-2.0, 0.0, 2.0])
def test_law_6_wide_beam_with_the_bound_equals_exhaustive_search(normalisation: Settings, ending: float) -> None:
    scorer, sources, limit = Oracle(words=2, ending=ending), some_sources(3), 4
    wide = Beam.Settings(size=330, n_best=6, stop="bound", length=normalisation)  # 3^4 live rows x 4 tokens = 324
    found = search(scorer, sources, wide, limits=Limits(max_length=limit))
    for number, hypotheses in enumerate(found):
        expected = exhaustive(scorer, rows_of(sources, [number]), limit, normalisation)[:6]
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-10)
        assert not any(h.truncated for h in hypotheses)


@every_normalisation
@pytest.mark.parametrize("kind", list(CONSTRAINTS))
def test_law_6_constraints_remove_candidates_and_nothing_else(normalisation: Settings, kind: str) -> None:
    """Under a constraint a wide beam finds the best of the permitted outputs, with unchanged scores."""
    scorer, sources, limit = Oracle(words=2), some_sources(2), 4
    wide = Beam.Settings(size=330, n_best=2, stop="bound", length=normalisation)
    found = search(scorer, sources, wide, limits=Limits(max_length=limit), constraints=constraints(kind))
    for number, hypotheses in enumerate(found):
        permitted = CONSTRAINT_CASES[kind][1]
        expected = exhaustive(scorer, rows_of(sources, [number]), limit, normalisation, permitted)[:2]
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-10)


@every_strategy
@pytest.mark.parametrize("kind", [None, *CONSTRAINTS])
@pytest.mark.parametrize("ending", [-3.0, 1.0])
def test_law_6_log_prob_equals_forced_decoding(strategy: Settings, kind: str | None, ending: float) -> None:
    scorer, sources = Oracle(words=4, ending=ending), some_sources(4)
    rules, limits = constraints(kind) if kind else [], Limits(max_ratio=1.0, extra=4)
    for number, hypotheses in enumerate(search(scorer, sources, strategy, constraints=rules, limits=limits)):
        assert hypotheses
        for h in hypotheses:
            said = h.tokens if h.truncated else (*h.tokens, EOS)
            terms = forced(scorer, rows_of(sources, [number]), said)
            assert h.token_log_probs == pytest.approx(terms, abs=1e-10)
            assert h.log_prob == pytest.approx(math.fsum(terms), abs=1e-10)
            assert not {PAD, BOS, EOS, MASK, SEP} & set(h.tokens)
            if kind is not None and not h.truncated:
                assert CONSTRAINT_CASES[kind][1](h.tokens)


@every_normalisation
def test_law_6_score_is_log_prob_over_the_divisor_of_length(normalisation: Settings) -> None:
    scorer, sources = Oracle(words=4), some_sources(6)
    built = LENGTHS.build(normalisation)
    for hypotheses in search(scorer, sources, Beam.Settings(size=4, n_best=4, length=normalisation)):
        for h in hypotheses:
            counted = max(length(h.tokens), len(h.tokens) + built.end)
            expected = h.log_prob / float(built.divisor(torch.tensor(float(counted), dtype=torch.float64)))
            assert h.score == pytest.approx(expected, abs=1e-10)
        ended = [h.score for h in hypotheses if not h.truncated]
        assert ended == sorted(ended, reverse=True)


@every_strategy
def test_law_6_ragged_prefixes_are_forced_and_counted(strategy: Settings) -> None:
    scorer, sources = Oracle(words=4), some_sources(4)
    prefixes = [[], [6], [7, 7, 7, 7], [9, UNK]]
    rules = constraints("no_repeat") + constraints("banned")  # a prefix overrules both
    found = search(scorer, sources, strategy, prefixes=Tokens.pad(prefixes), constraints=rules)
    for number, hypotheses in enumerate(found):
        alone = search(
            scorer,
            rows_of(sources, [number]),
            strategy,
            prefixes=Tokens(
                torch.tensor([prefixes[number]], dtype=torch.long), torch.ones(1, len(prefixes[number])).bool()
            ),
            constraints=rules,
        )
        same(alone[0], hypotheses)
        for h in hypotheses:
            assert list(h.tokens[: len(prefixes[number])]) == prefixes[number]
            rest = h.tokens[len(prefixes[number]) :]
            assert not {UNK, 7} & set(rest)
            said = h.tokens if h.truncated else (*h.tokens, EOS)
            assert h.token_log_probs == pytest.approx(forced(scorer, rows_of(sources, [number]), said), abs=1e-10)


@every_strategy
def test_prefix_setting_equals_the_same_prefix_per_source(strategy: Settings) -> None:
    scorer, sources = Oracle(words=4), some_sources(5)
    given = search(scorer, sources, strategy, prefixes=Tokens.pad([[7, 7]] * 5))
    for constraint in (constraints("prefix")[0], Prefix.of(Tokens.pad([[7, 7]] * 5))):
        for one, other in zip(search(scorer, sources, strategy, constraints=[constraint]), given, strict=True):
            same(one, other)


# --- exact search ------------------------------------------------------------------------------------------------


@every_normalisation
@pytest.mark.parametrize("ending", [-2.0, 0.0, 2.0])
def test_best_first_equals_exhaustive_search(normalisation: Settings, ending: float) -> None:
    scorer, sources = Oracle(words=2, ending=ending), some_sources(3)
    results = best_first(scorer, sources, limits=Limits(max_length=4), length=normalisation)
    for number, result in enumerate(results):
        expected = exhaustive(scorer, rows_of(sources, [number]), 4, normalisation)[0]
        assert result.exact
        assert result.hypothesis.tokens == expected[1]
        assert result.hypothesis.score == pytest.approx(expected[0], abs=1e-10)
        assert result.expansions <= 3**5


def test_search_errors_vanish_as_the_beam_widens() -> None:
    scorer, sources, limits = Oracle(words=6), some_sources(40), Limits(max_length=6)
    none = LENGTHS.settings("none")
    exact = best_first(scorer, sources, limits=limits, length=none)
    shares = []
    for size in (1, 4, 200):
        beam = Beam.Settings(size=size, stop="bound", length=none)
        found = [hypotheses[0] for hypotheses in search(scorer, sources, beam, limits=limits)]
        errors, count = search_errors(found, exact, none)
        assert count == 40
        shares.append(errors / count)
    assert shares[0] > shares[1] >= shares[2] == 0


def test_best_first_says_when_the_budget_ran_out() -> None:
    scorer, sources = Oracle(words=20, ending=1.0), some_sources(2)
    mean = LENGTHS.settings("mean")
    beam = search(scorer, sources, Beam.Settings(size=5, length=mean))
    for result, found in zip(best_first(scorer, sources, length=mean, budget=40), beam, strict=True):
        assert not result.exact
        assert result.expansions <= 40
        assert result.hypothesis.score >= found[0].score


def test_power_counts_the_end_of_what_has_ended_and_only_of_that() -> None:
    power = LENGTHS.build(LENGTHS.settings({"kind": "power", "alpha": 2.0}))
    log_probs, tokens = torch.tensor([-8.0, -8.0]), torch.tensor([3, 0])
    assert power.score(log_probs, tokens).tolist() == [-0.5, -8.0]  # 8 / (3 + 1)^2, 8 / (0 + 1)^2
    assert power.live(log_probs, tokens).tolist() == pytest.approx([-8 / 9, -8.0])  # 8 / 3^2
    assert power.log_prob(power.score(log_probs, tokens), tokens).tolist() == [-8.0, -8.0]

"""Laws 4 and 6 for what a search may promise and be advised: phrases that must occur, groups that differ, fusion."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from oracle import Oracle, exhaustive, forced, outputs, rows_of, same, some_sources

from seqloom.batch import Tokens
from seqloom.config import Settings
from seqloom.errors import SeqloomError
from seqloom.models.contracts import State
from seqloom.models.mixture import Mixture
from seqloom.search.constraints import CONSTRAINTS
from seqloom.search.hypotheses import LENGTHS, Hypothesis
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import STRATEGIES, Beam, Diverse, Lexical
from seqloom.specials import EOS, UNK

Phrases = list[list[list[int]]]
NONE = LENGTHS.settings("none")
BEAMS = [
    {"size": 1},
    {"size": 3, "n_best": 3},
    {"size": 4, "n_best": 2, "stop": "all"},
    {"size": 5, "n_best": 5, "stop": "bound", "length": {"kind": "gnmt", "alpha": 1.0}},
]
every_beam = pytest.mark.parametrize("keys", BEAMS, ids=str)


def beam(kind: str, keys: dict[str, object], **more: object) -> Settings:
    return STRATEGIES.settings({"kind": kind, **keys, **more})


def holds(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    size = len(phrase)
    return any(list(tokens[start : start + size]) == list(phrase) for start in range(len(tokens) - size + 1))


# --- equal to plain beam search ----------------------------------------------------------------------------------


@every_beam
def test_one_group_is_a_beam(keys: dict[str, object]) -> None:
    scorer, sources = Oracle(words=6), some_sources(20)
    plain = search(scorer, sources, beam("beam", keys))
    for one, other in zip(search(scorer, sources, beam("diverse", keys, groups=1, penalty=3.0)), plain, strict=True):
        same(one, other)


@every_beam
def test_groups_without_a_penalty_repeat_each_other_and_are_told_once(keys: dict[str, object]) -> None:
    scorer, sources = Oracle(words=6), some_sources(8)
    size = int(str(keys["size"]))
    plain = search(scorer, sources, beam("beam", keys))
    twice = search(scorer, sources, beam("diverse", {**keys, "size": 2 * size}, groups=2, penalty=0.0))
    for one, other in zip(twice, plain, strict=True):
        same(one, other[: len(one)])
        assert len({h.tokens for h in one}) == len(one)


@every_beam
@pytest.mark.parametrize("phrases", [None, "none", "of others"])
def test_without_phrases_lexical_search_is_a_beam(keys: dict[str, object], phrases: str | None) -> None:
    scorer, sources = Oracle(words=6), some_sources(12)
    wanted: Phrases | None = None if phrases is None else [[] for _ in range(12)]
    if wanted and phrases == "of others":
        wanted[3], wanted[7] = [[8, 9], [6]], [[7]]
    plain = search(scorer, sources, beam("beam", keys))
    found = search(scorer, sources, beam("lexical", keys), phrases=wanted)
    for number, (one, other) in enumerate(zip(found, plain, strict=True)):
        if not wanted or not wanted[number]:
            same(one, other)


# --- diverse -----------------------------------------------------------------------------------------------------


def test_a_penalty_makes_outputs_differ_and_never_enters_a_score() -> None:
    scorer, sources = Oracle(words=6, ending=-1.0), some_sources(12)
    shares = []
    for penalty in (0.0, 1.0, 50.0):
        chosen = Diverse.Settings(size=4, groups=4, n_best=4, penalty=penalty, length=NONE)
        found = search(scorer, sources, chosen, limits=Limits(max_length=6))
        for number, hypotheses in enumerate(found):
            for h in hypotheses:
                said = h.tokens if h.truncated else (*h.tokens, EOS)
                assert h.score == pytest.approx(math.fsum(forced(scorer, rows_of(sources, [number]), said)), abs=1e-10)
        pairs = [pair for each in found for pair in itertools.combinations([h.tokens for h in each], 2)]
        shares.append(
            sum(a == b for one, other in pairs for a, b in zip(one, other, strict=False)) / max(1, len(pairs))
        )
    assert shares[0] == 0, "the same output four times is told once"
    assert shares[1] > shares[2] == 0, "at any price no token twice at one place"


def test_groups_choose_as_the_paper_says() -> None:
    """Against a plain loop: the penalty of a step is forgotten at the next one. Nothing ends, so all are cut off."""
    scorer, sources, limit, penalty = Oracle(words=3, ending=-60.0), some_sources(4), 4, 1.5
    words = [UNK, 6, 7, 8]
    chosen = Diverse.Settings(size=4, groups=2, n_best=4, penalty=penalty, length=NONE)
    found = search(scorer, sources, chosen, limits=Limits(max_length=limit))
    for number, hypotheses in enumerate(found):
        own = rows_of(sources, [number])
        groups: list[list[tuple[int, ...]]] = [[()], [()]]
        for _ in range(limit):
            taken: list[int] = []
            for place, group in enumerate(groups):
                options = [(*tokens, word) for tokens in group for word in words]
                worth = [math.fsum(forced(scorer, own, one)) - penalty * taken.count(one[-1]) for one in options]
                groups[place] = [one for _, one in sorted(zip(worth, options, strict=True), reverse=True)[:2]]
                taken += [one[-1] for one in groups[place]]
        assert {h.tokens for h in hypotheses} == {tokens for group in groups for tokens in group}


def test_every_group_is_heard_before_any_is_heard_twice() -> None:
    scorer, sources = Oracle(words=6), some_sources(10)
    keys = {"size": 6, "groups": 3, "penalty": 1.0}
    few = search(scorer, sources, beam("diverse", keys, n_best=3))
    alone = search(scorer, sources, Beam.Settings(size=2, n_best=1))
    for one, first in zip(few, alone, strict=True):
        assert first[0].tokens in {h.tokens for h in one}, "the first group knows no penalty"


# --- lexical -----------------------------------------------------------------------------------------------------

WANTED: Phrases = [
    [[8]],
    [[7, 7, 9]],
    [[6, 7], [7, 8]],  # they may overlap
    [[9, 9], [6], [8, 7]],
    [],
    [[6, 6, 7], [6, 7]],  # one stands inside the other
    [[7, 8, 7, 9], [9, 7]],
]


@every_beam
@pytest.mark.parametrize("ending", [-3.0, 2.0])
def test_law_6_all_phrases_occur_and_log_prob_is_that_of_forced_decoding(
    keys: dict[str, object], ending: float
) -> None:
    scorer, sources = Oracle(words=4, ending=ending), some_sources(len(WANTED))
    for number, hypotheses in enumerate(search(scorer, sources, beam("lexical", keys), phrases=WANTED)):
        assert hypotheses
        for h in hypotheses:
            assert all(holds(h.tokens, phrase) for phrase in WANTED[number]), h
            said = h.tokens if h.truncated else (*h.tokens, EOS)
            assert h.token_log_probs == pytest.approx(forced(scorer, rows_of(sources, [number]), said), abs=1e-10)


@every_beam
def test_law_4_phrases_together_equal_alone(keys: dict[str, object]) -> None:
    scorer, sources, count = Oracle(words=4, ending=0.5), some_sources(len(WANTED)), len(WANTED)
    together = search(scorer, sources, beam("lexical", keys), phrases=WANTED)
    order = [4, 0, 6, 2, 2, 5, 1, 3]
    shuffled = search(scorer, rows_of(sources, order), beam("lexical", keys), phrases=[WANTED[i] for i in order])
    for place, number in enumerate(order):
        same(shuffled[place], together[number])
    for number in range(count):
        alone = search(scorer, rows_of(sources, [number]), beam("lexical", keys), phrases=[WANTED[number]])
        same(alone[0], together[number])


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_phrases_occur_also_where_the_limit_leaves_hardly_any_room(limit: int) -> None:
    """The limit is that of all phrases one after the other, and a few tokens more."""
    scorer = Oracle(words=4, ending=-6.0)
    for phrases in WANTED:
        needed = sum(len(phrase) for phrase in phrases if not any(p != phrase and holds(p, phrase) for p in phrases))
        found = search(
            scorer,
            some_sources(1),
            Lexical.Settings(size=2, n_best=2),
            phrases=[phrases],
            limits=Limits(max_length=max(1, needed + limit)),
        )[0]
        for h in found:
            assert all(holds(h.tokens, phrase) for phrase in phrases), h


@pytest.mark.parametrize("phrases", [[[7]], [[6, 7]], [[7, 6], [6]], [[7, 7], [7, 6]]])
@pytest.mark.parametrize("ending", [-2.0, 2.0])
def test_law_6_a_wide_lexical_beam_is_exhaustive_search_among_outputs_with_the_phrases(
    phrases: list[list[int]], ending: float
) -> None:
    scorer, sources, limit = Oracle(words=2, ending=ending), some_sources(2), 4
    wide = Lexical.Settings(size=330, n_best=3, stop="bound", length=NONE)
    found = search(scorer, sources, wide, limits=Limits(max_length=limit), phrases=[phrases, phrases])
    for number, hypotheses in enumerate(found):
        expected = exhaustive(
            scorer, rows_of(sources, [number]), limit, NONE, lambda tokens: all(holds(tokens, p) for p in phrases)
        )[:3]
        # From some hypotheses the phrases fit in only by overlapping; these are not counted on.
        reachable = [(score, tokens) for score, tokens in expected if _roomy(tokens, phrases, limit)]
        assert reachable
        got = {h.tokens for h in hypotheses}
        assert {tokens for _, tokens in reachable} <= got


def _roomy(tokens: Sequence[int], phrases: list[list[int]], limit: int) -> bool:
    """Whether every prefix leaves room for what is missing, the missing phrases one after the other."""
    for end in range(len(tokens) + 1):
        said = list(tokens[:end])
        missing = [phrase for phrase in phrases if not holds(said, phrase)]
        missing = [p for p in missing if not any(q != p and holds(q, p) for q in phrases)]
        begun = max((n for p in missing for n in range(len(p) + 1) if said[end - n :] == p[:n] and n <= end), default=0)
        if end + sum(map(len, missing)) - begun > limit:
            return False
    return True


def test_phrases_with_prefixes_and_constraints() -> None:
    scorer, sources = Oracle(words=5), some_sources(3)
    prefixes = Tokens.pad([[7, 8], [6], []])
    wanted = [[[8, 9], [10]], [[6, 6]], [[9]]]
    rules = [CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned", "tokens": [UNK, 7]}))]
    found = search(scorer, sources, Lexical.Settings(size=4), prefixes=prefixes, phrases=wanted, constraints=rules)
    for number, (best, *_) in enumerate(found):
        own = [token for token, real in zip(prefixes.ids[number].tolist(), prefixes.mask[number], strict=True) if real]
        assert list(best.tokens[: len(own)]) == own
        assert not {UNK, 7} & set(best.tokens[len(own) :])
        assert all(holds(best.tokens, phrase) for phrase in wanted[number])
    short = Limits(max_length=3)
    whole = search(
        scorer,
        sources,
        Lexical.Settings(size=2),
        prefixes=Tokens.pad([[7, 8, 9]] * 3),
        phrases=[[[8, 9]]] * 3,
        limits=short,
    )
    assert all(h[0].tokens[:3] == (7, 8, 9) for h in whole), "said already: it needs no room"


def test_phrases_that_cannot_be_promised_are_refused() -> None:
    scorer, sources = Oracle(words=5), some_sources(2)

    def refused(strategy: Settings, wanted: Phrases, **more: object) -> str:
        with pytest.raises(SeqloomError) as caught:
            search(scorer, sources, strategy, phrases=wanted, **more)  # type: ignore[arg-type]
        assert caught.value.code == "E_USAGE"
        return caught.value.line

    lexical = Lexical.Settings()
    line = refused(lexical, [[], [[6, 7, 8], [9]]], limits=Limits(max_length=3))
    assert "need 4 tokens, the limit is 3" in line
    assert "source 2" in line
    assert "max_length or max_ratio" in line
    assert "need 5 tokens" in refused(
        lexical, [[[6, 7]], []], limits=Limits(max_length=4), prefixes=Tokens.pad([[9, 9, 9], [9]])
    )
    assert "empty" in refused(lexical, [[[]], []])
    assert "never said" in refused(lexical, [[[6, EOS]], []])
    assert "lexical" in refused(Beam.Settings(), [[[6]], []])
    assert "greedy" in refused(STRATEGIES.settings("greedy"), [[[6]], []])


# --- advice ------------------------------------------------------------------------------------------------------


class Critic(Oracle):
    """Another model's opinion: other numbers for the same prefixes."""

    def step(self, last: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        return super().step(last * 3 + 1, state)


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample", "diverse", "lexical"])
@pytest.mark.parametrize("weights", [[0.5], [0.3, 1.2]])
def test_law_6_advice_enters_the_score_and_never_log_prob(strategy: str, weights: list[float]) -> None:
    scorer, sources = Oracle(words=4), some_sources(6)
    critics = [Critic(words=4, ending=float(i)) for i in range(len(weights))]
    advice = Mixture(critics, weights, vocabulary=10)
    chosen = STRATEGIES.settings(strategy)
    found = search(scorer, sources, chosen, advice=advice)
    for number, hypotheses in enumerate(found):
        own = rows_of(sources, [number])
        same(search(scorer, own, chosen, advice=advice)[0], hypotheses)  # law 4
        for h in hypotheses:
            said = h.tokens if h.truncated else (*h.tokens, EOS)
            assert h.token_log_probs == pytest.approx(forced(scorer, own, said), abs=1e-10)
            added = sum(w * math.fsum(forced(c, own, said)) for w, c in zip(weights, critics, strict=True))
            assert h.advice == pytest.approx(added, abs=1e-10)
            plain = strategy in ("greedy", "sample")
            expected = (h.log_prob + added) / (1 if plain else max(1, len(h.tokens)))
            assert h.score == pytest.approx(expected, abs=1e-10)
    silent = search(scorer, sources, chosen)
    assert [h[0].tokens for h in silent] != [h[0].tokens for h in found], "advice changes choices"
    assert all(h.advice == 0 for each in silent for h in each)


def test_law_6_a_wide_beam_with_advice_is_exhaustive_search_by_the_sum() -> None:
    scorer, critic, sources, limit = Oracle(words=2), Critic(words=2, ending=1.0), some_sources(2), 4
    wide = Beam.Settings(size=330, n_best=4, stop="bound", length=NONE)
    advice = Mixture([critic], [0.7], vocabulary=8)
    found = search(scorer, sources, wide, limits=Limits(max_length=limit), advice=advice)
    for number, hypotheses in enumerate(found):
        own = rows_of(sources, [number])
        sums = {
            tokens: math.fsum(forced(scorer, own, [*tokens, EOS]))
            + 0.7 * math.fsum(forced(critic, own, [*tokens, EOS]))
            for tokens in outputs([UNK, 6, 7], limit)
        }
        expected = sorted(sums, key=lambda tokens: -sums[tokens])[:4]
        assert [h.tokens for h in hypotheses] == expected
        assert [h.score for h in hypotheses] == pytest.approx([sums[tokens] for tokens in expected], abs=1e-10)


def test_advice_of_fewer_words_takes_copied_ones_for_unknown() -> None:
    """The advised scorer knows two tokens more than the critic: W = V + X."""
    scorer, critic, sources = Oracle(words=6), Oracle(words=4), some_sources(4)
    found = search(scorer, sources, Beam.Settings(size=4, n_best=4), advice=Mixture([critic], [0.5], vocabulary=10))
    seen: list[Hypothesis] = [h for each in found for h in each if max(h.tokens, default=0) >= 10]
    assert seen
    for number, hypotheses in enumerate(found):
        for h in hypotheses:
            heard = [UNK if token >= 10 else token for token in h.tokens]
            said = heard if h.truncated else [*heard, EOS]
            added = 0.5 * math.fsum(forced(critic, rows_of(sources, [number]), said))
            assert h.advice == pytest.approx(added, abs=1e-10)

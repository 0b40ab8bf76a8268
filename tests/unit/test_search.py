"""Search on small scripts whose every probability stands in the test, with the arithmetic in comments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from seqloom.batch import Source, Tokens
from seqloom.config import Settings
from seqloom.errors import SeqloomError
from seqloom.models.contracts import State
from seqloom.search.constraints import CONSTRAINTS, Prefix
from seqloom.search.frontier import Frontier, best
from seqloom.search.hypotheses import LENGTHS, Hypothesis, length
from seqloom.search.loop import Limits, search
from seqloom.search.noise import fingerprints, uniforms
from seqloom.search.strategies import STRATEGIES, Beam, Greedy, Sample
from seqloom.specials import BOS, EOS, PAD, UNK

A, B, C = 6, 7, 8
NAMES = {"<eos>": EOS, "<unk>": UNK, "<bos>": BOS, "<pad>": PAD, "a": A, "b": B, "c": C}
Script = Mapping[str, Mapping[str, float]]


class Scripted:
    """p(next | prefix) from a table of prefixes ("", "a", "ab", ...); what it does not name gets the rest, evenly."""

    width = 9

    def __init__(self, script: Script) -> None:
        self.script = script

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        count = next(iter(sources.values())).mask.shape[0]
        return State({"read": torch.zeros(count * hypotheses, 0, dtype=torch.long)})

    def step(self, last: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        read = torch.cat([state.rows["read"], last[:, None]], 1)
        probabilities = torch.stack([self._next(row) for row in read.tolist()])
        return probabilities.log(), state.with_rows(read=read)

    def _next(self, read: Sequence[int]) -> torch.Tensor:
        letters = "".join(
            name for token in read for name, number in NAMES.items() if number == token and len(name) == 1
        )
        named = self.script.get(letters, self.script.get("*", {}))
        rest = (1 - sum(named.values())) / (self.width - len(named))
        row = torch.full((self.width,), rest, dtype=torch.float64)
        for name, probability in named.items():
            row[NAMES[name]] = probability
        return row


def source(*lengths: int) -> dict[str, Source]:
    return {"source": Tokens.pad([[9] * count for count in lengths])}


def run(script: Script, strategy: Settings, **more: object) -> list[Hypothesis]:
    return search(Scripted(script), source(3), strategy, **more)[0]  # type: ignore[arg-type]


def text(hypothesis: Hypothesis) -> str:
    return "".join(next(name for name, number in NAMES.items() if number == token) for token in hypothesis.tokens)


# --- stopping ----------------------------------------------------------------------------------------------------


def test_a_beam_waits_for_a_live_hypothesis_that_beats_all_that_ended() -> None:
    """aaaa has the most probability by far, but b and aab have ended before it does."""
    fork, certain = {"a": 0.9, "b": 0.09}, {"a": 0.98}
    script = {"": fork, "a": certain, "aa": fork, "aaa": certain, "aaaa": {"<eos>": 0.98}, "*": {"<eos>": 0.99}}
    assert text(run(script, Beam.Settings(size=2))[0]) == "aaaa"
    assert text(run(script, Beam.Settings(size=2, finish=2))[0]) == "aab", "asked for two, it takes the first two"


# --- length ------------------------------------------------------------------------------------------------------


def test_length_normalisation_of_the_lecture() -> None:
    """-4.5 / 6 = -0.75 beats -3.2 / 4 = -7.2 / 9 = -0.8, although -3.2 is the most probable."""
    sentences = {"he hit me with a pie": -4.5, "he threw a pie": -3.2, "I was hit with a pie that he threw": -7.2}
    mean, scores = LENGTHS.build(LENGTHS.settings("mean")), {}
    for sentence, log_prob in sentences.items():
        tokens = [10 + place for place, _ in enumerate(sentence.split())]
        assert length(tokens) == length([*tokens, EOS]) == len(sentence.split())
        scores[sentence] = float(mean.score(torch.tensor(log_prob), torch.tensor(len(tokens))))
        assert scores[sentence] == pytest.approx(log_prob / length(tokens))
    assert list(scores.values()) == pytest.approx([-0.75, -0.8, -0.8])
    assert max(scores, key=lambda sentence: scores[sentence]) == "he hit me with a pie"
    assert max(sentences, key=lambda sentence: sentences[sentence]) == "he threw a pie"


def test_an_empty_output_has_length_one() -> None:
    assert length([]) == length([EOS]) == 1
    for kind in LENGTHS:
        score = LENGTHS.build(LENGTHS.settings(kind)).score(torch.tensor(-2.0), torch.tensor(0))
        assert float(score) == pytest.approx(-2.0)  # ((5 + 1) / 6)^alpha = 1


def test_gnmt_divisor() -> None:
    """((5 + 7) / 6)^0.5 = sqrt(2)."""
    gnmt = LENGTHS.build(LENGTHS.settings({"kind": "gnmt", "alpha": 0.5}))
    assert float(gnmt.score(torch.tensor(-2.0), torch.tensor(7))) == pytest.approx(-math.sqrt(2))


@given(st.floats(-50, -0.01), st.integers(0, 30), st.integers(0, 30), st.sampled_from([*LENGTHS]))
def test_the_bound_is_over_every_score_within_the_limit(log_prob: float, now: int, more: int, kind: str) -> None:
    normalisation = LENGTHS.build(LENGTHS.settings(kind))
    total = torch.tensor(log_prob, dtype=torch.float64)
    bound = normalisation.bound(total, torch.tensor(now + more))
    for tokens in range(now, now + more + 1):
        assert normalisation.score(total, torch.tensor(tokens)) <= bound + 1e-12


# --- beam --------------------------------------------------------------------------------------------------------

# The garden path: greedy takes "a" (0.6) and then nothing is good; "b" (0.39) goes on with 0.99.
GARDEN: Script = {"": {"a": 0.6, "b": 0.39}, "a": {"a": 0.3, "b": 0.3, "<eos>": 0.35}, "b": {"<eos>": 0.99}}


def test_beam_finds_what_greedy_misses() -> None:
    greedy = run(GARDEN, Greedy.Settings())[0]
    assert (text(greedy), greedy.log_prob) == ("a", pytest.approx(math.log(0.6 * 0.35)))
    found = run(GARDEN, Beam.Settings(size=2, n_best=2, length={"kind": "none"}))
    assert [text(h) for h in found] == ["b", "a"]
    assert [h.log_prob for h in found] == pytest.approx([math.log(0.39 * 0.99), math.log(0.6 * 0.35)])
    assert found[0].token_log_probs == pytest.approx((math.log(0.39), math.log(0.99)))


def test_an_ending_is_accepted_only_from_the_first_k_of_2k() -> None:
    """Step 1 ranks a 0.5, b 0.3, EOS 0.19: with K = 2 the empty output stands third and is not saved."""
    script: Script = {"": {"a": 0.5, "b": 0.3, "<eos>": 0.19}, "*": {"c": 0.98}}
    two = run(script, Beam.Settings(size=2, n_best=2), limits=Limits(max_length=3))
    assert all(h.tokens for h in two)
    three = run(script, Beam.Settings(size=3, n_best=3), limits=Limits(max_length=3))
    assert [h.tokens for h in three if not h.truncated] == [()]


# "a" then "b" both certain, but "a" ends early with little: 0.5 | 0.5 * 0.9 * 0.9 ...
PATIENCE: Script = {
    "": {"<eos>": 0.5, "a": 0.49},
    "a": {"b": 0.96, "<eos>": 0.03},
    "ab": {"c": 0.96, "<eos>": 0.03},
    "abc": {"<eos>": 0.99},
}


def test_stops_differ_in_patience() -> None:
    """mean: the empty output scores log 0.5 = -0.69; "abc" scores log(0.49 * 0.96^2 * 0.99) / 3 = -0.27."""
    steps: list[int] = []

    def watch(step: int, frontier: Frontier) -> None:
        steps.append(step)

    impatient = run(PATIENCE, Beam.Settings(size=2, finish=1), observer=watch)
    assert ([text(h) for h in impatient], steps) == ([""], [0])
    steps.clear()
    patient = run(PATIENCE, Beam.Settings(size=2, stop="bound"), limits=Limits(max_length=8), observer=watch)
    assert [text(h) for h in patient] == ["abc"]
    assert patient[0].score == pytest.approx(math.log(0.49 * 0.96**2 * 0.99) / 3)
    assert steps == list(range(len(steps)))
    by_all = run(PATIENCE, Beam.Settings(size=2, stop="all"), limits=Limits(max_length=8))
    assert [text(h) for h in by_all] == ["abc"]


def test_bound_without_normalisation_stops_as_soon_as_nothing_can_be_more_probable() -> None:
    steps: list[int] = []
    found = run(
        {"": {"<eos>": 0.6, "a": 0.3}},
        Beam.Settings(size=2, stop="bound", length={"kind": "none"}),
        observer=lambda step, frontier: steps.append(step),
    )
    assert found[0].tokens == ()
    assert steps == [0]


def test_a_model_that_never_ends_is_cut_off_and_says_so() -> None:
    script: Script = {"*": {"a": 0.9, "<eos>": 0.0}}
    scorer = Scripted({"": {"a": 0.9, "<eos>": 0.0}, **script})
    for strategy in (Greedy.Settings(), Beam.Settings(size=3), Sample.Settings(top_k=1)):
        found = search(scorer, source(1, 5), strategy)
        assert [text(h[0]) for h in found] == ["a" * 12, "a" * 20]  # 2 S + 10, each by its own source
        assert all(h[0].truncated and len(h[0].token_log_probs) == len(h[0].tokens) for h in found)


def test_an_output_of_exactly_the_limit_is_whole() -> None:
    """The limit counts tokens without EOS: "abc" ends on the fourth step."""
    for strategy in (Greedy.Settings(), Beam.Settings(size=1), Sample.Settings(top_k=1)):
        script = {**PATIENCE, "": {"a": 0.99}}
        whole = run(script, strategy, limits=Limits(max_length=3))[0]
        assert (text(whole), whole.truncated) == ("abc", False)
        cut = run(script, strategy, limits=Limits(max_length=2))[0]
        assert (text(cut), cut.truncated) == ("ab", True)


def test_live_hypotheses_fill_up_only_what_is_missing() -> None:
    """One output can end; a second place is filled by a truncated one, never by the same output unended."""
    script: Script = {"": {"a": 0.6, "b": 0.39, "<eos>": 0.0}, "a": {"<eos>": 0.9}, "*": {"c": 1.0, "<eos>": 0.0}}
    one = run(script, Beam.Settings(size=2, n_best=1, finish=2), limits=Limits(max_length=1))
    assert [(text(h), h.truncated) for h in one] == [("a", False)]
    two = run(script, Beam.Settings(size=2, n_best=2), limits=Limits(max_length=1))
    assert [(text(h), h.truncated) for h in two] == [("a", False), ("b", True)]


def test_a_beam_wider_than_what_can_be_said() -> None:
    found = run(GARDEN, Beam.Settings(size=50, n_best=50, stop="bound"), limits=Limits(max_length=1))
    texts = [text(h) for h in found if not h.truncated]
    assert sorted(texts) == ["", "<unk>", "a", "b", "c"]  # everything within one token
    assert len({h.tokens for h in found}) == len(found)


def test_a_phrase_may_wait_for_its_place() -> None:
    """c must occur. Early it has p = 0.01; where it belongs, after ab, 0.96: a place of the beam waits for that.

    Were the two places given to those that have said c already, "ab" would be dropped on the second step.
    """
    script: Script = {**PATIENCE, "": {"a": 0.97, "c": 0.01}, "c": {"a": 0.5, "b": 0.4}, "*": {"a": 0.4, "b": 0.4}}
    lexical = STRATEGIES.settings({"kind": "lexical", "size": 2, "stop": "bound", "length": "none"})
    (best_of_all,) = run(script, lexical, phrases=[[[C]]], limits=Limits(max_length=5))
    assert text(best_of_all) == "abc"
    assert best_of_all.log_prob == pytest.approx(math.log(0.97 * 0.96 * 0.96 * 0.99))
    assert text(run(script, lexical, phrases=[[[C, C]]], limits=Limits(max_length=2))[0]) == "cc", "no room to wait"


@given(st.lists(st.lists(st.integers(-3, 3), min_size=12, max_size=12), min_size=1, max_size=4), st.integers(1, 14))
def test_best_orders_equals_by_index(rows: list[list[int]], count: int) -> None:
    values, index = best(torch.tensor(rows, dtype=torch.float32), count)
    for row, top, places in zip(rows, values.tolist(), index.tolist(), strict=True):
        expected = sorted(range(12), key=lambda place: (-row[place], place))[:count]
        assert places == expected
        assert top == [row[place] for place in expected]


@pytest.mark.parametrize("width", [1024, 1037, 4096])
@pytest.mark.parametrize("kinds", [3, 1_000_000], ids=["many equals", "few equals"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_of_long_rows_the_best_are_found_by_blocks(width: int, kinds: int, count: int) -> None:
    """Long enough that blocks are used; some rows hold little else than -inf, and the best stand at the very ends."""
    drawn = torch.Generator().manual_seed(width + count)
    values = torch.randint(kinds, (6, width), generator=drawn).float()
    values[1, 3:] = values[2, :-2] = -math.inf
    values[3, -1] = values[4, 0] = 2e6
    found, index = best(values, count)
    wanted = values.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found, wanted.values[:, :count])
    real = found > -math.inf
    assert torch.equal(index[real], wanted.indices[:, :count][real])


# --- limits and constraints --------------------------------------------------------------------------------------


def test_limits_are_per_source() -> None:
    least, most = Limits(min_ratio=0.5, min_length=2).of(torch.tensor([1, 3, 10]))
    assert (least.tolist(), most.tolist()) == ([2, 2, 5], [12, 16, 30])
    least, most = Limits(min_length=25, max_length=25).of(torch.tensor([1, 30]))
    assert (least.tolist(), most.tolist()) == ([25, 25], [25, 25])  # a demanded minimum lifts the ratio's limit
    least, most = Limits(min_ratio=1.0, max_length=4).of(torch.tensor([2, 30]))
    assert (least.tolist(), most.tolist()) == ([2, 4], [4, 4])


@pytest.mark.parametrize(
    ("table", "raw"),
    [
        (STRATEGIES, {"kind": "beam", "size": 0}),
        (STRATEGIES, {"kind": "beam", "size": 2, "n_best": 3}),
        (STRATEGIES, {"kind": "beam", "n_best": 2, "finish": 1}),
        (STRATEGIES, {"kind": "beam", "stop": "bound", "finish": 2}),
        (STRATEGIES, {"kind": "beam", "length": {"kind": "gnmt", "alpha": -1}}),
        (STRATEGIES, {"kind": "sample", "temperature": 0}),
        (STRATEGIES, {"kind": "sample", "top_p": 0}),
        (STRATEGIES, {"kind": "sample", "top_k": 0}),
        (CONSTRAINTS, {"kind": "length", "min_length": 4, "max_length": 3}),
        (CONSTRAINTS, {"kind": "banned", "tokens": [-1]}),
        (CONSTRAINTS, {"kind": "no_repeat", "ngram": 0}),
        (CONSTRAINTS, {"kind": "prefix", "tokens": []}),
    ],
)
def test_impossible_settings_are_refused(table: object, raw: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        table.settings(raw)  # type: ignore[attr-defined]
    with pytest.raises(ValidationError):
        Limits(min_length=3, max_length=2)


def test_minimum_length_keeps_the_end_away() -> None:
    script: Script = {"": {"<eos>": 0.9, "a": 0.05}, "*": {"<eos>": 0.9, "b": 0.05}}
    for strategy in (Greedy.Settings(), Beam.Settings(size=1), Sample.Settings(top_k=1)):
        found = run(script, strategy, limits=Limits(min_length=2))[0]
        assert text(found) == "ab"
        assert found.log_prob == pytest.approx(math.log(0.05 * 0.05 * 0.9))  # nothing is renormalised


def test_a_maximum_makes_outputs_end_where_a_limit_cuts_them_off() -> None:
    maximum = CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "length", "max_length": 2}))
    found = run({"*": {"a": 0.9, "<eos>": 0.01}, "": {"a": 0.9}}, Greedy.Settings(), constraints=[maximum])[0]
    assert (text(found), found.truncated) == ("aa", False)
    assert found.log_prob == pytest.approx(math.log(0.9 * 0.9 * 0.01))


def test_a_hypothesis_without_any_token_left_dies_and_the_best_is_returned_truncated() -> None:
    """a, b, c and UNK may each be said once, EOS not before ten: after four tokens nothing is left."""
    once = CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "no_repeat", "ngram": 1}))
    for strategy in (Greedy.Settings(), Beam.Settings(size=3, n_best=2), Sample.Settings(samples=3)):
        found = run({"": {"a": 0.9}}, strategy, constraints=[once], limits=Limits(min_length=10))
        assert found
        for h in found:
            assert h.truncated
            assert sorted(h.tokens) == [UNK, A, B, C]
    banned = CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned", "tokens": [UNK, EOS, A, B, C]}))
    for strategy in (Greedy.Settings(), Beam.Settings(size=3), Sample.Settings()):
        empty = run(GARDEN, strategy, constraints=[banned])
        assert empty == [Hypothesis((), (), 0.0, 0.0, True)]


def test_specials_are_never_said_and_keep_their_probability() -> None:
    found = run({"": {"<pad>": 0.5, "<bos>": 0.3, "a": 0.1}, "a": {"<eos>": 0.9}}, Greedy.Settings())[0]
    assert text(found) == "a"
    assert found.log_prob == pytest.approx(math.log(0.1 * 0.9))


def test_prefix_with_an_end_or_an_unknown_id_is_refused() -> None:
    with pytest.raises(SeqloomError, match="E_USAGE"):
        Prefix.of(Tokens.pad([[A, EOS]]))
    with pytest.raises(SeqloomError, match="E_USAGE"):
        run(GARDEN, Greedy.Settings(), prefixes=Tokens.pad([[99]]))


def test_a_prefix_longer_than_the_limit_is_said_whole() -> None:
    found = run(GARDEN, Greedy.Settings(), prefixes=Tokens.pad([[A] * 5]), limits=Limits(max_length=2))[0]
    assert found.tokens[:5] == (A,) * 5


def test_a_model_of_nan_is_refused() -> None:
    with pytest.raises(SeqloomError, match="E_DIVERGED"):
        run({"": {"a": math.nan}}, Greedy.Settings())


def test_no_sources_no_hypotheses() -> None:
    empty = {"source": Tokens(torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, 3, dtype=torch.bool))}
    assert search(Scripted(GARDEN), empty, Greedy.Settings()) == []


def test_the_observer_sees_a_tree() -> None:
    """Parents and tokens of every step are enough to draw the beam."""
    seen: list[Frontier] = []
    run(GARDEN, Beam.Settings(size=2, n_best=2), observer=lambda step, frontier: seen.append(frontier))
    assert seen[0].last.tolist() == [[A, B]]
    assert seen[0].parents.tolist() == [[0, 0]]
    assert seen[0].totals[0].tolist() == pytest.approx([math.log(0.6), math.log(0.39)])


# --- sampling ----------------------------------------------------------------------------------------------------


def shares(strategy: Settings) -> dict[str, float]:
    script: Script = {"": {"a": 0.5, "b": 0.3, "c": 0.1, "<eos>": 0.1}, "*": {"<eos>": 1.0}}
    found = run(script, strategy, limits=Limits(max_length=1))
    counts = {name: sum(text(h) == name for h in found) / len(found) for name in ("", "a", "b", "c")}
    assert sum(counts.values()) == pytest.approx(1)
    for h in found:  # whatever was drawn from, log_prob is the model's
        expected = {"": 0.1, "a": 0.5, "b": 0.3, "c": 0.1}[text(h)]
        assert h.log_prob == pytest.approx(math.log(expected))
    return counts


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.1, 0.5, 0.3, 0.1]),
        ({"temperature": 0.5}, [0.01 / 0.36, 0.25 / 0.36, 0.09 / 0.36, 0.01 / 0.36]),  # squared and renormalised
        ({"top_k": 2}, [0, 0.5 / 0.8, 0.3 / 0.8, 0]),
        ({"top_p": 0.7}, [0, 0.5 / 0.8, 0.3 / 0.8, 0]),  # 0.5 is under 0.7, 0.5 + 0.3 holds it
        ({"top_p": 0.4}, [0, 1, 0, 0]),
        ({"top_k": 1}, [0, 1, 0, 0]),
    ],
)
def test_samples_follow_the_distribution(settings: dict[str, float], expected: list[float]) -> None:
    counts = shares(Sample.Settings(samples=4000, seed=3, **settings))
    for count, share in zip(counts.values(), expected, strict=True):
        assert count == pytest.approx(share, abs=4.5 * math.sqrt(share * (1 - share) / 4000) + 1e-9)


def test_samples_depend_on_the_seed_and_on_nothing_else() -> None:
    def drawn(seed: int) -> list[tuple[int, ...]]:
        return [h.tokens for h in run(GARDEN, Sample.Settings(samples=20, seed=seed))]

    torch.manual_seed(1)
    first = drawn(1)
    torch.manual_seed(2)
    assert drawn(1) == first
    assert drawn(2) != first


def test_noise_is_uniform_and_belongs_to_its_source() -> None:
    keys = fingerprints({"source": Tokens.pad([[7, 8], [8, 7], [7, 8, 9]])}, seed=0)
    assert len(set(keys.tolist())) == 3
    alone = fingerprints({"source": Tokens.pad([[8, 7]], fill=5)}, seed=0)
    assert alone[0] == keys[1]
    assert fingerprints({"source": Tokens.pad([[8, 7]])}, seed=1)[0] != alone[0]
    numbers = torch.cat([uniforms(keys, torch.full((3,), step), 1000) for step in range(10)], 1)
    assert ((numbers > 0) & (numbers < 1)).all()
    assert numbers.mean().item() == pytest.approx(0.5, abs=0.01)  # 30,000 numbers: deviation 0.0017
    assert numbers.var().item() == pytest.approx(1 / 12, abs=0.003)
    for one, other in itertools.combinations(numbers, 2):
        assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1].item()) < 0.05

"""Corruption of token sequences: what each kind may touch, how often, and that a seed repeats it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batch import Tokens
from seqloom.config import validated
from seqloom.errors import SeqloomError
from seqloom.specials import EOS, MASK, SEP, SPECIALS, UNK
from seqloom.tasks.noise import Noise, dropped, edited, noisy, spans, spoilt, swapped, words, words_with
from seqloom.tasks.transduce import Transduce

FIRST, VOCABULARY = len(SPECIALS), 5_000

rows = st.lists(st.lists(st.integers(FIRST, 40), max_size=8), min_size=1, max_size=5)
shares = st.sampled_from([0.0, 0.1, 0.5, 1.0])
quick = settings(max_examples=60, deadline=None)


def ended(sequences: list[list[int]]) -> Tokens:
    """Rows that end in EOS, junk behind the mask."""
    tokens = Tokens.pad([[*sequence, EOS] for sequence in sequences])
    return Tokens(torch.where(tokens.mask, tokens.ids, 39), tokens.mask)


def real(tokens: Tokens) -> list[list[int]]:
    return [ids[mask].tolist() for ids, mask in zip(tokens.ids, tokens.mask, strict=True)]


def many(count: int = 400, length: int = 50) -> Tokens:
    torch.manual_seed(0)
    return ended(torch.randint(FIRST, 40, (count, length)).tolist())


@quick
@given(rows, shares, shares, shares, shares, st.integers(0, 1000), st.booleans())
def test_ends_padding_and_lengths_stay(
    sequences: list[list[int]], drop: float, replace: float, swap: float, mask: float, seed: int, remove: bool
) -> None:
    tokens = ended(sequences)
    before = Tokens(tokens.ids.clone(), tokens.mask.clone())
    torch.manual_seed(seed)
    found = noisy(tokens, Noise(drop=drop, replace=replace, swap=swap, mask=mask), VOCABULARY, remove=remove)
    assert torch.equal(tokens.ids, before.ids)  # the caller's tensors are not written into
    assert torch.equal(tokens.mask, before.mask)
    assert found.ids.shape == tokens.ids.shape
    for old, new in zip(real(tokens), real(found), strict=True):
        assert new[-1] == EOS
        assert EOS not in new[:-1]
        assert len(new) == len(old) or (remove and drop and len(new) < len(old))
        assert all(FIRST <= token < VOCABULARY or token in (UNK, MASK) for token in new[:-1])
    if not remove:
        assert torch.equal(found.mask, tokens.mask)
        assert torch.equal(found.ids[~tokens.mask], tokens.ids[~tokens.mask])
    lengths = found.mask.sum(1)
    assert torch.equal(found.mask, torch.arange(found.mask.shape[1]) < lengths[:, None])  # padding at the end


@quick
@given(rows, st.integers(0, 1000), shares)
def test_swapping_is_a_permutation_that_moves_by_one(sequences: list[list[int]], seed: int, share: float) -> None:
    numbered = ended([[FIRST + place for place in range(len(sequence))] for sequence in sequences])
    torch.manual_seed(seed)
    for old, new in zip(real(numbered), real(swapped(numbered, share)), strict=True):
        assert sorted(new) == sorted(old)
        assert new[-1] == EOS
        for place, token in enumerate(new[:-1]):
            moved = token - FIRST - place
            assert abs(moved) <= 1
            if moved == 1:  # they changed places with each other, and nobody moved twice
                assert new[place + 1] - FIRST == place


@quick
@given(rows, st.integers(0, 1000), shares)
def test_dropping_keeps_the_order_and_the_end(sequences: list[list[int]], seed: int, share: float) -> None:
    numbered = ended([[FIRST + place for place in range(len(sequence))] for sequence in sequences])
    torch.manual_seed(seed)
    for old, new in zip(real(numbered), real(dropped(numbered, share)), strict=True):
        assert new[:-1] == sorted(set(new[:-1]))
        assert set(new) <= set(old)
        assert new[-1] == EOS
        assert share < 1 or new == [EOS]


@quick
@given(rows, st.integers(0, 1000))
def test_no_share_is_no_change(sequences: list[list[int]], seed: int) -> None:
    torch.manual_seed(seed)
    tokens = ended(sequences)
    assert Noise().silent
    assert noisy(tokens, Noise(), VOCABULARY, remove=True) is tokens
    for same in (swapped(tokens, 0.0), dropped(tokens, 0.0)):
        assert torch.equal(same.ids, tokens.ids)
        assert torch.equal(same.mask, tokens.mask)


@pytest.mark.parametrize("kind", ["drop", "replace", "mask"])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_share_is_the_share_of_words_touched(kind: str, share: float) -> None:
    tokens = many()
    words = tokens.mask & (tokens.ids != EOS)
    found = noisy(tokens, Noise.model_validate({kind: share}), VOCABULARY, remove=False)
    touched = (found.ids != tokens.ids)[words].double().mean().item()
    deviation = math.sqrt(share * (1 - share) / int(words.sum()))
    assert touched == pytest.approx(share, abs=5 * deviation)
    wanted = {"drop": UNK, "mask": MASK}.get(kind)
    assert wanted is None or (found.ids[found.ids != tokens.ids] == wanted).all()


def test_the_share_of_removed_and_of_swapped_words() -> None:
    tokens = many()
    words = int((tokens.mask & (tokens.ids != EOS)).sum())
    removed = words + len(tokens.ids) - int(dropped(tokens, 0.3).mask.sum())
    assert removed / words == pytest.approx(0.3, abs=0.02)
    numbered = ended([list(range(FIRST, FIRST + 50)) for _ in range(400)])
    moved = (swapped(numbered, 0.1).ids != numbered.ids).double().sum().item() / 2
    # a pick right after a pick is void: q = 0.1 (1 - q), so q = 1/11 of the places swap with the next
    assert moved / (400 * 49) == pytest.approx(1 / 11, abs=0.01)


def test_replacements_are_words_of_the_whole_vocabulary() -> None:
    tokens = many()
    small = FIRST + 4
    found = noisy(tokens, Noise(replace=1.0), small, remove=False)
    words = tokens.mask & (tokens.ids != EOS)
    counts = torch.bincount(found.ids[words], minlength=small)
    assert not counts[:FIRST].any()
    assert (counts[FIRST:] > 0.2 * int(words.sum())).all()


def test_a_seed_repeats_the_noise_and_another_does_not() -> None:
    tokens, everything = many(), Noise(drop=0.2, replace=0.2, swap=0.2, mask=0.2)

    def drawn(seed: int) -> tuple[list[list[int]], list[list[int]]]:
        torch.manual_seed(seed)
        return real(noisy(tokens, everything, VOCABULARY, remove=True)), real(edited(tokens, 2.0, VOCABULARY))

    assert drawn(3) == drawn(3)
    assert drawn(3)[0] != drawn(4)[0]
    assert drawn(3)[1] != drawn(4)[1]


@quick
@given(rows, st.integers(0, 1000), st.sampled_from([1e-3, 0.5, 3.0, 1e6]))
def test_edits_replace_words_in_place(sequences: list[list[int]], seed: int, temperature: float) -> None:
    tokens = ended(sequences)
    torch.manual_seed(seed)
    found = edited(tokens, temperature, VOCABULARY)
    words = tokens.mask & (tokens.ids != EOS)
    assert torch.equal(found.mask, tokens.mask)
    assert torch.equal(found.ids[~words], tokens.ids[~words])
    assert ((found.ids[words] >= FIRST) & (found.ids[words] < VOCABULARY)).all()
    if temperature == 1e-3:
        assert torch.equal(found.ids, tokens.ids)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("length", [1, 5])
def test_the_number_of_edits_is_exponential(temperature: float, length: int) -> None:
    """P(n) = exp(-n / temperature) / sum, n = 0 ... T; replacements come from 100,000 words, so hardly ever agree."""
    count = 8_000
    tokens = ended([[*range(FIRST, FIRST + length)], [*range(FIRST, FIRST + 7)]] * count)
    torch.manual_seed(1)
    edits = (edited(tokens, temperature, 100_000).ids != tokens.ids).sum(1)[::2]
    weights = torch.exp(-torch.arange(length + 1) / temperature)
    expected = weights / weights.sum()
    found = torch.bincount(edits, minlength=length + 1) / count
    assert torch.allclose(found, expected, atol=5 * 0.5 / math.sqrt(count))


def test_every_place_is_edited_as_often_as_every_other() -> None:
    tokens = ended([[*range(FIRST, FIRST + 4)]] * 8_000)
    torch.manual_seed(1)
    per_place = (edited(tokens, 2.0, 100_000).ids != tokens.ids).double().mean(0)[:4]
    assert (per_place - per_place.mean()).abs().max() < 0.03


@pytest.mark.parametrize("kind", ["drop", "replace", "swap", "mask"])
@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf"), "half"])
def test_a_share_is_between_zero_and_one(kind: str, share: object) -> None:
    with pytest.raises(SeqloomError, match=f"{kind}: "):
        validated(Noise, {kind: share}, "test")


def test_noise_on_rows_of_eos_alone_is_nothing() -> None:
    tokens = Tokens.pad([[EOS], [EOS]])
    everything = Noise(drop=1.0, replace=1.0, swap=1.0, mask=1.0)
    for found in (noisy(tokens, everything, VOCABULARY, remove=True), edited(tokens, 9.0, VOCABULARY)):
        assert real(found) == [[EOS], [EOS]]


def test_what_stands_before_a_source_is_left_alone() -> None:
    """Tags and their separator: noise strikes the text behind the last SEP; a SEP behind the mask is none."""
    ids = torch.tensor([[20, 21, SEP, 22, SEP, 7, 8, 9, EOS], [7, 8, EOS, SEP, 7, 7, 7, 7, 7]])
    tokens = Tokens(ids, torch.tensor([[True] * 9, [True] * 3 + [False] * 6]))
    assert words(tokens)[0].tolist() == [False] * 5 + [True] * 3 + [False]
    assert words(tokens)[1].tolist() == [True, True] + [False] * 7


# --- noise that is to be undone ----------------------------------------------------------------------------------


def test_struck_tokens_are_masked_replaced_or_kept_in_the_shares_asked_for() -> None:
    tokens = many(200, 49)
    torch.manual_seed(1)
    read, struck = spoilt(tokens, Noise(mask=0.12, replace=0.02, keep=0.02), VOCABULARY)
    share = struck[:, :-1].double().mean()
    assert abs(float(share) - 0.16) < 0.01
    masked, same = read.ids == MASK, read.ids == tokens.ids
    assert bool((masked | same | struck).all()), "what was not struck is as it was"
    assert abs(float(masked[:, :-1].double().mean()) - 0.12) < 0.01
    assert 0.015 < float((struck & same)[:, :-1].double().mean()) < 0.03, "kept, and now and then replaced by itself"
    assert not bool(struck[:, -1].any()), "the end is no word"


def test_whole_words_are_struck_together() -> None:
    tokens = many(50, 49)
    words = (torch.arange(50) // 3).expand(50, -1).clone()
    words[:, -1] = -1
    read, struck = spoilt(replace(tokens, words=words), Noise(mask=0.2, whole_words=True), VOCABULARY)
    for word in range(16):
        inside = struck[:, 3 * word : 3 * word + 3]
        assert bool((inside.all(1) == inside.any(1)).all())
    assert 0.1 < float(struck.double().mean()) < 0.3
    assert torch.equal(read.ids == MASK, struck)


def test_words_are_asked_for_whose_letters_were_struck() -> None:
    letters = Tokens(torch.full((2, 7), 9), torch.tensor([[True] * 7, [True] * 4 + [False] * 3]))
    words = torch.tensor([[0, 0, 1, 2, 2, 2, -1], [0, 1, 1, -1, 3, 3, 3]])  # junk behind the mask
    struck = torch.zeros(2, 7, dtype=torch.bool)
    struck[0, 1] = struck[0, 4] = struck[1, 2] = struck[1, 5] = True
    found = words_with(replace(letters, words=words), struck, 4)
    assert found.tolist() == [[True, False, True, False], [False, True, False, False]]


def test_a_span_becomes_one_mask() -> None:
    tokens = many(200, 49)
    torch.manual_seed(3)
    short = spans(tokens, 0.3)
    lost = 1 - float(short.mask.double().mean())
    masks = float(((short.ids == MASK) & short.mask).double().sum()) / tokens.ids.numel()
    assert 0.05 < masks < 0.12, "about one for every ten tokens: a share of 0.3 in runs of three"
    assert 0.1 < lost < 0.25
    for row in range(20):
        left = short.ids[row][short.mask[row]].tolist()
        assert left[-1] == EOS
        assert not any(one == other == MASK for one, other in pairwise(left)), "a run has one mask"
        before = tokens.ids[row].tolist()
        at = 0
        for token in left:  # what is left stands in its order
            if token != MASK:
                at = before.index(token, at) + 1
    assert torch.equal(spans(tokens, 0.0).ids, tokens.ids)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"source_noise": {"mask": 0.6, "replace": 0.6}, "restore": True}, "at most 1 together"),
        ({"source_noise": {"drop": 0.1, "mask": 0.1}, "restore": True}, "move tokens"),
        ({"restore": True}, "nothing is spoilt"),
        ({"source_noise": {"keep": 0.1}}, "it changes nothing unless restore"),
        ({"history": {"span": 0.1}}, "are for source_noise"),
        ({"source_noise": {"span": 1.5}}, "span"),
    ],
)
def test_noise_that_cannot_be(raw: dict[str, object], said: str) -> None:
    with pytest.raises(SeqloomError, match=said):
        validated(Transduce.Settings, raw, "task")


@pytest.mark.parametrize("kind", ["drop", "replace", "swap", "mask", "span"])
def test_noisy_letters_still_say_whose_they_are(kind: str) -> None:
    torch.manual_seed(1)
    whose = torch.tensor([[0, 0, 0, -1, 1, 1, -1, 2, 2, 2, -1]])
    letters = Tokens(torch.tensor([[*range(10, 20), EOS]]), torch.ones(1, 11, dtype=torch.bool), words=whose)
    found = noisy(letters, Noise(**{kind: 0.4}), 40, remove=True)
    assert found.words is not None
    kept = found.words[found.mask]
    if kind == "drop":
        assert kept.tolist() == [whose[0, int(letter) - 10] for letter in found.ids[found.mask][:-1]] + [-1]
    elif kind != "span":
        assert kept.tolist() == whose[0].tolist(), "a letter that takes a place belongs to that place's word"
    assert all(one <= other for one, other in pairwise(kept[kept >= 0].tolist()))

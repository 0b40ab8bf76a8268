"""Outputs of a list and outputs of a pattern: the automata, against Python's own sets and regular expressions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.api.asking import spelling
from seqloom.data.codec import TextCodec
from seqloom.errors import SeqloomError
from seqloom.search.constraints import CONSTRAINTS, Constraint, Trie
from seqloom.search.expression import MAX_REPEATS, compiled
from seqloom.search.pattern import Pattern, Spelling
from seqloom.specials import EOS, SPECIALS, UNK


def matches(expression: str, text: str) -> bool:
    machine, state = compiled(expression), 1
    for byte in text.encode("utf-8"):
        state = int(machine.after[state, byte])
    return bool(machine.accepts[state])


# --- expressions -------------------------------------------------------------------------------------------------

EXPRESSIONS = [
    *("abc", "a|b|", "a*b+c?", "(ab|a)*", "(?:ab){2}", "a{2,}b{0,2}", "a{0}b", "(|a)b", "", "()", "(a*)*"),
    *("[a-cx]+", "[^ab]", "[]a]", "[^]a]", "[a-]", "[-a]+", "[\\]a]", ".", ".*b.*", "(a|(b|(c)))d?"),
    *(r"\d{2}:\d{2}", r"\w+( \w+)*", r"\s?\S+", r"[\d,.]+", r"[^\W\d]+", r"\D\W", r"[\s\S]"),
    *(r"a\.b", r"\(a\)", r"\x61\u00e9", r"a\tb\n?", "é|ü[ß-ÿ]", "日本?語", "😀{2}", "[€-😀]"),
]
TEXTS = st.text(alphabet="abcx d,.:]-()\n\t09_éüßÿ日本語😀€\u0660\u00a0", max_size=7)


@pytest.mark.parametrize("expression", EXPRESSIONS)
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
def test_an_expression_means_what_python_means(expression: str, texts: list[str]) -> None:
    for text in [*texts, "ab", "abab", "aab", "12:34", "ab cd", "a.b", "(a)", "", "b", "日語", "😀😀", "aé"]:
        assert matches(expression, text) == (re.fullmatch(expression, text) is not None), text


_ATOMS = st.sampled_from(["a", "b", "é", ".", "[ab]", "[^a]", r"\d", "日"])
_TREES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,1}"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(_TREES, st.lists(st.text(alphabet="abé日1\n", max_size=6), min_size=1, max_size=10))
def test_any_expression_means_what_python_means(expression: str, texts: list[str]) -> None:
    for text in texts:
        assert matches(expression, text) == (re.fullmatch(expression, text) is not None), (expression, text)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 0x10FFFF), st.integers(0, 0x10FFFF), st.data())
def test_ranges_of_characters_become_bytes(one: int, other: int, data: st.DataObject) -> None:
    first, last = sorted((one, other))
    near = [first - 1, first, first + 1, last - 1, last, last + 1, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000]
    wanted = rf"[\U{first:08x}-\U{last:08x}]"
    try:
        compiled(wanted)
    except SeqloomError:
        assert 0xD800 <= first <= last <= 0xDFFF, "only half characters are no characters"
        return
    for code in [*near, data.draw(st.integers(0, 0x10FFFF))]:
        if 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
            assert matches(wanted, chr(code)) == (first <= code <= last)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("(a", "a group is not closed"),
        ("a)", "')' without '('"),
        ("[a", "ends too early"),
        ("a\\", "ends too early"),
        ("*a", "repeats nothing"),
        ("a**", "after a repetition"),
        ("a{3,1}", "counts go up"),
        ("a{x}", "literal brace"),
        (f"a{{{MAX_REPEATS + 1}}}", "counts go up"),
        ("^a$", "the whole output always matches"),
        (r"(a)\1", "not supported"),
        ("(?=a)", "not supported"),
        ("(?P<x>a)", "not supported"),
        ("(?i)a", "not supported"),
        (r"\bword", "not supported"),
        ("[z-a]", "a later one"),
        (r"[\d-z]", "a later one"),
        (r"\u12", "hexadecimal"),
        (r"[^\s\S]", "matches nothing"),
        ("a" * 1001, "at most 1,000"),
        ("(" * 60 + "a" + ")" * 60, "nested deeper"),
        ("((a{100}){100}){100}", "too large"),
        ("(a|b)*a(a|b){20}", "too large"),
    ],
)
def test_expressions_that_are_wrong_or_dangerous_are_refused(expression: str, said: str) -> None:
    with pytest.raises(SeqloomError) as caught:
        compiled(expression)
    assert caught.value.code == "E_USAGE"
    assert said in caught.value.line
    assert len(caught.value.line) < 300


# --- spelling: what tokens add -----------------------------------------------------------------------------------

SENTENCES = [
    "he said: (no, it's) 12.5 € – ünd  two",
    "a-b c_d",
    "日本語 text",
    "x\ty",
    "ａ￭b [￭]",
    " lead and trail ",
    "he, ab, cd",
    "a, z",
]
CODECS = {
    "words": {"kind": "words"},
    "characters": {"kind": "characters"},
    "bytes": {"kind": "bytes"},
    "symbols": {"kind": "symbols"},
    "symbols by commas": {"kind": "symbols", "separator": ", "},
    "bpe": {"kind": "bpe", "size": 60},
    "unigram": {"kind": "unigram", "size": 60},
}


def codec(name: str) -> TextCodec:
    chosen = TextCodec.Settings.model_validate({"tokenizer": CODECS[name]})
    return TextCodec.train(chosen, lambda: SENTENCES * 20, seed=1)


def added_up(table: Spelling, tokens: Sequence[int]) -> bytes | None:
    situation, text = 0, b""
    for token in tokens:
        piece = table.added[situation][token]
        if piece is None:
            return None
        text, situation = text + piece, table.after[token]
    return text


@pytest.mark.parametrize("name", CODECS)
def test_what_tokens_add_is_what_decoding_gives(name: str) -> None:
    """Also of sequences that no text has: any tokens in any order."""
    side = codec(name)
    table = spelling(side)
    rng = np.random.default_rng(0)
    ordinary = range(len(SPECIALS), len(side.vocabulary))
    sequences = [side.encode(text) for text in SENTENCES]
    sequences += [rng.choice(ordinary, size=int(rng.integers(0, 7))).tolist() for _ in range(300)]
    told = 0
    for tokens in sequences:
        text = added_up(table, tokens)
        if text is not None:
            told += 1
            assert text.decode("utf-8", errors="replace") == side.decode(tokens)
    assert told > len(sequences) / 2, "some pieces have no text of their own: they end inside an escape"


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("expression", [r"(he|a)[^,]*", r".*\w", r"\w+(, ?\w+)*", r"[a-z ,]{3,9}"])
def test_a_pattern_allows_exactly_the_tokens_that_can_still_match(name: str, expression: str) -> None:
    """Walk at random through what is allowed: it always ends, and what was said matches."""
    side = codec(name)
    chosen = CONSTRAINTS.settings({"kind": "pattern", "expression": expression})
    constraint = CONSTRAINTS.build(chosen, spelling=spelling(side))
    rng = np.random.default_rng(3)
    limit = torch.tensor([constraint.room() + 6])
    for _ in range(25):
        tokens = _walk(constraint, len(side.vocabulary), limit, rng)
        assert len(tokens) <= int(limit)
        text = side.decode(tokens)
        assert re.fullmatch(expression, text), text


def _walk(constraint: Constraint, width: int, limit: torch.Tensor, rng: np.random.Generator) -> list[int]:
    state, tokens = constraint.start(limit, limit, 1), []
    while True:
        open_ = constraint.allowed(state, width)[0].nonzero()[:, 0].tolist()
        token = int(rng.choice(open_))  # never empty
        if token == EOS:
            return tokens
        tokens.append(token)
        state = constraint.advance(torch.tensor([token]), state)


def test_a_tokenizer_without_spelling_is_refused() -> None:
    side = codec("characters")
    side.tokenizer.added = lambda piece, edge: None  # type: ignore[method-assign]
    with pytest.raises(SeqloomError, match="cannot be held to a pattern"):
        spelling(side)


def test_a_pattern_that_no_tokens_spell_is_refused() -> None:
    with pytest.raises(SeqloomError, match="no sequence of the model's tokens"):
        Pattern(Pattern.Settings(expression="[A-Z]+q"), spelling=spelling(codec("characters")))


def test_a_table_that_would_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.search.pattern.MAX_CELLS", 500)
    with pytest.raises(SeqloomError, match="repeat less"):
        Pattern(Pattern.Settings(expression="(a|b|c|d|e){1,50}"), spelling=spelling(codec("characters")))


def test_copied_words_never_match_a_pattern() -> None:
    """Tokens from V on have no spelling; neither has UNK."""
    table = spelling(codec("characters"))
    constraint = Pattern(Pattern.Settings(expression=".+"), spelling=table)
    width = len(table.after)
    state = constraint.start(torch.tensor([3]), torch.tensor([3]), 2)
    mask = constraint.allowed(state, width + 4)
    assert mask.shape == (2, width + 4)
    assert not mask[:, width:].any()
    assert not mask[:, UNK].any()
    lost = constraint.advance(torch.tensor([width + 1, len(SPECIALS)]), state)
    assert constraint.allowed(lost, width).any(1).tolist() == [False, True]


# --- tries -------------------------------------------------------------------------------------------------------

_ENTRIES = st.lists(st.lists(st.integers(6, 9), max_size=4), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(_ENTRIES, st.integers(1, 4))
def test_a_trie_allows_exactly_the_entries_within_the_limit(entries: list[list[int]], limit: int) -> None:
    trie = Trie.of(entries)
    assert trie.room() == max(map(len, entries))
    fitting = {tuple(entry) for entry in entries if len(entry) <= limit}
    if not fitting:
        with pytest.raises(SeqloomError, match="raise max_length"):
            trie.start(torch.tensor([1]), torch.tensor([limit]), 1)
        return
    assert set(_spoken(trie, torch.tensor([limit]))) == fitting


def _spoken(constraint: Constraint, limit: torch.Tensor) -> list[tuple[int, ...]]:
    """Everything that a constraint lets be said, a batch of all beginnings at a time."""
    said, found = [()], []
    state = constraint.start(limit, limit, 1)
    while said:
        mask = constraint.allowed(state, 12)
        assert mask.any(1).all(), "no dead ends"
        found += [tokens for tokens, ends in zip(said, mask[:, EOS].tolist(), strict=True) if ends]
        pairs = [(row, token) for row, token in mask.nonzero().tolist() if token != EOS]
        said = [(*said[row], token) for row, token in pairs]
        if pairs:
            rows, tokens = (torch.tensor(column) for column in zip(*pairs, strict=True))
            state = constraint.advance(tokens, state.select(rows))
    return found


def test_rows_that_leave_the_trie_are_lost() -> None:
    trie = Trie.of([[6, 7], [8]])
    state = trie.start(torch.tensor([5]), torch.tensor([5]), 4)
    state = trie.advance(torch.tensor([6, 7, 8, 11]), state)
    assert trie.allowed(state, 12).any(1).tolist() == [True, False, True, False]
    state = trie.advance(torch.tensor([7, 6, 8, 6]), state)
    assert trie.allowed(state, 12).any(1).tolist() == [True, False, False, False]
    alone = Trie.of([[]])
    state = alone.advance(torch.tensor([6]), alone.start(torch.tensor([5]), torch.tensor([5]), 1))
    assert not alone.allowed(state, 12).any()


def test_a_trie_of_many_entries() -> None:
    """A hundred thousand entries of up to 12 tokens: built and asked at once."""
    rng = np.random.default_rng(1)
    entries = [rng.integers(6, 500, size=int(rng.integers(1, 13))).tolist() for _ in range(100_000)]
    trie = Trie.of(entries)
    state = trie.start(torch.full((8,), 30), torch.full((8,), 30), 4)
    rows = [entries[i] for i in range(32)]
    for step in range(12):
        mask = trie.allowed(state, 500)
        for row, entry in enumerate(rows):
            if step < len(entry):
                assert mask[row, entry[step]]
            elif step == len(entry):
                assert mask[row, EOS]
        state = trie.advance(torch.tensor([entry[step] if step < len(entry) else 6 for entry in rows]), state)


@pytest.mark.parametrize(("entries", "said"), [([], "is empty"), ([[6, EOS]], "never said"), ([[-3]], "never said")])
def test_lists_that_cannot_be_said(entries: list[list[int]], said: str) -> None:
    with pytest.raises(SeqloomError, match=said):
        Trie.of(entries)
    big = Trie.of([[99]])
    state = big.start(torch.tensor([1]), torch.tensor([1]), 1)
    with pytest.raises(SeqloomError, match="the vocabulary ends at 9"):
        big.allowed(state, 10)


# --- banned phrases ----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(6, 7), min_size=1, max_size=3), min_size=1, max_size=3))
def test_banned_phrases_are_all_that_is_taken_away(phrases: list[list[int]]) -> None:
    constraint = CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned_phrases", "phrases": phrases}))
    for tokens in itertools.product([6, 7], repeat=5):
        state, allowed = constraint.start(torch.tensor([5]), torch.tensor([5]), 1), True
        for token in tokens:
            allowed = allowed and bool(constraint.allowed(state, 9)[0, token])
            state = constraint.advance(torch.tensor([token]), state)
        text, banned = "".join(map(str, tokens)), ["".join(map(str, phrase)) for phrase in phrases]
        assert allowed == (not any(phrase in text for phrase in banned))

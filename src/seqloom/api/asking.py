"""What options mean for one model: words become tokens, wishes become a strategy and constraints.

Worked out once for any number of batches, because a list of a million outputs is not read twice. Nothing here searches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from seqloom.api.options import Options
from seqloom.batch import Tokens
from seqloom.config import Settings, kind_of
from seqloom.data.codec import TextCodec
from seqloom.data.codecs import Codecs
from seqloom.errors import SeqloomError
from seqloom.models.contracts import Scorer
from seqloom.search.constraints import CONSTRAINTS, Constraint, Trie
from seqloom.search.limits import Limits
from seqloom.search.loop import Wishes
from seqloom.search.pattern import Spelling
from seqloom.specials import SPECIALS, UNK
from seqloom.tasks.transduce import SearchSettings

SHOWN = 3  # bad entries of a list that are named


@dataclass(frozen=True)
class Asking:
    """One way to search, ready for batches of any size."""

    strategy: Settings
    limits: Limits
    constraints: tuple[Constraint, ...] = ()
    prefix: tuple[str, ...] = ()  # pieces; those that the vocabulary lacks have to be copied
    phrases: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(options: Options, recipe: SearchSettings, codecs: Codecs) -> Asking:
        searching = options.searching(recipe)
        words = _Words(codecs.target)
        phrases = tuple(words.phrase(text, "must") for text in options.must)
        words.refuse_both(options, phrases)
        prefix = tuple(codecs.target.tokens(options.prefix)) if options.prefix else ()
        _refuse_prefix(prefix, searching.limits, codecs)
        return Asking(searching.strategy, searching.limits, tuple(words.constraints(options)), prefix, phrases)

    def wishes(self, prefixes: Sequence[Sequence[int]], advice: Scorer | None = None) -> Wishes:
        """For a batch of as many sources as there are prefixes (`Codecs.begun`): all else is the same for each."""
        return Wishes(
            self.limits,
            self.constraints,
            Tokens.pad(prefixes) if self.prefix else None,
            [self.phrases] * len(prefixes) if self.phrases else None,
            advice,
        )


def _refuse_prefix(prefix: Sequence[str], limits: Limits, codecs: Codecs) -> None:
    """E_USAGE for a beginning that no output can have."""
    odd = dict.fromkeys(piece for piece in prefix if piece not in codecs.target.vocabulary)
    if odd and not codecs.copies:
        named = ", ".join(repr(piece) for piece in list(odd)[:SHOWN]) + (", ..." if len(odd) > SHOWN else "")
        fix = "begin with what the model's vocabulary can spell"
        raise SeqloomError("E_USAGE", f"prefix: the model cannot say {named}", fix=fix)
    if limits.max_length is not None and len(prefix) > limits.max_length:
        what = f"prefix: it has {len(prefix):,} tokens, max_length is {limits.max_length:,}"
        raise SeqloomError("E_USAGE", what, fix="a larger max_length, or a shorter prefix")


class _Words:
    """Texts of options as tokens of one side."""

    def __init__(self, target: TextCodec) -> None:
        self.target = target

    def constraints(self, options: Options) -> Iterable[Constraint]:
        if options.banned:
            yield from self._banned(options.banned)
        if options.no_repeat is not None:
            yield CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "no_repeat", "ngram": options.no_repeat}))
        if options.one_of is not None:
            yield Trie.of(self._entries(options.one_of))
        if options.pattern is not None:
            chosen = CONSTRAINTS.settings({"kind": "pattern", "expression": options.pattern})
            yield CONSTRAINTS.build(chosen, spelling=spelling(self.target))

    def phrase(self, text: str, option: str) -> tuple[int, ...]:
        """The tokens of a phrase, all of them known."""
        tokens = tuple(self.target.encode(text))
        if not tokens or UNK in tokens:
            odd = [piece for piece in self.target.tokens(text) if piece not in self.target.vocabulary]
            what = f"{option}: {text!r} is empty" if not odd else f"{option}: {text!r}: the model cannot say {odd[0]!r}"
            raise SeqloomError("E_USAGE", what, fix="ask for what the model's vocabulary can spell")
        return tokens

    def refuse_both(self, options: Options, phrases: Iterable[tuple[int, ...]]) -> None:
        """E_USAGE where a phrase must occur and must not."""
        banned = [tokens for text in options.banned for tokens in self._unwanted(text)]
        for text, phrase in zip(options.must, phrases, strict=True):
            starts = range(len(phrase))
            if any(phrase[start : start + len(tokens)] == tokens for tokens in banned for start in starts):
                raise SeqloomError("E_USAGE", f"{text!r} must occur, and a part of it is banned", fix="choose one")

    def _banned(self, texts: Iterable[str]) -> Iterable[Constraint]:
        phrases = [tokens for text in texts for tokens in self._unwanted(text)]
        if single := [tokens[0] for tokens in phrases if len(tokens) == 1]:
            yield CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned", "tokens": single}))
        if longer := [tokens for tokens in phrases if len(tokens) > 1]:
            yield CONSTRAINTS.build(CONSTRAINTS.settings({"kind": "banned_phrases", "phrases": longer}))

    def _unwanted(self, text: str) -> list[tuple[int, ...]]:
        """Single tokens where a text is one, else the sequences of tokens that spell it, with any marks at its ends."""
        if found := self._alike.get(text):
            return [(token,) for token in found]
        tokens = tuple(self.target.encode(text))
        if len(tokens) < 2 or UNK in tokens:
            what = f"{text!r} is no token of this model, and no phrase of its tokens"
            raise SeqloomError("E_USAGE", what, where="--ban", fix="ban what the target vocabulary can spell")
        firsts, lasts = self._like(tokens[0]), self._like(tokens[-1])
        return [(first, *tokens[1:-1], last) for first in firsts for last in lasts]

    @cached_property
    def _alike(self) -> dict[str, list[int]]:
        """Tokens by how they read, with or without a mark of how they are attached."""
        found: dict[str, list[int]] = defaultdict(list)
        for token, piece in enumerate(self.target.vocabulary.ordinary, start=len(SPECIALS)):
            for text in {piece, self.target.tokenizer.surface(piece)}:
                found[text].append(token)
        return dict(found)

    def _like(self, token: int) -> list[int]:
        return self._alike[self.target.tokenizer.surface(self.target.vocabulary.piece(token))]

    def _entries(self, texts: Iterable[str]) -> list[list[int]]:
        """The tokens of every possible output; E_USAGE names those that the model cannot say."""
        entries = {text: self.target.encode(text) for text in texts if text}
        if odd := [text for text, tokens in entries.items() if UNK in tokens]:
            named = ", ".join(repr(text) for text in odd[:SHOWN]) + (", ..." if len(odd) > SHOWN else "")
            what = f"{len(odd):,} of {len(entries):,} possible outputs hold what the model cannot say: {named}"
            raise SeqloomError("E_USAGE", what, where="one_of", fix="take them out of the list")
        return list(entries.values())


def spelling(codec: TextCodec) -> Spelling:
    """What every token of a side adds to a text; E_USAGE where its tokenizer cannot tell."""
    tokenizer, pieces = codec.tokenizer, codec.vocabulary.ordinary
    edges = sorted({tokenizer.edge(piece) for piece in pieces})
    silent: list[bytes | None] = [None] * len(SPECIALS)
    added = [[*silent, *(tokenizer.added(piece, edge) for piece in pieces)] for edge in (None, *edges)]
    if all(text is None for text in added[0]):
        kind = kind_of(codec.settings.tokenizer)
        what = f"outputs of the tokenizer {kind!r} cannot be held to a pattern: its pieces have no text of their own"
        raise SeqloomError("E_USAGE", what, where="pattern", fix="give the possible outputs as a list (one_of)")
    after = [0] * len(SPECIALS) + [1 + edges.index(tokenizer.edge(piece)) for piece in pieces]
    return Spelling(added, after)

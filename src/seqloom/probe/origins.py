"""Attributions with their tokens: as shares, word by word, and as "which words of its text each word came from"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from seqloom.config import Plain
from seqloom.probe.attribution import Attributed, OfSource, OfTarget
from seqloom.probe.explain import DIGITS, AttentionMap


@dataclass(frozen=True)
class Side:
    """The tokens of one side, and the words that they are parts of: -1 for blanks, which are part of none.

    What is no word of the text (the end, tags, features) is a word of its own here, so that nothing is lost.
    """

    tokens: tuple[str, ...]
    words: tuple[str, ...]
    parts: tuple[int, ...]  # one for each token: which word
    spelled: int  # how many of the words are of the text itself

    @property
    def membership(self) -> Float64[np.ndarray, "w n"]:
        """1 where a token is a part of a word."""
        members: Float64[np.ndarray, "w n"] = np.arange(len(self.words))[:, None] == np.array(self.parts)[None]
        return members.astype(np.float64)

    def first(self, count: int) -> Side:
        """Only the first tokens, and the words that they begin."""
        kept = self.parts[:count]
        return Side(self.tokens[:count], self.words[: max(kept, default=-1) + 1], kept, self.spelled)


def whole_words(tokens: Sequence[str]) -> Side:
    """A side whose every token is a word."""
    return Side(tuple(tokens), tuple(tokens), tuple(range(len(tokens))), len(tokens))


@dataclass(frozen=True)
class Origin:
    """One output word, and what it came from."""

    word: str
    log_prob: float
    from_source: float | None  # its share of the source, the rest is of what had been said; None: not to be compared
    sources: tuple[tuple[int, str, float], ...]  # (place, word, share of all that is of the source), most first

    def as_dict(self) -> dict[str, Plain]:
        found: list[Plain] = [
            {"place": place, "word": word, "share": round(share, DIGITS)} for place, word, share in self.sources
        ]
        source = None if self.from_source is None else round(self.from_source, DIGITS)
        return {"word": self.word, "log_prob": round(self.log_prob, DIGITS), "from_source": source, "sources": found}

    def __str__(self) -> str:
        return f"{self.word} <- " + (", ".join(f"{word} {share:.0%}" for _, word, share in self.sources) or "nothing")


@dataclass(frozen=True)
class Attribution:
    """What each output token owes to each source token (its end included) and to each output token before it."""

    method: str
    read: Side  # S tokens
    said: Side  # T tokens
    log_probs: Float64[np.ndarray, "T"]  # log p(y_t | y_<t, x): what is attributed
    found: Attributed

    @property
    def source(self) -> tuple[str, ...]:
        return self.read.tokens

    @property
    def output(self) -> tuple[str, ...]:
        return self.said.tokens

    @property
    def of_source(self) -> OfSource:
        return self.found.of_source

    @property
    def of_target(self) -> OfTarget:
        return self.found.of_target

    @property
    def missed(self) -> float | None:
        """The largest difference between what attributions sum to and what they should; None: nothing is promised."""
        return None if self.found.missed is None else float(np.abs(self.found.missed).max(initial=0.0))

    def shares(self) -> tuple[OfSource, OfTarget]:
        """Magnitudes, those of a row summing to 1 over both sides (or to 0, where nothing mattered).

        Where the sides cannot be compared (attention to a memory, and to what was said), each sums to 1 by itself.
        """
        source, target = np.abs(self.of_source), np.abs(self.of_target)
        totals = source.sum(1, keepdims=True), target.sum(1, keepdims=True)
        if self.found.comparable:
            totals = (totals[0] + totals[1],) * 2
        return _divided(source, totals[0]), _divided(target, totals[1])

    def by_words(self) -> Attribution:
        """The same with pieces merged to words: a word owes what its pieces owe, to all pieces of another word.

        Parts of log p add up; weights are averaged over the pieces of the output's word. What a word owes to pieces of
        itself is left out.
        """
        members, read = self.said.membership, self.read.membership
        rows = members if self.found.unit == "log p" else members / np.maximum(members.sum(1, keepdims=True), 1)
        missed = None if self.found.missed is None else members @ self.found.missed
        merged = Attributed(
            rows @ self.of_source @ read.T,
            np.tril(rows @ self.of_target @ members.T, -1),
            self.found.unit,
            self.found.comparable,
            missed,
        )
        words = whole_words(self.read.words), whole_words(self.said.words)
        return Attribution(self.method, *words, members @ self.log_probs, merged)

    def origins(self, most: int = 3, least: float = 0.1, words: bool | None = None) -> tuple[Origin, ...]:
        """For each output word up to `most` source words that it came from, each with a share of `least` or more.

        Only what spoke for a word counts: shares are of the positive parts. The first is named however small it is.
        Unless `words` says otherwise, tokens stand for words where the source is one word (its letters, then).
        """
        by_words = self.read.spelled > 1 if words is None else words
        merged = self.by_words() if by_words else self
        positive = merged.of_source.clip(min=0.0)
        shares = _divided(positive, positive.sum(1, keepdims=True))
        source, _ = merged.shares()
        found = []
        for row, word in enumerate(merged.output):
            ranked = np.argsort(-shares[row], kind="stable")[:most]
            kept = [int(place) for rank, place in enumerate(ranked) if shares[row, place] >= (least if rank else 1e-9)]
            sources = tuple((place, merged.source[place], float(shares[row, place])) for place in kept)
            from_source = float(source[row].sum()) if self.found.comparable else None
            found.append(Origin(word, float(merged.log_probs[row]), from_source, sources))
        return tuple(found)

    def map(self) -> AttentionMap:
        """The source's shares, to be drawn as attention is."""
        shares = self.shares()[0].astype(np.float32)
        return AttentionMap(self.source, self.output, shares[None], np.exp(self.log_probs).astype(np.float32))

    def map_of_output(self) -> AttentionMap:
        """The shares of what had been said."""
        shares = self.shares()[1].astype(np.float32)
        return AttentionMap(self.output, self.output, shares[None], np.exp(self.log_probs).astype(np.float32))

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON."""
        return {
            "method": self.method,
            "unit": self.found.unit,
            "comparable": self.found.comparable,
            "source": list(self.source),
            "output": list(self.output),
            "log_probs": _plain(self.log_probs),
            "of_source": _plain(self.of_source),
            "of_target": _plain(self.of_target),
            "missed": None if self.missed is None else round(self.missed, DIGITS),
            "origins": [origin.as_dict() for origin in self.origins()],
        }


def _divided(values: OfSource, totals: Float64[np.ndarray, "T 1"]) -> OfSource:
    shares: OfSource = np.divide(values, totals, out=np.zeros_like(values), where=totals > 0)
    return shares


def _plain(values: np.ndarray) -> Plain:
    found: Plain = values.round(DIGITS).tolist()
    return found

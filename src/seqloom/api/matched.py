"""`seqloom explain RUN TEXT` of a dual encoder: which words of source and candidate carried the match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.api.asked import Asked
from seqloom.api.retriever import Retriever
from seqloom.config import Plain
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.probe.match import Carried, carried
from seqloom.specials import EOS


@dataclass(frozen=True)
class Word:
    """A word of one side: the similarity that is lost without it, and its share of attention pooling."""

    text: str
    lost: float
    pooled: float | None

    def as_dict(self) -> dict[str, Plain]:
        return {"word": self.text, "lost": self.lost, "pooled": self.pooled}


@dataclass(frozen=True)
class Match:
    """A source, a candidate, how near they are, and what each word has to do with it."""

    source: str
    candidate: str
    score: float
    rank: int | None  # among the index's candidates; None where the candidate was given
    source_words: tuple[Word, ...]
    candidate_words: tuple[Word, ...]

    def as_dict(self) -> dict[str, Plain]:
        return {
            "source": self.source,
            "candidate": self.candidate,
            "score": self.score,
            "rank": self.rank,
            "source_words": [word.as_dict() for word in self.source_words],
            "candidate_words": [word.as_dict() for word in self.candidate_words],
        }


def explain_match(retriever: Retriever, inputs: Inputs, candidate: str | None = None) -> Match:
    """The match of a source with a given candidate, or with the best one of the index."""
    text, _ = retriever.codecs.texts(inputs)
    retriever.refuse_long([inputs], Asked(split=False), "the text")
    encoded = retriever.codecs.encode(inputs)
    if not text.strip() or not encoded.own:
        raise SeqloomError("E_USAGE", "the text is empty", fix="give a text to rank candidates for")
    rank = None
    if candidate is None:
        candidate, rank = retriever(inputs).text, 1
    if not retriever.fits(candidate):
        most = retriever.recipe.data.limits.max_target
        what = "--target: nothing to read, or more tokens than the recipe's maximum"
        raise SeqloomError("E_USAGE", what, fix=f"1 to {most:,} tokens")
    network, target = retriever.network, retriever.codecs.target
    query, vector = retriever.queries([encoded])[0], retriever.candidates([candidate])[0]
    source = retriever.codecs.source.as_text()
    before = len(encoded.source) - encoded.own
    read = source.tokenizer.words(source.tokens(text), source.normalise(text))
    said = target.tokenizer.words(target.tokens(candidate), target.normalise(candidate))
    asked = carried(
        lambda tokens: network.queries({"source": tokens.to(retriever.device)}),
        [*encoded.source.tolist(), EOS],
        [*[-1] * before, *read, -1],
        vector,
    )
    found = carried(
        lambda tokens: network.candidates(tokens.to(retriever.device)), [*target.encode(candidate), EOS], [*said, -1],
        query,
    )  # fmt: skip
    sides = (_words(source.normalise(text), asked), _words(target.normalise(candidate), found))
    return Match(text, candidate, float(query @ vector), rank, *sides)


def _words(text: str, told: Carried) -> tuple[Word, ...]:
    words: Sequence[str] = text.split()
    pooled: Sequence[float | None] = told.pooled or [None] * len(told.lost)
    return tuple(Word(word, lost, share) for word, lost, share in zip(words, told.lost, pooled, strict=False))

"""A scorer that remembers everything it read, and what the laws of search are tested with: sources, all outputs.

The scorer's answer depends on the source and on a hash of the whole prefix, both kept in its `State`: a row that
follows the wrong parent, or a source that is confused with its neighbour, changes every number after it. Nothing here
asserts a law.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
import torch

from seqloom.batch import Source, Tokens
from seqloom.config import Settings
from seqloom.models.contracts import State
from seqloom.search.hypotheses import LENGTHS, Hypothesis
from seqloom.search.pattern import Spelling
from seqloom.specials import BOS, EOS, SPECIALS, UNK

PRIME = 1_000_003


class Oracle:
    """log p(w | prefix, source) from a hash of both; W = 6 specials and `words` words; `ending` favours EOS."""

    def __init__(self, words: int = 2, ending: float = 0.0, dtype: torch.dtype = torch.float64) -> None:
        self.width, self.ending, self.dtype = 6 + words, ending, dtype
        self.batches: list[int] = []

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        source = sources["source"]
        content = source.ids if isinstance(source, Tokens) else (source.values.sum(-1) * 100).long()
        places = torch.arange(1, content.shape[1] + 1)
        keys = ((content + 1) * places * source.mask).sum(1) % PRIME
        return State({"read": torch.zeros(len(keys) * hypotheses, dtype=torch.long)}, {"keys": keys})

    def step(self, last: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        self.batches.append(len(last))
        keys = state.sources["keys"]
        read = (state.rows["read"] * 7_919 + last + 13) % PRIME
        own = keys.repeat_interleave(len(last) // len(keys))
        mixed = (read * 31_337 + own * 271 + 11) % PRIME  # N
        values = (mixed[:, None] * (torch.arange(self.width) * 104_729 + 3)) % PRIME
        values = (values * values + 12_345 * mixed[:, None]) % PRIME
        logits = values.to(self.dtype) / PRIME * 4
        logits[:, EOS] += self.ending
        return logits.log_softmax(-1), state.with_rows(read=read)


def some_sources(count: int, longest: int = 7) -> dict[str, Source]:
    generator = torch.Generator().manual_seed(count)
    rows = [
        torch.randint(6, 60, (1 + i % longest,), generator=generator).tolist()  # every length, so every limit
        for i in range(count)
    ]
    return {"source": Tokens.pad(rows)}


def rows_of(sources: Mapping[str, Source], places: Sequence[int]) -> dict[str, Source]:
    return {name: source.rows(torch.tensor(places)) for name, source in sources.items()}


def forced(scorer: Oracle, source: Mapping[str, Source], tokens: Sequence[int]) -> list[float]:
    """The model's own log-probabilities of a given output, read token by token by one row."""
    state, terms = scorer.start(source, 1), []
    for last, token in itertools.pairwise([BOS, *tokens]):
        log_probs, state = scorer.step(torch.tensor([last]), state)
        terms.append(float(log_probs[0, token]))
    return terms


def outputs(words: Sequence[int], limit: int) -> Iterator[tuple[int, ...]]:
    for count in range(limit + 1):
        yield from itertools.product(words, repeat=count)


def exhaustive(
    scorer: Oracle,
    source: Mapping[str, Source],
    limit: int,
    normalisation: Settings,
    permitted: Callable[[tuple[int, ...]], bool] = lambda tokens: True,
) -> list[tuple[float, tuple[int, ...]]]:
    """Every output that ends within the limit, best first."""
    words = [UNK, *range(6, scorer.width)]
    score = LENGTHS.build(normalisation).score
    scored = []
    for tokens in filter(permitted, outputs(words, limit)):
        log_prob = torch.tensor(math.fsum(forced(scorer, source, [*tokens, EOS])), dtype=torch.float64)
        scored.append((float(score(log_prob, torch.tensor(len(tokens)))), tokens))
    return sorted(scored, reverse=True)


def same(one: Sequence[Hypothesis], other: Sequence[Hypothesis]) -> None:
    """The same outputs in the same order, and the same numbers."""
    assert [h.tokens for h in one] == [h.tokens for h in other]
    assert [h.truncated for h in one] == [h.truncated for h in other]
    for a, b in zip(one, other, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-10)
        assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=1e-10)


def letters(tokens: Sequence[int]) -> str:
    """Tokens as a text: the first ordinary one is "a"; an unknown one is no letter."""
    return "".join("?" if token == UNK else chr(ord("a") + token - len(SPECIALS)) for token in tokens)


def spelling(words: int = 20) -> Spelling:
    texts = [None] * len(SPECIALS) + [letters([len(SPECIALS) + i]).encode() for i in range(words)]
    return Spelling([texts], [0] * len(texts))

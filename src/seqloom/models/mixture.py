"""Scorers that advise another one: weighted log-probabilities, and language models that know no source.

    advice(w) = sum over i of weight_i log p_i(w)        shallow fusion: the model's own log p(w) + advice(w)

Search adds advice when it compares hypotheses and never to their `log_prob`. (An average of probabilities is an
`Ensemble`.) Nothing here trains, and nothing here knows which model is advised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from seqloom.batch import Source
from seqloom.models.contracts import Decoder, Head, Scorer, State
from seqloom.shapes import Rows, StepLogProbs
from seqloom.specials import UNK


class Mixture:
    """The weighted sum of several scorers' log-probabilities over one vocabulary of V tokens.

    It need not sum to 1, and is no probability. What is behind V (a word that the advised model copied) is read as
    unknown. Weights are positive: advice then only ever lowers a sum, which the stop rule `bound` rests on.
    """

    def __init__(self, scorers: Sequence[Scorer], weights: Sequence[float], vocabulary: int) -> None:
        assert len(scorers) == len(weights) > 0, "one weight for each scorer"
        assert all(weight > 0 for weight in weights), "weights are positive"
        self.scorers, self.weights, self.vocabulary = tuple(scorers), tuple(weights), vocabulary

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        return State.joined([scorer.start(sources, hypotheses) for scorer in self.scorers])

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        last = last.masked_fill(last >= self.vocabulary, UNK)
        told = [scorer.step(last, state.part(index)) for index, scorer in enumerate(self.scorers)]
        first, *others = (log_probs * weight for (log_probs, _), weight in zip(told, self.weights, strict=True))
        return sum(others, start=first), State.joined([after for _, after in told])


class Sourceless(nn.Module):
    """A language model as a scorer: a decoder without an encoder; sources only say how many rows there are."""

    def __init__(self, decoder: Decoder, head: Head) -> None:
        super().__init__()
        self.decoder, self.head = decoder, head

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        count = next(iter(sources.values())).mask.shape[0]
        return self.decoder.start(None, count * hypotheses)

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        features, state = self.decoder(last[:, None], state)
        return self.head.log_probs(features, state)[:, 0], state

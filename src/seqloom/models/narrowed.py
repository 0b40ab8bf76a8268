"""A model that weighs only some tokens of its vocabulary: those on the shortlists of the sources.

The output layer is the largest product of a small model, and most of the vocabulary has nothing to do with a source.
Here it has a row for every token on the shortlist of any source of the batch. Each source chooses from its own list
all the same, so that its output does not depend on its batch (law 4). Probabilities are among the tokens of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.nn import functional as F

from seqloom.batch import Source, Tokens
from seqloom.models.contracts import State
from seqloom.models.generator import Generator
from seqloom.models.heads import Copy, Linear
from seqloom.nn.layers import exact, spread
from seqloom.shapes import Bool, Int, Rows, StepLogProbs, Tensor

Shortlists = Callable[[Int[Tensor, "B S"]], Bool[Tensor, "B V"]]
LISTED = "narrowed.listed"  # B U: which of the batch's tokens are on a source's own list
NEVER = float("-inf")


def can_be_narrowed(network: Generator) -> bool:
    """Is there an output matrix, and nothing said but by it?"""
    return isinstance(network.head, Linear) and not isinstance(network.head, Copy)


class Narrowed:
    """A scorer over the whole vocabulary, -inf for what is not on a list. For one search: `start` fixes the tokens.

    What a search forces is on the lists whatever the sources say: `prefixes`, one for each, and `wanted` for all.
    """

    def __init__(
        self, network: Generator, shortlists: Shortlists, prefixes: Tokens | None = None, wanted: Sequence[int] = ()
    ) -> None:
        assert isinstance(network.head, Linear), "without an output matrix there is nothing to narrow"
        self.network, self.head, self.shortlists = network, network.head, shortlists
        self.prefixes, self.wanted = prefixes, list(wanted)

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        source = sources["source"]
        assert isinstance(source, Tokens), "shortlists are of tokens"
        allowed = self.shortlists(source.ids)  # B V
        allowed[:, self.wanted] = True
        if self.prefixes is not None:
            allowed.scatter_(1, self.prefixes.ids.to(allowed.device), True)
        self.tokens = allowed.any(0).nonzero()[:, 0]  # U
        self.weight = self.head.weight[self.tokens]
        self.bias = None if self.head.bias is None else self.head.bias[self.tokens]
        state = self.network.start(sources, hypotheses)
        return State(state.rows, {**state.sources, LISTED: allowed[:, self.tokens]})

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        listed = state.sources[LISTED]
        features, after = self.network.read(last[:, None], state)
        logits = exact(F.linear(self.head.hidden(features[:, 0]), self.weight, self.bias))  # N U
        own = torch.log_softmax(logits.masked_fill(~spread(listed, len(last)), NEVER), dim=-1)
        whole = own.new_full((len(last), len(self.head.weight)), NEVER)
        after.sources[LISTED] = listed
        return whole.index_copy_(1, self.tokens, own), after

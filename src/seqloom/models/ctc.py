"""What CTC thinks of an output in the making: a scorer that advises a search (Watanabe et al. 2017).

With r^n_t(g) and r^b_t(g) the probability that the first t positions say g, ending in its last token or in a blank,

    psi(g c) = sum_t phi_{t-1}(g, c) p_t(c),    phi_t(g, c) = r^b_t(g) + r^n_t(g) [c is not the last token of g]
    log p(c given g) = log psi(g c) - log psi(g),    log p(end given g) = log (r^n_S(g) + r^b_S(g)) - log psi(g)

psi(g) is the probability that an output begins with g, summed over all ways to say it: what the steps of a hypothesis
add up to is exactly its probability by CTC. Nothing here searches.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from seqloom.batch import Source
from seqloom.models.contracts import State
from seqloom.models.model import EncoderDecoder
from seqloom.nn.ctc import BLANK
from seqloom.nn.layers import spread
from seqloom.shapes import Float, Rows, StepLogProbs, Tensor
from seqloom.specials import BOS, EOS

LOWEST = -1e3  # no token is worse: what a source is too short to say is all but forbidden, and sums stay finite
_NONE = -1e30  # the logarithm of nothing


class CtcPrefix:
    """A model's CTC as a scorer: log p(next token given those before), of outputs that its encoder alone would say."""

    def __init__(self, network: EncoderDecoder) -> None:
        assert network.ctc is not None, "a model without CTC has nothing to say"
        self.network, self.ctc = network, network.ctc

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        memory = self.network.encoder(sources["source"])
        log_probs = self.ctc(memory.states, memory.mask)  # B S V
        return begun(log_probs, hypotheses)

    def step(self, last: Rows, state: State) -> tuple[StepLogProbs, State]:
        return continued(last, state)


def begun(log_probs: Float[Tensor, "B S V"], hypotheses: int) -> State:
    """The state before the first token: nothing is said, by blanks alone."""
    blank = F.pad(log_probs[..., BLANK].cumsum(1), (1, 0))  # B S+1, at 0 before the first position
    rows = spread(blank, blank.shape[0] * hypotheses)
    return State(
        {
            "blank": rows,
            "token": torch.full_like(rows, _NONE),
            "begins": torch.zeros_like(rows[:, 0]),  # log psi: every output begins with nothing
            "next": rows.new_zeros(rows.shape[0], log_probs.shape[2]),  # log psi with each token behind
            "last": torch.full_like(rows[:, 0], BOS, dtype=torch.long),
        },
        {"log_probs": log_probs},
    )


def continued(last: Rows, state: State) -> tuple[StepLogProbs, State]:
    """log p of every next token after `last`, BOS first; consumes the state."""
    state = _said(last, state)
    blank, token = state.rows["blank"], state.rows["token"]  # N S+1
    log_probs = state.sources["log_probs"]  # B S V
    sources, rows = log_probs.shape[0], blank.shape[0]
    both = torch.logaddexp(blank, token)
    grouped = both[:, :-1].view(sources, rows // sources, -1)  # B K S
    begins = torch.logsumexp(grouped[..., None] + log_probs[:, None], dim=2).flatten(0, 1)  # N V
    again = blank[:, :-1] + _of(state.rows["last"], log_probs, rows)  # N S: said once more, after a blank
    begins = begins.scatter(1, state.rows["last"][:, None], torch.logsumexp(again, 1, keepdim=True))
    begins[:, BLANK] = _NONE
    begins[:, EOS] = both[:, -1]
    told = begins - state.rows["begins"][:, None]
    return told.clamp(LOWEST, 0.0), state.with_rows(next=begins)


def _said(last: Rows, state: State) -> State:
    """The state after a token: r^n and r^b, position by position."""
    log_probs, before = state.sources["log_probs"], state.rows
    rows = last.shape[0]
    own = _of(last, log_probs, rows)  # N S
    blanks = spread(log_probs[..., BLANK], rows)
    repeats = (last == before["last"])[:, None]
    coming = torch.where(repeats, before["blank"], torch.logaddexp(before["blank"], before["token"]))[:, :-1] + own
    token, blank = [torch.full_like(own[:, 0], _NONE)], [torch.full_like(own[:, 0], _NONE)]
    for place in range(own.shape[1]):
        blank.append(torch.logaddexp(blank[-1], token[-1]) + blanks[:, place])
        token.append(torch.logaddexp(token[-1] + own[:, place], coming[:, place]))
    begins = before["next"].gather(1, last[:, None])[:, 0].clamp(min=_NONE)
    made = {"token": torch.stack(token, 1), "blank": torch.stack(blank, 1), "begins": begins, "last": last}
    first = last == BOS  # nothing is said yet
    kept = {name: torch.where(first.view(-1, *[1] * (new.ndim - 1)), before[name], new) for name, new in made.items()}
    return State({**before, **kept}, state.sources)


def _of(tokens: Rows, log_probs: Float[Tensor, "B S V"], rows: int) -> Float[Tensor, "N S"]:
    """log p_t of each row's token at every position."""
    sources, positions, _ = log_probs.shape
    index = tokens.view(sources, 1, -1).expand(-1, positions, -1)  # B S K
    return log_probs.gather(2, index).transpose(1, 2).reshape(rows, positions)

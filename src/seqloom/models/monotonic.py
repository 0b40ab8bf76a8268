"""Hard monotonic attention: one source position says each output token, and positions never go back.

First order, after Wu and Cotterell (2019). Which position it was is never told: all alignments are summed exactly, by
the forward algorithm, normalised at every step and in log space. With s_1 ... s_S the memory, s_0 = 0, r = 1 where the
position has said the token before as well and 0 where it was just come to, and a_0 = (0, 0), a place before the first
position that is left and never come to,

    history      h_t, a recurrence over y_<t alone;  z_tir = tanh(W_s s_i + W_h h_t + r e + b)
    to stay      p(a_t = (j, 1) | a_{t-1} = (j, r)) = stay_tjr = sigmoid(v z_tjr + c);  stay_t0r = 0, stay_tSr = 1
    to go on     p(a_t = (i, 0) | a_{t-1} = (j, r)) = (1 - stay_tjr) stop_ti prod_{j < k < i} (1 - stop_tk) for i > j,
                 stop_tk = sigmoid(w z_tk0 + d);  stop_tS = 1
    emission     p(y | a_t = a) = softmax(O z_ta)
    prior        p(a_t = a | y_<t) = sum_b p(a_{t-1} = b | y_<t) p(a_t = a | a_{t-1} = b)
    said         p(y_t | y_<t) = sum_a p(a_t = a | y_<t) p(y_t | a_t = a)
    posterior    p(a_t = a | y_<=t) ~ p(a_t = a | y_<t) p(y_t | a_t = a)

So a position that says nothing is passed for what it is, like a silent letter, and one that says two sounds knows which
is next. At first c and d favour to go on by one, the diagonal: from an even start, models were seen to learn sounds one
letter late. With C_ti the logs of (1 - stop_tk) summed up to i, all moves of a step are one cumulative sum, so that
transitions are linear in S. Only the sum over alignments is a loop over T. The decoder speaks for itself: its features
are log p(y_t | y_<t), its head is `none`. Every token is weighed at every position: this is for small vocabularies
(characters, phonemes), and large ones are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from seqloom import config
from seqloom.config import Kind
from seqloom.errors import SeqloomError
from seqloom.models.bridge import FirstState
from seqloom.models.contracts import Decoder, DecoderSettings, Encoder, Memory, State
from seqloom.models.rnn import RecurrentDecoder
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.entrance import Dropout
from seqloom.nn.frontends import Embedding
from seqloom.nn.layers import cells, exact, spread
from seqloom.nn.recurrent import CELLS, LSTM
from seqloom.nn.tape import listening, tap
from seqloom.shapes import Features, Float, Rows, RowTokens, Tensor

NEVER = -1e30  # log of what cannot be; finite, because -inf minus -inf has no gradient
MOST_TOKENS = 4096  # of the target vocabulary
EMISSION_CELLS = 1 << 25  # emissions beyond this many cells (N T 2 P V) never exist whole
GO_ON = 2.0  # the first scores of leaving a position, and of stopping at the next
TAP = "decoder.attention"

Places = Float[Tensor, "N T P"]
Visits = Float[Tensor, "N T 2 P"]  # of each place just come to, and of each stayed at
Alignment = tuple[Float[Tensor, "N 2 P"], Float[Tensor, "N 2 P V"]]  # log prior and log emissions of a row's last step


class Monotonic(Decoder):
    """Exact hard monotonic attention (Wu and Cotterell 2019). Tap: `decoder.attention` = p(a_t | y_<t) (N 1 T S)."""

    class Settings(DecoderSettings):
        kind: Literal["monotonic"] = "monotonic"
        cell: Annotated[config.Settings, Kind(CELLS)] = LSTM.Settings()
        width: int = Field(256, ge=1)
        layers: int = Field(1, ge=1, le=1000)
        dropout: Dropout = 0.0
        start: FirstState = "zero"  # of the history; others let it know the source, which only positions speak for
        hidden: int | None = Field(None, ge=1)  # width of z; that of the decoder by default

        @property
        def attends(self) -> bool:
            return True

        @property
        def speaks(self) -> bool:
            return True

        def fitted(self, encoder: bool) -> DecoderSettings:
            if not encoder:
                raise ValueError("kind: monotonic has no positions to align to without an encoder; use rnn")
            return self

    def __init__(self, settings: Settings, *, embedding: Embedding, encoder: Encoder) -> None:
        super().__init__()
        self.width = _small(embedding.vocabulary)
        self.attention_taps = (TAP,)
        shape = {"width": settings.width, "layers": settings.layers, "dropout": settings.dropout}
        history = RecurrentDecoder.Settings.model_validate({**shape, "cell": settings.cell, "start": settings.start})
        self.history = RecurrentDecoder(history, embedding=embedding, encoder=encoder)
        hidden = settings.hidden or settings.width
        self.place = nn.Linear(encoder.width, hidden)
        self.query = nn.Linear(settings.width, hidden, bias=False)
        self.again = nn.Parameter(torch.zeros(hidden))  # e
        self.output = nn.Linear(hidden, self.width)
        self.moves = nn.Linear(hidden, 2)  # to stay; to stop there, coming from before
        with torch.no_grad():
            self.moves.bias.copy_(torch.tensor([-GO_ON, GO_ON]))
        self.dropout = CheapDropout(settings.dropout)

    # --- state: rows of the history, "prior" and "emissions"; sources "places", "mask", "order"; P = 1 + S ------------

    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        assert memories is not None, "this decoder aligns to a memory"
        memory = next(iter(memories.values()))
        history = self.history.start(memories, rows)
        order = torch.argsort(~memory.mask, dim=1, stable=True)  # of a memory of several sources, the gaps go last
        states = memory.states.gather(1, order[..., None].expand_as(memory.states))
        states = F.pad(states, (0, 0, 1, 0))  # B P D: s_0 = 0 comes first
        sources = {"places": self.place(states), "mask": memory.mask.gather(1, order), "order": order}
        prior = exact(states).new_full((rows, 2, states.shape[1]), NEVER)
        prior[:, 0, 0] = 0.0  # a_0
        emissions = prior.new_zeros(*prior.shape, self.width)  # BOS, which is read first, says nothing about a_0
        return State({**history.rows, "prior": prior, "emissions": emissions}, {**history.sources, **sources})

    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        h, after = self.history(tokens, state, lengths)  # N T D
        last = (state.rows["prior"], state.rows["emissions"])
        steps = max(1, cells(EMISSION_CELLS, h) // max(1, last[1].numel()))
        spoken = []
        for begin in range(0, tokens.shape[1], steps):
            part = slice(begin, begin + steps)
            left = None if lengths is None else lengths - begin
            given = (h[:, part], tokens[:, part], last, left, state)
            if steps >= tokens.shape[1] or listening(TAP):  # what passes a tap must not be computed again without it
                log_probs, last = self._said(*given)
            else:
                log_probs, last = checkpoint(self._said, *given, use_reentrant=False)
            spoken.append(log_probs)
        return torch.cat(spoken, dim=1), after.with_rows(prior=last[0], emissions=last[1])

    def _said(
        self, h: Features, tokens: RowTokens, last: Alignment, left: Rows | None, state: State
    ) -> tuple[Float[Tensor, "N T V"], Alignment]:
        """log p(y_t | y_<t) at every step, and the alignment after each row's last one (`left`, default all)."""
        z = self._hidden(h, state)  # N T 2 P A
        emissions = torch.log_softmax(exact(self.output(z)), dim=-1)  # N T 2 P V
        index = tokens[:, :, None, None, None].expand(*emissions.shape[:-1], 1)  # N T 2 P 1
        before = last[1].gather(3, index[:, 0])[:, None]
        said = torch.cat([before, emissions[:, :-1].gather(4, index[:, 1:])], dim=1).squeeze(4)  # N T 2 P: by a_{t-1}
        priors = self._priors(last[0], said, self._moves(z, state), state)  # N T 2 P
        log_probs = torch.logsumexp(priors[..., None] + emissions, dim=(2, 3))  # N T V
        if left is None:
            return log_probs, (priors[:, -1], emissions[:, -1])
        rows, step = torch.arange(len(left), device=left.device), left.clamp(1, tokens.shape[1]) - 1
        read = (left > 0)[:, None, None]
        prior = torch.where(read, priors[rows, step], last[0])
        return log_probs, (prior, torch.where(read[..., None], emissions[rows, step], last[1]))

    def _hidden(self, h: Features, state: State) -> Float[Tensor, "N T 2 P A"]:
        places = spread(state.sources["places"], len(h))[:, None]  # N 1 P A
        first = self.query(h)[:, :, None] + places  # N T P A
        again = first + self.again.to(first.dtype)  # by far the largest tensors here: as exact as the products are
        hidden: Tensor = self.dropout(torch.tanh(torch.stack([first, again], dim=2)))
        return hidden

    def _moves(self, z: Float[Tensor, "N T 2 P A"], state: State) -> Moves:
        """Everything about the transitions that does not depend on what was said."""
        inside = F.pad(spread(state.sources["mask"], len(z)), (1, 0), value=False)[:, None, None]  # N 1 1 P: not s_0
        more = F.pad(inside[..., 1:], (0, 1), value=False)  # is there another one behind?
        stay, stop = exact(self.moves(z)).unbind(-1)  # N T 2 P each
        stop = stop[:, :, :1]  # N T 1 P: who is asked was not there before
        stays = F.logsigmoid(stay).masked_fill(~more, 0.0).masked_fill(~inside, NEVER)
        leaves = F.logsigmoid(-stay).masked_fill(~inside, 0.0).masked_fill(~more, NEVER)
        stops = F.logsigmoid(stop).masked_fill(~more, 0.0).masked_fill(~inside, NEVER)
        passed = F.logsigmoid(-stop).masked_fill(~inside, 0.0).cumsum(-1)  # C
        return Moves(stays, leaves - passed, (stops + _shifted(passed)).squeeze(2))

    def _priors(self, prior: Float[Tensor, "N 2 P"], said: Visits, moves: Moves, state: State) -> Visits:
        """log p(a_t | y_<t) at every step, from the one before and what each position had to do with the token said."""
        priors = []
        for t in range(said.shape[1]):
            posterior = prior + said[:, t]
            posterior = posterior - torch.logsumexp(posterior, dim=(1, 2), keepdim=True)
            prior = _watched(moves.step(posterior, t), state)
            priors.append(prior)
        return torch.stack(priors, dim=1)


@dataclass(frozen=True)
class Moves:
    """The transitions of all steps, as logs: `stays` from j to itself, from j to a later i `leaves_j` + `stops_i`."""

    stays: Visits
    leaves: Visits  # - C_j
    stops: Places  # + C_{i-1}

    def step(self, posterior: Float[Tensor, "N 2 P"], t: int) -> Float[Tensor, "N 2 P"]:
        """log p(a_t), after p(a_{t-1})."""
        stayed = torch.logsumexp(posterior + self.stays[:, t], dim=1)  # N P
        left = torch.logsumexp((posterior + self.leaves[:, t]).clamp(min=NEVER), dim=1)
        come = _shifted(torch.logcumsumexp(left, dim=-1)) + self.stops[:, t]  # from any before
        return torch.stack([come, stayed], dim=1).clamp(min=NEVER)


def _shifted(values: Float[Tensor, "*r P"]) -> Float[Tensor, "*r P"]:
    """Moved one place to the right; what comes in from outside is never."""
    return F.pad(values[..., :-1], (1, 0), value=NEVER)


def _watched(prior: Float[Tensor, "N 2 P"], state: State) -> Float[Tensor, "N 2 P"]:
    """Let the weights pass the tap; what is put in their place goes on, as just come to; what is looked at stays."""
    if not listening(TAP):
        return prior
    order = spread(state.sources["order"], len(prior))
    inside = prior[..., 1:].exp().sum(1)  # N S
    weights = torch.zeros_like(inside).scatter(1, order, inside)[:, None, None]  # N 1 1 S, as the memory stands
    seen = tap(TAP, weights)
    if seen is weights or torch.equal(seen, weights):
        return prior
    put = F.pad(seen[:, 0, 0].gather(1, order).clamp(min=torch.finfo(seen.dtype).tiny).log(), (1, 0), value=NEVER)
    return torch.stack([put, torch.full_like(put, NEVER)], dim=1)


def _small(vocabulary: int) -> int:
    if vocabulary > MOST_TOKENS:
        raise SeqloomError(
            "E_RECIPE",
            f"a monotonic decoder weighs every token at every source position: {vocabulary:,} tokens are over its "
            f"limit of {MOST_TOKENS:,}",
            where="model.decoder",
            fix="use characters, phonemes or a smaller subword vocabulary for the target, or another decoder",
        )
    return vocabulary

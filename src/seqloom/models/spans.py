"""A decoder that answers with words of its source: a span from a start to an end (a sequence and a query to a span).

With m_1 ... m_n the source's states (compared with those of the query, word by word, and read again, so that each word
knows what was found beside it: Seo et al. 2017) and q what asks (a further source's summary, or a learned vector),

    p(start = i | x)           = softmax_i(score(q, m_i))
    p(end = j | start = i, x)  = softmax_j(score'(W [q; m_i], m_j)), j = i ... i + longest - 1

the boundary model of Wang and Jiang 2017 on pointers of Vinyals et al. 2015. A span is said as it reads, word by word:
the token at position c is followed by that at c + 1 or by the end,

    p(y_1 = i) = p(start = i),    p(EOS after c) = p(end = c | start, end >= c)

whose product is p(start) p(end | start) exactly. So training, search, n-best lists, confidences and explanations are
those of every other decoder. Positions are the ids V + i, as what is copied has them; features are log-probabilities
(N T V+S), the head is `none`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.config import Kind
from seqloom.models.comparing import BETWEEN, Between
from seqloom.models.contracts import Decoder, Encoder, Memory, State
from seqloom.models.labels import SayingSettings
from seqloom.nn.attention import AttentionSettings
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.frontends import Embedding
from seqloom.nn.layers import exact, spread
from seqloom.nn.recurrent import LSTM, Bidirectional
from seqloom.nn.scores import SCORES, Additive, ScaledDot
from seqloom.nn.tape import listening, tap
from seqloom.shapes import Bool, Features, Float, Int, Rows, RowTokens, Tensor
from seqloom.specials import EOS

TAP = "decoder.attention"
NEVER = -1e30  # the score of what cannot be: finite, so that nothing is subtracted from infinity


class Span(Decoder):
    """Words of the source in a row. Tap: `decoder.attention` = where it looks for the start, then the end (N 1 T S).

    The weights of the start are over all of the source's words, those of an end over the words from here on; other
    sources' positions have none.
    """

    class Settings(SayingSettings):
        of_source = "a span is of a source"

        kind: Literal["span"] = "span"
        query: str | None = None  # a further source that asks; null: what is always asked is learned
        compare: Literal["none", "attention"] = "attention"  # the source's words with the query's, before it points
        read_again: bool = True  # what was compared, by an LSTM in both directions
        score: Annotated[config.Settings, Kind(SCORES)] = Additive.Settings()
        between: AttentionSettings = AttentionSettings(score=ScaledDot.Settings())  # where `compare` is attention
        longest: int = Field(32, ge=1)  # tokens of a span

        @property
        def attends(self) -> bool:
            return True

        @property
        def points(self) -> int:
            return self.longest

        @property
        def apart(self) -> bool:
            return self.query is not None

        @property
        def asked_by(self) -> str | None:
            return self.query

    def __init__(
        self, settings: Settings, *, embedding: Embedding, encoder: Encoder, sources: Sequence[str] = ("source",)
    ) -> None:
        super().__init__()
        self.width, self.longest, self.query = embedding.vocabulary, settings.longest, settings.query
        size, asks = encoder.width, encoder.summary_sizes[-1][0]
        self.again: Bidirectional | None = None
        self.between: Between | None = None
        if self.query is not None and settings.compare == "attention":
            self.between = Between(settings.between, width=size, dropout=settings.dropout)
            self.between_taps = (BETWEEN,)
            if settings.read_again:
                inner, size = size, size + size % 2  # each direction has half
                self.again = Bidirectional(LSTM.Settings(), inputs=inner, width=size, both=True, learned_start=False)
        self.asks: nn.Parameter | None = None
        if self.query is None:
            self.asks = nn.Parameter(torch.empty(asks))
            nn.init.normal_(self.asks, std=asks**-0.5)
        self.dropout = CheapDropout(settings.dropout)
        self.start_query, self.end_query = nn.Linear(asks, size), nn.Linear(asks + size, size)
        self.start_score = SCORES.build(settings.score, query=size, key=size)
        self.end_score = SCORES.build(settings.score, query=size, key=size)
        self.attention_taps = (TAP,)

    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        assert memories is not None, "a span is of a source"
        each = [*memories.values()] if self.between is None else self.between([*memories.values()])
        memory = each[0]
        states = memory.states
        if self.again is not None:
            states, _ = self.again(self.dropout(states), memory.mask.sum(1))
        states = self.dropout(states)  # B S D
        places = torch.arange(memory.mask.shape[1], device=states.device)
        words = memory.mask & (places < memory.mask.sum(1, keepdim=True) - 1)  # the last state is that of the end
        if self.query is None:
            assert self.asks is not None
            asked = self.asks.expand(len(states), -1)
        else:
            asked = memories[self.query].summary[-1][0]
        scores = self.start_score(self.start_query(asked)[:, None], self.start_score.keys(states))[:, 0]  # B S
        sources = {
            "starts": torch.log_softmax(exact(scores).masked_fill(~words, NEVER), dim=-1),
            "states": states,
            "keys": self.end_score.keys(states),
            "asked": asked,
            "words": words,
            "behind": torch.cat(
                [other.mask for other in each[1:]] or [words[:, :0]], dim=1
            ),  # other sources' positions
        }
        nothing = torch.zeros(rows, dtype=torch.long, device=states.device)
        return State({"said": nothing, "begun": nothing}, sources)

    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        (rows, steps), sources, said = tokens.shape, state.sources, state.rows["said"]
        words = spread(sources["words"], rows)  # N S
        places = (tokens - self.width).clamp(0, words.shape[1] - 1)  # N T: where each token that is read stands
        first = (1 - said).clamp(0, steps - 1)[:, None]  # the token after BOS is the start
        begun = torch.where(said > 1, state.rows["begun"], places.gather(1, first)[:, 0])  # N
        order = said[:, None] + torch.arange(steps, device=tokens.device)  # N T: 0 where the start is still to be said
        may, looks = self._looks(begun, places, order, words, sources)  # N T S
        features = self._said(looks, may, places, order)
        read = said + (steps if lengths is None else lengths)
        return features, state.with_rows(said=read, begun=torch.where(read > 1, begun, state.rows["begun"]))

    def _looks(
        self,
        begun: Int[Tensor, "N"],
        places: Int[Tensor, "N T"],
        order: Int[Tensor, "N T"],
        words: Bool[Tensor, "N S"],
        sources: Mapping[str, Tensor],
    ) -> tuple[Bool[Tensor, "N T S"], Float[Tensor, "N T S"]]:
        """Where the start may be, or from here on the end; and the log-probabilities of these positions."""
        rows, size = words.shape
        states = spread(sources["states"], rows)
        here = states.gather(1, begun[:, None, None].expand(-1, 1, states.shape[2]))  # N 1 D
        query = self.end_query(torch.cat([spread(sources["asked"], rows)[:, None], here], dim=-1))
        scores = exact(self.end_score(query, sources["keys"]))  # N 1 S
        every = torch.arange(size, device=words.device)
        within = words & (every >= begun[:, None]) & (every < begun[:, None] + self.longest)  # N S
        left = within[:, None] & (every >= places[..., None])  # N T S: an end before what was said is none
        starts = (order == 0)[..., None]
        may = torch.where(starts, words[:, None], left)
        logs = torch.where(
            starts, spread(sources["starts"], rows)[:, None], torch.log_softmax(scores.masked_fill(~left, NEVER), -1)
        )
        if not listening(TAP):
            return may, logs
        weights = F.pad(logs.exp().masked_fill(~may, 0.0), (0, sources["behind"].shape[1]))[:, None]  # N 1 T S
        seen = tap(TAP, weights)
        if torch.equal(seen, weights):
            return may, logs
        return may, seen[:, 0, :, :size].clamp(min=torch.finfo(seen.dtype).tiny).log()  # it was made to look elsewhere

    def _said(
        self,
        looks: Float[Tensor, "N T S"],
        may: Bool[Tensor, "N T S"],
        places: Int[Tensor, "N T"],
        order: Int[Tensor, "N T"],
    ) -> Features:
        """Log-probabilities over V ids, of which only the end can be said, and S positions."""
        rows, steps, size = looks.shape
        here = places[..., None]  # N T 1
        every = torch.arange(size, device=looks.device)
        later = may & (every > here)
        goes_on = torch.logsumexp(looks.masked_fill(~later, NEVER), dim=-1)  # N T: the end is behind this token
        ends = looks.gather(2, here)[..., 0]
        begins = order == 0
        none_left = ~may.any(-1)  # only after what is no span: then nothing but the end can follow
        ends = torch.where(none_left, 0.0, ends).masked_fill(begins, -torch.inf)
        follows = (every == here + 1) & later.any(-1, keepdim=True)
        positions = torch.where(follows, goes_on[..., None], -torch.inf)
        positions = torch.where(begins[..., None], looks.masked_fill(~may, -torch.inf), positions)
        ids = looks.new_full((rows, steps, self.width), -torch.inf)
        ids[..., EOS] = ends
        return torch.cat([ids, positions], dim=-1)

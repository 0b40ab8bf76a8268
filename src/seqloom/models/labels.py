"""Decoders that say what a source is: one label for all of it, several or none, or a number (acceptors, n -> 1), or a
label for each of its words (a transducer, n -> n).

They are decoders like all others, so that training, search, n-best lists, ensembles, confidences, evaluation and
explanations are theirs as well. With s_1 ... s_n the memory and C labels,

    label    p(y_1 | x) = softmax(W f(s)), f the last state, the mean, the maximum, or attention with a learned query
             (Yang et al. 2016); then comes the end, for certain. Of several sources f is of all their states together,
             of each by itself and compared (`comparing.py`), or one of them asks the others:
             [c; q], c = sum_t a_t s_t, a = softmax_t(score(q, s_t)), q its summary (Hermann et al. 2015)
    labels   every label by itself, p_c = sigmoid(w_c f(s)); those that are there are said in the order of their ids:
             p(next is c | the last was b) = p_c prod_{b<k<c} (1 - p_k),  p(the end | b) = prod_{k>b} (1 - p_k)
    number   one of C levels of an even grid, p(k | x) ~ exp(-(k - m)^2 / 2 d^2), m = sigmoid(w f(s)) of the way along
             the middle, d learned: least squares. What is likeliest is the level nearest to m. The outer levels are a
             margin, so that nearly all of the bell lies on the grid (ADR 0016)
    tags     p(y_t | x) = softmax(W s_t), word by word; after the last word comes the end, for certain

Tags may know their neighbours: a linear-chain conditional random field (Lafferty et al. 2001), read from left to right.
With e_t = W s_t, T the scores of neighbours and b_t[c] the log of all that may follow c (`nn/crf.py`),

    p(y | x) = exp(sum_t e_t[y_t] + T[y_{t-1}, y_t]) / Z(x) = prod_t p(y_t | y_{t-1}, x)
    p(y_t | y_{t-1}, x) ~ exp(T[y_{t-1}, y_t] + e_t[y_t] + b_t[y_t])

so that the loss is the field's own, and a beam finds what Viterbi finds as soon as it is wide enough. Features are
log-probabilities, the head is `none`. Neither decoder reads what was said but for the neighbour of a tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from seqloom.figures import MARGIN
from seqloom.models.bag import Dropout
from seqloom.models.comparing import BETWEEN, Between, pair_features, pair_width, parts_of
from seqloom.models.contracts import Decoder, DecoderSettings, Encoder, Memory, State
from seqloom.models.pooling import How, learned_query, pooled, pooled_width
from seqloom.nn.attention import Attention, AttentionSettings
from seqloom.nn.crf import Crf
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.frontends import Embedding
from seqloom.nn.layers import exact, spread
from seqloom.nn.scores import ScaledDot
from seqloom.nn.tape import tap
from seqloom.shapes import Bool, Features, Float, Int, LogProbs, Rows, RowTokens, Tensor
from seqloom.specials import EOS, SPECIALS

TAP = "decoder.attention"
FIRST = len(SPECIALS)  # the id of the first label: special tokens are none
NARROWEST, USUAL_WIDTH = 0.5, 0.1  # of the bell of a number: in levels, and of all levels, before anything is learned
QUICKLY = 10.0  # how much faster the width is learned than other parameters are


class SayingSettings(DecoderSettings):
    """Of decoders that say something of a source, and read nothing of what they said."""

    of_source: ClassVar[str] = "labels are of a source"

    dropout: Dropout = 0.0

    def fitted(self, encoder: bool) -> DecoderSettings:
        if not encoder:
            raise ValueError(f"kind: {self.of_source}, and there is no encoder that reads one; use rnn")
        return self

    @property
    def speaks(self) -> bool:
        return True

    @property
    def listens(self) -> bool:
        return False


class LabelSettings(SayingSettings):
    """What these decoders can be told."""

    hidden: int | None = Field(None, ge=1)  # width of a layer before the output, relu(U x + c); null: none


class Labels(Decoder):
    """What these decoders have: an output layer, over the C labels mostly, and an end that mostly is certain."""

    sure_of_end = True

    def __init__(
        self, settings: LabelSettings, *, embedding: Embedding, features: int, outputs: int | None = None
    ) -> None:
        """`outputs` of the layer; None: one for each label."""
        super().__init__()
        self.width = embedding.vocabulary
        assert self.width > FIRST, "there is no label"
        self.dropout = CheapDropout(settings.dropout)
        hidden = settings.hidden
        self.hidden = nn.Sequential()
        if hidden is not None:
            self.hidden.extend([nn.Linear(features, hidden), nn.ReLU(), CheapDropout(settings.dropout)])
        self.output = nn.Linear(features if hidden is None else hidden, outputs or self.width - FIRST)

    def scores(self, vectors: Float[Tensor, "*r D"]) -> Float[Tensor, "*r C"]:
        return exact(self.output(self.hidden(self.dropout(vectors))))

    def said(self, scores: Float[Tensor, "N T C"], speaks: Bool[Tensor, "N T"]) -> Features:
        """Log-probabilities over all ids: of a label where one is due, of the end where none is."""
        labels = F.pad(torch.log_softmax(scores, dim=-1), (FIRST, 0), value=-torch.inf)  # N T V
        end = labels.new_full((self.width,), -torch.inf)
        end[EOS] = 0.0
        return torch.where(speaks[..., None], labels, end)

    @staticmethod
    def places(tokens: RowTokens, state: State) -> Int[Tensor, "N T"]:
        """How many labels each row has said before each of its tokens."""
        return state.rows["said"][:, None] + torch.arange(tokens.shape[1], device=tokens.device)

    @staticmethod
    def after(tokens: RowTokens, state: State, lengths: Rows | None) -> State:
        return state.with_rows(said=state.rows["said"] + (tokens.shape[1] if lengths is None else lengths))


class WholeSettings(LabelSettings):
    """How all that was read becomes one vector."""

    pooling: How = "attention"  # a source as one vector
    attention: AttentionSettings = AttentionSettings()  # where `pooling` is attention
    compare: Literal["none", "features", "attention"] = "none"  # none: the states of all sources are one memory
    between: AttentionSettings = AttentionSettings(score=ScaledDot.Settings())  # where `compare` is attention
    query: str | None = None  # a further source that asks: its summary is the query of `attention`

    @property
    def attends(self) -> bool:
        return self.pooling == "attention"

    @property
    def apart(self) -> bool:
        return self.compare != "none" or self.query is not None

    @property
    def asked_by(self) -> str | None:
        return self.query

    @model_validator(mode="after")
    def _agrees(self) -> WholeSettings:
        if self.query is not None and self.compare != "none":
            raise ValueError(
                f"query: either {self.query} asks or it is compared; leave query out, or set compare: none"
            )
        if self.query is not None and not self.attends:
            raise ValueError("query: it asks by the weights of attention; set pooling: attention")
        if self.compare == "attention" and self.pooling == "last":
            raise ValueError("pooling: positions that were compared have no last state; use mean, max or attention")
        return self


class Whole(Labels):
    """Says something of all that was read. Tap: `decoder.attention` = the weights of the words (N H T S).

    The weights of sources that are compared are shares of one whole: with k sources each has 1/k of it.
    """

    outputs: ClassVar[int | None] = None  # of the output layer; None: one for each label

    def __init__(
        self, settings: WholeSettings, *, embedding: Embedding, encoder: Encoder, sources: Sequence[str] = ("source",)
    ) -> None:
        assert len(sources) > 1 or not settings.apart, "there is nothing to compare the source with"
        self.pooling, self.compare, self.query = settings.pooling, settings.compare, settings.query
        summary = encoder.summary_sizes[-1][0]
        attention = None
        if settings.pooling != "attention":
            width = pooled_width(encoder, settings.pooling)
        else:
            query = encoder.width if self.query is None else summary
            attention = Attention(settings.attention, query=query, memory=encoder.width, name=TAP)
            width = attention.width
        features = self._features(width, summary, len(sources))
        super().__init__(settings, embedding=embedding, features=features, outputs=self.outputs)
        self.attention = attention
        self.between: Between | None = None
        if self.compare == "attention":
            self.between = Between(settings.between, width=encoder.width, dropout=settings.dropout)
            self.between_taps = (BETWEEN,)
        self.asks: nn.Parameter | None = None
        if attention is not None:
            self.attention_taps = (TAP,)
            if self.query is None:
                self.asks = learned_query(encoder.width)  # what matters for these labels?

    def _features(self, width: int, summary: int, sources: int) -> int:
        """The width of what a label is decided by, from that of a source's vector."""
        if self.query is not None:
            return width + summary
        return width if self.compare == "none" else pair_width(sources, width)

    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        assert memories is not None, "a label is of a source"
        each = [*memories.values()] if self.between is None else self.between([*memories.values()])
        said = torch.zeros(rows, dtype=torch.long, device=each[0].mask.device)
        if self.attention is None:
            assert self.pooling != "attention"
            vectors = [pooled(memory, self.pooling) for memory in each]
            return State({"said": said}, {"pooled": pair_features(vectors)})
        parts = parts_of(each)  # B k S
        mask = parts.any(1)
        sources = self.attention.prepare(torch.cat([memory.states for memory in each], dim=1), mask)
        if self.query is not None:
            seen = mask & ~parts[:, [*memories].index(self.query)]  # who asks is not looked at
            sources |= {"mask": seen, "query": memories[self.query].summary[-1][0]}
        elif self.compare != "none":
            sources["parts"] = parts
        return State({"said": said}, sources)

    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        scores = self.scores(self.vectors(tokens, state))
        return self.spoken(scores, tokens, state), self.after(tokens, state, lengths)

    def vectors(self, tokens: RowTokens, state: State) -> Float[Tensor, "N T F"]:
        """What is decided by, at every step."""
        rows, steps = tokens.shape
        if self.attention is not None:
            return self._looked(self.attention, rows, steps, state.sources)
        return spread(state.sources["pooled"], rows)[:, None].expand(-1, steps, -1)

    def spoken(self, scores: Float[Tensor, "N T C"], tokens: RowTokens, state: State) -> Features:
        """Log-probabilities after each token: of one label, and then of the end."""
        return self.said(scores, self.places(tokens, state) == 0)

    def _looked(
        self, attention: Attention, rows: int, steps: int, sources: dict[str, Tensor]
    ) -> Float[Tensor, "N T F"]:
        """What attention finds in all sources together, or in each of them."""
        if self.asks is None:
            query = spread(sources["query"], rows)[:, None].expand(-1, steps, -1)
            return torch.cat([tap("decoder.context", attention(query, sources)), query], dim=-1)
        query = self.asks.expand(rows, steps, -1)
        if self.compare == "none":
            return tap("decoder.context", attention(query, sources))
        parts = sources["parts"].unbind(1)
        shares = [attention.weigh(query, {**sources, "mask": part}) for part in parts]  # of N H T S each
        weights = tap(TAP, torch.stack(shares).mean(0))
        found = [
            attention.contexts(len(parts) * weights * spread(part, rows)[:, None, None], sources["values"])
            for part in parts
        ]
        context = tap("decoder.context", torch.cat(found, dim=-1))  # N T kD
        return pair_features(context.chunk(len(parts), dim=-1))


class Label(Whole):
    """One label for all that was read."""

    class Settings(WholeSettings):
        kind: Literal["label"] = "label"


class Number(Whole):
    """A number for all that was read: one of the levels of an even grid (`data/levels.py`)."""

    outputs = 1  # where the bell stands

    class Settings(WholeSettings):
        kind: Literal["number"] = "number"

        @property
        def measures(self) -> bool:
            return True

    def __init__(
        self, settings: Settings, *, embedding: Embedding, encoder: Encoder, sources: Sequence[str] = ("source",)
    ) -> None:
        super().__init__(settings, embedding=embedding, encoder=encoder, sources=sources)
        self.spread = nn.Parameter(torch.zeros(1))  # how wide the bell is, whatever was read

    def spoken(self, scores: Float[Tensor, "N T C"], tokens: RowTokens, state: State) -> Features:
        last = self.width - FIRST - 1  # the levels are 0 ... last
        margin = last * MARGIN / (1 + 2 * MARGIN)
        middle = margin + (last - 2 * margin) * torch.sigmoid(scores[..., :1])  # N T 1
        width = NARROWEST + USUAL_WIDTH * last * torch.exp(QUICKLY * self.spread)
        levels = torch.arange(last + 1, device=scores.device, dtype=scores.dtype)
        return super().spoken(-(((levels - middle) / width) ** 2) / 2, tokens, state)


class LabelSet(Whole):
    """Several labels, or none, for all that was read; each is there or not, whatever the others are.

    What may still follow is known beforehand, so that search need not guess which beginning leads to the likeliest set:
    `ahead` is the log-probability of the likeliest rest after each token.
    """

    sure_of_end = False

    class Settings(WholeSettings):
        kind: Literal["labels"] = "labels"

        @property
        def may_say_nothing(self) -> bool:
            return True

    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        nothing = exact(self.output.weight.new_zeros(rows, self.width))
        return super().start(memories, rows).with_rows(ahead=nothing)

    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        scores = self.scores(self.vectors(tokens, state))
        ahead = self.ahead(scores[:, -1].detach())
        return self.spoken(scores, tokens, state), self.after(tokens, state, lengths).with_rows(ahead=ahead)

    def scores(self, vectors: Float[Tensor, "N T D"]) -> Float[Tensor, "N T C"]:
        """Of all steps the same: in training, dropout must not have another opinion at each of them."""
        scores = super().scores(vectors[:, :1] if self.training else vectors)
        return scores.expand(-1, vectors.shape[1], -1)

    def spoken(self, scores: Float[Tensor, "N T C"], tokens: RowTokens, state: State) -> Features:
        """Log-probabilities after each token: of the next label, in the order of their ids, and of the end."""
        there, absent = F.logsigmoid(scores), F.logsigmoid(-scores)
        before = F.pad(absent.cumsum(-1), (1, 0))  # N T C+1: that none of the first k is there
        done = (tokens - FIRST + 1).clamp(min=0)[..., None]  # N T 1: labels whose turn is over
        since = before.gather(-1, done)
        labels = there + before[..., :-1] - since
        over = torch.arange(scores.shape[-1], device=scores.device) < done
        told = F.pad(labels.masked_fill(over, -torch.inf), (FIRST, 0), value=-torch.inf)  # N T V
        is_end = torch.arange(self.width, device=scores.device) == EOS
        return torch.where(is_end, before[..., -1:] - since, told)

    def ahead(self, scores: Float[Tensor, "N C"]) -> Float[Tensor, "N V"]:
        """log p of the likeliest set of the labels behind each one; of all of them where none was said yet."""
        likelier = F.logsigmoid(scores.abs())
        rest = likelier.sum(-1, keepdim=True) - F.pad(likelier.cumsum(-1), (1, 0))  # N C+1: of those from k on
        known = torch.cat([rest[:, :1].expand(-1, FIRST), rest[:, 1:]], dim=-1)
        return known.masked_fill(torch.arange(self.width, device=scores.device) == EOS, 0.0)


class Tags(Labels):
    """One label for each word, in their order."""

    class Settings(LabelSettings):
        kind: Literal["tags"] = "tags"
        transitions: bool = False  # a tag knows its neighbour: a conditional random field

        @property
        def in_place(self) -> bool:
            return True

    def __init__(self, settings: Settings, *, embedding: Embedding, encoder: Encoder) -> None:
        super().__init__(settings, embedding=embedding, features=encoder.width)
        self.field = Crf(self.width - FIRST) if settings.transitions else None

    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        assert memories is not None, "tags are of a source"
        memory = next(iter(memories.values()))
        order = torch.argsort(~memory.mask, dim=1, stable=True)  # of a memory of several sources, the gaps go last
        scores = self.scores(memory.states.gather(1, order[..., None].expand_as(memory.states)))  # B S C
        words = memory.mask.sum(1) - 1  # B: the last state is that of the source's end
        if self.field is not None:
            scores = scores + self.field.ahead(
                scores, torch.arange(scores.shape[1], device=words.device) < words[:, None]
            )
        said = torch.zeros(rows, dtype=torch.long, device=scores.device)
        return State({"said": said}, {"scores": scores, "words": words})

    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        places = self.places(tokens, state)  # N T
        scores, words = spread(state.sources["scores"], len(tokens)), spread(state.sources["words"], len(tokens))
        index = places.clamp(max=scores.shape[1] - 1)[..., None].expand(-1, -1, scores.shape[2])
        here = scores.gather(1, index)  # N T C
        if self.field is not None:
            before = self.field.transitions[(tokens - FIRST).clamp(min=0)]  # N T C: what was just read is the neighbour
            here = here + torch.where((places == 0)[..., None], self.field.start, before)
        return self.said(here, places < words[:, None]), self.after(tokens, state, lengths)

    def alone(self, state: State) -> LogProbs | None:
        if self.field is None:
            return None
        return F.pad(self.field.alone(state.sources["scores"]), (FIRST, 0), value=-torch.inf)

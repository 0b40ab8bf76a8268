"""The recurrent decoder: with one vector, with attention (Bahdanau, Luong), and everything between.

The decoder's equations, one line each, h the state of the top layer, s the memory:

    query      previous: h_{t-1} (Bahdanau 2015)    current: h_t (Luong 2015)
    context    c_t = sum_s softmax(score(query, s)) value(s)
    input      x_t = compose(embedding_t, what `recurrence` names: nothing, c, or the last h~)
    readout    h~_t = tanh(W_c compose(h_t, c_t)), what the head sees

Where nothing in the recurrence depends on the attention, all steps are read by one call per layer and attended at
once; otherwise, and with coverage (the score reads the sum of earlier weights), the same block is called step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.config import Kind, kind_of
from seqloom.models.bridge import Bridge, FirstState
from seqloom.models.contracts import Decoder, DecoderSettings, Encoder, Memory, State
from seqloom.nn.attention import Attention, AttentionSettings
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.entrance import Dropout
from seqloom.nn.frontends import TARGET, Embedding
from seqloom.nn.layers import COMPOSITIONS, Composition, Concatenation, spread
from seqloom.nn.recurrent import CELLS, LSTM, Cell, keep_ended
from seqloom.nn.scores import SCORES, Bilinear
from seqloom.nn.tape import playing, tap
from seqloom.nn.unrolled import Feeding, current, previous, unrolls
from seqloom.shapes import Features, Float, Rows, RowTokens, Tensor


class Uses(config.Settings):
    """Where the context goes; any combination."""

    recurrence: Literal["none", "context", "attentional"] = "none"
    readout: bool = True
    next_layer: bool = False


class DecoderAttention(AttentionSettings):
    """Attention of a decoder: which state asks, besides what `AttentionSettings` says."""

    query: Literal["previous", "current"] = "current"
    coverage: bool = False  # the score knows how much each position was attended to before (Tu 2016, See 2017)

    @model_validator(mode="after")
    def _covers(self) -> DecoderAttention:
        if self.coverage and not SCORES[kind_of(self.score)].reads_past:
            raise ValueError("coverage: only an additive score reads it; set score: additive")
        return self


class RecurrentDecoder(Decoder):
    """The general recurrent decoder; `bahdanau` and `luong` are its settings under their papers' names."""

    carries = True

    class Settings(DecoderSettings):
        kind: Literal["rnn"] = "rnn"
        cell: Annotated[config.Settings, Kind(CELLS)] = LSTM.Settings()
        width: int = Field(256, ge=1)
        layers: int = Field(1, ge=1, le=1000)
        dropout: Dropout = 0.0
        start: FirstState = "bridge"  # how the summary becomes the first state
        summary_input: bool = False  # the summary as an input of every step (Kalchbrenner and Blunsom 2013)
        attention: DecoderAttention | None = None
        context: Uses = Uses()
        compose: Annotated[config.Settings, Kind(COMPOSITIONS)] = Concatenation.Settings()
        token_readout: bool = False  # the readout sees the last token's embedding as well (Bahdanau 2015)

        @model_validator(mode="after")
        def _possible(self) -> RecurrentDecoder.Settings:
            if self.context.next_layer and self.layers < 2:
                raise ValueError("context.next_layer: there is no next layer; set layers to 2 or more")
            if self.attention is None and (self.context.recurrence != "none" or self.context.next_layer):
                raise ValueError("context: there is none without attention; set attention or leave context out")
            attention = self.attention
            if attention is not None and attention.query == "previous" and self.context.recurrence == "attentional":
                raise ValueError("context.recurrence: attentional needs attention.query: current")
            if attention is not None and not self._used():
                raise ValueError("context: attention whose context goes nowhere; set readout, recurrence or next_layer")
            return self

        def _used(self) -> bool:
            return self.context.readout or self.context.next_layer or self.context.recurrence != "none"

        @property
        def attends(self) -> bool:
            return self.attention is not None

        def fitted(self, encoder: bool) -> DecoderSettings:
            if encoder:
                if self.attention is None and self.start in ("zero", "learned") and not self.summary_input:
                    raise ValueError(
                        "start: this decoder never sees the source; set attention, summary_input or start: bridge"
                    )
                return self
            if self.attention is not None:
                raise ValueError("attention: there is no encoder to attend to; use kind: rnn without attention")
            if self.summary_input:
                raise ValueError("summary_input: there is no encoder whose summary could be an input")
            if "start" not in self.model_fields_set:
                return self.with_(start="zero")
            if self.start in ("bridge", "state"):
                raise ValueError(f"start: {self.start} needs an encoder; use zero or learned")
            return self

    def __init__(
        self, settings: Settings, *, embedding: Embedding, encoder: Encoder | None, shares_weights: bool = False
    ) -> None:
        super().__init__()
        self.shares_weights = shares_weights
        self.embedding, self.width, self.cells = embedding, settings.width, nn.ModuleList()
        self.dropout = CheapDropout(settings.dropout)
        attention = settings.attention
        self.attention = (
            None
            if attention is None or encoder is None
            else Attention(
                attention,
                query=settings.width,
                memory=encoder.width,
                name="decoder.attention",
                coverage=attention.coverage,
            )
        )
        self.covers = attention is not None and attention.coverage
        self.attention_taps = () if attention is None else ("decoder.attention",)
        self.asks_previous = attention is not None and attention.query == "previous"
        self.recurrence, self.next_layer = settings.context.recurrence, settings.context.next_layer
        self._build_inputs(settings, encoder)
        self._build_readout(settings)
        self.layer_taps = tuple(f"decoder.{layer}.states" for layer in range(settings.layers))
        self.step_taps = tuple(f"decoder.{layer}.steps" for layer in range(settings.layers))
        for layer, name in enumerate(self.step_taps):
            self._cell(layer).name = name
        self.bridge = Bridge(settings.start, [self._cell(layer) for layer in range(settings.layers)], encoder)

    def _build_inputs(self, settings: Settings, encoder: Encoder | None) -> None:
        context = self.attention.width if self.attention is not None else 0
        inputs = self.embedding.width
        self.summary_input: Composition | None = None
        self.recurrence_input: Composition | None = None
        if settings.summary_input:
            assert encoder is not None
            self.summary_input = COMPOSITIONS.build(settings.compose, main=inputs, other=encoder.summary_sizes[-1][0])
            inputs = self.summary_input.width
        if self.recurrence != "none":
            fed = settings.width if self.recurrence == "attentional" else context
            self.recurrence_input = COMPOSITIONS.build(settings.compose, main=inputs, other=fed)
            inputs = self.recurrence_input.width
        self.next_inputs = nn.ModuleList()
        for layer in range(settings.layers):
            if layer and self.next_layer:
                composed = COMPOSITIONS.build(settings.compose, main=inputs, other=context)
                self.next_inputs.append(composed)
                inputs = composed.width
            self.cells.append(CELLS.build(settings.cell, inputs=inputs, size=settings.width))
            inputs = settings.width

    def _build_readout(self, settings: Settings) -> None:
        self.token_readout = settings.token_readout
        self.readout_input: Composition | None = None
        width = settings.width
        attends = self.attention is not None and (settings.context.readout or self.recurrence == "attentional")
        if attends:
            assert self.attention is not None
            self.readout_input = COMPOSITIONS.build(settings.compose, main=width, other=self.attention.width)
            width = self.readout_input.width
        width += self.embedding.width if self.token_readout else 0
        self.readout = nn.Linear(width, settings.width) if attends or self.token_readout else None

    def _cell(self, layer: int) -> Cell:
        cell = self.cells[layer]
        assert isinstance(cell, Cell)
        return cell

    @property
    def steps_alone(self) -> bool:
        """Does a step depend on the attention of the step before (or on its own, asked by the last state)?"""
        return self.recurrence != "none" or (self.asks_previous and self.next_layer) or self.covers

    # --- state: rows "0.h", "0.c", ..., "fed", "past"; sources "keys0", "values", "mask", "summary" ------------------

    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        memory = None if memories is None else next(iter(memories.values()))
        layers = self.bridge.alone(next(self.parameters()), rows) if memory is None else self.bridge(memory)
        state = {
            f"{layer}.{part}": spread(value, rows)
            for layer, values in enumerate(layers)
            for part, value in zip(self._cell(layer).parts, values, strict=True)
        }
        sources: dict[str, Tensor] = {}
        if memory is None:
            return State(state)
        if self.attention is not None:
            sources |= self.attention.prepare(memory.states, memory.mask)
        if self.summary_input is not None:
            sources["summary"] = memory.summary[-1][0]
        if self.recurrence != "none" and not self.asks_previous:
            assert self.attention is not None
            fed = self.width if self.recurrence == "attentional" else self.attention.width
            state["fed"] = memory.states.new_zeros(rows, fed)
        if self.covers:
            state["past"] = memory.states.new_zeros(rows, memory.mask.shape[1])
        return State(state, sources)

    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        x = tap("decoder.inputs", self.dropout(tap(TARGET, self.embedding(tokens))))  # N T E
        if not self.steps_alone:
            return self._block(x, state, lengths)
        if lengths is None and unrolls(x) and not playing() and (done := self._unrolled(x, state)) is not None:
            return done
        features = []
        for t in range(x.shape[1]):
            output, new = self._block(x[:, t : t + 1], state, None)
            state = new if lengths is None else _keep_ended_rows(lengths > t, new, state)
            features.append(output)
        return torch.cat(features, dim=1), state

    def _unrolled(self, x: Float[Tensor, "N T E"], state: State) -> tuple[Features, State] | None:
        """All steps by a loop that is written out, forward and backward; None for what nobody wrote."""
        cell, token = self._cell(0), x
        if self.one_by_one is not None or len(state.sources["mask"]) != len(x):
            return None
        assert self.attention is not None, "without attention no step stands alone"
        opened, memory = cell.laid_open(), self.attention.laid_open(state.sources)
        assert opened is not None
        if self.summary_input is not None:
            x = self.summary_input(x, state.sources["summary"][:, None].expand(-1, x.shape[1], -1))
        names = [f"0.{part}" for part in cell.parts]
        x, parts = x.transpose(0, 1), [state.rows[name] for name in names]  # T N E
        if self.asks_previous:
            h, contexts, after = previous(opened, memory, x, tuple(parts))
            features = self._readout(h.transpose(0, 1), contexts.transpose(0, 1), token)
        else:
            assert self.readout is not None
            names, parts = [*names, "fed"], [*parts, state.rows["fed"]]
            features, after = current(opened, memory, self._feeding(token.transpose(0, 1)), x, tuple(parts))
            features = features.transpose(0, 1)
        return features, state.with_rows(**dict(zip(names, after, strict=True)))

    def _feeding(self, token: Float[Tensor, "T N E"]) -> Feeding:
        """What the readout h~ = tanh(R [h; c] + r) is made of: r has the bias, and what it sees of the token."""
        assert self.readout is not None
        assert self.attention is not None
        weight, bias = self.readout.weight, self.readout.bias
        width = self.width + self.attention.width
        steps = (*token.shape[:2], self.width)
        added = F.linear(token, weight[:, width:], bias) if self.token_readout else bias.expand(steps)
        kept = [self.dropout(token.new_ones(steps)) if self.training and self.dropout.p else None for _ in range(2)]
        return Feeding(added, weight[:, :width], *kept)

    @property
    def one_by_one(self) -> str | None:
        if not self.steps_alone or self.attention is None:
            return None
        feeds = self.recurrence == ("context" if self.asks_previous else "attentional")
        composed = [composition for composition in (self.recurrence_input, self.readout_input) if composition]
        reasons = {
            "several layers": len(self.cells) > 1,
            "coverage": self.covers,
            "copying": self.shares_weights,
            "the context's way into the recurrence": not feeds,
            "its composition": not all(composition.side_by_side for composition in composed),
            "its cell": self._cell(0).laid_open() is None,
        }
        return next((reason for reason, holds in reasons.items() if holds), self.attention.closed)

    def _block(self, x: Float[Tensor, "N T E"], state: State, lengths: Rows | None) -> tuple[Features, State]:
        """The equations of the module's docstring, for all T steps (T = 1 where steps stand alone)."""
        token, rows = x, dict(state.rows)
        last = rows[f"{len(self.cells) - 1}.h"][:, None]  # N 1 D: h_{t-1} of the top layer
        context: Tensor | None = None
        weights: Tensor | None = None
        if self.asks_previous and self.steps_alone:
            context, weights = self._attend(last, state)
        if self.summary_input is not None:
            summary = spread(state.sources["summary"], x.shape[0])[:, None].expand(-1, x.shape[1], -1)
            x = self.summary_input(x, summary)
        if self.recurrence_input is not None:
            fed = rows["fed"][:, None] if context is None else context
            x = self.recurrence_input(x, fed)
        for layer in range(len(self.cells)):
            if layer and self.next_layer:
                if context is None:  # the first layer's current state asks
                    context, weights = self._attend(x, state)
                x = self.next_inputs[layer - 1](x, context)
            cell = self._cell(layer)
            names = [f"{layer}.{part}" for part in cell.parts]
            x, final = cell(self.dropout(x) if layer else x, tuple(state.rows[name] for name in names), lengths)
            x = tap(self.layer_taps[layer], x)
            rows |= dict(zip(names, final, strict=True))
        if self.attention is not None and context is None:
            queries = torch.cat([last, x[:, :-1]], dim=1) if self.asks_previous else x
            context, weights = self._attend(queries, state)
        features = self._readout(x, context, token)
        if "fed" in rows:
            assert context is not None
            rows["fed"] = (features if self.recurrence == "attentional" else context)[:, -1]
        if self.covers or self.shares_weights:
            assert weights is not None
            mean = weights.mean(1)  # N T S
            if self.covers:
                rows["past"] = rows["past"] + mean[:, -1]
            if self.shares_weights:
                features = torch.cat([features, mean], dim=-1)  # N T D+S
        return features, State(rows, state.sources)

    def _attend(
        self, queries: Float[Tensor, "N T D"], state: State
    ) -> tuple[Float[Tensor, "N T C"], Float[Tensor, "N H T S"]]:
        assert self.attention is not None
        context, weights = self.attention.attend(queries, state.sources, past=state.rows.get("past"))
        return tap("decoder.context", context), weights

    def _readout(self, h: Float[Tensor, "N T D"], context: Tensor | None, token: Tensor) -> Features:
        """h~ = tanh(W_c compose(h, context)), with the token's embedding if asked; plain h where nothing is added."""
        h = tap("decoder.states", h)
        if self.readout is None:
            plain: Tensor = self.dropout(h)
            return plain
        if self.readout_input is not None:
            assert context is not None
            h = self.readout_input(self.dropout(h), context)
        if self.token_readout:
            h = torch.cat([h, token], dim=-1)
        features: Tensor = self.dropout(torch.tanh(self.readout(h)))
        return features


def _keep_ended_rows(real: Tensor, new: State, old: State) -> State:
    kept = keep_ended(real, list(new.rows.values()), [old.rows[name] for name in new.rows])
    return State(dict(zip(new.rows, kept, strict=True)), new.sources)


class Bahdanau(RecurrentDecoder):
    """Additive attention asked by the previous state, its context fed into the recurrence (Bahdanau 2015)."""

    class Settings(RecurrentDecoder.Settings):
        kind: Literal["bahdanau"] = "bahdanau"  # type: ignore[assignment]
        attention: DecoderAttention | None = DecoderAttention(query="previous")
        context: Uses = Uses(recurrence="context", readout=True)
        token_readout: bool = True


class Luong(RecurrentDecoder):
    """Attention asked by the current state, h~ before the output (Luong 2015); h~ fed back on demand."""

    class Settings(RecurrentDecoder.Settings):
        kind: Literal["luong"] = "luong"  # type: ignore[assignment]
        attention: DecoderAttention | None = DecoderAttention(score=Bilinear.Settings(), query="current")
        context: Uses = Uses(readout=True)

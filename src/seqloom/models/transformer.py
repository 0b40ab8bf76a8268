"""Transformer encoder and decoder (Vaswani 2017), with the layer norm before or behind each sublayer.

    norm: pre     x + f(LayerNorm(x)), and one LayerNorm at the end        norm: post     LayerNorm(x + f(x))
    a layer       f = self-attention, then (decoder) attention to the memory, then the feed-forward network

The decoder reads any number of tokens after any number of others. What it carries between calls are the keys and
values of the tokens read, token p of a row in slot p. As long as all rows have read equally much, every slot is filled
and nothing else is needed; once `lengths` differed, `read` counts each row's tokens and slots behind them are never
seen. Without an encoder there is no attention to a memory: a language model, or one half of a joint model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from seqloom.batch import Source
from seqloom.config import kind_of
from seqloom.models.contracts import Decoder, DecoderSettings, Encoder, Memory, State
from seqloom.models.single import Cross, Layer, Shape, SingleSteps
from seqloom.nn.dropout import CheapDropout
from seqloom.nn.entrance import Dropout, Entrance, StackSettings, draw_xavier, from_the_start
from seqloom.nn.feedforward import Activation, FeedForward
from seqloom.nn.frontends import TARGET, Embedding, Frontend, Vectors
from seqloom.nn.fusion import compiling, fusible
from seqloom.nn.layers import mean_of_real
from seqloom.nn.multihead import CrossHeads, Grown, HeadWeights, Kept, Remembered, SelfHeads, View
from seqloom.nn.positions import POSITIONS, Places
from seqloom.nn.tape import listening, playing, tap
from seqloom.shapes import Features, Mask, Rows, RowTokens, States, Tensor


class TransformerSettings(StackSettings):
    """What encoder and decoder have in common."""

    heads: int = Field(4, ge=1)
    feedforward: int | None = Field(None, ge=1)  # inner width; null: four times the width
    activation: Activation = "relu"
    norm: Literal["pre", "post"] = "pre"
    epsilon: float = Field(1e-5, gt=0.0, lt=0.1)  # of layer norm: added to the variance it divides by
    attention_dropout: Dropout = 0.0
    activation_dropout: Dropout = 0.0
    checkpointing: bool = False  # compute layers again in the backward pass rather than keep what they computed

    @model_validator(mode="after")
    def _heads_divide(self) -> TransformerSettings:
        if self.width % self.heads:
            divisors = [heads for heads in range(1, self.width + 1) if self.width % heads == 0]
            below = max(heads for heads in divisors if heads < self.heads)
            near = [below, *(heads for heads in divisors if heads > self.heads)][:2]
            raise ValueError(
                f"heads: {self.heads} heads do not divide the width {self.width}; {' or '.join(map(str, near))} do"
            )
        if POSITIONS[kind_of(self.positions)].turns and self.width // self.heads % 2:
            raise ValueError(
                f"positions: rotary ones turn pairs, but {self.heads} heads of the width {self.width} have an odd size"
            )
        return self


class Residual(nn.Module):
    """A sublayer beside which its input passes: `x = residual(x, f(residual.norm_before(x)))`."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.pre = settings.norm == "pre"
        self.norm = nn.LayerNorm(settings.width, eps=settings.epsilon)
        self.dropout = CheapDropout(settings.dropout)

    def norm_before(self, x: Features) -> Features:
        normed: Tensor = self.norm(x) if self.pre else x
        return normed

    def forward(self, x: Features, change: Features) -> Features:
        summed: Tensor = x + self.dropout(change)
        return summed if self.pre else self.norm(summed)


def norm_at_the_end(settings: TransformerSettings) -> nn.Module:
    """What comes out of layers that norm only what they read was never normed itself."""
    return nn.LayerNorm(settings.width, eps=settings.epsilon) if settings.norm == "pre" else nn.Identity()


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__()
        self.taps: tuple[str, ...] = (f"{name}.self",)
        self.around_self = Residual(settings)
        self.self_attention = SelfHeads(settings.width, settings.heads, settings.attention_dropout, f"{name}.self")
        self.around_forward = Residual(settings)
        self.feedforward = FeedForward(
            settings.width,
            settings.feedforward or 4 * settings.width,
            settings.activation,
            settings.activation_dropout,
        )

    def attend(self, x: Features, kept: Kept | None, view: View) -> tuple[Features, Grown]:
        found, grown = self.self_attention(self.around_self.norm_before(x), kept, view)
        return self.around_self(x, found), grown

    def widen(self, x: Features) -> Features:
        changed: Tensor = self.around_forward(x, self.feedforward(self.around_forward.norm_before(x)))
        return changed

    @fusible
    def forward(self, x: Features, view: View) -> Features:
        return self.widen(self.attend(x, None, view)[0])


class DecoderLayer(EncoderLayer):
    """Self-attention, attention to the memory where there is one, then the feed-forward network."""

    def __init__(
        self, settings: TransformerSettings, name: str, *, memory: int | None, last: bool, shares_weights: bool
    ) -> None:
        super().__init__(settings, name)
        self.last, self.shares_weights = last, shares_weights
        self.cross_attention: CrossHeads | None = None
        if memory is not None:
            self.taps += (f"{name}.cross",) + (("decoder.context",) if last else ())
            self.around_cross = Residual(settings)
            self.cross_attention = CrossHeads(
                settings.width, settings.heads, settings.attention_dropout, f"{name}.cross", memory
            )

    def flat(self) -> Layer:
        """Its matrices, each of which has another form."""
        cross = None if self.cross_attention is None else Cross(self.cross_attention, self.around_cross.norm)
        norms = (self.around_self.norm, self.around_forward.norm)
        return Layer.of(self.self_attention, cross, self.feedforward, norms)

    @fusible
    def forward(  # type: ignore[override]
        self, x: Features, view: View, kept: Kept, memory: tuple[Remembered, Mask] | None
    ) -> tuple[Features, Grown, HeadWeights | None]:
        """The layer's output, all keys and values kept now, and the weights over the memory if they are shared."""
        weights: Tensor | None = None
        x, grown = self.attend(x, kept, view)
        if self.cross_attention is not None:
            assert memory is not None, "a decoder with an encoder starts from its memory"
            found, weights = self.cross_attention(self.around_cross.norm_before(x), *memory, self.shares_weights)
            if not compiling() and self.last:
                found = tap("decoder.context", found)
            x = self.around_cross(x, found)
        return self.widen(x), grown, weights


class TransformerEncoder(Encoder):
    """A stack of self-attention layers. The summary is the mean of its states."""

    class Settings(TransformerSettings):
        kind: Literal["transformer"] = "transformer"
        reads_end: bool = True  # False: the end of a source is masked, as if sources had none (OpenNMT-py's have not)

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        self.width, self.summary_sizes = settings.width, ((settings.width,),)
        self.vectors = Vectors(embedding, frames)
        self.entrance = Entrance(settings, given=self.vectors.width, embedded=embedding is not None)
        self.layers = nn.ModuleList(EncoderLayer(settings, f"encoder.{i}") for i in range(settings.layers))
        self.layer_taps = tuple(f"encoder.{i}.states" for i in range(settings.layers))
        self.self_taps = tuple(f"encoder.{i}.self" for i in range(settings.layers))
        self.norm = norm_at_the_end(settings)
        self.head_width, self.checkpointing = settings.width // settings.heads, settings.checkpointing
        self.epsilon, self.reads_end = settings.epsilon, settings.reads_end
        draw_xavier(self.layers)
        draw_xavier(self.entrance)

    def forward(self, source: Source) -> Memory:
        mask = source.mask if self.reads_end else without_end(source.mask)
        places = from_the_start(mask.shape[1], mask.device)
        x = tap("encoder.inputs", self.entrance(self.vectors(source), places, mask.shape[1]))  # B S D
        turn = self.entrance.positions.turn(places, self.head_width, x, mask.shape[1])
        view = View(visible=mask[:, None, None], turn=turn)
        for layer, name in zip(self.layers, self.layer_taps, strict=True):
            x = checkpoint(layer, x, view, use_reentrant=False) if _again(self, layer) else layer(x, view)
            x = tap(name, x)
        x = tap("encoder.states", self.norm(x).masked_fill(~mask[..., None], 0.0))
        return Memory(x, mask, ((mean_of_real(x, mask),),))


class TransformerDecoder(Decoder):
    """A stack of causal self-attention and attention to the memory."""

    class Settings(TransformerSettings, DecoderSettings):
        kind: Literal["transformer"] = "transformer"

        @property
        def attends(self) -> bool:
            return True

    def __init__(
        self, settings: Settings, *, embedding: Embedding, encoder: Encoder | None, shares_weights: bool = False
    ) -> None:
        super().__init__()
        assert encoder is not None or not shares_weights, "there are no weights to share without a memory"
        self.embedding, self.width, self.shares_weights = embedding, settings.width, shares_weights
        self.entrance = Entrance(settings, given=embedding.width)
        memory, top = None if encoder is None else encoder.width, settings.layers - 1
        self.layers = nn.ModuleList(
            DecoderLayer(
                settings,
                f"decoder.{i}",
                memory=memory,
                last=i == top,
                shares_weights=shares_weights and i == top,
            )
            for i in range(settings.layers)
        )
        self.norm = norm_at_the_end(settings)
        self.heads, self.head_width = settings.heads, settings.width // settings.heads
        self.checkpointing, self.epsilon = settings.checkpointing, settings.epsilon
        self.layer_taps = tuple(f"decoder.{i}.states" for i in range(settings.layers))
        self.self_taps = tuple(f"decoder.{i}.self" for i in range(settings.layers))
        self.attention_taps = () if encoder is None else tuple(f"decoder.{i}.cross" for i in range(settings.layers))
        self._flat: SingleSteps | None = None
        draw_xavier(self.layers)
        draw_xavier(self.entrance)

    def lay_flat(self) -> None:
        """Take single steps without the layers from now on; their matrices have been given another form."""
        if self.shares_weights:
            return
        first = self._layer(0)
        shape = Shape(self.heads, first.feedforward.activation, first.around_self.pre)
        flat = [self._layer(i).flat() for i in range(len(self.layers))]
        self._flat = SingleSteps(flat, self.entrance, self.norm, shape)

    # --- state: rows "0", ... (N G P d), "read" (N), "held" (N 0); sources "0.keys", "0.values" (B H S d), "mask" (B S)

    def start(self, memories: Mapping[str, Memory] | None, rows: int) -> State:
        empty = next(self.parameters()).new_empty(rows, 2 * self.heads, 0, self.head_width)
        kept = {str(i): empty for i in range(len(self.layers))}
        if memories is None:
            return State(kept)
        memory = next(iter(memories.values()))
        sources: dict[str, Tensor] = {"mask": memory.mask}
        for i in range(len(self.layers)):
            cross = self._layer(i).cross_attention
            assert cross is not None, "this decoder was built without an encoder"
            sources |= zip(_names(i), cross.keep(memory.states), strict=True)
        return State(kept, sources)

    def held(self, state: State, room: int) -> State:
        """Empty slots behind those that are filled; `held` (N 0) says that they are there."""
        first, read = state.rows["0"], state.rows.get("read")
        if read is None:
            read = torch.full((len(first),), first.shape[2], device=first.device)
        dtype = first.dtype if first.shape[2] else _computed(first)
        kept = {str(i): F.pad(state.rows[str(i)].to(dtype), (0, 0, 0, room)) for i in range(len(self.layers))}
        return State({**kept, "read": read, "held": read.new_empty(len(first), 0)}, state.sources)

    def forward(self, tokens: RowTokens, state: State, lengths: Rows | None = None) -> tuple[Features, State]:
        steps, filled, read = tokens.shape[1], state.rows["0"].shape[2], state.rows.get("read")
        if self._flat is not None and steps == 1 and lengths is None and read is None and _plain():
            features, rows = self._flat(self.embedding(tokens)[:, 0], state)
            return features[:, None], State(rows, state.sources)
        before = filled if read is None else read[:, None]  # how much was read: by all rows alike, or by each
        places = from_the_start(steps, tokens.device) + before  # n T
        embedded = tap(TARGET, self.embedding(tokens))
        held = "held" in state.rows
        slots = filled if held else filled + steps
        x = tap("decoder.inputs", self.entrance(embedded, places, slots))  # N T D
        view = replace(self._view(places, slots, read is not None, x), held=held)
        rows = {}
        weights: Tensor | None = None
        for i in range(len(self.layers)):
            x, rows[str(i)], weights = self._run(i, x, view, state)
            x = tap(self.layer_taps[i], x)
        if lengths is not None or read is not None:
            rows["read"] = places[:, 0] + (steps if lengths is None else lengths)
        if held:
            rows["held"] = state.rows["held"]
        features = tap("decoder.states", self.norm(x))
        if self.shares_weights:
            assert weights is not None
            features = torch.cat([features, weights.mean(1)], dim=-1)  # N T D+S
        return features, State(rows, state.sources)

    def _view(self, places: Places, count: int, ragged: bool, like: States) -> View:
        """Of `count` slots, s is seen from place p where s <= p; the usual calls need no mask to say so."""
        steps = places.shape[1]
        turn = self.entrance.positions.turn(places, self.head_width, like, count)
        if count == steps and not ragged:
            return View(causal=steps > 1, turn=turn)
        if steps == 1 and not ragged:
            return View(turn=turn)
        slots = from_the_start(count, places.device)
        return View(visible=(slots <= places[..., None])[:, None], turn=turn, slots=places if ragged else None)

    def _run(self, i: int, x: Features, view: View, state: State) -> tuple[Features, Grown, HeadWeights | None]:
        layer, (keys, values) = self._layer(i), _names(i)
        kept, sources = state.rows[str(i)], state.sources
        memory = ((sources[keys], sources[values]), sources["mask"]) if self.attention_taps else None
        result: tuple[Features, Grown, HeadWeights | None]
        if _again(self, layer):
            result = checkpoint(layer, x, view, kept, memory, use_reentrant=False)
        else:
            result = layer(x, view, kept, memory)
        return result

    def _layer(self, i: int) -> DecoderLayer:
        layer = self.layers[i]
        assert isinstance(layer, DecoderLayer)
        return layer


def without_end(mask: Mask) -> Mask:
    """All real positions but the last of each row; a row of one position keeps it."""
    behind = F.pad(mask[:, 1:], (0, 1))  # is there a real position behind this one?
    return mask & (behind | (mask.sum(1, keepdim=True) == 1))


def _computed(like: Tensor) -> torch.dtype:
    """What products give here: less exact numbers under autocast."""
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype


def _plain() -> bool:
    """Does nobody want a gradient, look at what passes, or record it?"""
    return not (torch.is_grad_enabled() or playing() or torch.compiler.is_exporting())


def _names(layer: int) -> tuple[str, str]:
    return f"{layer}.keys", f"{layer}.values"


def _again(stack: TransformerEncoder | TransformerDecoder, layer: nn.Module) -> bool:
    """Is this layer to be computed again in the backward pass? Not while somebody listens: a tap is passed once."""
    assert isinstance(layer, EncoderLayer)
    wanted = stack.checkpointing and stack.training and torch.is_grad_enabled()
    return wanted and not any(listening(name) for name in layer.taps)

"""An encoder that reads words by their letters, so that a word never seen before is no unknown word.

The source's tokens are letters (or any pieces of words), `source.words` says whose they are. With w a word of the
letters x_1 ... x_m, all of them embedded,

    r_w      max_t (W [x_{t-1}; x_t; x_{t+1}] + b) (Santos and Zadrozny 2014), or [h_m forward; h_1 backward] of a
             bidirectional LSTM (Ling et al. 2015)
    v_w      row hash(w) of a table that begins at zero: known words are remembered, others add nothing
    memory   encoder([r_1; v_1], [r_2; v_2], ...), one state per word, and one for the source's end

The end is a word of one letter, so that a source without words has a position too, as with any other encoder. Two words
in one row of the table are still told apart by their letters. Nothing here knows a vocabulary of words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn import functional as F

from seqloom import config
from seqloom.batch import Frames, Source, Tokens
from seqloom.config import Kind, Table
from seqloom.errors import SeqloomError
from seqloom.models.bag import Bag
from seqloom.models.contracts import Encoder, Memory
from seqloom.models.convolution import ConvolutionalEncoder
from seqloom.models.rnn_encoder import RecurrentEncoder
from seqloom.models.transformer import TransformerEncoder
from seqloom.nn.dropout import dropped
from seqloom.nn.frontends import SOURCE, Frontend, Vectors
from seqloom.nn.recurrent import LSTM, Bidirectional
from seqloom.nn.tape import told_apart
from seqloom.shapes import Bool, Float, Int, Tensor

SPELT = "source.words"  # the tap of what the encoder over words reads (B W F)
PRIME, BASE = (1 << 31) - 1, 48_271  # the product of two numbers below this prime fits into 63 bits
LONGEST = 64  # letters whose places all differ in the hash; places of longer words repeat

Letters = Float[Tensor, "B S E"]
Words = Float[Tensor, "B W D"]


@dataclass(frozen=True)
class Cut:
    """Where the letters of a source stand: in which of W words, and at which place of it."""

    words: Int[Tensor, "B S"]  # W: no part of a word
    places: Int[Tensor, "B S"]  # from 0
    mask: Bool[Tensor, "B W"]  # which words are real

    @staticmethod
    def of(source: Tokens) -> Cut:
        """Words follow one another as their letters do, and what the source ends with is one more."""
        assert source.words is not None, "a spelled encoder needs sources that say whose letters they are"
        words = source.words.masked_fill(~source.mask, -1)
        counts = words.amax(1) + 1  # B
        ends = F.pad(source.mask, (0, 1))[:, 1:].logical_not() & source.mask & (words < 0)  # the last real one
        words = torch.where(ends, counts[:, None], words)
        counts = counts + ends.sum(1)
        real = words >= 0
        order = real.cumsum(1) - 1  # among the letters of all words
        earlier = F.pad(words.cummax(1).values, (1, -1), value=-1)
        first = torch.where(real & (words > earlier), order, 0).cummax(1).values  # of the same word
        size = max(1, int(counts.max()))
        return Cut(
            words.masked_fill(~real, size),
            (order - first).masked_fill(~real, 0),
            torch.arange(size, device=words.device) < counts[:, None],
        )

    @cached_property
    def index(self) -> Int[Tensor, "M"]:
        """Of every letter its word's row among B (W + 1), the last of each source for what is no part of a word."""
        rows, size = self.mask.shape
        sources = torch.arange(rows, device=self.words.device)[:, None]
        return (sources * (size + 1) + self.words).flatten()

    @cached_property
    def lengths(self) -> Int[Tensor, "B W"]:
        """Letters of every word. A word may have none, where a tokenizer shows nothing of it."""
        return self.summed(torch.ones_like(self.words))

    def summed(self, numbers: Int[Tensor, "B S"]) -> Int[Tensor, "B W"]:
        """The sum over each word's letters."""
        rows, size = self.mask.shape
        return numbers.new_zeros(rows * (size + 1)).scatter_add(0, self.index, numbers.flatten()).view(rows, -1)[:, :-1]

    def largest(self, values: Letters) -> Words:
        """The maximum over each word's letters, feature by feature; zero where there are none."""
        rows, size = self.mask.shape
        index = self.index[:, None].expand(-1, values.shape[2])
        none = values.new_zeros(rows * (size + 1), values.shape[2])
        found = none.scatter_reduce(0, index, values.flatten(0, 1), "amax", include_self=False)
        return found.view(rows, size + 1, -1)[:, :-1]


# --- from letters to words ------------------------------------------------------------------------------------------


class Speller(nn.Module, ABC):
    """The letters of every word become one vector of width `width`. Constructor keyword: `inputs`, E."""

    width: int

    @abstractmethod
    def forward(self, letters: Letters, cut: Cut) -> Words: ...


class LetterConvolution(Speller):
    """max_t (W [x_{t-1}; x_t; x_{t+1}] + b): no window looks beyond its word (Santos and Zadrozny 2014)."""

    class Settings(config.Settings):
        kind: Literal["convolution"] = "convolution"
        width: int = Field(64, ge=1)
        kernel: int = Field(3, ge=1, le=1000)  # letters in a window: odd, so that both sides are alike

        @model_validator(mode="after")
        def _middle(self) -> LetterConvolution.Settings:
            if self.kernel % 2 == 0:
                raise ValueError(f"kernel: a window needs a middle, use {self.kernel - 1} or {self.kernel + 1}")
            return self

    def __init__(self, settings: Settings, *, inputs: int) -> None:
        super().__init__()
        self.width, self.kernel = settings.width, settings.kernel
        self.linear = nn.Linear(settings.kernel * inputs, settings.width)

    def forward(self, letters: Letters, cut: Cut) -> Words:
        side = self.kernel // 2
        windows = F.pad(letters, (0, 0, side, side)).unfold(1, self.kernel, 1)  # B S E k
        whose = F.pad(cut.words, (side, side), value=-1).unfold(1, self.kernel, 1)  # B S k
        others = (whose != cut.words[..., None])[:, :, None]  # B S 1 k
        return cut.largest(self.linear(windows.masked_fill(others, 0.0).flatten(2)))


class LetterRnn(Speller):
    """[h_m; h_1] of an LSTM that reads a word's letters in both directions (Ling et al. 2015)."""

    class Settings(config.Settings):
        kind: Literal["rnn"] = "rnn"
        width: int = Field(64, ge=1)  # each direction has half of it

        @model_validator(mode="after")
        def _halves(self) -> LetterRnn.Settings:
            if self.width % 2:
                raise ValueError(f"width: two directions need an even width, got {self.width}")
            return self

    def __init__(self, settings: Settings, *, inputs: int) -> None:
        super().__init__()
        self.width = settings.width
        self.both = Bidirectional(LSTM.Settings(), inputs=inputs, width=settings.width, both=True, learned_start=False)

    def forward(self, letters: Letters, cut: Cut) -> Words:
        rows, size = cut.mask.shape
        longest = int(cut.places.max()) + 1  # L
        apart = letters.new_zeros(rows * (size + 1), longest, letters.shape[2])
        apart = apart.index_put((cut.index, cut.places.flatten()), letters.flatten(0, 1))
        apart = apart.view(rows, size + 1, longest, -1)[:, :-1].flatten(0, 1)  # BW L E
        _, final = self.both(apart, cut.lengths.flatten())
        last: Tensor = final[0]
        return last.view(rows, size, -1)


SPELLERS: Table[Speller] = Table("spellers", {"convolution": LetterConvolution, "rnn": LetterRnn})


class HashedWords(nn.Module):
    """v_w: a row of a small table, found by hash(w) = sum_t (id_t + 1) base^t mod prime mod rows.

    Every row begins at zero and only words of the training data change theirs, so that most others add nothing.
    """

    def __init__(self, buckets: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.weight = nn.Parameter(torch.zeros(buckets, width))
        powers = torch.tensor([pow(BASE, place, PRIME) for place in range(LONGEST)])
        self.register_buffer("powers", powers, persistent=False)

    def rows(self, ids: Int[Tensor, "B S"], cut: Cut) -> Int[Tensor, "B W"]:
        """Where each word stands, by nothing but its letters and their order."""
        assert isinstance(self.powers, Tensor)
        return cut.summed((ids + 1) * self.powers[cut.places % LONGEST] % PRIME) % PRIME % len(self.weight)

    def forward(self, ids: Int[Tensor, "B S"], cut: Cut) -> Words:
        """In training some words are taken for unknown ones: their letters must speak, the others' are as they are."""
        known = (cut.lengths > 0)[..., None]
        if self.training and self.dropout:
            known = known & (dropped(torch.ones_like(known, dtype=torch.float32), self.dropout) > 0)
        return F.embedding(self.rows(ids, cut), self.weight).masked_fill(~known, 0.0)


# --- the encoder ----------------------------------------------------------------------------------------------------

WORD_ENCODERS: Table[Encoder] = Table(
    "encoders",
    {"rnn": RecurrentEncoder, "transformer": TransformerEncoder, "convolution": ConvolutionalEncoder, "bag": Bag},
)


class SpelledEncoder(Encoder):
    """An encoder over words whose vectors are made of their letters. Tap: `source.words` = those vectors (B W F)."""

    reads_words = True

    class Settings(config.Settings):
        kind: Literal["spelled"] = "spelled"
        characters: Annotated[config.Settings, Kind(SPELLERS)] = LetterConvolution.Settings()
        buckets: int = Field(1 << 16, ge=0, le=PRIME)  # rows of the table of hashed words; 0: letters alone
        width: int = Field(64, ge=1)  # of those rows
        word_dropout: float = Field(0.1, ge=0.0, lt=1.0)  # share of the words whose row is not looked at in training
        words: Annotated[config.Settings, Kind(WORD_ENCODERS)] = RecurrentEncoder.Settings()

    def __init__(self, settings: Settings, *, embedding: Frontend | None, frames: int | None = None) -> None:
        super().__init__()
        if embedding is None or embedding.reads != "text":
            raise SeqloomError(
                "E_RECIPE",
                "a spelled encoder reads the letters of words, and frames have none",
                where="model.encoder",
                fix="use rnn, transformer or convolution",
            )
        self.vectors = Vectors(embedding)
        self.letters = SPELLERS.build(settings.characters, inputs=self.vectors.width)
        self.hashed: HashedWords | None = None
        width = self.letters.width
        if settings.buckets:
            self.hashed = HashedWords(settings.buckets, settings.width, settings.word_dropout)
            width += settings.width
        self.words = WORD_ENCODERS.build(settings.words, embedding=None, frames=width)
        self.width, self.summary_sizes = self.words.width, self.words.summary_sizes
        self.one_way = self.words.one_way  # words are, and their letters are looked at all at once
        self.self_taps = self.words.self_taps

    def forward(self, source: Source) -> Memory:
        assert isinstance(source, Tokens), "only tokens have words"
        cut = Cut.of(source)
        vectors = self.letters(self.vectors(source), cut)  # B W D
        if self.hashed is not None:
            vectors = torch.cat([vectors, self.hashed(source.ids, cut)], dim=-1)
        places = torch.arange(cut.mask.shape[1], device=cut.mask.device).expand(cut.mask.shape)
        with told_apart(SOURCE, [(SPELT, places)]):  # the source's own tap was passed by its letters
            memory: Memory = self.words(Frames(vectors, cut.mask))
        return memory

"""All the text of a run: source, target and extras become what a model reads, and its outputs become text again.

An extra stands before the source, as symbols that no text spells, or is a sequence of its own for an encoder of its
own. Where outputs may copy, a source also says which of its pieces the target can name only by their place in it.
Nothing is padded here, and no end is added: that belongs to batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import numpy.typing as npt

from seqloom.config import Table
from seqloom.data.codec import TextCodec
from seqloom.data.examples import Inputs, Links, offsets_of_pieces
from seqloom.data.frames import FramesCodec
from seqloom.data.pixels import PixelsCodec
from seqloom.data.sound import SoundCodec
from seqloom.data.source import Cut, Read, SourceCodec
from seqloom.errors import SeqloomError, nearest
from seqloom.specials import BOS, EOS, PAD, SEP, SPECIALS, UNK

Ids = npt.NDArray[np.integer]
CODECS: Table[SourceCodec] = Table(
    "inputs", {"text": TextCodec, "frames": FramesCodec, "pixels": PixelsCodec, "sound": SoundCodec}
)
NO_PIECE = -1  # in `copies` and `words`: a position that is no piece of the source's text


@dataclass(frozen=True)
class Encoded:
    """One input as a model reads it."""

    source: Read  # the extras that stand before it included
    own: int  # how many of these positions are of the source's own text
    extras: Mapping[str, Ids] = field(default_factory=dict)  # those with an encoder of their own
    copies: Ids | None = None  # as `Tokens.copies` has it
    foreign: tuple[str, ...] = ()  # its pieces that the target vocabulary lacks, the k-th has the id V + k
    words: Ids | None = None  # as `Tokens.words` has it

    @property
    def length(self) -> int:
        """All positions that are read, the end of each extra included (the source's own end is not)."""
        return len(self.source) + sum(len(ids) + 1 for ids in self.extras.values())

    @property
    def frames(self) -> int:
        """How many of its positions are frames; 0: it is text."""
        return len(self.source) if self.source.ndim > 1 else 0

    @property
    def unknown(self) -> int:
        """Tokens of the source that training has never seen; of frames none."""
        return unknown_in(self.source)


@dataclass(frozen=True)
class Pair:
    """One encoded example; `index` is its place in the corpus."""

    source: Read
    target: Ids
    index: int
    extras: Mapping[str, Ids] = field(default_factory=dict)
    copies: Ids | None = None
    weight: float = 1.0
    links: Ids | None = None  # L 2: (target position, source position) where the alignment is known
    words: Ids | None = None  # as `Tokens.words` has it


class Codecs:
    """The codecs of all sides. `prefixes` are the extras that stand before the source, in this order."""

    def __init__(
        self,
        source: SourceCodec,
        target: TextCodec,
        extras: Mapping[str, TextCodec] | None = None,
        *,
        prefixes: Sequence[str] = (),
        copies: bool = False,
        words: bool = False,
        labels: bool = False,
        in_place: bool = False,
        by_words: bool = False,
        points: int = 0,
        continues: bool = False,
        may_be_empty: Collection[str] = (),
        restores: bool = False,
    ) -> None:
        """`words`: sources say which word each of their tokens is a part of. `labels`: targets are labels, of which no
        other can be learned or said than those of training. `in_place`: one for each token of the source, or, with
        `by_words`, for each word. `points`: targets are at most so many tokens of the source, in a row, each named by
        its place. `continues`: a source is the beginning of the text that the target goes on with. `may_be_empty`: the
        sides that may. `restores`: labels are the source's own words, of which unknown ones are not asked for."""
        self.extras, self.prefixes, self.copies, self.words = dict(extras or {}), tuple(prefixes), copies, words
        self.labels, self.in_place, self.points, self.continues = labels, in_place, points, continues
        self.by_words, self.may_be_empty, self.restores = by_words, frozenset(may_be_empty), restores
        symbols: list[str] = []
        self._first: dict[str, int] = {}  # name of a prefix -> id of its first ordinary piece
        for name in self.prefixes:
            self._first[name] = source.as_text().vocabulary.spelled + len(symbols)
            symbols += [f"{name}:{piece}" for piece in self.extras[name].vocabulary.ordinary]
        one = target is source
        self.source = source.as_text().with_symbols(symbols) if symbols else source
        self.target = self.source.as_text() if one else target

    @property
    def encoders(self) -> list[str]:
        """The extras that have an encoder of their own."""
        return [name for name in self.extras if name not in self.prefixes]

    @property
    def samples(self) -> bool:
        """Whether any side may be cut in several ways (BPE dropout)."""
        return any(codec.samples for codec in (self.source, self.target, *self.extras.values()))

    def difference(self, other: Codecs) -> str:
        """Why one model cannot read and write for the other, in a few words; empty where it can."""
        mine, theirs = (one._sides for one in (self, other))
        for name in mine | theirs:
            if name not in mine or name not in theirs:
                return f"only one of them reads {name}"
            if (name in self.prefixes) != (name in other.prefixes):
                return f"one of them reads {name} before the source, the other by an encoder of its own"
        for name in mine:
            if setting := mine[name].difference(theirs[name]):
                return f"{name}.{setting}"
            if mine[name].learned != theirs[name].learned:
                return f"their {name} vocabularies differ"
        return ""

    @property
    def _sides(self) -> dict[str, SourceCodec]:
        return {"source": self.source, "target": self.target, **self.extras}

    # --- inputs ------------------------------------------------------------------------------------------------------

    def texts(self, inputs: Inputs, where: str = "") -> tuple[str, dict[str, str]]:
        """The source's text and the extras' of what a model is asked; E_USAGE names what is missing or not known."""
        if isinstance(inputs, str) and not self.extras:
            return inputs, {}
        given = {"source": inputs} if isinstance(inputs, str) else dict(inputs)
        known = ("source", *self.extras)
        if odd := [name for name in given if name not in known]:
            what = f"no input is called {odd[0]!r}{nearest(odd[0], known)}"
            raise SeqloomError("E_USAGE", what, where=where, fix=f"this model reads: {', '.join(known)}")
        if missing := [name for name in known if name not in given]:
            what = f"missing: {', '.join(missing)}"
            raise SeqloomError("E_USAGE", what, where=where, fix=f"this model reads: {', '.join(known)}")
        return given["source"], {name: given[name] for name in self.extras}

    def encode(self, inputs: Inputs, cut: Cut | None = None) -> Encoded:
        """What a model reads of these inputs; `cut` is what is known of the source already (`SourceCodec.cut`)."""
        text, extras = self.texts(inputs)
        return self._encoded(text, self.source.cut(text) if cut is None else cut, extras, None)

    def _encoded(self, text: str, cut: Cut, extras: Mapping[str, str], rng: Random | None) -> Encoded:
        own = {name: codec.vocabulary.ids(codec.tokens(extras[name], rng)) for name, codec in self.extras.items()}
        before = [token for name in self.prefixes for token in (*self._symbols(name, own[name]), SEP)]
        read = self.source.numbers(cut)
        if before:
            read = _array([*before, *read.tolist()])
        sequences = {name: _array(own[name]) for name in self.encoders}
        words = None
        if self.words:
            source = self.source.as_text()
            words = _array([NO_PIECE] * len(before) + source.tokenizer.words(_pieces(cut), source.normalise(text)))
        if not self.copies:
            return Encoded(read, len(cut), sequences, words=words)
        copied, foreign = self._copies(_pieces(cut))
        return Encoded(read, len(cut), sequences, _array([NO_PIECE] * len(before) + copied), foreign, words)

    def _symbols(self, name: str, ids: Iterable[int]) -> list[int]:
        """A prefix's ids moved behind the source's vocabulary; an unknown piece stays UNK."""
        shift = self._first[name] - len(SPECIALS)
        return [token if token < len(SPECIALS) else token + shift for token in ids]

    def _copies(self, pieces: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
        """For every piece its id in the target: its own, or V + its place among those that the target lacks."""
        vocabulary = self.target.vocabulary
        if self.points:
            return [len(vocabulary) + place for place in range(len(pieces))], tuple(pieces)
        foreign = dict.fromkeys(piece for piece in pieces if piece not in vocabulary)
        places = {piece: len(vocabulary) + k for k, piece in enumerate(foreign)}
        known = vocabulary.ids(pieces)
        return [places.get(piece, token) for piece, token in zip(pieces, known, strict=True)], tuple(foreign)

    def positions(self, encoded: Encoded) -> tuple[str, ...]:
        """The names of what a decoder attends to: the source's tokens, then those of extras with an own encoder."""
        names = [*self.source.labels(encoded.source), SPECIALS[EOS]]
        for name, ids in encoded.extras.items():
            names += [f"{name}:{piece}" for piece in self.extras[name].pieces([*ids, EOS])]
        return tuple(names)

    def unread(self, text: str, encoded: Encoded) -> dict[int, str]:
        """What the text has where a model reads nothing but UNK: piece by position."""
        if not encoded.unknown:
            return {}
        before = len(encoded.source) - encoded.own
        pieces = enumerate(_pieces(self.source.cut(text)), start=before)
        return {place: piece for place, piece in pieces if encoded.source[place] == UNK}

    def words_read(self, encoded: Encoded) -> int:
        """How many words a source has, where a model reads words; how many tokens otherwise."""
        if not self.by_words or encoded.words is None:
            return encoded.own
        return int(encoded.words.max(initial=-1)) + 1

    # --- pairs and outputs -------------------------------------------------------------------------------------------

    def pair(
        self,
        inputs: Inputs,
        target: str,
        index: int = 0,
        links: Links | None = None,
        again: tuple[Read, Random] | None = None,
    ) -> tuple[Pair, Encoded]:
        """One encoded example, and its source's side alone; `again` cuts what was read of it anew, as an rng draws."""
        text, extras = self.texts(inputs)
        rng = None if again is None else again[1]
        read = self.source.cut(text) if again is None else self.source.recut(text, *again)
        encoded = self._encoded(text, read, extras, rng)
        pieces = self.target.tokens(target, rng)
        ids = self.target.vocabulary.ids(pieces)
        if self.points:
            ids = self._pointed(text, _pieces(read), target)
        elif encoded.foreign:
            places = {piece: len(self.target.vocabulary) + k for k, piece in enumerate(encoded.foreign)}
            ids = [places.get(piece, token) for piece, token in zip(pieces, ids, strict=True)]
        linked = None
        if links is not None:
            said_words = self.target.tokenizer.words(pieces, self.target.normalise(target))
            source = self.source.as_text()
            read_words = source.tokenizer.words(_pieces(read), source.normalise(text))
            linked = _linked(links, read_words, said_words, len(encoded.source) - encoded.own)
        pair = Pair(
            encoded.source, _array(ids), index, encoded.extras, encoded.copies, links=linked, words=encoded.words
        )
        return pair, encoded

    def _pointed(self, text: str, pieces: Sequence[str], target: str) -> list[int]:
        """The places of a span: where its text first stands in the source, from token to token; UNK: nowhere."""
        source = self.source.as_text()
        read, wanted = source.normalise(text), source.normalise(target).strip()
        ends = list(offsets_of_pieces([source.tokenizer.surface(piece) for piece in pieces], read))
        first, last = ({one[side]: place for place, one in enumerate(ends) if one} for side in (0, 1))
        found = read.find(wanted)
        while wanted and found >= 0:
            start, end = first.get(found), last.get(found + len(wanted))
            if start is not None and end is not None and end - start < self.points:
                return [len(self.target.vocabulary) + place for place in range(start, end + 1)]
            found = read.find(wanted, found + 1)
        return [UNK] if wanted else []

    def begun(self, pieces: Sequence[str], encoded: Encoded) -> list[int]:
        """The ids of an output's first pieces after one source; E_USAGE for a piece that could not even be copied."""
        ids = self.target.vocabulary.ids(pieces)
        for place, piece in enumerate(pieces):
            if ids[place] == UNK and piece in encoded.foreign:
                ids[place] = len(self.target.vocabulary) + encoded.foreign.index(piece)
            elif ids[place] == UNK:
                what = f"prefix: {piece!r} is not in the vocabulary, and not in every source to be copied from there"
                raise SeqloomError("E_USAGE", what, fix="begin with what the model can say")
        return ids

    def said(self, ids: Iterable[int], foreign: Sequence[str] = ()) -> list[str]:
        """The pieces of an output; what was copied by its place is the source's own piece, if that is at hand."""
        vocabulary, size = self.target.vocabulary, len(self.target.vocabulary)
        named = {size + k: piece for k, piece in enumerate(foreign)}
        return [
            vocabulary.piece(token) if token < size else named.get(token, f"<copy {token - size}>") for token in ids
        ]

    def decode(self, ids: Iterable[int], foreign: Sequence[str] = ()) -> str:
        """The text of an output, as `TextCodec.decode`, copies included."""
        kept = [int(token) for token in ids if token not in (PAD, BOS, EOS)]
        return self.target.tokenizer.decode(self.said(kept, foreign))


def unknown_in(read: Read) -> int:
    """How many of these ids stand for what training has never seen; of frames none."""
    return int(np.count_nonzero(read == UNK)) if read.ndim == 1 else 0


def _pieces(cut: Cut) -> list[str]:
    assert not isinstance(cut, np.ndarray), "only a text has pieces"
    return [*cut]


def _array(ids: Sequence[int]) -> Ids:
    return np.array(ids, dtype=np.int64)


def _linked(links: Links, read: Sequence[int], said: Sequence[int], before: int) -> Ids:
    """Links of words as links of tokens, L 2: every piece of a word inherits its links; `before` tokens stand first."""
    found = [
        (t, before + s)
        for source_word, target_word in links
        for t in _places(said, target_word)
        for s in _places(read, source_word)
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _places(words: Sequence[int], wanted: int) -> list[int]:
    return [place for place, word in enumerate(words) if word == wanted]

"""Why a model said what it said: one forced pass over an output, with everybody listening.

Search carries no weights along; reading the finished output at once gives the same ones (law 1). What comes out is
plain arrays with labels: where each token looked, how probable it was, what else might have stood there. Nothing here
searches, draws, prints or changes the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Float64

from seqloom.batch import Batch
from seqloom.config import Plain
from seqloom.data.batching import collate_pairs
from seqloom.data.codecs import Codecs, Encoded, Ids, Pair
from seqloom.errors import SeqloomError
from seqloom.models.generator import Generator
from seqloom.nn.tape import Replacement, Tape
from seqloom.probe.align import Looked, Picks
from seqloom.probe.bins import FEW, averaged, bins_of, labels_of, merged, summed
from seqloom.probe.regions import in_parts
from seqloom.probe.tree import Tree
from seqloom.probe.within import within_source, within_taps
from seqloom.shapes import Float, Tensor
from seqloom.specials import EOS

MOST = 0.9  # of the probability of a number
DIGITS = 6  # of what is written to JSON

Weights = Float32[np.ndarray, "L H T S"]


@dataclass(frozen=True)
class AttentionMap:
    """Each output token's weights over the source's tokens (a row sums to 1), and its probability.

    Both sides end with the end-of-sequence token: the model reads one and writes one. Further sources with encoders of
    their own follow the source's tokens, each token under its source's name.
    """

    source: tuple[str, ...]  # S
    output: tuple[str, ...]  # T
    weights: Float32[np.ndarray, "H T S"]
    probabilities: Float32[np.ndarray, "T"]

    @property
    def mean(self) -> Float32[np.ndarray, "T S"]:
        """The weights averaged over the heads."""
        averaged: Float32[np.ndarray, "T S"] = self.weights.mean(axis=0)
        return averaged

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON."""
        return {
            "source": list(self.source),
            "output": list(self.output),
            "weights": _plain(self.weights),
            "probabilities": _plain(self.probabilities),
        }


@dataclass(frozen=True)
class Told:
    """One output token: how probable it was where it stands, and what was likeliest there, itself included."""

    token: str
    log_prob: float
    rank: int  # 1: nothing was likelier
    likeliest: tuple[tuple[str, float], ...]  # (token, log-probability), best first
    alone: float | None = None  # its log-probability whatever its neighbours are, where these matter (a tag's own)

    @property
    def runners_up(self) -> list[tuple[str, float]]:
        """What else was likely."""
        return [(token, log_prob) for token, log_prob in self.likeliest if token != self.token]

    def as_dict(self) -> dict[str, Plain]:
        others: list[Plain] = [{"token": token, "log_prob": round(value, DIGITS)} for token, value in self.likeliest]
        own = round(self.log_prob, DIGITS) if math.isfinite(self.log_prob) else None  # JSON has no infinity
        told: dict[str, Plain] = {"token": self.token, "log_prob": own, "rank": self.rank, "likeliest": others}
        return told if self.alone is None else {**told, "alone": round(self.alone, DIGITS)}


def possible(tokens: Iterable[str], log_probs: Iterable[float]) -> tuple[tuple[str, float], ...]:
    """(token, log-probability) of those that can be at all: of a label's other ids none can."""
    return tuple((token, value) for token, value in zip(tokens, log_probs, strict=True) if value > -math.inf)


@dataclass(frozen=True)
class Explanation:
    """One answer, looked at from all sides. `weights` has no layer where the model has no attention."""

    text: str
    answer: str
    source: tuple[str, ...]  # S: the tokens read, their end included; then those of extras
    output: tuple[Told, ...]  # T: the tokens said, their end included (see `ends`)
    read: tuple[int, ...]  # S: the word of the source's text that a token is a part of; -1: none
    said: tuple[int, ...]  # T: the same of the answer
    weights: Weights
    within_source: Float32[np.ndarray, "l h S S"]  # self-attention, where the encoder has it
    within_output: Float32[np.ndarray, "l h T T"]  # self-attention, where the decoder has it
    tree: Tree | None = None  # how the answer was found, where it was searched for
    extras: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False  # the answer was cut off: its end is not its own
    between: tuple[str, str] | None = None  # of a number: what `MOST` of its probability lies between
    ends: bool = True  # the last of `output` is the end; where that is certain, as of labels, it is left out
    frames: int = 0  # so many of the first positions are frames: neighbours may be drawn as one
    grid: tuple[int, int] | None = None  # rows and columns, where these are the regions of a picture
    picture: str = ""  # that picture as a data URI, where it is to be drawn
    signal: Float32[np.ndarray, "S F"] | None = None  # what these are made of, to be drawn
    unknown: Mapping[int, str] = field(default_factory=dict)  # what the text has where a token of `source` is unknown

    @property
    def log_prob(self) -> float:
        return sum(told.log_prob for told in self.output[: len(self.output) - self.truncated])

    @cached_property
    def mean(self) -> Float32[np.ndarray, "T S"]:
        """The weights of the last layer averaged over its heads."""
        averaged: Float32[np.ndarray, "T S"] = self.weights[-1].mean(axis=0)
        return averaged

    def entropy(self) -> Float64[np.ndarray, "L H T"]:
        """How spread each token's weights are, in bits: 0 where it looked at one place."""
        weights = self.weights.astype(np.float64)
        logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
        spread: Float64[np.ndarray, "L H T"] = np.abs((weights * logs).sum(-1))
        return spread

    def coverage(self) -> Float64[np.ndarray, "S"]:
        """How much each source token was looked at by the whole answer: the sum of the last layer's mean weights."""
        summed: Float64[np.ndarray, "S"] = self.mean.astype(np.float64).sum(0)
        return summed

    def by_words(self, picks: Picks | None = None) -> Float64[np.ndarray, "t s"]:
        """How much each word of the answer looked at each word of the text."""
        own = [place for place, word in enumerate(self.read) if word >= 0]
        columns = slice(own[0], own[-1] + 1) if own else slice(0)
        looked = Looked(self.weights[..., columns], self.read[columns], self.said[:-1] if self.ends else self.said)
        return looked.by_words(picks or Picks())

    def map(self, layer: int | None = None, head: int | None = None, words: bool = False) -> AttentionMap:
        """The weights to be drawn: of a layer (None: the last) and a head (None: all), counted from 1.

        With `words`, pieces are merged: probabilities of a word's pieces are multiplied.
        """
        if not len(self.weights):
            what = "this model has no attention: what it read reaches it through its states alone"
            raise SeqloomError("E_USAGE", what, fix="train a decoder with attention, such as model.decoder.kind: luong")
        self.check(layer, head)
        if words and self.frames:
            raise SeqloomError("E_USAGE", "--words: a source that is no text has no words", fix="leave --words out")
        if self.frames > FEW and self.grid is None:
            return self.binned(FEW).map(layer, head)
        if words:
            probabilities = [float(np.exp(self._of_word(self.said, word))) for word in range(max(self.said) + 1)]
            whole = self.by_words(Picks(layer, head)).astype(np.float32)
            labels = tuple(self.text.split())[: whole.shape[1]], tuple(self.answer.split())[: whole.shape[0]]
            return AttentionMap(*labels, whole[None], np.array(probabilities[: len(whole)], dtype=np.float32))
        chosen = self.weights[-1 if layer is None else layer - 1]
        shown = chosen if head is None else chosen[head - 1 : head]
        tokens, read = tuple(told.token for told in self.output), self.source
        if self.grid is not None:  # a map has no room for all regions, and nobody knows them by their numbers
            names, shown = in_parts(shown, self.grid)
            read = (*names, *self.source[self.frames :])
        return AttentionMap(read, tokens, shown, np.exp([told.log_prob for told in self.output], dtype="f4"))

    def binned(self, most: int) -> Explanation:
        """The same with neighbouring frames merged to at most so many bins, each named by its first frame."""
        if self.frames <= most or self.grid is not None:
            return self
        places = bins_of(self.frames, len(self.source), most)
        return replace(
            self,
            source=labels_of(self.source, places),
            read=(-1,) * (int(places[-1]) + 1),
            weights=summed(self.weights, places),
            within_source=averaged(self.within_source, places),
            frames=most,
            signal=None if self.signal is None else merged(self.signal, places[: self.frames]),
        )

    def check(self, layer: int | None, head: int | None) -> None:
        """E_USAGE for a layer or a head that this model has not got."""
        for what, wanted, count in zip(("layer", "head"), (layer, head), self.weights.shape[:2], strict=True):
            if wanted is not None and not 1 <= wanted <= count:
                known = f"{what}s 1 to {count}" if count else f"no {what}s of attention to the source"
                raise SeqloomError("E_USAGE", f"{what} {wanted}: this model has {known}", fix=f"leave --{what} out")

    def _of_word(self, words: Sequence[int], wanted: int) -> float:
        return sum(told.log_prob for told, word in zip(self.output, words, strict=True) if word == wanted)

    def words(self) -> list[tuple[str, float]]:
        """Each word of the answer and the log-probability of its pieces and of the blanks before it; then the end.

        Words that are one piece (a label of several) stay together.
        """
        begun, costs, before = list[int](), list[float](), 0.0
        for told, word in zip(self.output, self.said, strict=True):
            before += told.log_prob
            if word < 0:
                continue
            if not begun or word != begun[-1]:
                begun.append(word)
                costs.append(0.0)
            costs[-1] += before
            before = 0.0
        names = self.answer.split()
        found = [" ".join(names[first:behind]) for first, behind in zip(begun, [*begun[1:], len(names)], strict=True)]
        ends = [(self.output[-1].token, before)] if self.ends and self.output else []
        return [*zip(found, costs, strict=True), *ends]

    def as_dict(self) -> dict[str, Plain]:
        """Plain data for JSON."""
        return {
            "source": self.text,
            **({"extras": dict(self.extras)} if self.extras else {}),
            "answer": self.answer,
            "log_prob": round(self.log_prob, DIGITS),
            "truncated": self.truncated,
            **({} if self.between is None else {"between": list(self.between)}),
            "source_tokens": list(self.source),
            "source_words": list(self.read),
            **(
                {"source_unknown": {str(place): piece for place, piece in self.unknown.items()}} if self.unknown else {}
            ),
            **({"source_frames": self.frames} if self.frames else {}),
            **({"grid": list(self.grid)} if self.grid else {}),
            "output": [told.as_dict() for told in self.output],
            "output_words": list(self.said),
            "weights": _plain(self.weights),
            "within_source": _plain(self.within_source),
            "within_output": _plain(self.within_output),
            **({"entropy": _plain(self.entropy()), "coverage": _plain(self.coverage())} if len(self.weights) else {}),
            **({} if self.tree is None else {"tree": self.tree.as_dict()}),
        }


@dataclass(frozen=True)
class Forced:
    """An input and an output, as tokens: what a pass is forced over."""

    encoded: Encoded
    tokens: Ids  # of the output, without its end

    def batch(self, device: torch.device) -> Batch:
        read = self.encoded
        pair = Pair(read.source, self.tokens, 0, read.extras, read.copies, words=read.words)
        return collate_pairs([pair]).to(device)


@torch.inference_mode()
def explained(
    network: Generator,
    codecs: Codecs,
    text: str,
    forced: Forced,
    *,
    likeliest: int = 5,
    replace: Mapping[str, Replacement] | None = None,
) -> Explanation:
    """One output under the eyes of everybody; `replace` is what passes instead of the model's own (see `edits`)."""
    batch = forced.batch(next(network.parameters()).device)
    own = within_taps(network)
    said = network.decoder.self_taps if network.attention_taps != network.decoder.self_taps else ()
    with Tape(*network.attention_taps, *own, *said, replace=replace) as tape:
        features, state = network.forced(batch)
        log_probs = network.head.log_probs(features, state)[0].float()  # T W
    ends = not network.decoder.sure_of_end
    ids = [*forced.tokens.tolist(), *([EOS] if ends else [])]
    alone = network.decoder.alone(state)
    steps = _told(log_probs[: len(ids)], ids, codecs, forced.encoded.foreign, likeliest)
    if alone is not None:
        steps = _beside_neighbours(steps, ids, alone[0])
    pieces = [told.token for told in steps[: len(forced.tokens)]]
    answer = codecs.target.tokenizer.decode(pieces)
    source = codecs.positions(forced.encoded)
    before = len(forced.encoded.source) - forced.encoded.own
    read = [-1] * before + codecs.source.words(text)
    return Explanation(
        text=text,
        answer=answer,
        source=source,
        output=steps,
        read=(*read, *[-1] * (len(source) - len(read))),
        said=(*_words(codecs, pieces, answer), *([-1] if ends else [])),
        weights=_stacked(network.attended(tape, batch), (len(ids), len(source)))[:, :, : len(ids)],
        within_source=_stacked(within_source(tape, network, batch), (len(source), len(source))),
        within_output=_stacked([tape.joined(name, dim=2) for name in said], (len(ids), len(ids))),
        between=_between(log_probs[0], codecs) if codecs.target.tokenizer.scale else None,
        ends=ends,
        frames=forced.encoded.frames,
        grid=codecs.source.grid,
        picture=codecs.source.shown(text),
        signal=codecs.source.signal(forced.encoded.source),
        unknown=codecs.unread(text, forced.encoded),
    )


def _told(
    log_probs: Tensor, ids: Sequence[int], codecs: Codecs, foreign: Sequence[str], count: int
) -> tuple[Told, ...]:
    wanted = torch.tensor(ids, device=log_probs.device)[:, None]
    own = log_probs.gather(1, wanted)
    ranks = ((log_probs > own).sum(1) + 1).tolist()
    top = log_probs.topk(min(count, log_probs.shape[1]))
    steps = zip(ids, own[:, 0].tolist(), ranks, top.indices.tolist(), top.values.tolist(), strict=True)
    return tuple(
        Told(codecs.said([token], foreign)[0], value, rank, possible(codecs.said(best, foreign), values))
        for token, value, rank, best, values in steps
    )


def _beside_neighbours(steps: Sequence[Told], ids: Sequence[int], alone: Float[Tensor, "T W"]) -> tuple[Told, ...]:
    """The steps with what each token is worth by itself."""
    pairs = zip(steps, ids, alone, strict=False)
    return tuple(replace(step, alone=float(row[token])) for step, token, row in pairs)


def _between(log_probs: Float[Tensor, "W"], codecs: Codecs) -> tuple[str, str]:
    """The levels that hold `MOST` of the probability, as much being left on either side."""
    below = log_probs.exp().cumsum(0)
    ends = torch.searchsorted(below, below[-1] * below.new_tensor([(1 - MOST) / 2, (1 + MOST) / 2]))
    low, high = codecs.said(ends.clamp(max=len(log_probs) - 1).tolist())
    return low, high


def _words(codecs: Codecs, pieces: Sequence[str], answer: str) -> list[int]:
    """The word of each piece; none where the pieces do not spell the answer (half a character of a byte model)."""
    words = codecs.target.tokenizer.words(pieces, answer)
    return words if len(words) == len(pieces) else [-1] * len(pieces)


def _stacked(layers: Sequence[Tensor], shape: tuple[int, int]) -> Weights:
    """The layers of one pair as one array."""
    if not layers:
        return np.zeros((0, 0, *shape), dtype=np.float32)
    return torch.stack([layer[0] for layer in layers]).float().cpu().numpy()


def _plain(values: np.ndarray) -> Plain:
    found: Plain = np.asarray(values, dtype=np.float64).round(DIGITS).tolist()
    return found

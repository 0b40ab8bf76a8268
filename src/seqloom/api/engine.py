"""An exported model: `seqloom export` writes it, `load_engine` opens it, another library computes. No torch here.

A folder holds that library's own files, the codecs, and `engine.json` with all that reading, searching and judging
take from a recipe. Search is the library's: a beam that ends like ours, whose outputs are ranked by our scores.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from seqloom import cards
from seqloom.api.asked import Asked
from seqloom.api.exported import (
    CARD,
    ENGINE,
    FIX,
    EngineCard,
    Taken,
    find_engine,
    refuse_missing,
    refuse_stale,
    spelled,
)
from seqloom.api.predictions import Output, Prediction, answered, passed_over
from seqloom.api.reading import CHUNK_LINES, Piece, Place, Reader
from seqloom.config import kind_of, validated
from seqloom.data.codecs import Codecs, Encoded
from seqloom.data.examples import Inputs
from seqloom.errors import SeqloomError
from seqloom.search.hypotheses import LENGTHS
from seqloom.search.limits import Limits
from seqloom.specials import EOS, UNK, UNSPEAKABLE

if TYPE_CHECKING:
    from ctranslate2 import AsyncTranslationResult, Translator

GROUP = 256  # texts that are read before the library is asked for them
CACHED = 512  # source tokens of a batch on a CPU: with more, each takes longer
PADDED = 1.15  # what a batch is larger than its tokens, when work is shared out


@dataclass(frozen=True, slots=True)
class Found:
    """One output of the library, judged by our rules."""

    pieces: Sequence[str]
    log_prob: float
    score: float
    truncated: bool


@dataclass(frozen=True, slots=True)
class _Group:
    """Texts on their way: their places, what is read of them, and what the library will say."""

    places: Sequence[int]
    sources: Sequence[Encoded]
    spelled: list[list[str]]
    bounds: Sequence[tuple[int, int]]
    coming: Sequence[AsyncTranslationResult]


@dataclass
class Engine:
    """`engine("text")` gives a `Prediction`, as a `Model` does; what only our own search can do is not asked of it."""

    taken: Taken
    codecs: Codecs
    translator: Translator
    told: bool = False  # are the scores of single tokens wanted? They take a second pass
    _pieces: tuple[list[str], list[str]] = field(init=False, repr=False)
    _ids: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pieces = spelled(self.codecs)
        self._ids = {piece: token for token, piece in enumerate(self._pieces[1])}
        self._unspeakable = frozenset(self._pieces[1][token] for token in UNSPEAKABLE)
        self._length = LENGTHS.build(self.taken.length)
        kind, alpha = kind_of(self.taken.length), getattr(self.taken.length, "alpha", 0.0)
        self._exponent = {"none": 0.0, "mean": 1.0}.get(kind, alpha)  # what comes nearest to it during the search
        self.reader = Reader(self.codecs, self.taken.max_source, self.taken.max_extra, self.taken.sentences_per_line)

    @overload
    def __call__(self, text: Inputs, **options: object) -> Prediction: ...
    @overload
    def __call__(self, text: list[str] | list[dict[str, str]], **options: object) -> list[Prediction]: ...
    def __call__(
        self, text: Inputs | list[str] | list[dict[str, str]], **options: object
    ) -> Prediction | list[Prediction]:
        """Predict one text, or several; keywords are those of `Asked` (beam=5, n_best=3, prefix="...")."""
        asked = validated(Asked, options, "options")
        if isinstance(text, (str, Mapping)):
            return next(self.predict([text], asked))
        return list(self.predict(text, asked))

    def predict(
        self,
        texts: Iterable[Inputs],
        asked: Asked | None = None,
        chunk: int = CHUNK_LINES,
        name: str = "",
        first: int = 1,
    ) -> Iterator[Prediction]:
        """One prediction per text, in order, however long the input is. Empty lines give empty answers."""
        chosen = asked or Asked()
        self.asking(chosen)
        yield from self.reader.predictions(
            texts, chosen, lambda pieces: self._answers(pieces, chosen), chunk, Place(name, first)
        )

    def refuse_long(self, texts: Iterable[Inputs], asked: Asked, name: str = "", first: int = 1) -> None:
        self.reader.refuse_long(texts, asked, Place(name, first))

    def asking(self, asked: Asked) -> None:
        """E_USAGE for what cannot be met."""
        beam = asked.beam or self.taken.beam
        if asked.n_best > beam:
            raise SeqloomError("E_USAGE", f"n_best {asked.n_best} is over the beam's size {beam}", fix="a wider beam")
        self._prefix(asked)
        self._limits(asked)

    def _prefix(self, asked: Asked) -> list[int]:
        tokens = self.codecs.target.encode(asked.prefix) if asked.prefix else []
        if UNK in tokens:
            odd = self.codecs.target.tokens(asked.prefix)[tokens.index(UNK)]
            fix = "begin with what the model's vocabulary can spell"
            raise SeqloomError("E_USAGE", f"prefix: the model cannot say {odd!r}", fix=fix)
        return tokens

    def _limits(self, asked: Asked) -> Limits:
        wishes = {name: getattr(asked, name) for name in ("min_length", "max_length", "min_ratio", "max_ratio")}
        given = {name: value for name, value in wishes.items() if value is not None}
        return validated(Limits, {**dict(self.taken.limits), **given}, "limits")

    def _answers(self, texts: Sequence[Piece], asked: Asked) -> list[Prediction]:
        """Some texts are read while the library is busy with others, the longest first: nobody waits at the end."""
        answers = [passed_over(text, extras) for text, extras in texts]
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place][0]))
        groups = [self._begun(texts, order[first : first + GROUP], asked) for first in range(0, len(order), GROUP)]
        for group in groups:
            for place, encoded, found in zip(group.places, group.sources, self._found(group, asked), strict=True):
                text, extras = texts[place]
                best = found[: asked.n_best]
                told = self._told(encoded, best)
                outputs = [self._output(one, scores) for one, scores in zip(best, told, strict=True)]
                answers[place] = answered(text, extras, encoded, outputs, self.taken.calibration)
        return answers

    def _begun(self, texts: Sequence[Piece], places: Sequence[int], asked: Asked) -> _Group:
        """Some of the texts, read, and the first search for them under way."""
        read, _ = self.reader.encoded([texts[place] for place in places])  # text alone: there are no files to be bad
        sources = list(read.values())
        limits, room = self._limits(asked), len(self._prefix(asked))
        bounds = [limits.bounds(len(encoded.source) + 1, room) for encoded in sources]
        spelled = [self._spelled(encoded) for encoded in sources]
        longest = max((most for _, most in bounds), default=0)
        coming = self._asked_for(spelled, [(least, longest + 1) for least, _ in bounds], asked)
        return _Group([places[own] for own in read], sources, spelled, bounds, coming)

    def _output(self, found: Found, scores: tuple[float, ...]) -> Output:
        pieces = self.codecs.said([self._ids[piece] for piece in found.pieces])
        text = self.codecs.target.tokenizer.decode(pieces)
        return Output(text, tuple(pieces), scores, found.log_prob, found.score, found.truncated)

    # --- what the library is asked -----------------------------------------------------------------------------------

    def _found(self, group: _Group, asked: Asked) -> list[list[Found]]:
        """Outputs for every source, best first. A limit belongs to a source and never to those beside it: all were
        asked together, and who did not end within its own is asked again, with sources of the same limits.
        """
        texts, bounds = group.spelled, group.bounds
        found, open_ones = self._sorted_out(texts, bounds, self._heard(group.coming), asked)
        settled = self._settled([texts[place] for place in open_ones], [bounds[place] for place in open_ones], asked)
        found |= zip(open_ones, settled, strict=True)
        return [found[place] for place in range(len(texts))]

    def _sorted_out(
        self, texts: list[list[str]], bounds: Sequence[tuple[int, int]], first: Sequence[list[Found]], asked: Asked
    ) -> tuple[dict[int, list[Found]], list[int]]:
        """What is settled at once, and the places of what is not.

        A greedy search goes the same way whatever its limit is: what grew too long is cut off, and that is its answer.
        """
        ended: dict[int, list[Found]] = {}
        cut: dict[int, list[Found]] = {}
        open_ones: list[int] = []
        for place, outputs in enumerate(first):
            (_, most), speakable = bounds[place], all(map(self._speakable, outputs))
            over = any(len(one.pieces) > most or one.truncated for one in outputs)
            if not over and speakable and len(outputs) >= asked.n_best:
                ended[place] = outputs
            elif speakable and (asked.beam or self.taken.beam) == 1:
                cut[place] = [Found(one.pieces[:most], 0.0, 0.0, truncated=True) for one in outputs]
            else:
                open_ones.append(place)
        altered = {place: ones for place, ones in ended.items() if asked.prefix or bounds[place][0]}
        found = ended | self._rescored(texts, altered | cut)
        return {place: sorted(ones, key=_by_score) for place, ones in found.items()}, open_ones

    def _settled(self, texts: list[list[str]], bounds: Sequence[tuple[int, int]], asked: Asked) -> list[list[Found]]:
        """What is found for each text within its bounds, best first; cut off is only what is needed to have enough.

        The library is asked for one token more than is wanted: what has reached its limit may still end.
        """
        beyond = [(least, most + 1) for least, most in bounds]
        outputs = self._searched(texts, beyond, asked)
        odd = [row for row, ones in enumerate(outputs) if not all(map(self._speakable, ones))]
        again = self._searched([texts[row] for row in odd], [beyond[row] for row in odd], asked, banned=True)
        for row, ones in zip(odd, again, strict=True):
            outputs[row] = ones  # of a model that learned next to nothing
        ended = [[one for one in ones if not one.truncated] for ones in outputs]
        cut: dict[int, list[Found]] = {}
        for banned in (False, True):
            rows = [row for row, ones in enumerate(ended) if len(ones) < asked.n_best and (row in odd) == banned]
            again = self._searched([texts[row] for row in rows], [bounds[row] for row in rows], asked, banned)
            cut |= {
                row: [one for one in ones if one.truncated] if ended[row] else ones
                for row, ones in zip(rows, again, strict=True)
            }
        altered = [row for row in range(len(texts)) if asked.prefix or bounds[row][0] or row in odd]
        cut = self._rescored(texts, cut)
        for row, ones in self._rescored(texts, {row: ended[row] for row in altered}).items():
            ended[row] = ones
        return [
            [*sorted(ones, key=_by_score), *sorted(cut.get(row, []), key=_by_score)] for row, ones in enumerate(ended)
        ]

    def _speakable(self, found: Found) -> bool:
        return self._unspeakable.isdisjoint(found.pieces)

    def _searched(
        self, texts: list[list[str]], bounds: Sequence[tuple[int, int]], asked: Asked, banned: bool = False
    ) -> list[list[Found]]:
        """What the library finds for each text within its bounds."""
        return self._heard(self._asked_for(texts, bounds, asked, banned))

    def _asked_for(
        self, texts: list[list[str]], bounds: Sequence[tuple[int, int]], asked: Asked, banned: bool = False
    ) -> list[AsyncTranslationResult]:
        """What the library will find for each text; what no output may hold is forbidden where asked for, as that
        takes time.
        """
        prefix = [self._pieces[1][token] for token in self._prefix(asked)]
        beam = asked.beam or self.taken.beam
        coming: dict[int, AsyncTranslationResult] = {}
        for (least, most), rows in _grouped(range(len(texts)), bounds):
            some = [texts[row] for row in rows]
            results = self.translator.translate_batch(
                some,
                target_prefix=[prefix] * len(some) if prefix else None,
                beam_size=beam,
                num_hypotheses=beam,
                length_penalty=self._exponent,
                min_decoding_length=least,
                max_decoding_length=most,
                max_input_length=0,
                return_scores=True,
                return_end_token=True,
                max_batch_size=self._batch_tokens(some, asked),
                batch_type="tokens",
                suppress_sequences=[[piece] for piece in self._unspeakable] if banned else None,
                asynchronous=True,
            )
            coming |= zip(rows, results, strict=True)
        return [coming[row] for row in range(len(texts))]

    def _heard(self, coming: Iterable[AsyncTranslationResult]) -> list[list[Found]]:
        """What was found, judged while the library goes on with the rest."""
        found = (one.result() for one in coming)
        return [[self._judged(*one) for one in zip(result.hypotheses, result.scores, strict=True)] for result in found]

    def _batch_tokens(self, texts: list[list[str]], asked: Asked) -> int:
        """As many as were asked for, or fewer: what a processor's cache holds, and equally many batches per worker."""
        lengths = [len(text) + 1 for text in texts]
        total, workers = PADDED * sum(lengths), self.translator.num_translators
        most = min(asked.batch_tokens, CACHED) if self.translator.device == "cpu" else asked.batch_tokens
        share = math.ceil(total / (math.ceil(total / (most * workers)) * workers))
        return int(min(asked.batch_tokens, max(share, *lengths)))

    def _judged(self, pieces: Sequence[str], score: float) -> Found:
        """`score` is the library's: divided by a power of the number of tokens, the end counted."""
        ended = bool(pieces) and pieces[-1] == self._pieces[1][EOS]
        log_prob = score * len(pieces) ** self._exponent
        said = pieces[:-1] if ended else pieces
        return Found(said, log_prob, self._score(log_prob, said), not ended)

    def _score(self, log_prob: float, said: Sequence[str]) -> float:
        return log_prob / float(self._length.divisor(float(max(1, len(said) + self._length.end))))  # type: ignore[arg-type]

    def _rescored(self, texts: list[list[str]], outputs: Mapping[int, Sequence[Found]]) -> dict[int, list[Found]]:
        """With log-probabilities of all that is said and of nothing else. While it searches, the library leaves a
        given beginning out, and shares out the probability of what may not be said.
        """
        flat = [(row, one) for row, ones in outputs.items() for one in ones]
        told = self._token_scores([texts[row] for row, _ in flat], [one for _, one in flat])
        again: dict[int, list[Found]] = {row: [] for row in outputs}
        for (row, one), scores in zip(flat, told, strict=True):
            log_prob = sum(scores)
            again[row].append(Found(one.pieces, log_prob, self._score(log_prob, one.pieces), one.truncated))
        return again

    def _told(self, encoded: Encoded, outputs: Sequence[Found]) -> list[tuple[float, ...]]:
        if not self.told:
            return [()] * len(outputs)
        return self._token_scores([self._spelled(encoded)] * len(outputs), outputs)

    def _token_scores(self, texts: list[list[str]], outputs: Sequence[Found]) -> list[tuple[float, ...]]:
        if not outputs:
            return []
        targets = [list(one.pieces) for one in outputs]
        results = self.translator.score_batch(texts, targets, max_input_length=0)
        return [
            tuple(result.log_probs[: len(one.pieces) + (not one.truncated)])
            for result, one in zip(results, outputs, strict=True)
        ]

    def _spelled(self, encoded: Encoded) -> list[str]:
        pieces = self._pieces[0]
        return [pieces[token] for token in encoded.source.tolist()]

    def __repr__(self) -> str:
        languages = f"{self.taken.languages.get('source', '')} -> {self.taken.languages.get('target', '')}"
        kept = self.taken.quantised or "float32"
        return f"Engine({self.taken.name!r}, {languages}, {ENGINE} {kept}, {self.taken.parameters:,} parameters)"


def _by_score(found: Found) -> float:
    return -found.score


def _grouped(places: Iterable[int], keys: Sequence[Any]) -> Iterator[tuple[Any, list[int]]]:
    """Places by their key."""
    ordered = sorted(zip(keys, places, strict=True), key=lambda pair: pair[0])
    for key, group in groupby(ordered, key=lambda pair: pair[0]):
        yield key, [place for _, place in group]


def load_engine(run: str | Path, *, device: str = "auto", threads: int | None = None, told: bool = False) -> Engine:
    """Open an exported model. `threads` work on as many texts at once, never on one together: where the machine has
    anything else to do, threads that wait for each other at every product are many times slower than one.
    """
    folder = find_engine(run)
    refuse_missing(ENGINE)
    import ctranslate2

    card = cards.read(folder / CARD, EngineCard, FIX)
    refuse_stale(card.weights, folder)
    cards.check_files(folder, card, FIX, needs=("model.bin",))
    count = threads or os.cpu_count() or 1
    try:
        translator = ctranslate2.Translator(
            str(folder), device=device, inter_threads=count, intra_threads=1, max_queued_batches=-1
        )
    except (RuntimeError, ValueError) as error:
        raise SeqloomError("E_BUNDLE", f"CTranslate2: {error}", where=str(folder), fix=FIX) from None
    return Engine(card.taken, card.taken.codecs(folder), translator, told)

"""What the sentencepiece tokenizers need around sentencepiece: exact escapes, training without files, sampling.

sentencepiece trains and cuts; it is never asked to normalise or to join. Its own sampler draws from a hidden
thread-local generator, which cannot be seeded per call, so the two published samplers are written here over the
model's pieces: subword regularisation (Kudo 2018) here, BPE dropout in `merging.py`.
"""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal

import sentencepiece

from seqloom.errors import SeqloomError

SPACE = "\u2581"  # "▁": how sentencepiece writes a space
ESCAPE = "\uf8f0"  # a private-use character; in user text it is escaped too, so nothing is ambiguous
# Characters that mean something to sentencepiece itself (or to its trainer) are written as ESCAPE and a letter.
_CODES = {ESCAPE: "e", SPACE: "s", "\u2585": "u", "\t": "t", "\n": "n", "\r": "r", "\0": "0"}
_TO_ESCAPE = str.maketrans({char: ESCAPE + code for char, code in _CODES.items()})
_FROM_CODE = {code: char for char, code in _CODES.items()}
_ESCAPED = re.compile(ESCAPE + "(.)")
_UNKNOWN = ESCAPE + "?"  # the name of sentencepiece's one special piece: no text contains it

MAX_TRAINING_TEXTS = 1_000_000  # sentencepiece holds its texts in memory; more are sampled evenly
_MAX_CHUNK = 10_000  # characters; it would skip longer lines
_MAX_LATTICES = 100_000  # words remembered by a sampler
_LONGEST_WORD = 40  # characters; longer ones are lines, rarely come again, and are not remembered
_UNKNOWN_PENALTY = 10.0  # sentencepiece's own: an unknown character costs this more than the rarest piece

Lattice = list[tuple[tuple[int, ...], tuple[float, ...]]]


def escaped(text: str) -> str:
    """The text as sentencepiece may see it: spaces are SPACE, and one more stands in front of all."""
    return SPACE + text.translate(_TO_ESCAPE).replace(" ", SPACE) if text else ""


def unescaped(text: str) -> str:
    """The inverse of `escaped`; in texts that a model invented, an escape without meaning is dropped."""
    plain = text.removeprefix(SPACE).replace(SPACE, " ")
    return _ESCAPED.sub(lambda match: _FROM_CODE.get(match.group(1), ""), plain)


def train_model(kind: Literal["bpe", "unigram"], texts: Iterable[str], size: int, coverage: float, seed: int) -> bytes:
    """A sentencepiece model as bytes; the same texts and seed give the same bytes."""
    sample = _evenly_sampled(_chunked(texts), Random(seed))
    if not sample:
        raise SeqloomError("E_EMPTY", f"no text to train the {kind} tokenizer on", fix="check the data")
    out = io.BytesIO()
    try:
        _apart(
            sentencepiece.SentencePieceTrainer.train,
            sentence_iterator=iter(sample),
            model_writer=out,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=False,  # a small corpus gives as many pieces as it can
            character_coverage=coverage,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,  # `escaped` has written it
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            unk_id=0,
            unk_piece=_UNKNOWN,
            max_sentence_length=_MAX_CHUNK * 10,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _not_trained(kind, size, str(error)) from None
    return out.getvalue()


def _apart(work: Callable[..., None], **keywords: object) -> None:
    """Do long work of a library in a thread of its own and wait for it here, where Ctrl-C is heard meanwhile."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work(**keywords)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _chunked(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), _MAX_CHUNK):
            yield escaped(text[start : start + _MAX_CHUNK])


def _evenly_sampled(texts: Iterable[str], rng: Random) -> list[str]:
    """At most MAX_TRAINING_TEXTS, each with the same chance (reservoir sampling): one pass, bounded memory."""
    kept: list[str] = []
    for seen, text in enumerate(texts):
        if seen < MAX_TRAINING_TEXTS:
            kept.append(text)
        elif (place := rng.randrange(seen + 1)) < MAX_TRAINING_TEXTS:
            kept[place] = text
    return kept


def _not_trained(kind: str, size: int, message: str) -> SeqloomError:
    if needed := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return SeqloomError(
            "E_RECIPE",
            f"a {kind} size of {size:,} does not even hold every character",
            where="tokenizer.size",
            fix=f"at least {int(needed.group(1)):,}, or lower character_coverage",
        )
    return SeqloomError("E_DATA", f"sentencepiece could not be trained: {message}", where=f"tokenizer {kind}")


def inventory(processor: sentencepiece.SentencePieceProcessor) -> dict[str, float]:
    """Every ordinary piece with its score: BPE, minus the rank of its merge; unigram, its log-probability."""
    size = processor.get_piece_size()
    return {processor.id_to_piece(i): processor.get_score(i) for i in range(size) if not processor.is_unknown(i)}


# --- sampling ----------------------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """The escaped text cut before every SPACE: no piece crosses these borders, so words are sampled one by one."""
    return re.findall(f"{SPACE}?[^{SPACE}]+|{SPACE}", text)


class UnigramSampler:
    """Draws a segmentation with probability proportional to P(segmentation) ** sharpness.

    Forward sums over all segmentations, then one walk back: exact, where n-best sampling is not.
    """

    def __init__(self, scores: Mapping[str, float], sharpness: float) -> None:
        self.scores, self.sharpness = scores, sharpness
        self.longest = max(map(len, scores))
        self.unknown = min(scores.values()) - _UNKNOWN_PENALTY
        self._lattices: dict[str, Lattice] = {}

    def draw(self, word: str, rng: Random) -> list[str]:
        lattice = self._lattices.get(word)
        if lattice is None:
            lattice = self._lattice(word)
            if len(self._lattices) < _MAX_LATTICES and len(word) <= _LONGEST_WORD:
                self._lattices[word] = lattice
        pieces = []
        end = len(word)
        while end > 0:
            starts, weights = lattice[end]
            start = starts[0] if len(starts) == 1 else rng.choices(starts, weights)[0]
            pieces.append(word[start:end])
            end = start
        pieces.reverse()
        return pieces

    def _lattice(self, word: str) -> Lattice:
        """For each end: where its last piece may start, and with what probability given that end."""
        total = [0.0]  # log of the summed weight of all ways to cut word[:end]
        lattice: Lattice = [((), ())]
        for end in range(1, len(word) + 1):
            ways = []
            for start in range(max(0, end - self.longest), end):
                score = self.scores.get(word[start:end], self.unknown if end - start == 1 else -math.inf)
                if score > -math.inf:
                    ways.append((start, total[start] + self.sharpness * score))
            highest = max(weight for _, weight in ways)
            total.append(highest + math.log(sum(math.exp(weight - highest) for _, weight in ways)))
            lattice.append((tuple(s for s, _ in ways), tuple(math.exp(weight - total[end]) for _, weight in ways)))
        return lattice


def unknown_runs_joined(pieces: Sequence[str], known: Mapping[str, float]) -> list[str]:
    """Neighbouring unknown pieces become one, as sentencepiece does it."""
    out: list[str] = []
    last_unknown = False
    for piece in pieces:
        is_unknown = piece not in known
        if is_unknown and last_unknown:
            out[-1] += piece
        else:
            out.append(piece)
        last_unknown = is_unknown
    return out

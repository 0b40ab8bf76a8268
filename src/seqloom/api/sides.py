"""How a side's texts are cut into tokens, and why: by their look, their number, and what they are for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from seqloom.api.sizes import LETTERS_BELOW
from seqloom.data.characters import SPACELESS_SCRIPTS
from seqloom.data.codec import MAX_CHARACTERS
from seqloom.data.kinds import Task
from seqloom.data.profile import Looks, Profile, SideProfile
from seqloom.data.readers import Example
from seqloom.specials import SPECIALS

WORDS_BELOW = 3_000  # pairs of text: fewer do not teach a useful subword vocabulary
LEVELS = 600  # of a scale, about
TOKEN_LIMIT, MOST_TOKENS = 512, 2048  # the recipe's default limit of a sequence, and the most that init will set
BPE_SIZES = ((10_000, 1_000), (100_000, 4_000), (1_000_000, 8_000), (math.inf, 16_000))
WORTH_A_PAIR = 100  # characters of text without sources, where the number of pairs says how many pieces there should be
Kind = Literal["characters", "symbols", "words", "bpe", "whole", "set", "number"]
Cut = tuple[Kind, str]  # a tokenizer, and why it


@dataclass(frozen=True)
class Side:
    """How one side is cut into tokens, and about how many there will be."""

    looks: Looks
    script: str
    tokenizer: Kind
    why: str
    size: int | None  # of a bpe vocabulary
    coverage: float  # of a bpe vocabulary
    vocabulary: int  # about
    mean: float  # tokens per text, about
    limit: int  # tokens of a text, at most


def sides(task: Task, found: Profile, sample: Sequence[Example], in_windows: bool) -> tuple[Side, Side]:
    """Source and target; of plain text, which has no sources, both are the same. No text is too long for windows."""
    pairs, (sources, targets) = found.pairs, zip(*((one.source, one.target) for one in sample), strict=True)
    if task == "language":
        text = _plain_text(found, targets)
        text = replace(text, limit=MAX_CHARACTERS) if in_windows else text
        return text, text
    cuts: dict[Task, tuple[Cut, Cut]] = {
        "label": (_read(found.source, pairs), ("whole", "a label is one piece, whatever is written in it")),
        "labels": (_read(found.source, pairs), ("set", "labels in any order, each once; no label at all is fine")),
        "number": (_read(found.source, pairs), ("number", "a number is the nearest of many levels")),
        "tags": (
            ("characters", "words are read by their letters, so none is unknown"),
            ("symbols", "a tag for each word"),
        ),
        "retrieve": (_read(found.source, pairs), _read(found.target, pairs)),
        "transduce": (_written(found.source, pairs), _written(found.target, pairs)),
    }
    source, target = cuts[task]
    return _side(found.source, pairs, sources, source), _side(found.target, pairs, targets, target)


def _side(found: SideProfile, pairs: int, texts: Sequence[str], cut: Cut) -> Side:
    kind, why = cut
    size = coverage = None
    vocabulary = {"characters": found.alphabet, "whole": len(set(texts)), "number": LEVELS}.get(
        kind, found.distinct_words
    )
    if kind == "bpe":
        size, coverage = _bpe(found, pairs)
        vocabulary = size
        why += f"; {size:,} pieces suit {pairs:,} pairs"
    lengths = np.array([tokens(kind, text) for text in texts])
    long = float(np.percentile(lengths, 99.9)) if len(lengths) else 0.0
    limit = TOKEN_LIMIT if long <= TOKEN_LIMIT else min(MOST_TOKENS, math.ceil(long / 128) * 128)
    mean = float(lengths.mean()) if len(lengths) else 0.0
    return Side(found.looks, found.script, kind, why, size, coverage or 1.0, vocabulary + len(SPECIALS), mean, limit)


def _plain_text(found: Profile, texts: Sequence[str]) -> Side:
    """Letter by letter where there is little text: it has more letters than words to learn from."""
    size = found.pairs * found.target.mean_characters
    worth = round(size / WORTH_A_PAIR)
    if size < LETTERS_BELOW:
        return _side(
            found.target, worth, texts, ("characters", "little text: it has more letters to learn from than words")
        )
    side = _side(found.target, worth, texts, ("bpe", "frequent words whole, rare ones in pieces"))
    return replace(
        side, why=f"frequent words whole, rare ones in pieces; {side.size:,} suit {size / 1e6:,.0f} M characters"
    )


def _read(found: SideProfile, pairs: int) -> Cut:
    """Of what is only read, words will do: one that stood there once says nothing of its label."""
    if found.looks == "text" and found.script not in SPACELESS_SCRIPTS:
        return "words", "whole words, in small letters; those that stand there once are one unknown word"
    return _written(found, pairs)


def _written(found: SideProfile, pairs: int) -> Cut:
    if found.looks == "symbols":
        return "symbols", f"{found.distinct_words} symbols between spaces, a closed set: each is a token"
    if found.looks == "strings":
        return "characters", "single words or short strings: letter by letter, every new one can be read and written"
    if pairs >= WORDS_BELOW:
        return "bpe", "natural text: frequent words whole, rare ones in pieces, so no word is unknown"
    if found.script in SPACELESS_SCRIPTS:
        return "characters", "few texts, and no spaces between words: character by character"
    return "words", "few texts: whole words, each with what was seen of it; a new word will be unknown"


def _bpe(found: SideProfile, pairs: int) -> tuple[int, float]:
    """Pieces, and the share of characters they must cover: large scripts need room, and lose their rarest signs."""
    size = next(size for bound, size in BPE_SIZES if pairs < bound)
    if found.alphabet > 500:
        return max(size, rounded(2.0 * found.alphabet)), 0.9995
    return max(size, rounded(4.0 * found.alphabet)), 1.0


def tokens(kind: Kind, text: str) -> float:
    """About how many tokens a text gives."""
    if kind == "characters":
        return len(text)
    if kind in ("whole", "number"):
        return 1
    words = len(text.split())
    if kind == "bpe":
        return max(1.4 * words, len(text) / 5 if words > 1 else len(text) / 1.5)
    return words if kind == "symbols" else 1.15 * words


def rounded(value: float, digits: int = 2) -> int:
    """To a few digits: nobody means 8,173 steps."""
    scale: int = 10 ** max(0, len(str(int(value))) - digits)
    return max(1, round(value / scale) * scale)

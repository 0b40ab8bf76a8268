"""How metrics cut a text into words, each way under the name that signatures give it.

    blank      what stands between blanks
    words      runs of letters and digits, nothing else: of plain English, what the package rouge-score sees
    13a        as mteval-v13a, the script that BLEU and NIST are told by (sacrebleu's)
    captions   words without punctuation, "isn't" as "is n't": close to what the scripts of COCO, and with them those of
               the E2E challenge, make of English with Stanford's tokenizer

Nothing is lower-cased here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from seqloom.errors import SeqloomError

Cut = Literal["blank", "words", "13a", "captions"]
Cutter = Callable[[str], list[str]]
Gram = tuple[str, ...]

STEMMED_FROM = 4  # letters on, as in rouge-score
_WORD = re.compile(r"[^\W_]+")
_CLITIC = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b", re.IGNORECASE)
_CAPTION = re.compile(
    r"n't|'(?:s|re|ve|ll|d|m)\b"  # what _CLITIC cut off
    r"|\d+(?:[.,:]\d+)*(?:[-/]\w+)*"  # 10.50, 20-25
    r"|\w+(?:[-/'&]\w+)*"  # kid-friendly
    r"|[^\w\s]",
    re.IGNORECASE,
)
_PUNCTUATION = frozenset(".,;:!?'\"`-()[]{}‘’“”–—…")


def cutter(name: Cut) -> Cutter:
    """What cuts a text in this way."""
    if name == "13a":
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

        tokenizer = Tokenizer13a()  # type: ignore[no-untyped-call]
        return lambda text: str(tokenizer(text)).split()
    ways: dict[str, Cutter] = {"blank": str.split, "words": _WORD.findall, "captions": _caption}
    return ways[name]


def _caption(text: str) -> list[str]:
    text = _CLITIC.sub(r" \1", text.replace("’", "'"))
    return [token for token in _CAPTION.findall(text) if token not in _PUNCTUATION]


def stemming(cut: Cutter) -> Cutter:
    """The same cut, with Porter's stems for words of four letters and more, as in rouge-score."""
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError:
        what, fix = "stems need nltk", "pip install 'seqloom[rouge]', or leave 'stem' out"
        raise SeqloomError("E_EXTRA", what, fix=fix) from None
    stemmer = PorterStemmer()

    @lru_cache(maxsize=100_000)
    def stem(word: str) -> str:
        return str(stemmer.stem(word)) if len(word) >= STEMMED_FROM else word

    return lambda text: [stem(word) for word in cut(text)]


def grams(words: Sequence[str], n: int) -> list[Gram]:
    """All runs of n words, in order; none where there are fewer."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

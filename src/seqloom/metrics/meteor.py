"""METEOR (Denkowski and Lavie 2014): words aligned exactly, by stem and by synonym; F-mean and fragmentation.

    P = sum over matches of w d(h) / sum over output words of d(h),   R likewise over the reference
    F = P R / (alpha P + (1 - alpha) R),   penalty = gamma (chunks / matches)^beta,   METEOR = (1 - penalty) F

w is the module's weight, d is `delta` for content words and 1 - `delta` for function words. Modules: `exact`; `stem`
with nltk's Snowball stemmers; `synonym` where nltk finds WordNet on this machine. Nothing is downloaded. The name
lists the modules at work, because scores with other modules are other scores. Paraphrase tables are not supported.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Literal

import numpy as np
from pydantic import Field

from seqloom import __version__
from seqloom.errors import SeqloomError
from seqloom.metrics.alignment import align, count_chunks
from seqloom.metrics.base import UNSEEN_REFERENCES, Metric, Statistics, Total, check_parallel, count_references

ModuleName = Literal["exact", "stem", "synonym"]
Keys = Callable[[str], frozenset[str]]

STEMMERS: Mapping[str, str] = {
    "ar": "arabic", "da": "danish", "de": "german", "en": "english", "es": "spanish", "fi": "finnish",
    "fr": "french", "hu": "hungarian", "it": "italian", "nb": "norwegian", "nl": "dutch", "no": "norwegian",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish",
}  # fmt: skip

# Very common English words and marks, picked by hand, not counted; METEOR 1.5 ships a counted list of its own.
# `frequent_words` counts one from text, for the setting `function_words`.
_ENGLISH = """
    . , ; : ? ! ( ) - " ' a about after all also an and any are as at be because been before between but by can could
    did do does down each even first for from had has have he her here him his how i if in into is it its just like
    made make many may me more most much my new no not now of on one only or other our out over said say see she should
    so some such than that the their them then there these they this those through time to too two up us very was way
    we well were what when where which while who will with would year years you your
"""
ENGLISH_FUNCTION_WORDS = frozenset(_ENGLISH.split())

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-cased words and single marks, the units METEOR aligns."""
    return _WORD.findall(text.lower())


def frequent_words(texts: Iterable[str], share: float = 1e-3) -> tuple[str, ...]:
    """Function words as METEOR finds them for a language: words that make up more than `share` of running text."""
    counts = Counter(word for text in texts for word in words(text))
    threshold = share * counts.total()
    return tuple(sorted(word for word, count in counts.items() if count > threshold))


@dataclass(frozen=True)
class Module:
    """Two words match where their keys meet; the match is worth `weight`."""

    name: ModuleName
    weight: float
    keys: Keys


class Meteor(Metric):
    """METEOR with the modules this machine has; defaults are METEOR 1.5's for English."""

    class Settings(Metric.Settings):
        kind: Literal["meteor"] = "meteor"
        language: str = "en"
        modules: tuple[ModuleName, ...] | None = Field(None, description="null: all that this machine has")
        alpha: float = Field(0.85, ge=0, le=1)
        beta: float = Field(0.2, ge=0)
        gamma: float = Field(0.6, ge=0, le=1)
        delta: float = Field(0.75, gt=0, lt=1)
        stem_weight: float = Field(0.6, ge=0, le=1)
        synonym_weight: float = Field(0.8, ge=0, le=1)
        function_words: tuple[str, ...] | None = Field(None, description="null: the shipped list, for English")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._modules = _modules(settings)
        self._language = _language_code(settings.language)
        shipped = ENGLISH_FUNCTION_WORDS if self._language == "en" else frozenset()
        self._function_words = shipped if settings.function_words is None else frozenset(settings.function_words)
        self._references_seen = UNSEEN_REFERENCES
        self.name = f"METEOR ({', '.join(module.name for module in self._modules)})"

    def statistics(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        """Rows: matched and total weight of the output, the same of the reference, matches, chunks.

        With several references, the one that the output scores best against.
        """
        check_parallel(predictions, references)
        rows = np.zeros((len(predictions), 6))
        for row, (output, wanted) in enumerate(zip(predictions, references, strict=True)):
            candidates = [self._pair(words(output), words(reference)) for reference in wanted]
            rows[row] = max(candidates, key=self.value)
        if predictions:
            self._references_seen = count_references(references)
        return rows

    def value(self, total: Total) -> float:
        matched_output, length_output, matched_reference, length_reference, matches, chunks = total.tolist()
        if matches == 0 or matched_output == 0 or matched_reference == 0:
            return 0.0
        precision, recall = matched_output / length_output, matched_reference / length_reference
        alpha = self._settings.alpha
        f_mean = precision * recall / (alpha * precision + (1 - alpha) * recall)
        penalty = self._settings.gamma * (chunks / matches) ** self._settings.beta if chunks else 0.0
        return 100.0 * float(f_mean * (1 - penalty))

    def signature(self) -> str:
        settings = self._settings
        numbers = "|".join(f"{key}:{getattr(settings, key):g}" for key in ("alpha", "beta", "gamma", "delta"))
        modules = ",".join(f"{module.name}={module.weight:g}" for module in self._modules)
        stems = any(module.name != "exact" for module in self._modules)
        nltk = f"|nltk:{version('nltk')}" if stems else ""
        return (
            f"nrefs:{self._references_seen}|case:lc|tok:words|lang:{self._language}|modules:{modules}|{numbers}"
            f"|functionwords:{len(self._function_words)}{nltk}|version:seqloom-{__version__}"
        )

    def _pair(self, output: Sequence[str], reference: Sequence[str]) -> Total:
        """The row of one output against one reference."""
        edges = self._edges(output, reference)
        pairs = align(edges)
        weighted = [(i, j, edges[i][j]) for i, j in pairs]
        chunks = count_chunks(pairs)
        if chunks == 1 and len(pairs) == len(output) == len(reference):
            chunks = 0  # a whole sentence in one piece is not fragmented
        return np.array(
            [
                sum(weight * self._emphasis(output[i]) for i, _, weight in weighted),
                sum(map(self._emphasis, output)),
                sum(weight * self._emphasis(reference[j]) for _, j, weight in weighted),
                sum(map(self._emphasis, reference)),
                len(pairs),
                chunks,
            ],
            dtype=np.float64,
        )

    def _emphasis(self, word: str) -> float:
        return 1 - self._settings.delta if word in self._function_words else self._settings.delta

    def _edges(self, output: Sequence[str], reference: Sequence[str]) -> list[dict[int, float]]:
        """For each output word, the reference positions it may match, with the weight of the best module."""
        edges: list[dict[int, float]] = [{} for _ in output]
        for module in self._modules:
            positions: defaultdict[str, list[int]] = defaultdict(list)
            for j, word in enumerate(reference):
                for key in module.keys(word):
                    positions[key].append(j)
            for i, word in enumerate(output):
                for key in module.keys(word):
                    for j in positions.get(key, ()):
                        edges[i][j] = max(edges[i].get(j, 0.0), module.weight)
        return edges


def _modules(settings: Meteor.Settings) -> tuple[Module, ...]:
    """The modules asked for, or all there are. What was asked for by name and is missing is an error, never dropped."""
    wanted = settings.modules
    stem, synonym = _stem_keys(settings.language), None
    if wanted is None or "synonym" in wanted:
        synonym = _synonym_keys(settings.language)
    found: list[Module] = [Module("exact", 1.0, lambda word: frozenset((word,)))]
    if stem is not None and (wanted is None or "stem" in wanted):
        found.append(Module("stem", settings.stem_weight, stem))
    if synonym is not None and (wanted is None or "synonym" in wanted):
        found.append(Module("synonym", settings.synonym_weight, synonym))
    missing = set(wanted or ()) - {module.name for module in found}
    if missing:
        raise SeqloomError(
            "E_EXTRA",
            f"METEOR's {' and '.join(sorted(missing))} module needs nltk with data for {settings.language!r}",
            fix="pip install 'seqloom[meteor]' (synonyms also need nltk's WordNet data), or leave 'modules' out",
        )
    return tuple(found)


def _language_code(language: str) -> str:
    """`en` of `en-GB` and `en_GB`."""
    return re.split(r"[-_]", language.lower())[0]


def _stem_keys(language: str) -> Keys | None:
    """word -> its stem, or None without nltk or a stemmer for the language."""
    code = _language_code(language)
    if code not in STEMMERS:
        return None
    try:
        from nltk.stem.snowball import SnowballStemmer
    except ImportError:
        return None
    stemmer = SnowballStemmer(STEMMERS[code])

    @lru_cache(maxsize=100_000)
    def keys(word: str) -> frozenset[str]:
        return frozenset((stemmer.stem(word),))

    return keys


def _synonym_keys(language: str) -> Keys | None:
    """word -> the names of its WordNet synsets, or None without nltk or its WordNet data."""
    if _language_code(language) != "en":
        return None
    try:
        from nltk.corpus import wordnet

        wordnet.ensure_loaded()
    except (ImportError, LookupError):
        return None

    @lru_cache(maxsize=100_000)
    def keys(word: str) -> frozenset[str]:
        return frozenset(synset.name() for synset in wordnet.synsets(word))

    return keys

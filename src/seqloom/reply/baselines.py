"""What a trained ranking has to beat: how often replies were sent, neighbours by words, and free generation."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import numpy as np
from jaxtyping import Float64

from seqloom.api.model import Model
from seqloom.api.options import Options
from seqloom.errors import SeqloomError
from seqloom.reply.responses import ResponseSet, canonical

Pair = tuple[str, str]  # a prepared message and the canonical reply
NEIGHBOURS = (1, 10, 50, 200, 1000)  # numbers of neighbours that are tried on dev
DEPTH = 100  # places of a ranking that are kept
GENERATED = 10  # texts that free generation writes


def by_frequency(responses: ResponseSet, language: str | None) -> list[str]:
    """The replies of R by how often they were sent: the same for every message."""
    return [one.key for one in responses.of(language)][:DEPTH]


class Neighbours:
    """Replies by the training messages whose words are most alike (TF-IDF, cosine): two rankings of them.

    `nearest`: replies in the order of the nearest message that had them. `rank`: the k nearest messages vote for their
    replies, each with its likeness; k is chosen on dev. Words and pairs of words, 1 + log tf; replies that no message
    speaks for follow by frequency.
    """

    def __init__(self, pairs: Sequence[Pair], dev: Sequence[Pair]) -> None:
        try:
            text = import_module("sklearn.feature_extraction.text")
        except ImportError:
            fix = "pip install scikit-learn, or leave the baseline out"
            raise SeqloomError("E_EXTRA", "the TF-IDF baseline needs scikit-learn", fix=fix) from None
        self.vectors = text.TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
        self.matrix = self.vectors.fit_transform([message for message, _ in pairs])
        self.keys = sorted({key for _, key in pairs})
        places = {key: place for place, key in enumerate(self.keys)}
        self.votes = np.array([places[key] for _, key in pairs])
        counts = np.bincount(self.votes, minlength=len(self.keys))
        self.rare = counts / (1e6 * max(1, counts.max()))  # decides only where neighbours do not
        self.k = max(NEIGHBOURS, key=lambda k: self._merit(dev, k))

    def _merit(self, dev: Sequence[Pair], k: int) -> float:
        ranked = self.rank([message for message, _ in dev], k)
        truths = [key for _, key in dev]
        return sum(1 / (1 + some.index(key)) for some, key in zip(ranked, truths, strict=True) if key in some)

    def rank(self, messages: Sequence[str], k: int | None = None) -> list[list[str]]:
        likeness = self.vectors.transform(messages) @ self.matrix.T
        return [self._voted(likeness.getrow(row), k or self.k) for row in range(len(messages))]

    def nearest(self, messages: Sequence[str]) -> list[list[str]]:
        likeness = self.vectors.transform(messages) @ self.matrix.T
        return [self._first(likeness.getrow(row)) for row in range(len(messages))]

    def _first(self, row: object) -> list[str]:
        scores = self.rare.copy()
        np.maximum.at(scores, self.votes[row.indices], row.data)  # type: ignore[attr-defined]
        return [self.keys[place] for place in np.argsort(-scores, kind="stable")[:DEPTH].tolist()]

    def _voted(self, row: object, k: int) -> list[str]:
        places: Float64[np.ndarray, "n"] = row.indices  # type: ignore[attr-defined]
        values: Float64[np.ndarray, "n"] = row.data  # type: ignore[attr-defined]
        if len(places) > k:
            nearest = np.argpartition(-values, k)[:k]
            places, values = places[nearest], values[nearest]
        scores = self.rare.copy()
        np.add.at(scores, self.votes[places], values)
        return [self.keys[place] for place in np.argsort(-scores, kind="stable")[:DEPTH].tolist()]


def generated(model: Model, messages: Sequence[str]) -> list[list[str]]:
    """What the same model writes where nothing holds it to R: its best texts, in canonical form."""
    options = Options(beam=GENERATED, n_best=GENERATED, split=False, on_long="skip")
    return [[canonical(one.text) for one in found.hypotheses] for found in model.predict(messages, options)]

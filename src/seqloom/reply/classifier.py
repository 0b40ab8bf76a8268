"""Is a text like those that somebody called sensitive? Logistic regression on hashed n-grams, learned from a list.

The list is short and meant to be edited, so it is learned when it is first needed: in the dual form, where the weights
are a sum over examples, w = sum a_i x_i, and Newton's steps

    minimise  sum log(1 + exp(-y_i k_i . a)) + lambda/2 a . K a,    K = X X^T

cost the cube of the number of examples, whatever the number of n-grams. No random numbers, no files, no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
BUCKETS = 1 << 13
PIECE = 4  # letters of a piece of a word
RIDGE = 0.03
ROUNDS = 30
MOST_WORDS = 400  # of a text that are looked at


class Classifier:
    """P(sensitive | words)."""

    def __init__(self, texts: Sequence[str], sensitive: Sequence[bool]) -> None:
        rows = np.stack([features(text) for text in texts])  # B F
        answers: Floats = np.where(np.array(sensitive), 1.0, -1.0)
        kernel: Floats = rows @ rows.T + 1.0  # the 1 is the bias
        dual = _solved(kernel, answers)
        self._weights: Floats = rows.T @ dual
        self._bias = float(dual.sum())

    def probability(self, text: str) -> float:
        return float(1 / (1 + np.exp(-(features(text) @ self._weights + self._bias))))


def features(text: str) -> Floats:
    """Hashed words, pairs of words, beginnings and pieces of words of a spelled text, as a vector of length 1."""
    words = [word for word in text.split() if word != "."][:MOST_WORDS]
    words = ["#" if word[0].isdigit() else word for word in words]
    grams = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
    grams += [f"{word[:5]}-" for word in words if len(word) > 5]
    for word in words:  # what forms of one word share: its pieces, with its ends marked
        marked = f"<{word}>"
        grams += [f"~{marked[start : start + PIECE]}" for start in range(len(marked) - PIECE + 1) if len(word) >= PIECE]
    vector: Floats = np.zeros(BUCKETS)
    for gram in dict.fromkeys(grams):
        vector[crc32(gram.encode()) % BUCKETS] += 1.0
    size = float(np.linalg.norm(vector))
    return vector / size if size else vector


def _solved(kernel: Floats, answers: Floats) -> Floats:
    """Coefficients of the examples: iteratively reweighted least squares, (K + lambda W^-1) a = z."""
    dual: Floats = np.zeros(len(answers))
    for _ in range(ROUNDS):
        scores = kernel @ dual
        likely = 1 / (1 + np.exp(-answers * scores))
        curvature = np.maximum(likely * (1 - likely), 1e-6)
        goal = scores + answers * (1 - likely) / curvature
        new = np.asarray(np.linalg.solve(kernel + np.diag(RIDGE / curvature), goal), dtype=np.float64)
        if np.abs(new - dual).max() < 1e-6:
            return new
        dual = new
    return dual

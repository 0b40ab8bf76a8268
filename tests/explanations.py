"""Explanations that are made up, so that everything about them is known: for tests of what shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32

from seqloom.probe.explain import Explanation, Told
from seqloom.probe.tree import Node, Tree

END = "<eos>"


def told(token: str, probability: float = 0.5, rank: int = 1) -> Told:
    """A token with two others; one of a higher rank than 3 is not among the likeliest."""
    others = [("one", 0.2), ("other", 0.1)]
    if rank <= 3:
        others.insert(rank - 1, (token, probability))
    log = math.log(probability) if probability else -math.inf
    return Told(token, log, rank, tuple((name, math.log(value) if value else -math.inf) for name, value in others))


def looks(*rows: Sequence[float]) -> Float32[np.ndarray, "1 1 T S"]:
    """Weights of one layer and head, as they are written here."""
    return np.array([[rows]], dtype=np.float32)


def spread(shape: tuple[int, int, int, int], seed: int = 1) -> Float32[np.ndarray, "L H T S"]:
    """Rows that sum to 1."""
    raw = np.exp(2 * np.random.default_rng(seed).normal(size=shape))
    return (raw / raw.sum(-1, keepdims=True)).astype(np.float32)


def made(
    source: Sequence[str],
    output: Sequence[Told],
    weights: Float32[np.ndarray, "L H T S"] | None = None,
    words: tuple[Sequence[int], Sequence[int]] | None = None,
    texts: tuple[str, str] | None = None,
    within: bool = False,
    tree: Tree | None = None,
    truncated: bool = False,
) -> Explanation:
    """Both sides end with END; without weights it is of a model that has no attention."""
    size, length = len(source), len(output)
    text, answer = texts or (" ".join(source[:-1]), " ".join(one.token for one in output[:-1]))
    read, said = words or ([*range(size - 1), -1], [*range(length - 1), -1])
    causal = np.tril(np.ones((length, length), dtype=np.float32))
    causal /= causal.sum(-1, keepdims=True)
    return Explanation(
        text=text,
        answer=answer,
        source=tuple(source),
        output=tuple(output),
        read=tuple(read),
        said=tuple(said),
        weights=np.zeros((0, 0, length, size), dtype=np.float32) if weights is None else weights,
        within_source=spread((2, 2, size, size)) if within else np.zeros((0, 0, size, size), dtype=np.float32),
        within_output=causal[None, None] if within else np.zeros((0, 0, length, length), dtype=np.float32),
        tree=tree,
        truncated=truncated,
    )


def sentence(length: int, layers: int = 2, heads: int = 3, seed: int = 1) -> Explanation:
    """So many tokens on both sides, with every kind of attention."""
    source = [*(f"s{place}" for place in range(length - 1)), END]
    output = [*(told(f"t{place}") for place in range(length - 1)), told(END, 0.9)]
    return made(source, output, spread((layers, heads, length, length), seed), within=True)


def small_tree() -> Tree:
    """Two hypotheses at each step: `a b` ends and wins, `x` falls out, `a c` is left alive."""
    nodes = (
        Node(None, 0, 3, 0.0, 0.0, 0.0, "went on", True),
        Node(0, 1, 10, -0.1, -0.1, -0.1, "went on", True),
        Node(0, 1, 11, -2.0, -2.0, -2.0, "fell out"),
        Node(1, 2, 12, -0.2, -0.3, -0.15, "went on", True),
        Node(1, 2, 13, -0.9, -1.0, -0.5, "left"),
        Node(3, 3, 3, -0.3, -0.6, -0.2, "ended", True),
    )
    return Tree(nodes, ("<s>", "a", "x", "b", "c", END))


def wide_tree(width: int, steps: int) -> Tree:
    """Every hypothesis goes on as itself until the limit cuts all off; the first wins."""
    nodes, tokens = [Node(None, 0, 3, 0.0, 0.0, 0.0, "went on", True)], ["<s>"]
    for step in range(1, steps + 1):
        for row in range(width):
            parent = 0 if step == 1 else len(nodes) - width
            total = -0.1 * step * (row + 1)
            fate = "cut off" if step == steps else "went on"
            nodes.append(Node(parent, step, 10, -0.1, total, total / step, fate, row == 0))
            tokens.append(f"t{row}")
    return Tree(tuple(nodes), tuple(tokens))

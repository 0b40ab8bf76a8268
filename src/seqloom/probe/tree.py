"""The beam as a tree: every hypothesis that ever lived, with its step, its score and what became of it.

A watcher sees the frontier after each step (`search`'s observer) and keeps plain numbers; nothing of the search
changes. A node is one hypothesis at one step, its parent is what it continued; one that ends has a last node for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seqloom.config import Plain
from seqloom.search.frontier import NEVER, Frontier
from seqloom.search.hypotheses import Hypothesis, Normalisation
from seqloom.specials import EOS

Fate = Literal["went on", "ended", "fell out", "left", "cut off"]
WORDS: dict[Fate, str] = {
    "went on": "goes on",
    "ended": "ended",
    "fell out": "fell out: none of its continuations was among the best",
    "left": "left alive: enough others had ended",
    "cut off": "cut off at the limit",
}
DIGITS = 5


@dataclass(frozen=True)
class Node:
    """A hypothesis after one more token."""

    parent: int | None
    step: int  # tokens so far; an end counts
    token: int
    log_prob: float  # of the token
    total: float  # what hypotheses are compared by, summed
    score: float  # the same, normalised by length: what ended ones are ranked by
    fate: Fate
    won: bool = False  # on the way to the answer


@dataclass(frozen=True)
class Tree:
    """Parents come before children; the first node is the beginning."""

    nodes: tuple[Node, ...]
    tokens: tuple[str, ...]  # of each node, as it reads

    def lines(self) -> list[str]:
        """As text: the step, then children under their parent, a star on the way to the answer."""
        children: dict[int, list[int]] = {}
        for index, node in enumerate(self.nodes):
            if node.parent is not None:
                children.setdefault(node.parent, []).append(index)
        return list(self._drawn(children))

    def _drawn(self, children: dict[int, list[int]]) -> Iterator[str]:
        stack = [(0, "", "")]
        digits = len(str(max(node.step for node in self.nodes)))
        while stack:
            at, lead, indent = stack.pop()
            node = self.nodes[at]
            fate = "" if node.fate == "went on" else f"  ({WORDS[node.fate]})"
            value = "" if node.parent is None else f"  {node.score:.3f}"
            step = " " * digits if node.parent is None else f"{node.step:{digits}}"
            yield f"{step} {lead}{'* ' if node.won else ''}{self.tokens[at]}{value}{fate}"
            below = sorted(children.get(at, ()), key=lambda child: -self.nodes[child].total)
            for child in reversed(below):
                if len(below) == 1:
                    stack.append((child, indent, indent))
                elif child == below[-1]:
                    stack.append((child, indent + "└ ", indent + "  "))
                else:
                    stack.append((child, indent + "├ ", indent + "│ "))

    def as_dict(self) -> dict[str, Plain]:
        rows: list[Plain] = [
            {
                "parent": node.parent,
                "step": node.step,
                "token": token,
                "log_prob": round(node.log_prob, DIGITS),
                "total": round(node.total, DIGITS),
                "score": round(node.score, DIGITS),
                "fate": node.fate,
                "won": node.won,
            }
            for node, token in zip(self.nodes, self.tokens, strict=True)
        ]
        return {"nodes": rows}


class Watcher:
    """An observer of a search over one source."""

    def __init__(self, normalisation: Normalisation) -> None:
        self._normalisation = normalisation
        self._nodes: list[Node] = [Node(None, 0, EOS, 0.0, 0.0, 0.0, "went on")]
        self._live: dict[int, int] = {}  # row -> its node
        self._at: dict[tuple[int, int], int] = {}  # (tokens, row) -> the node that stood there
        self._ended: dict[tuple[int, int], int] = {}
        self._parents: set[int] = set()  # nodes that somebody continued
        self._length = 0

    def __call__(self, step: int, frontier: Frontier) -> None:
        assert len(frontier.sources) == 1, "a tree shows one source"
        if not step:  # whichever rows a strategy begins with, they all begin there
            self._live = dict.fromkeys(range(frontier.last.shape[1]), 0)
            self._at = {(0, row): 0 for row in self._live}
        for row in range(frontier.endings.rows.shape[1]):
            self._end(frontier, row)
        length = int(frontier.lengths[0])
        if length > self._length:
            self._go_on(frontier, length)
        self._length = length
        if bool(frontier.done[0]):
            self._stop(int(frontier.limits[0]))

    def _end(self, frontier: Frontier, place: int) -> None:
        """An ended hypothesis, where it is a new one."""
        endings = frontier.endings
        score = float(endings.scores[0, place])
        tokens, row = int(endings.lengths[0, place]), int(endings.rows[0, place])
        if score == NEVER or bool(endings.truncated[0, place]) or (tokens, row) in self._ended:
            return
        parent = self._at[tokens, row]
        added = float(endings.ends[0, place])
        total = self._nodes[parent].total + added + float(endings.advice[0, place])
        self._ended[tokens, row] = self._add(Node(parent, tokens + 1, EOS, added, total, score, "ended"))

    def _go_on(self, frontier: Frontier, length: int) -> None:
        scores = self._normalisation.score(frontier.totals, frontier.lengths[:, None].expand(frontier.totals.shape))
        live: dict[int, int] = {}
        for row, total in enumerate(frontier.totals[0].tolist()):
            parent = self._live.get(int(frontier.parents[0, row]))
            if total == NEVER or parent is None:
                continue
            token, added = int(frontier.last[0, row]), float(frontier.log_probs[0, row])
            live[row] = self._add(Node(parent, length, token, added, total, float(scores[0, row]), "went on"))
            self._at[length, row] = live[row]
        self._fall(set(self._live.values()), "fell out")
        self._live = live

    def _stop(self, limit: int) -> None:
        self._fall(set(self._live.values()), "cut off" if self._length >= limit else "left")

    def _fall(self, nodes: set[int], fate: Fate) -> None:
        for node in nodes - self._parents:
            self._nodes[node] = replace(self._nodes[node], fate=fate)

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        if node.parent is not None:
            self._parents.add(node.parent)
        return len(self._nodes) - 1

    def tree(self, winner: Hypothesis, said: Callable[[Sequence[int]], list[str]]) -> Tree:
        """What was seen; `said` spells token ids."""
        nodes = list(self._nodes)
        for index in self._way(winner):
            nodes[index] = replace(nodes[index], won=True)
        return Tree(tuple(nodes), ("<s>", *said([node.token for node in nodes[1:]])))

    def _way(self, winner: Hypothesis) -> list[int]:
        """The nodes from the beginning to the winner."""
        wanted = [*winner.tokens] if winner.truncated else [*winner.tokens, EOS]
        for index in range(len(self._nodes) - 1, -1, -1):
            way = self._back(index)
            if [self._nodes[at].token for at in way[1:]] == wanted:
                return way
        return []

    def _back(self, index: int) -> list[int]:
        way, at = [index], self._nodes[index].parent
        while at is not None:
            way.append(at)
            at = self._nodes[at].parent
        return way[::-1]

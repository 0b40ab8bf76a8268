"""Word alignments: two directions made one, and judged against people's.

An alignment A is a set of links (i, j) between the words of a source and of its target. People mark links as sure (S)
or possible (P, which includes S), and an alignment is judged by (Och and Ney 2003)

    precision = |A and P| / |A|      recall = |A and S| / |S|      AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)

Counts add up over sentences. A model of one direction gives each word of one side its links; two models, one for each
direction, are joined by a heuristic (Koehn et al. 2003): what both say is trusted, and what one says beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from seqloom.errors import SeqloomError

Link = tuple[int, int]
Links = frozenset[Link]

_LINK = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})", re.ASCII)
FORM = "write SOURCE-TARGET between blanks, words counted from 0: 0-0 1-2; in a gold file 1p2 is a possible link"
ASLANT = ((-1, 1), (-1, -1), (1, -1), (1, 1))  # in this order: of two that exclude each other the first is taken


class Gold(NamedTuple):
    """What people marked for one sentence pair; the possible links include the sure ones."""

    sure: Links
    possible: Links


def read_links(line: str, where: str) -> Links:
    """A line in Pharaoh's form, all of whose links are links."""
    return frozenset(link for link, _ in _items(line, where))


def read_gold(line: str, where: str) -> Gold:
    """A line of gold links, `i-j` sure and `ipj` (or `i?j`) possible."""
    items = list(_items(line, where))
    return Gold(frozenset(link for link, sure in items if sure), frozenset(link for link, _ in items))


def _items(line: str, where: str) -> Iterable[tuple[Link, bool]]:
    for item in line.split():
        match = _LINK.fullmatch(item)
        if match is None:
            raise SeqloomError("E_DATA", f"link {item[:40]!r}", where=where, fix=FORM)
        yield (int(match[1]), int(match[3])), match[2] == "-"


def turned(links: Links) -> Links:
    """The same links seen from the other side."""
    return frozenset((j, i) for i, j in links)


# --- judged ----------------------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """Counts of one sentence pair, or of several added up."""

    links: int = 0  # |A|
    sure: int = 0  # |S|
    right: int = 0  # |A and S|
    acceptable: int = 0  # |A and P|

    @staticmethod
    def of(links: Links, gold: Gold) -> Judged:
        return Judged(len(links), len(gold.sure), len(links & gold.sure), len(links & gold.possible))

    @staticmethod
    def total(parts: Iterable[Judged]) -> Judged:
        return Judged(*(sum(column) for column in zip(Judged(), *parts, strict=True)))

    @property
    def precision(self) -> float:
        return self.acceptable / self.links if self.links else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.sure if self.sure else 1.0

    @property
    def aer(self) -> float:
        """The alignment error rate, from 0 to 1; of nothing where nothing is sure, 0."""
        count = self.links + self.sure
        return 1 - (self.right + self.acceptable) / count if count else 0.0


# --- two directions --------------------------------------------------------------------------------------------------


def intersection(forward: Links, backward: Links) -> Links:
    """What both say."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """What either says."""
    return forward | backward


def grow_diagonal(forward: Links, backward: Links) -> Links:
    """What both say, and what either says aslant of a link, between two words that have none yet."""
    grown, either = _Grown(forward & backward), sorted(forward | backward)
    while grown.takes(((i + di, j + dj) for i, j in either if (i, j) in grown.links for di, dj in ASLANT), set(either)):
        pass
    return frozenset(grown.links)


def grow_diagonal_final(forward: Links, backward: Links) -> Links:
    """The same; then what either says between two words that have none yet, wherever they stand."""
    grown = _Grown(grow_diagonal(forward, backward))
    for links in (forward, backward):
        grown.takes(sorted(links), links)
    return frozenset(grown.links)


class _Grown:
    """Links, and the words of both sides that have one."""

    def __init__(self, links: Links) -> None:
        self.links = set(links)
        self._sources, self._targets = {i for i, _ in links}, {j for _, j in links}

    def takes(self, candidates: Iterable[Link], among: Collection[Link]) -> bool:
        """Add those, one after the other, that stand among some links and whose words have none; were there any?"""
        before = len(self.links)
        for i, j in candidates:
            if (i, j) in among and i not in self._sources and j not in self._targets:
                self.links.add((i, j))
                self._sources.add(i)
                self._targets.add(j)
        return len(self.links) > before


SYMMETRISATIONS: Mapping[str, Callable[[Links, Links], Links]] = {
    "intersection": intersection,
    "union": union,
    "grow-diagonal": grow_diagonal,
    "grow-diagonal-final": grow_diagonal_final,
}

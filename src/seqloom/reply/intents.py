"""What a reply means: its polarity by rules, its intent by label propagation from a few seeds.

Both begin with files that a person can edit (`lists/LANGUAGE/polarity.txt`, `intents.txt`), and what comes out stands
in the response set's own file, where a person has the last word. Nothing here ranks replies.

Intents spread over a graph of two kinds of nodes, replies and the n-grams of their words (Kannan et al. 2016, with
n-grams as the only features). Seeds keep their label; every other node takes the weighted mean of its neighbours', a
little of it lost at every edge:

    y_i = sum_j w_ij y_j / (sum_j w_ij + LOSS)

What no seed reaches clearly becomes a seed itself, the most frequent first, and labels spread again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from seqloom.errors import SeqloomError, nearest
from seqloom.reply.lists import Lists
from seqloom.reply.responses import POLARITIES, Polarity, Response, canonical
from seqloom.shapes import Float, Tensor

LONGEST = 3  # words of an n-gram
LOSS = 0.5  # what an edge costs: labels fade with distance
STEPS = 20
CLEAR, SHARE = 0.05, 0.25  # a label counts from this strength on, and from this share of all that arrived
ROUNDS, NEW = 8, 60  # how often unreached replies become seeds, and how many at a time
ALIKE = 0.3  # n-grams that two new seeds of one round may share at most (Jaccard)


@dataclass(frozen=True)
class Seeds:
    """What a person says in advance: intents of some replies, and the polarity of words and phrases."""

    intents: Mapping[str, str]  # canonical reply -> intent
    polarity: Mapping[tuple[str, ...], Polarity]  # words of a phrase -> polarity

    @classmethod
    def load(cls, language: str, lists: Lists | None = None) -> Seeds:
        """Those of a language: a person's own lists, else the shipped ones; none where there are no lists."""
        lists = lists or Lists()
        intents: dict[str, str] = {}
        for intent, reply, where in _pairs(lists, language, "intents"):
            known = intents.setdefault(canonical(reply), intent)
            if known != intent:
                raise SeqloomError("E_DATA", f"{reply!r} is {known} and {intent}", where=where, fix="keep one of both")
        polarity: dict[tuple[str, ...], Polarity] = {}
        for name, phrase, where in _pairs(lists, language, "polarity"):
            if name not in POLARITIES:
                what = f"polarity {name!r}{nearest(name, POLARITIES)}"
                raise SeqloomError("E_DATA", what, where=where, fix="positive, negative or neutral")
            polarity[tuple(canonical(phrase).split())] = name
        return cls(intents, polarity)


def _pairs(lists: Lists, language: str, name: str) -> Iterable[tuple[str, str, str]]:
    """(first, second, where) of every entry `first TAB second`."""
    where = str(lists.path(language, name))
    for entry in lists.entries(language, name):
        cells = [cell.strip() for cell in entry.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise SeqloomError("E_DATA", f"not two columns: {entry!r}", where=where, fix="a tab between them")
        yield cells[0], cells[1], where


def described(responses: Sequence[Response], seeds: Seeds) -> list[Response]:
    """The same responses with polarity and intent, which must all be of one language."""
    intents = spread([one.key for one in responses], seeds.intents)
    polarities = [polarity(one.key, seeds.polarity) for one in responses]
    both = zip(responses, polarities, intents, strict=True)
    return [replace(one, polarity=sign, intent=intent) for one, sign, intent in both]


def polarity(key: str, phrases: Mapping[tuple[str, ...], Polarity]) -> Polarity:
    """That of the first phrase a reply holds, the longest where several begin at one word; else neutral.

    "no problem" is a phrase of its own, so "no" does not count there.
    """
    words = tuple(key.split())
    for start in range(len(words)):
        for end in range(len(words), start, -1):
            if (found := phrases.get(words[start:end])) is not None:
                return found
    return "neutral"


# --- intents ---------------------------------------------------------------------------------------------------------


def spread(keys: Sequence[str], seeds: Mapping[str, str]) -> list[str]:
    """The intent of every reply, in order; replies come most frequent first. None stays without one."""
    graph = _Graph(keys)
    labels = {place: seeds[key] for place, key in enumerate(keys) if key in seeds}
    for _ in range(ROUNDS):
        found = graph.reached(labels)
        new = graph.apart([place for place, label in enumerate(found) if label is None])
        if not new:
            break
        labels |= {place: keys[place] for place in new}
    return [label or key for label, key in zip(graph.reached(labels), keys, strict=True)]


class _Graph:
    """Replies and the n-grams that at least two of them share."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.grams = [grams(key) for key in keys]
        counts = Counter(gram for some in self.grams for gram in some)
        self.names = {gram: place for place, gram in enumerate(one for one, count in counts.items() if count > 1)}
        edges = [
            (row, self.names[gram], math.log(1 + len(keys) / counts[gram]))  # what few replies hold says more
            for row, some in enumerate(self.grams)
            for gram in some
            if gram in self.names
        ]
        rows, columns, weights = zip(*edges, strict=True) if edges else ((), (), ())
        shape = (len(keys), max(1, len(self.names)))
        places = torch.tensor([rows, columns], dtype=torch.long)
        self.weights = torch.sparse_coo_tensor(
            places, torch.tensor(weights, dtype=torch.float32), shape, check_invariants=True
        ).coalesce()
        self.back = self.weights.t().coalesce()

    def reached(self, labels: Mapping[int, str]) -> list[str | None]:
        """The label of every reply where one is clear."""
        names = sorted(set(labels.values()))
        if not names:
            return [None] * len(self.grams)
        given = torch.zeros(len(self.grams), len(names))  # R L
        for place, label in labels.items():
            given[place, names.index(label)] = 1
        kept = torch.tensor([place in labels for place in range(len(self.grams))])[:, None]
        replies = given
        for _ in range(STEPS):
            features = _mean(self.back, replies)
            replies = torch.where(kept, given, _mean(self.weights, features))
        top, index = replies.max(1)
        clear = (top >= CLEAR) & (top >= SHARE * replies.sum(1))
        return [names[place] if well else None for place, well in zip(index.tolist(), clear.tolist(), strict=True)]

    def apart(self, places: Iterable[int]) -> list[int]:
        """The first of these replies, no two of them alike."""
        chosen: list[int] = []
        for place in places:
            mine = self.grams[place]
            if all(len(mine & self.grams[other]) <= ALIKE * len(mine | self.grams[other]) for other in chosen):
                chosen.append(place)
            if len(chosen) == NEW:
                break
        return chosen


def grams(key: str) -> frozenset[tuple[str, ...]]:
    """The n-grams of a reply's words between its ends; single ends say nothing and are left out."""
    words = ("<", *key.split(), ">")
    found = (words[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(words) - n + 1))
    return frozenset(gram for gram in found if gram not in (("<",), (">",)))


def _mean(weights: Tensor, labels: Float[Tensor, "n L"]) -> Float[Tensor, "m L"]:
    """Of every node the weighted mean of its neighbours' labels, less what the edges cost."""
    total = torch.sparse.sum(weights, dim=1).to_dense()[:, None]  # m 1
    summed: Tensor = torch.sparse.mm(weights, labels)
    return summed / (total + LOSS)

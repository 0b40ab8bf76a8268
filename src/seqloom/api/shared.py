"""Prediction by the ranks of a group: each finds the outputs of some batches, and all of them have what was found.

Batches are those of one process, whatever the number of ranks, and so are the outputs, to the last digit. All ranks
read the same texts and ask the same model in the same way; that they do is compared with every answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace

from seqloom.api.model import Model
from seqloom.bundle import CARD
from seqloom.data.codecs import Encoded
from seqloom.errors import SeqloomError
from seqloom.files import sha256_file
from seqloom.ranks.group import Group
from seqloom.search.hypotheses import Hypothesis

Found = list[list[Hypothesis]]


@contextmanager
def shared(model: Model, ranks: Group) -> Iterator[Model]:
    """The same model, whose batches are shared among the ranks as long as the block lasts."""
    if ranks.size == 1:
        yield model
        return
    ranks.connect(model.device, model.recipe.runtime.timeout)
    same(ranks, "" if model.home is None else sha256_file(model.home / CARD), "have different models", "RUN")
    yield replace(model, workers=Shared(ranks))
    ranks.disconnect()


def same(ranks: Group, mine: str, what: str, where: str) -> None:
    """E_RANKS where a rank has something else than rank 0."""
    others = ranks.gather(mine)
    for rank, other in enumerate(others):
        if other != others[0]:
            error = SeqloomError("E_RANKS", f"ranks 0 and {rank} {what}", where=where, fix="give all the same")
            raise ranks.common(error)


class Shared:
    """The ranks as those who answer: batch i is for rank i mod n."""

    def __init__(self, ranks: Group) -> None:
        self.ranks, self.turn = ranks, 0

    def budget(self, most: int, total: int) -> int:
        """As one process has it."""
        return most

    def answers(
        self, answer: Callable[[Sequence[Encoded]], Found], questions: Sequence[Sequence[Encoded]], key: object = None
    ) -> list[Found]:
        self.turn += 1
        self.ranks.at_step(self.turn)  # from now on a rank that stands still is missed
        own = [answer(question) for question in questions[self.ranks.rank :: self.ranks.size]]
        said = self.ranks.texts([_mark(questions, key), *map(_written, own)])
        for rank, (mark, *_) in enumerate(said):
            if mark != said[0][0]:
                what = f"ranks 0 and {rank} read different texts, or were asked differently"
                raise self.ranks.common(SeqloomError("E_RANKS", what, where="ranks", fix="give all the same"))
        places = (divmod(place, self.ranks.size) for place in range(len(questions)))
        return [_read(said[rank][1 + turn]) for turn, rank in places]


def _mark(questions: Sequence[Sequence[Encoded]], key: object) -> str:
    found = hashlib.sha256(repr(key).encode())
    for encoded in (one for question in questions for one in question):
        found.update(encoded.source.tobytes())
    return found.hexdigest()


def _written(found: Found) -> str:
    return json.dumps([[astuple(one) for one in some] for some in found])


def _read(text: str) -> Found:
    return [
        [Hypothesis(tuple(tokens), tuple(scores), *rest) for tokens, scores, *rest in some] for some in json.loads(text)
    ]

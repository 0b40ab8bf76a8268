"""Outputs while they are made: text as soon as it is certain, and never taken back.

Certain is what every hypothesis that may still win begins with: all that live, and the best that has ended. So greedy
search and a single sample tell token by token, a beam what its hypotheses agree on. Characters that a further token
could still change (half of a UTF-8 sequence) wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import torch

from seqloom.api.options import Options
from seqloom.data.codecs import Encoded
from seqloom.data.subwords import ESCAPE
from seqloom.errors import SeqloomError
from seqloom.search.frontier import NEVER
from seqloom.search.hypotheses import Hypothesis
from seqloom.search.loop import Walk

if TYPE_CHECKING:
    from seqloom.api.model import Model

UNFINISHED = "\ufffd" + ESCAPE  # what a text ends with as long as its last character is incomplete


def refuse_streaming(options: Options) -> None:
    """E_USAGE for wishes that are judged only when an output is finished."""
    late = {
        "risk": options.risk is not None,
        "coverage_penalty": bool(options.coverage_penalty),
        "replace_unknown": options.replace_unknown,
        "n_best": options.n_best > 1,
    }
    if asked := [name for name, wanted in late.items() if wanted]:
        what = f"{asked[0]} is worked out when an output is finished: it cannot be told while it is made"
        raise SeqloomError("E_USAGE", what, fix=f"leave {asked[0]} or streaming out")


def pieces_of_text(model: Model, encoded: Encoded, options: Options) -> Iterator[str]:
    """The output for one encoded source, in pieces; together they are what `predict` answers."""
    yield from growing(model, encoded, certain(model, encoded, options))


def growing(model: Model, encoded: Encoded, certain: Iterable[tuple[Sequence[int], bool]]) -> Iterator[str]:
    """Tokens that are certain, ever more of them, as what each time is new of their text."""
    told = ""
    for tokens, finished in certain:
        text = model.codecs.decode(tokens, encoded.foreign)
        if not finished:
            text = text.rstrip(UNFINISHED)
        if text.startswith(told) and len(text) > len(told):
            yield text[len(told) :]
            told = text


def certain(model: Model, encoded: Encoded, options: Options) -> Iterator[tuple[Sequence[int], bool]]:
    """(tokens that every hypothesis still in question begins with, whether they are all), growing step by step."""
    asking = model.asking(options)
    with model.precision():
        wishes = asking.wishes([model.codecs.begun(asking.prefix, encoded)], model.advised)
        walk = Walk(model.stepped(options, wishes.prefixes), model.sources([encoded]), asking.strategy, wishes)
    while not walk.done:
        with model.precision():
            walk.step()
        if not walk.done:
            yield certain_of(walk), False
    best: Hypothesis = walk.hypotheses()[0][0]
    yield best.tokens, True


def certain_of(walk: Walk) -> list[int]:
    """The tokens of the only source's output that no further step can change."""
    return shared_beginning(_in_question(walk))


def shared_beginning(sequences: Sequence[Sequence[int]]) -> list[int]:
    """The tokens that all of these begin with."""
    columns = zip(*sequences, strict=False)  # as long as the shortest
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


@torch.inference_mode()
def _in_question(walk: Walk) -> list[list[int]]:
    """The tokens of all live hypotheses of the only source, and of the best that has ended."""
    frontier, endings = walk.frontier, walk.frontier.endings
    rows = torch.arange(frontier.totals.shape[1], device=frontier.totals.device)[None]
    lengths = frontier.lengths[:, None].expand(rows.shape)
    best = endings.best(endings, 1)
    all_rows = torch.cat([rows, best.rows], 1)
    all_lengths = torch.cat([lengths, best.lengths], 1)
    there = torch.cat([frontier.totals > NEVER, best.scores > NEVER], 1)[0].tolist()
    tokens = walk.trail.back(all_rows, all_lengths)[0][0].tolist()
    cut = zip(tokens, all_lengths[0].tolist(), there, strict=True)
    return [said[:length] for said, length, real in cut if real]

"""One long text read in windows: truncated backpropagation through time.

All texts stand end to end. The whole is cut into as many rows as a batch holds, and every batch takes the next window
of each: row i of a batch goes on where row i of the batch before ended, so that a recurrent state can be carried over.
Where windows begin differs from epoch to epoch. To be judged, a text is cut otherwise: every part is read after some of
what stands before it, and each token is asked about once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from seqloom.batch import Batch, Tokens, Window
from seqloom.data.batching import Batching, ended
from seqloom.data.codecs import Ids
from seqloom.data.corpus import Corpus
from seqloom.errors import SeqloomError
from seqloom.ranks.share import WHOLE, Share
from seqloom.shapes import Bool, Int, Tensor
from seqloom.specials import BOS, EOS, PAD


def stream(corpus: Corpus, flows: bool) -> Ids:
    """All targets of a corpus end to end; each with its end, unless they are pieces of one text."""
    columns = corpus.columns
    assert columns is not None, "texts have ids alone"
    if flows:
        return columns.target.flat
    return np.insert(columns.target.flat, columns.target.offsets[1:], EOS)


class WindowBatches:
    """The windows of a text, epoch after epoch."""

    def __init__(self, text: Ids, settings: Batching, seed: int, share: Share = WHOLE) -> None:
        assert settings.window is not None, "somebody asked for windows"
        self.text, self.window, self.seed, self.share = text, settings.window, seed, share
        wanted = max(1, settings.budget // self.window)
        self.parts = min(wanted, settings.sentences or wanted, max(1, len(text) // (2 * self.window)))
        if len(text) < self.window + 1:
            what = f"{len(text):,} tokens of text do not fill a window of {self.window:,}"
            raise SeqloomError("E_DATA", what, where="batching.window", fix="a smaller window, or more text")
        if self.parts < share.size:
            what = f"{share.size} processes share batches of {self.parts} windows: some would have none"
            raise SeqloomError("E_USAGE", what, where="batching", fix="fewer processes, or larger batching.tokens")

    def _starts(self, epoch: int) -> tuple[npt.NDArray[np.int64], int]:
        """Where each row begins, and how many tokens every row has."""
        free = min(self.window, len(self.text) - self.parts * self.window)
        first = int(np.random.default_rng((self.seed, epoch)).integers(0, free)) if epoch and free > 0 else 0
        length = (len(self.text) - first) // self.parts
        return first + length * np.arange(self.parts, dtype=np.int64), length

    def count(self, epoch: int) -> int:
        return -(-self._starts(epoch)[1] // self.window)

    def rows(self, longest: int) -> int:
        return self.share.most(self.parts)

    def padding(self, epoch: int) -> float:
        return 0.0

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of one epoch after the first `skip`."""
        starts, length = self._starts(number)
        own = self.share.rows(0, self.parts)  # the same in all windows: states are carried on
        assert own is not None, "there are as many windows as processes"
        rows = np.arange(self.parts)[own]
        for place in range(skip, self.count(number)):
            begin = starts[rows] + place * self.window
            steps = min(self.window, length - place * self.window)
            target = self._ids(begin, steps)
            window = Window(place, self.parts, torch.from_numpy(rows), self._ids(begin - 1, steps))
            yield Batch(
                _nothing(len(rows)), Tokens(target, torch.ones_like(target, dtype=torch.bool)), (), window=window
            )

    def _ids(self, begin: npt.NDArray[np.int64], steps: int) -> Int[Tensor, "B T"]:
        """So many tokens from each of these places on; before the first stands BOS."""
        places = begin[:, None] + np.arange(steps)
        return torch.from_numpy(np.where(places < 0, BOS, self.text[np.maximum(places, 0)]).astype(np.int64))


def judged(text: Ids, window: int, tokens: int) -> Iterator[Batch]:
    """All of a text in order: parts of half a window, each after as many tokens of what stands before it.

    A source is what is read and not asked about. Nothing but the text is asked: no end stands behind a part.
    """
    half = max(1, window // 2)
    rows = max(1, tokens // window)
    starts = np.arange(0, len(text), half)
    for chosen in np.array_split(starts, max(1, -(-len(starts) // rows))):
        source = ended([text[max(0, start - half) : start] for start in chosen])
        yield Batch({"source": source}, _unended([text[start : start + half] for start in chosen]))


def _unended(parts: list[Ids]) -> Tokens:
    longest = max(map(len, parts))
    ids = np.full((len(parts), longest), PAD, dtype=np.int64)
    mask = np.zeros(ids.shape, dtype=bool)
    for row, part in enumerate(parts):
        ids[row, : len(part)], mask[row, : len(part)] = part, True
    return Tokens(torch.from_numpy(ids), _true(mask))


def _true(mask: npt.NDArray[np.bool_]) -> Bool[Tensor, "B T"]:
    return torch.from_numpy(mask)


def _nothing(rows: int) -> dict[str, Tokens]:
    """Sources without a token, their end alone: what a text from its beginning is read after."""
    return {"source": ended([np.zeros(0, np.int64)] * rows)}

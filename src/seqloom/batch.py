"""What a model eats: padded tensors with masks that are True where something is real.

A batch knows integers and floats, never strings and never files. Padding is at the end, always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.utils.rnn import pad_sequence

from seqloom.shapes import Bool, Float, Int, Shaped, Tensor

Embed = Callable[[Tensor], Tensor]  # ids (B S) or frames (B S F) -> vectors (B S D)


@dataclass(frozen=True)
class Tokens:
    """Token ids; positions behind the mask hold any valid id and never matter.

    `copies` is there where outputs may copy from this source: for each position the target id of the same piece, V + k
    for the k-th different piece of this source that the target vocabulary (of size V) lacks, -1 for what is no piece.
    `words` is there where a model asks for it: for each position the word of the text, counted from 0, that it is a
    part of, -1 for what is no part of a word (blanks, the end, padding). A word is what stands between blanks.
    `fixed` says that no shape may depend on the mask: a recorded graph computes the same positions for every batch.
    """

    ids: Int[Tensor, "B S"]
    mask: Bool[Tensor, "B S"]
    copies: Int[Tensor, "B S"] | None = None
    fixed: bool = False
    words: Int[Tensor, "B S"] | None = None

    @staticmethod
    def pad(sequences: Sequence[Sequence[int]], fill: int = 0) -> Tokens:
        """Pad lists of ids to their longest."""
        lengths = torch.tensor([len(ids) for ids in sequences], dtype=torch.long)
        width = int(lengths.max()) if len(sequences) else 0
        ids = torch.full((len(sequences), width), fill, dtype=torch.long)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = torch.as_tensor(sequence, dtype=torch.long)
        return Tokens(ids, torch.arange(width) < lengths[:, None])

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.mask.sum(1)

    def real(self, values: Shaped[Tensor, "B S *d"]) -> Shaped[Tensor, "M *d"]:
        """The values at the M real positions; of fixed shapes, at all M = B S, and `counted` leaves the others out."""
        return values.flatten(0, 1) if self.fixed else values[self.mask]

    def counted(self, values: Float[Tensor, "M"]) -> Float[Tensor, "M"]:
        """What `real` gave, zero where nothing is real."""
        return torch.where(self.mask.flatten(), values, 0.0) if self.fixed else values

    def without(self, token: int) -> Tokens:
        """The same ids, such a token not being real: nothing is asked of it."""
        return replace(self, mask=self.mask & (self.ids != token))

    def vectors(self, embed: Embed | None) -> Float[Tensor, "B S D"]:
        """The source as vectors: tokens need an embedding."""
        assert embed is not None, "a token source needs an embedding"
        return embed(self.ids)

    def to(self, device: torch.device) -> Tokens:
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def rows(self, index: Int[Tensor, "b"]) -> Tokens:
        return self._map(lambda tensor: tensor[index])

    def _map(self, change: Callable[[Tensor], Tensor]) -> Tokens:
        copies = None if self.copies is None else change(self.copies)
        words = None if self.words is None else change(self.words)
        return Tokens(change(self.ids), change(self.mask), copies, self.fixed, words)


@dataclass(frozen=True)
class Frames:
    """A sequence of given vectors: sound, sensors, or words that arrive already embedded."""

    values: Float[Tensor, "B S F"]
    mask: Bool[Tensor, "B S"]

    @staticmethod
    def pad(sequences: Sequence[Float[Tensor, "_ F"]]) -> Frames:
        """Pad sequences of frames to their longest, with zeros."""
        lengths = torch.tensor([len(frames) for frames in sequences], dtype=torch.long)
        return Frames(
            pad_sequence(list(sequences), batch_first=True), torch.arange(int(lengths.max())) < lengths[:, None]
        )

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.mask.sum(1)

    def vectors(self, embed: Embed | None) -> Float[Tensor, "B S D"]:
        """The source as vectors: frames are vectors already, and may be brought to another width."""
        if embed is None:
            return self.values
        return embed(self.values.masked_fill(~self.mask[..., None], 0.0))  # NaN there would reach a gradient

    def to(self, device: torch.device) -> Frames:
        return Frames(self.values.to(device, non_blocking=True), self.mask.to(device, non_blocking=True))

    def rows(self, index: Int[Tensor, "b"]) -> Frames:
        return Frames(self.values[index], self.mask[index])


Source = Tokens | Frames


def source_lengths(sources: Mapping[str, Source]) -> Int[Tensor, "B"]:
    """S of every source: its real positions; of several sources together, those of the longest."""
    assert sources, "search needs at least one source: it says how many there are"
    return torch.stack([source.lengths for source in sources.values()]).amax(0)


@dataclass(frozen=True)
class Window:
    """A part of a text that goes on in the next batch: row i of this one is the row `rows[i]` of `of` texts.

    `read` is what stands before each target token: of the first one, the last token of the window before, or BOS.
    """

    number: int  # of windows before this one; 0: nothing was read yet
    of: int
    rows: Int[Tensor, "B"]
    read: Int[Tensor, "B T"]


@dataclass(frozen=True)
class Batch:
    """Examples side by side: named sources, the gold target (ending in EOS), and which examples they are.

    The first source is called "source"; further ones have encoders of their own. `alignment` is over its positions
    alone: where a memory goes on behind them, nothing is aligned.
    """

    sources: Mapping[str, Source]
    target: Tokens | None
    examples: Sequence[int] = field(default_factory=tuple)
    weights: Float[Tensor, "B"] | None = None  # how much each example counts in the loss; null: all alike
    alignment: Float[Tensor, "B T S"] | None = None  # gold, each row summing to 1, or to 0 where nothing is known
    window: Window | None = None  # where texts are read in windows, each going on where the one before ended

    def __len__(self) -> int:
        return next(iter(self.sources.values())).mask.shape[0]

    @property
    def target_tokens(self) -> int:
        """Real target tokens, EOS counted: what speed and losses are measured in."""
        return 0 if self.target is None else int(self.target.mask.sum())

    def to(self, device: torch.device) -> Batch:
        return self._map(
            lambda part: part.to(device), lambda tensor: tensor.to(device, non_blocking=True), self.examples
        )

    def rows(self, index: Int[Tensor, "b"]) -> Batch:
        """A part of the batch; out-of-memory recovery and tests split batches with this."""
        examples = [self.examples[i] for i in index.tolist()] if self.examples else ()
        return self._map(lambda part: part.rows(index), lambda tensor: tensor[index], examples)

    def twice(self) -> Batch:
        """All examples, and all of them again."""
        rows = torch.arange(len(self), device=next(iter(self.sources.values())).mask.device).repeat(2)
        return self._map(lambda part: part.rows(rows), lambda tensor: tensor[rows], (*self.examples, *self.examples))

    def _map(
        self, on_parts: Callable[[Source], Source], on_tensors: Callable[[Tensor], Tensor], examples: Sequence[int]
    ) -> Batch:
        target = None if self.target is None else on_parts(self.target)
        assert target is None or isinstance(target, Tokens)
        return Batch(
            {name: on_parts(source) for name, source in self.sources.items()},
            target,
            examples,
            None if self.weights is None else on_tensors(self.weights),
            None if self.alignment is None else on_tensors(self.alignment),
            None
            if self.window is None
            else replace(self.window, rows=on_tensors(self.window.rows), read=on_tensors(self.window.read)),
        )

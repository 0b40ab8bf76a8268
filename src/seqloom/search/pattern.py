"""Outputs that match a pattern: an automaton over bytes, lifted to tokens.

What a token adds to the text is known beforehand (`Spelling`), so the state after a token is a table of states by
vocabulary, looked up for a whole batch at once. This file knows bytes, not tokenizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int32, Int64, UInt8
from pydantic import Field

from seqloom import config
from seqloom.search.expression import MAX_CHARACTERS, compiled
from seqloom.search.language import FAR, Language
from seqloom.search.machine import DEAD, Machine, refusal
from seqloom.shapes import Bool, Rows, Tensor

MAX_CELLS = 40_000_000  # states x vocabulary of the table
CHUNK_CELLS = 4_000_000  # of it, computed at once

States = Int64[np.ndarray, "n"]


@dataclass(frozen=True)
class Spelling:
    """What each of V tokens adds to a text, in UTF-8, in each situation; None where it has no text of its own.

    Situation 0 is the beginning of the output; `after[token]` is the one that a token leaves behind.
    """

    added: Sequence[Sequence[bytes | None]]  # situations x V
    after: Sequence[int]  # V


class Pattern(Language):
    """The output's text matches a regular expression (see `expression.py` for what it may hold)."""

    whole = "the pattern"

    class Settings(config.Settings):
        kind: Literal["pattern"] = "pattern"
        expression: str = Field(max_length=MAX_CHARACTERS)

    def __init__(self, settings: Settings, *, spelling: Spelling) -> None:
        lifted = _Lifted(compiled(settings.expression), spelling)
        table, accepts = lifted.table(settings.expression)
        missing = _distances(table, accepts)
        if missing[0] >= FAR:
            fix = "the tokens of this model spell other texts: check case, blanks and characters"
            raise refusal(settings.expression, "no sequence of the model's tokens matches it", fix)
        self.table, self.missing = torch.from_numpy(table), torch.from_numpy(missing)

    def _settle(self, device: torch.device) -> None:
        self.table, self.missing = self.table.to(device), self.missing.to(device)

    def room(self) -> int:
        return int(self.missing[0])

    def openings(self, at: Rows, left: Rows, width: int) -> Bool[Tensor, "N W"]:
        mask = torch.zeros(len(at), width, dtype=torch.bool, device=at.device)
        known = min(width, self.table.shape[1])  # a copied token, behind the vocabulary, has no spelling
        mask[:, :known] = self.missing[self.table[at, :known].long()] <= left[:, None]
        return mask

    def following(self, at: Rows, tokens: Rows) -> Rows:
        known = tokens.clamp(max=self.table.shape[1] - 1)
        return torch.where(tokens == known, self.table[at, known].long(), len(self.missing) - 1)


class _Lifted:
    """A machine over bytes as one over tokens: its states are pairs of a machine's state and a situation."""

    def __init__(self, machine: Machine, spelling: Spelling) -> None:
        self.machine, self.situations = machine, len(spelling.added)
        self.after = np.asarray(spelling.after, dtype=np.int64)
        self.texts = [_Texts.of(added) for added in spelling.added]

    def table(self, expression: str) -> tuple[Int32[np.ndarray, "states V"], Bool[np.ndarray, "states"]]:
        """(state after each token, whether the output may end there); the last state is that of the lost."""
        pairs = np.array([1 * self.situations], dtype=np.int64)  # the machine's beginning, situation 0
        rows: list[States] = []
        done = 0
        while done < len(pairs):
            if len(pairs) * len(self.after) > MAX_CELLS:
                what = f"over {len(pairs):,} states for {len(self.after):,} tokens"
                raise refusal(expression, what, "repeat less, or use smaller classes: [a-z] instead of \\w")
            chunk = pairs[done : done + max(1, CHUNK_CELLS // len(self.after))]
            after = self._after(chunk)
            rows.append(after)
            done += len(chunk)
            new = np.setdiff1d(after, pairs)
            pairs = np.concatenate([pairs, new[new >= self.situations]])  # below are those of the dead state
        order = np.argsort(pairs)
        joined = np.concatenate(rows)
        place = np.minimum(np.searchsorted(pairs, joined, sorter=order), len(pairs) - 1)
        table = np.where(joined >= self.situations, order[place], len(pairs)).astype(np.int32)
        lost = np.full((1, table.shape[1]), len(pairs), dtype=np.int32)
        accepts = np.append(self.machine.accepts[pairs // self.situations], False)
        return np.concatenate([table, lost]), accepts

    def _after(self, pairs: States) -> Int64[np.ndarray, "n V"]:
        states, situations = np.divmod(pairs, self.situations)
        found = np.zeros((len(pairs), len(self.after)), dtype=np.int64)
        for number, texts in enumerate(self.texts):
            rows = np.flatnonzero(situations == number)
            if len(rows):
                found[rows] = texts.read(self.machine, states[rows])
        return found * self.situations + np.where(found == DEAD, 0, self.after)


@dataclass(frozen=True)
class _Texts:
    """The tokens' bytes as a matrix, the longest first, so that each position is a slice."""

    order: States
    counts: Sequence[int]  # how many tokens have more than 0, 1, 2, ... bytes
    matrix: UInt8[np.ndarray, "V L"]
    silent: States  # tokens without a text

    @staticmethod
    def of(added: Sequence[bytes | None]) -> _Texts:
        lengths = np.array([len(text or b"") for text in added], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        matrix = np.zeros((len(added), int(lengths.max(initial=0))), dtype=np.uint8)
        for row, token in enumerate(order):
            text = added[token] or b""
            matrix[row, : len(text)] = np.frombuffer(text, dtype=np.uint8)
        counts = [int((lengths > position).sum()) for position in range(matrix.shape[1])]
        silent = np.array([token for token, text in enumerate(added) if text is None], dtype=np.int64)
        return _Texts(order, counts, matrix, silent)

    def read(self, machine: Machine, states: States) -> Int64[np.ndarray, "n V"]:
        """The machine's state after every token, from each of some states."""
        reached = np.repeat(states[:, None], len(self.order), axis=1)  # n V, in the order of lengths
        for position, count in enumerate(self.counts):
            reached[:, :count] = machine.after[reached[:, :count], self.matrix[:count, position]]
        found = np.empty_like(reached)
        found[:, self.order] = reached
        found[:, self.silent] = DEAD
        return found


def _distances(table: Int32[np.ndarray, "states V"], accepts: Bool[np.ndarray, "states"]) -> States:
    """The tokens that are missing at least from each state to an end."""
    count = len(table)
    edges = [np.unique(row) for row in table]
    sources = np.repeat(np.arange(count), [len(row) for row in edges])
    targets = np.concatenate(edges)
    missing = np.where(accepts, 0, FAR).astype(np.int64)
    while True:
        shorter = missing.copy()
        np.minimum.at(shorter, sources, missing[targets] + 1)
        if (shorter == missing).all():
            return missing
        missing = shorter

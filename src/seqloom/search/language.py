"""Constraints that say what a whole output is: a member of a list, a match of a pattern.

Such a constraint is an automaton over tokens whose every state knows how many tokens are missing at least until the
output may end. So no hypothesis runs into a dead end, or into the limit, as long as one output fits within it.
"""

from __future__ import annotations

from abc import abstractmethod

import torch

from seqloom.errors import SeqloomError
from seqloom.models.contracts import State
from seqloom.search.contracts import Constraint
from seqloom.shapes import Bool, Int, Lengths, Rows, Tensor
from seqloom.specials import EOS

FAR = 2**30  # more tokens than any output has: no end can be reached


class Language(Constraint):
    """State 0 is the beginning; `missing` has a number for every state, 0 where the output may end."""

    missing: Int[Tensor, "states"]

    @abstractmethod
    def following(self, at: Rows, tokens: Rows) -> Rows:
        """The state after a token; one from which no end can be reached where the token is not possible."""

    @abstractmethod
    def openings(self, at: Rows, left: Rows, width: int) -> Bool[Tensor, "N W"]:
        """The tokens after which an end is at most `left` further tokens away."""

    @abstractmethod
    def _settle(self, device: torch.device) -> None:
        """Take all tables to a device, where they are not there yet."""

    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        if self.missing.device != limits.device:
            self._settle(limits.device)
        shortest, limit = int(self.missing[0]), int(limits.min())
        if shortest > limit:
            what = f"the shortest output that {self.whole} allows has {shortest:,} tokens, the limit is {limit:,}"
            raise SeqloomError("E_USAGE", what, fix="raise max_length or max_ratio")
        left = limits.repeat_interleave(hypotheses)
        return State({"at": torch.zeros_like(left), "left": left})

    def allowed(self, state: State, width: int) -> Bool[Tensor, "#N W"]:
        mask = self.openings(state.rows["at"], state.rows["left"] - 1, width)
        mask[:, EOS] = self.missing[state.rows["at"]] == 0
        return mask

    def admits(self, prefix: Int[Tensor, "T"], limit: Int[Tensor, "1"]) -> bool:
        state = self.start(limit, limit, 1)
        for token in prefix[:, None]:
            state = self.advance(token, state)
        return bool((self.missing[state.rows["at"]] <= state.rows["left"]).all())

    def advance(self, tokens: Rows, state: State) -> State:
        return state.with_rows(at=self.following(state.rows["at"], tokens), left=state.rows["left"] - 1)

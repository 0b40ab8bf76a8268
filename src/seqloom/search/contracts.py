"""What a strategy and a constraint are: the two ways to change how the one loop searches.

A strategy decides which continuations live; a constraint takes some of them away. Neither calls a scorer (the loop
does), neither loops over rows, and both are built anew for every search. Nothing here knows a particular one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar

from seqloom.models.contracts import State
from seqloom.search.frontier import Endings, Frontier, Offers
from seqloom.search.hypotheses import Normalisation, Unnormalised
from seqloom.search.phrases import Phrases
from seqloom.shapes import Bool, Int, Lengths, Rows, Tensor


class Strategy(ABC):
    """begin -> frontier, advance(frontier, offers) -> frontier until every source is done, end -> endings."""

    hypotheses: int  # K rows per source
    seed: int = 0
    reorders: ClassVar[bool] = True  # False: a row only ever continues itself, so no state need be moved
    compares: ClassVar[bool] = True  # False: tokens are drawn, so that nothing may be added to their probabilities
    promises: ClassVar[bool] = False  # True: phrases that must occur do occur
    steady: ClassVar[bool] = (
        False  # True: a step asks nothing of the device and changes no shape, so it can be recorded
    )
    normalisation: Normalisation = Unnormalised(Unnormalised.Settings())
    keep: int | None = None  # of the endings, only the first so many different ones; None: all of them

    @abstractmethod
    def begin(self, keys: Int[Tensor, "B"], limits: Lengths, phrases: Phrases | None = None) -> Frontier:
        """Before the first token; `phrases` only where the strategy `promises`."""

    @abstractmethod
    def advance(self, frontier: Frontier, offers: Offers) -> Frontier:
        """One token further. Sources that are done stay as they are."""

    @abstractmethod
    def end(self, frontier: Frontier) -> Endings:
        """What to return, at least one hypothesis per source, most wanted first; asked once its sources are done."""


class Constraint(ABC):
    """State in `State.rows` (one per hypothesis) and `State.sources`, so that `select` reorders it with the rest."""

    overrules: ClassVar[bool] = False  # True: asked last, and may allow again what others forbade
    whole: ClassVar[str] = ""  # what it is called, where it says what a whole output is: a prefix must then fit it

    @property
    def steady(self) -> Hashable | None:
        """All of it that stands outside of its state; equal ones can share a recorded step.

        None: a step asks something of the device, or changes a shape, and cannot be recorded.
        """
        return None

    @abstractmethod
    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        """State before the first token, for sources of these lengths whose outputs have these limits, K rows each."""

    @abstractmethod
    def allowed(self, state: State, width: int) -> Bool[Tensor, "#N W"]:
        """Which of `width` tokens may come next. One row for all is enough where all are alike."""

    @abstractmethod
    def advance(self, tokens: Rows, state: State) -> State:
        """The state after each row took its token."""

    def narrow(self, mask: Bool[Tensor, "#N W"], state: State) -> Bool[Tensor, "#N W"]:
        """What is left of `mask` under this constraint."""
        return mask & self.allowed(state, mask.shape[-1])

    def room(self) -> int:
        """How many tokens an output must be allowed to have for the constraint to be met at all; 0: no matter."""
        return 0

    def admits(self, prefix: Int[Tensor, "T"], limit: Int[Tensor, "1"]) -> bool:
        """Whether a whole output may begin like this; asked only where the constraint says what that is."""
        return True

"""What a hypothesis may not say: constraints take candidates away, step by step, and follow their rows.

A constraint never renormalises: it answers with a mask (True = allowed), and the log-probabilities of what remains stay
the model's own. Where nothing remains, the hypothesis dies. Positive wishes ("this word must occur") are not masks
and do not belong here: `lexical.py` is a strategy. Those that say what a whole output is are `trie.py`, `pattern.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import torch
from pydantic import Field, model_validator

from seqloom import config
from seqloom.batch import Tokens
from seqloom.config import Table
from seqloom.errors import SeqloomError
from seqloom.models.contracts import State
from seqloom.search.contracts import Constraint
from seqloom.search.pattern import Pattern
from seqloom.search.trie import Trie
from seqloom.shapes import Bool, Int, Lengths, Rows, Tensor
from seqloom.specials import EOS, PAD, UNSPEAKABLE

__all__ = ["CONSTRAINTS", "AtLeast", "Constraint", "Pattern", "Prefix", "Rules", "Trie"]

ENDLESS = 2**62  # more tokens than any hypothesis has
NOTHING, ANYTHING = -1, -2  # ids that no token has: nothing was said yet; whatever was said


class Banned(Constraint):
    """These tokens are never generated."""

    class Settings(config.Settings):
        kind: Literal["banned"] = "banned"
        tokens: tuple[int, ...]

        @model_validator(mode="after")
        def _ids(self) -> Banned.Settings:
            if any(token < 0 for token in self.tokens):
                raise ValueError("token ids are not negative")
            return self

    def __init__(self, settings: Settings) -> None:
        self.tokens = settings.tokens
        self._known: Bool[Tensor, "1 W"] | None = None  # the answer for the last width, most often the next one's too

    @property
    def steady(self) -> Hashable:
        return "banned", self.tokens

    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        tokens = torch.tensor(self.tokens, dtype=torch.long, device=lengths.device)
        return State({}, {"tokens": tokens.repeat(len(lengths), 1)})

    def allowed(self, state: State, width: int) -> Bool[Tensor, "#N W"]:
        tokens = state.sources["tokens"][0]  # the same for every source
        if self._known is None or self._known.shape[1] != width or self._known.device != tokens.device:
            self._known = ~torch.isin(torch.arange(width, device=tokens.device), tokens)[None]
        return self._known

    def advance(self, tokens: Rows, state: State) -> State:
        return state


class BannedPhrases(Constraint):
    """These sequences of tokens never occur: a token is forbidden where it would complete one."""

    class Settings(config.Settings):
        kind: Literal["banned_phrases"] = "banned_phrases"
        phrases: tuple[tuple[int, ...], ...]

        @model_validator(mode="after")
        def _ids(self) -> BannedPhrases.Settings:
            if any(not phrase or min(phrase) < 0 for phrase in self.phrases):
                raise ValueError("phrases: none is empty, and token ids are not negative")
            return self

    def __init__(self, settings: Settings) -> None:
        self.memory = max((len(phrase) - 1 for phrase in settings.phrases), default=0)
        self.phrases = settings.phrases
        heads = [[ANYTHING] * (self.memory + 1 - len(phrase)) + list(phrase[:-1]) for phrase in settings.phrases]
        self._heads = torch.tensor(heads, dtype=torch.long).view(len(heads), self.memory)  # P L, aligned at the end
        self._lasts = torch.tensor([phrase[-1] for phrase in settings.phrases], dtype=torch.long)

    @property
    def steady(self) -> Hashable:
        return "banned phrases", self.phrases

    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        self._heads, self._lasts = self._heads.to(lengths.device), self._lasts.to(lengths.device)
        rows = len(lengths) * hypotheses
        return State({"said": lengths.new_full((rows, self.memory), NOTHING)})  # the last tokens only

    def allowed(self, state: State, width: int) -> Bool[Tensor, "#N W"]:
        said = state.rows["said"][:, None]  # N 1 L
        due = ((said == self._heads) | (self._heads == ANYTHING)).all(-1) & (self._lasts < width)  # N P
        mask = torch.ones(len(said), width + 1, dtype=torch.bool, device=said.device)
        return mask.scatter_(1, torch.where(due, self._lasts, width), False)[:, :width]

    def advance(self, tokens: Rows, state: State) -> State:
        said = torch.cat([state.rows["said"], tokens[:, None]], 1)
        return state.with_rows(said=said[:, 1:])


class NoRepeat(Constraint):
    """No n-gram of tokens occurs twice in a hypothesis (Paulus et al. 2018). EOS is in no n-gram."""

    class Settings(config.Settings):
        kind: Literal["no_repeat"] = "no_repeat"
        ngram: int = Field(default=3, ge=1)

    def __init__(self, settings: Settings) -> None:
        self.n = settings.ngram

    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        return State({"said": lengths.new_zeros(len(lengths) * hypotheses, 0)})

    def allowed(self, state: State, width: int) -> Bool[Tensor, "#N W"]:
        said = state.rows["said"]  # N T
        if said.shape[1] < self.n:
            return torch.ones(1, width, dtype=torch.bool, device=said.device)
        grams = said.unfold(1, self.n, 1)  # N G n
        tail = said[:, said.shape[1] - self.n + 1 :]  # N n-1, what the next token would complete
        again = (grams[..., :-1] == tail[:, None]).all(-1)  # N G
        forbidden = torch.where(again, grams[..., -1], width)  # N G; `width` is the place of those that do not count
        mask = torch.ones(len(said), width + 1, dtype=torch.bool, device=said.device)
        return mask.scatter_(1, forbidden, False)[:, :width]

    def advance(self, tokens: Rows, state: State) -> State:
        return state.with_rows(said=torch.cat([state.rows["said"], tokens[:, None]], 1))


class Length(Constraint):
    """No EOS before the minimum, nothing but EOS at the maximum: so every output ends of itself within it.

    Unlike a limit, which cuts off and says so, a maximum makes the search prefer hypotheses that end in time.
    """

    class Settings(config.Settings):
        kind: Literal["length"] = "length"
        min_length: int = Field(default=0, ge=0)
        min_ratio: float = Field(default=0.0, ge=0)
        max_length: int | None = Field(default=None, ge=1)
        max_ratio: float | None = Field(default=None, gt=0)

        @model_validator(mode="after")
        def _minimum_below_maximum(self) -> Length.Settings:
            if self.max_length is not None and self.min_length > self.max_length:
                raise ValueError(f"min_length {self.min_length} is over max_length {self.max_length}")
            if self.max_ratio is not None and self.min_ratio > self.max_ratio:
                raise ValueError(f"min_ratio {self.min_ratio} is over max_ratio {self.max_ratio}")
            return self

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def steady(self) -> Hashable:
        return "length"  # its bounds stand in its state

    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        settings = self.settings
        least = (lengths.double() * settings.min_ratio).ceil().long().clamp(min=settings.min_length)
        most = torch.full_like(least, ENDLESS if settings.max_length is None else settings.max_length)
        if settings.max_ratio is not None:
            most = torch.minimum(most, (lengths.double() * settings.max_ratio).floor().long().clamp(min=1))
        said = lengths.new_zeros(len(lengths) * hypotheses)
        return State({"said": said}, {"least": torch.minimum(least, most), "most": most})

    def allowed(self, state: State, width: int) -> Bool[Tensor, "#N W"]:
        said = state.rows["said"].view(len(state.sources["least"]), -1)  # B K
        mask = (said < state.sources["most"][:, None]).reshape(-1, 1).repeat(1, width)  # N W
        mask[:, EOS] = (said >= state.sources["least"][:, None]).flatten()
        return mask

    def narrow(self, mask: Bool[Tensor, "#N W"], state: State) -> Bool[Tensor, "#N W"]:
        """Most often all rows are alike: none is too long, and all may end or none. A CPU says so in no time."""
        said = state.rows["said"].view(len(state.sources["least"]), -1)  # B K
        if said.device.type == "cpu" and bool((said < state.sources["most"][:, None]).all()):
            ends = said >= state.sources["least"][:, None]
            if bool(ends.all()):
                return mask
            if not bool(ends.any()):
                mask = mask.clone()
                mask[:, EOS] = False
                return mask
        return super().narrow(mask, state)

    def advance(self, tokens: Rows, state: State) -> State:
        return state.with_rows(said=state.rows["said"] + 1)


class AtLeast(Length):
    """A minimum already worked out for every source: how `Limits` reach the search. In no table."""

    def __init__(self, least: Lengths) -> None:
        self.least = least

    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        most = torch.full_like(self.least, ENDLESS)
        return State({"said": lengths.new_zeros(len(lengths) * hypotheses)}, {"least": self.least, "most": most})


class Prefix(Constraint):
    """Every hypothesis begins with these tokens; the model's real log-probabilities of them are counted.

    A recipe gives one prefix for all sources; `Prefix.of` takes one per source, ragged. It overrules the other
    constraints: a prefix that a person asks for may repeat itself or hold a banned token.
    """

    overrules = True

    class Settings(config.Settings):
        kind: Literal["prefix"] = "prefix"
        tokens: tuple[int, ...] = Field(min_length=1)

    def __init__(self, settings: Settings) -> None:
        self._take(Tokens.pad([settings.tokens]))

    @classmethod
    def of(cls, prefixes: Tokens) -> Prefix:
        """One prefix per source; some may be empty."""
        constraint = cls.__new__(cls)
        constraint._take(prefixes)
        return constraint

    def _take(self, prefixes: Tokens) -> None:
        ids = torch.where(prefixes.mask, prefixes.ids, PAD)
        if bool((ids == EOS).any()):
            raise SeqloomError("E_USAGE", "a prefix holds the end of the output (EOS)", fix="leave EOS out of prefixes")
        if bool((ids < 0).any()):
            raise SeqloomError("E_USAGE", "a prefix holds a negative token id")
        self._ids, self._lengths = ids, prefixes.lengths
        self._largest = int(ids.max()) if ids.numel() else 0

    @property
    def steady(self) -> Hashable:
        return "prefix"  # its tokens stand in its state

    def start(self, lengths: Lengths, limits: Lengths, hypotheses: int) -> State:
        ids, own = (values.to(lengths.device) for values in (self._ids, self._lengths))
        if len(ids) != len(lengths):
            assert len(ids) == 1, f"{len(ids)} prefixes for {len(lengths)} sources"
            ids, own = ids.repeat(len(lengths), 1), own.repeat(len(lengths))
        ids = torch.nn.functional.pad(ids, (0, 1), value=PAD)  # room to look behind the end
        return State({"said": lengths.new_zeros(len(lengths) * hypotheses)}, {"ids": ids, "lengths": own})

    def _forced(self, state: State) -> Bool[Tensor, "N 1"]:
        lengths = state.sources["lengths"][:, None]
        return (state.rows["said"].view(len(lengths), -1) < lengths).reshape(-1, 1)

    def allowed(self, state: State, width: int) -> Bool[Tensor, "#N W"]:
        if self._largest >= width:
            raise SeqloomError("E_USAGE", f"a prefix holds token {self._largest}, the vocabulary ends at {width - 1}")
        ids, said = state.sources["ids"], state.rows["said"]
        due = ids.gather(1, said.view(len(ids), -1).clamp(max=ids.shape[1] - 1))  # B K
        mask = (~self._forced(state)).repeat(1, width)  # N W
        return mask.scatter_(1, due.view(-1, 1), True)

    def narrow(self, mask: Bool[Tensor, "#N W"], state: State) -> Bool[Tensor, "#N W"]:
        return torch.where(self._forced(state), self.allowed(state, mask.shape[-1]), mask)

    def advance(self, tokens: Rows, state: State) -> State:
        return state.with_rows(said=state.rows["said"] + 1)


CONSTRAINTS: Table[Constraint] = Table(
    "constraints",
    {
        "banned": Banned,
        "banned_phrases": BannedPhrases,
        "no_repeat": NoRepeat,
        "length": Length,
        "prefix": Prefix,
        "trie": Trie,
        "pattern": Pattern,
    },
)


class Rules:
    """All constraints of one search with their states, moved together."""

    def __init__(self, constraints: Sequence[Constraint], lengths: Lengths, limits: Lengths, hypotheses: int) -> None:
        every = [Banned(Banned.Settings(tokens=UNSPEAKABLE)), *constraints]
        self._constraints = sorted(every, key=lambda constraint: constraint.overrules)
        self.states = [constraint.start(lengths, limits, hypotheses) for constraint in self._constraints]

    @property
    def steady(self) -> Hashable | None:
        """What their recorded steps depend on; None where one of them cannot be recorded."""
        parts = tuple(constraint.steady for constraint in self._constraints)
        return None if None in parts else parts

    def allowed(self, width: int) -> Bool[Tensor, "#N W"]:
        (first, *others), (state, *states) = self._constraints, self.states  # the first is what no output may hold
        mask = first.allowed(state, width)
        for constraint, state in zip(others, states, strict=True):
            mask = constraint.narrow(mask, state)
        return mask

    def select(self, rows: Rows, sources: Int[Tensor, "b"] | None) -> None:
        self.states = [state.select(rows, sources) for state in self.states]

    def advance(self, tokens: Rows) -> None:
        pairs = zip(self._constraints, self.states, strict=True)
        self.states = [constraint.advance(tokens, state) for constraint, state in pairs]

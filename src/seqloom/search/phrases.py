"""Phrases that an output must hold: how much of each a hypothesis has said, and how much is missing.

Each phrase is followed by its own matcher (Knuth, Morris and Pratt 1977), so phrases may overlap and may be begun
again. All matchers of a batch are one table, which a step of search looks up at once. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from seqloom.batch import Tokens
from seqloom.errors import SeqloomError
from seqloom.shapes import Int, Lengths, Tensor
from seqloom.specials import SPECIALS

Phrase = tuple[int, ...]
Wanted = Sequence[Sequence[Sequence[int]]]  # of every source, its phrases, each a sequence of tokens


@dataclass(frozen=True)
class Phrases:
    """The phrases of B sources, at most P each, of at most L tokens, and M different tokens in all of a source's.

    `steps[b, p, q, m]`: how many tokens of phrase p are said after the token `slots[b, m]`, where q were said before;
    the last column is for every other token. A phrase that was said once stays said (q = its length). Where a prefix
    of `forced` tokens is given, nothing can be chosen before its end.
    """

    slots: Int[Tensor, "B M"]
    lengths: Int[Tensor, "B P"]
    steps: Int[Tensor, "B P L M1"]
    forced: Int[Tensor, "B"]

    @staticmethod
    def of(wanted: Wanted, limits: Lengths, prefixes: Tokens | None = None) -> Phrases:
        """Tables for every source's phrases; E_USAGE where they do not fit one after the other within the limit."""
        kept = [_needed(source) for source in wanted]
        said = [()] * len(kept) if prefixes is None else _rows(prefixes)
        for number, (phrases, prefix, limit) in enumerate(zip(kept, said, limits.tolist(), strict=True), start=1):
            missing = _missing(phrases, prefix)
            if missing and len(prefix) + missing > limit:
                what = f"the phrases that must occur need {len(prefix) + missing} tokens, the limit is {limit}"
                fix = "raise max_length or max_ratio, or ask for fewer phrases"
                raise SeqloomError("E_USAGE", what, where=f"source {number}", fix=fix)
        tables = [_table(phrases) for phrases in kept]
        most = max(len(phrases) for phrases in kept)
        longest = max((len(phrase) for phrases in kept for phrase in phrases), default=0)
        width = max(len(slots) for slots, _ in tables)
        steps = torch.zeros(len(kept), most, longest + 1, width + 1, dtype=torch.long)
        for row, (slots, table) in enumerate(tables):
            for place, phrase in enumerate(table):
                for before, after in enumerate(phrase):
                    steps[row, place, before, : len(slots)] = torch.tensor(after[:-1], dtype=torch.long)
                    steps[row, place, before, -1] = after[-1]
        filled = [[*slots, *[-1] * (width - len(slots))] for slots, _ in tables]
        sizes = [[*map(len, phrases), *[0] * (most - len(phrases))] for phrases in kept]
        device = limits.device
        return Phrases(
            torch.tensor(filled, dtype=torch.long, device=device).view(len(kept), width),
            torch.tensor(sizes, dtype=torch.long, device=device).view(len(kept), most),
            steps.to(device),
            torch.tensor([len(prefix) for prefix in said], device=device),
        )

    @staticmethod
    def from_notes(notes: Mapping[str, Tensor]) -> Phrases:
        return Phrases(notes["slots"], notes["lengths"], notes["steps"], notes["forced"])

    def notes(self, hypotheses: int) -> dict[str, Tensor]:
        """For a frontier to carry along: the tables, and how much of each phrase every hypothesis has said."""
        said = self.lengths.new_zeros(len(self.lengths), hypotheses, self.lengths.shape[1])  # B K P
        return {"slots": self.slots, "lengths": self.lengths, "steps": self.steps, "forced": self.forced, "said": said}

    def after(self, said: Int[Tensor, "B K P"]) -> Int[Tensor, "B K P M1"]:
        """How much is said after each token of the slots; in the last column, after any other token."""
        sources, rows, count = said.shape
        steps = self.steps[:, None].expand(-1, rows, -1, -1, -1)  # B K P L M1
        index = said[..., None, None].expand(sources, rows, count, 1, steps.shape[-1])
        return steps.gather(3, index)[:, :, :, 0]

    def missing(self, said: Int[Tensor, "B K P M"]) -> Int[Tensor, "B K M"]:
        """The most tokens that are still needed: all of the missing phrases but what the furthest of them has said."""
        lengths = self.lengths[:, None, :, None]
        open_ = said < lengths
        return (lengths * open_).sum(2) - (said * open_).amax(2)

    def place(self, tokens: Int[Tensor, "B R"]) -> Int[Tensor, "B R"]:
        """The column of each token in `after`."""
        same = self.slots[:, None] == tokens[..., None]  # B R M
        other = same.new_ones(*same.shape[:2], 1)
        return torch.cat([same, other], -1).int().argmax(-1)  # the first that is True


def _rows(tokens: Tokens) -> list[Phrase]:
    pairs = zip(tokens.ids.tolist(), tokens.lengths.tolist(), strict=True)
    return [tuple(ids[:length]) for ids, length in pairs]


def _needed(phrases: Sequence[Sequence[int]]) -> tuple[Phrase, ...]:
    """Each phrase once, without those that stand inside another one: they are said with it."""
    known = dict.fromkeys(tuple(phrase) for phrase in phrases)
    for phrase in known:
        if not phrase or min(phrase) < 0 or any(token in _SILENT for token in phrase):
            what = "a phrase that must occur is empty, or holds a token that is never said"
            raise SeqloomError("E_USAGE", what, fix="ask for words that the model knows")
    return tuple(one for one in known if not any(one != other and _inside(one, other) for other in known))


_SILENT = frozenset(range(len(SPECIALS)))


def _inside(one: Phrase, other: Phrase) -> bool:
    return any(other[start : start + len(one)] == one for start in range(len(other) - len(one) + 1))


def _missing(phrases: Sequence[Phrase], prefix: Phrase) -> int:
    """`Phrases.missing` after a prefix, in plain numbers."""
    open_ = [(len(phrase), _overlap(phrase, prefix)) for phrase in phrases if not _inside(phrase, prefix)]
    return sum(length for length, _ in open_) - max((said for _, said in open_), default=0)


def _overlap(phrase: Phrase, said: Phrase) -> int:
    """How many of the phrase's first tokens stand at the end of what was said."""
    for count in range(min(len(phrase), len(said)), 0, -1):
        if phrase[:count] == said[len(said) - count :]:
            return count
    return 0


@lru_cache(maxsize=1024)  # the same phrases are often asked of many sources
def _table(phrases: tuple[Phrase, ...]) -> tuple[list[int], list[list[list[int]]]]:
    """(the different tokens, for each phrase and each count said: the count after each token, and after others)."""
    slots = list(dict.fromkeys(token for phrase in phrases for token in phrase))
    table = []
    for phrase in phrases:
        rows = [[*(_overlap(phrase, (*phrase[:said], token)) for token in slots), 0] for said in range(len(phrase))]
        table.append([*rows, [len(phrase)] * (len(slots) + 1)])
    return slots, table

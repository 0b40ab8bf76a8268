"""Beam search whose outputs hold given phrases: a beam with banks (Post and Vilar 2018, dynamic beam allocation).

A hypothesis that has said a phrase is less probable than one that has not, and a plain beam would drop it. Here
candidates compete within banks of those that miss equally many tokens, and each bank in turn fills a place of the
beam, so that hypotheses of every stage live side by side. Nothing ends before all phrases are said, and no step is
taken from which they could no longer be said within the limit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from seqloom.errors import SeqloomError
from seqloom.search.beam import Beam, BeamSettings
from seqloom.search.frontier import NEVER, Frontier, Offers, best
from seqloom.search.phrases import Phrases
from seqloom.shapes import Bool, Float, Int, Lengths, Tensor
from seqloom.specials import EOS

FAR = 2**40  # behind every bank and every rank


class Lexical(Beam):
    """A beam that keeps its promises; for a source without phrases it is plain beam search.

    Besides the 2K best continuations it looks at every token that takes a row further in one of its phrases, and at
    each row's best token. The first place goes to the best candidate that misses nothing, the next to the best of
    those that miss one token, and so on, then to the second best of each; an empty bank is passed over. Constraints
    come first: a phrase that they forbid is not said, and what is left of the output comes back as truncated.
    """

    promises = True

    class Settings(BeamSettings):
        kind: Literal["lexical"] = "lexical"

    def __init__(self, settings: BeamSettings) -> None:
        super().__init__(settings)
        self._seen = False  # the vocabulary's size is known only when the first step is taken

    def begin(self, keys: Int[Tensor, "B"], limits: Lengths, phrases: Phrases | None = None) -> Frontier:
        frontier = super().begin(keys, limits)
        return frontier if phrases is None else replace(frontier, notes=phrases.notes(self.hypotheses))

    def advance(self, frontier: Frontier, offers: Offers) -> Frontier:
        if not frontier.notes:
            return super().advance(frontier, offers)
        phrases, said = Phrases.from_notes(frontier.notes), frontier.notes["said"]
        if not self._seen:
            self._seen = _known(phrases, offers.log_probs.shape[1])
        after = phrases.after(said)  # B K P M+1
        missing = phrases.missing(after)  # B K M+1
        candidates = frontier.candidates(offers)  # B K W
        open_ = self._open(frontier, phrases, missing, candidates.shape[2])
        open_[..., EOS] = phrases.missing(said[..., None])[..., 0] == 0
        candidates = candidates.masked_fill(~open_, NEVER)
        totals, index = self._looked_at(candidates, phrases)
        frontier = self.moved(frontier, offers, *_by_banks(totals, index, missing, phrases, candidates.shape[2]))
        kept = after.gather(1, frontier.parents[..., None, None].expand(after.shape))  # of each row's parent
        columns = phrases.place(frontier.last)[..., None, None].expand(*said.shape, 1)
        return replace(frontier, notes={**frontier.notes, "said": kept.gather(3, columns)[..., 0]})

    def _open(
        self, frontier: Frontier, phrases: Phrases, missing: Int[Tensor, "B K M1"], width: int
    ) -> Bool[Tensor, "B K W"]:
        """Tokens after which everything can still be said; within a forced prefix there is no choice to be made."""
        left = (frontier.limits - frontier.lengths - 1).clamp(min=0)  # at the limit what misses nothing is as in a beam
        fits = missing <= left[:, None, None]
        fits |= (frontier.lengths < phrases.forced)[:, None, None]
        open_ = fits[..., -1:].repeat(1, 1, width + 1)  # one more column, for slots that are padding
        slots = torch.where(phrases.slots < 0, width, phrases.slots)[:, None]
        return open_.scatter_(2, slots.expand(*fits.shape[:2], -1), fits[..., :-1])[..., :width]

    def _looked_at(
        self, candidates: Float[Tensor, "B K W"], phrases: Phrases
    ) -> tuple[Float[Tensor, "B M"], Int[Tensor, "B M"]]:
        """The best continuations, all that say a phrase's token, and each row's best; best first, each once."""
        rows, width = candidates.shape[1:]
        flat = candidates.flatten(1)
        first = torch.arange(rows, device=flat.device)[:, None] * width  # K 1
        speaking = (phrases.slots.clamp(min=0)[:, None] + first).flatten(1)  # B K*M
        own = candidates.argmax(2) + first[:, 0]  # B K
        index = torch.cat([best(flat, 2 * rows)[1], speaking, own], 1).sort(1).values
        again = torch.nn.functional.pad(index[:, 1:] == index[:, :-1], (1, 0))
        totals = flat.gather(1, index).masked_fill(again, NEVER)
        totals, order = totals.sort(dim=1, descending=True, stable=True)
        return totals, index.gather(1, order)


def _known(phrases: Phrases, width: int) -> bool:
    """E_USAGE where a phrase holds a token that is in no vocabulary of this size."""
    if (largest := int(phrases.slots.max())) >= width:
        what = f"a phrase that must occur holds token {largest}, the vocabulary ends at {width - 1}"
        raise SeqloomError("E_USAGE", what)
    return True


def _by_banks(
    totals: Float[Tensor, "B M"],
    index: Int[Tensor, "B M"],
    missing: Int[Tensor, "B K M1"],
    phrases: Phrases,
    width: int,
) -> tuple[Float[Tensor, "B M"], Int[Tensor, "B M"]]:
    """Candidates, best first, put in order: the best of every bank, then the second of every bank, and so on."""
    parents, tokens = index // width, index % width
    banks = missing.flatten(1).gather(1, parents * missing.shape[2] + phrases.place(tokens))
    banks = torch.where(tokens == EOS, 0, banks).masked_fill(totals == NEVER, FAR)
    grouped, places = banks.sort(dim=1, stable=True)
    turns = torch.arange(banks.shape[1], device=banks.device) - torch.searchsorted(grouped, grouped)  # 0: a bank's best
    turns = turns.masked_fill(grouped == FAR, FAR)
    order = places.gather(1, turns.sort(dim=1, stable=True).indices)  # of one turn, the fuller bank goes first
    return totals.gather(1, order), index.gather(1, order)

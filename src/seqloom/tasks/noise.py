"""Corruption of token sequences: remedies for exposure bias on the decoder's side, source noise on the encoder's.

Every function takes real tokens to real tokens: EOS, padding and the order of the rest stay as they are unless the
function says otherwise. Randomness comes from torch's default generator, which the loop seeds for each step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field

from seqloom.batch import Tokens
from seqloom.config import Settings
from seqloom.shapes import Bool, Tensor
from seqloom.specials import EOS, MASK, SEP, SPECIALS, UNK

Share = Annotated[float, Field(ge=0.0, le=1.0)]
SPAN = 3  # tokens, on average


class Noise(Settings):
    """Shares of tokens that are touched; zero is off."""

    drop: Share = 0.0  # removed (source), or read as unknown (history: "word dropout")
    replace: Share = 0.0  # by a random token of the vocabulary
    swap: Share = 0.0  # with the next one
    mask: Share = 0.0  # by <mask>
    span: Share = 0.0  # in runs of about three, each run by one <mask> (Lewis et al. 2020)
    keep: Share = 0.0  # by itself: it looks untouched, and is asked about all the same (`task.restore`)
    whole_words: bool = False  # with `task.restore`: all tokens of a word are struck, or none

    @property
    def silent(self) -> bool:
        return not (self.drop or self.replace or self.swap or self.mask or self.span or self.keep)

    @property
    def moves(self) -> bool:
        """Do tokens change their places?"""
        return bool(self.drop or self.swap or self.span)


def words(tokens: Tokens) -> Bool[Tensor, "B S"]:
    """Where noise may strike: real tokens that are not EOS, and stand behind what is set before a source (tags SEP)."""
    separators = tokens.mask & (tokens.ids == SEP)
    before = separators.flip(1).cumsum(1).flip(1) > 0  # a SEP stands here or later
    return tokens.mask & (tokens.ids != EOS) & ~before


def chosen(tokens: Tokens, share: float) -> Bool[Tensor, "B S"]:
    return words(tokens) & (torch.rand(tokens.ids.shape) < share).to(tokens.ids.device)


def spans(tokens: Tokens, share: float) -> Tokens:
    """About so large a share of the tokens is cut out in runs, and <mask> put in the place of each run."""
    movable, places = words(tokens), torch.arange(tokens.ids.shape[1])
    begins = (torch.rand(tokens.ids.shape) < share / SPAN) & movable.cpu()
    lengths = torch.poisson(torch.full(tokens.ids.shape, float(SPAN))).clamp(min=1).long()
    ends = torch.where(begins, places + lengths, 0).cummax(1).values  # how far the runs reach that have begun by here
    inside = (places < ends).to(movable.device) & movable
    first = inside.clone()
    first[:, 1:] &= ~inside[:, :-1]
    return _left(replace(tokens, ids=tokens.ids.masked_fill(first, MASK)), tokens.mask & (~inside | first))


def spoilt(tokens: Tokens, noise: Noise, vocabulary: int) -> tuple[Tokens, Bool[Tensor, "B S"]]:
    """Tokens of which some were replaced, masked or kept as they are, and which ones: what is to be restored.

    Each is struck by one of the three at most (Devlin et al. 2019): with shares a, b, c the first a of [0, 1) replaces.
    """
    draws = torch.rand(tokens.ids.shape)
    if noise.whole_words:
        assert tokens.words is not None, "somebody asked for words"
        draws = draws.gather(1, tokens.words.clamp(min=0).cpu())  # all tokens of a word have the draw of one place
    draws = draws.to(tokens.ids.device).masked_fill(~words(tokens), 1.0)
    if noise.whole_words and tokens.words is not None:
        draws = draws.masked_fill(tokens.words < 0, 1.0)
    ids = torch.where(draws < noise.replace, random_tokens(tokens, vocabulary), tokens.ids)
    ids = ids.masked_fill((draws >= noise.replace) & (draws < noise.replace + noise.mask), MASK)
    return replace(tokens, ids=ids), draws < noise.replace + noise.mask + noise.keep


def words_with(tokens: Tokens, struck: Bool[Tensor, "B S"], size: int) -> Bool[Tensor, "B W"]:
    """Which of `size` words have a token that was struck."""
    assert tokens.words is not None, "somebody asked for words"
    whose = tokens.words.masked_fill(~tokens.mask | (tokens.words < 0), size)  # no word: one place more
    found = torch.zeros(len(struck), size + 1, dtype=torch.long, device=struck.device)
    return found.scatter_add(1, whose.long(), struck.long())[:, :size] > 0


def random_tokens(tokens: Tokens, vocabulary: int) -> Tensor:
    return torch.randint(len(SPECIALS), vocabulary, tokens.ids.shape).to(tokens.ids.device)


def swapped(tokens: Tokens, share: float) -> Tokens:
    """Chosen tokens change places with their successor; no token moves twice."""
    picks = chosen(tokens, share)
    movable = words(tokens)
    picks[:, :-1] &= movable[:, 1:]
    picks[:, -1:] = False
    for t in range(1, picks.shape[1]):  # a token that was just moved stays
        picks[:, t] &= ~picks[:, t - 1]
    positions = torch.arange(picks.shape[1], device=picks.device).expand_as(tokens.ids)
    follows = torch.cat([torch.zeros_like(picks[:, :1]), picks[:, :-1]], dim=1)
    return replace(tokens, ids=tokens.ids.gather(1, positions + picks.long() - follows.long()))


def dropped(tokens: Tokens, share: float) -> Tokens:
    """Chosen tokens are removed and the rest moves up; EOS stays, and so at least one token does."""
    return _left(tokens, tokens.mask & ~chosen(tokens, share))


def _left(tokens: Tokens, keep: Bool[Tensor, "B S"]) -> Tokens:
    """These tokens alone, moved up."""
    order = torch.argsort((~keep).long(), dim=1, stable=True)
    whose = None if tokens.words is None else tokens.words.gather(1, order)
    return replace(tokens, ids=tokens.ids.gather(1, order), mask=keep.gather(1, order), words=whose)


def noisy(tokens: Tokens, noise: Noise, vocabulary: int, *, remove: bool) -> Tokens:
    """All kinds, one after the other. With `remove`, dropped tokens vanish; else they become UNK in place."""
    if noise.silent:
        return tokens
    if noise.swap:
        tokens = swapped(tokens, noise.swap)
    if noise.replace:
        picks = chosen(tokens, noise.replace)
        tokens = replace(tokens, ids=torch.where(picks, random_tokens(tokens, vocabulary), tokens.ids))
    if noise.mask:
        tokens = replace(tokens, ids=tokens.ids.masked_fill(chosen(tokens, noise.mask), MASK))
    if noise.span:
        tokens = spans(tokens, noise.span)
    if noise.drop:
        if remove:
            return dropped(tokens, noise.drop)
        tokens = replace(tokens, ids=tokens.ids.masked_fill(chosen(tokens, noise.drop), UNK))
    return tokens


def edited(tokens: Tokens, temperature: float, vocabulary: int) -> Tokens:
    """A sampled edited target: n of its T words replaced, P(n) proportional to exp(-n / temperature), n = 0 ... T.

    The target that is learned is then itself a draw around the gold one (Norouzi 2016; Wang 2018).
    """
    places = words(tokens)
    lengths = places.sum(1)  # B
    counts = torch.arange(tokens.ids.shape[1] + 1, device=tokens.ids.device)
    weights = torch.exp(-counts / temperature) * (counts <= lengths[:, None])  # B T+1
    edits = torch.multinomial(weights.cpu(), 1).to(tokens.ids.device)  # B 1
    order = torch.rand(tokens.ids.shape).to(tokens.ids.device).masked_fill(~places, 2.0).argsort(1).argsort(1)
    return Tokens(torch.where(order < edits, random_tokens(tokens, vocabulary), tokens.ids), tokens.mask)

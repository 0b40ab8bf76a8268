"""A linear-chain conditional random field: tags of a sentence that are chosen together (Lafferty et al. 2001).

    p(y | x) = exp(s(x, y)) / sum_y' exp(s(x, y'))
    s(x, y)  = start[y_1] + sum_t x_t[y_t] + sum_t T[y_t, y_{t+1}] + end[y_n]

x_t[c] are the scores of an encoder, T[c, d] says how well d follows c. All sums over paths go once along the sentence,
for a whole batch and all classes at a time, in logarithms and in float32 at least. Masks are prefixes: padding is at
the end. A sentence without any word has one path, of probability 1. No rule (BIO) forbids anything here.
"""

from __future__ import annotations

import torch
from torch import nn

from seqloom.nn.layers import exact
from seqloom.shapes import Bool, Float, Int, Tensor

Scores = Float[Tensor, "B S C"]
Tags = Int[Tensor, "B S"]
Mask = Bool[Tensor, "B S"]


class Crf(nn.Module):
    """Scores of each word's tags become probabilities of whole sequences of tags.

    All transitions begin at zero: before anything is learned every tag is chosen alone, by a softmax over its scores.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(classes, classes))  # from, to
        self.start = nn.Parameter(torch.zeros(classes))
        self.end = nn.Parameter(torch.zeros(classes))

    def nll(self, scores: Scores, tags: Tags, mask: Mask) -> Float[Tensor, "B"]:
        """-log p(y | x) = log sum_y' exp(s(x, y')) - s(x, y), of every sentence."""
        scores = _real(scores, mask)
        return self._total(self._forward(scores, mask)[-1], mask) - self._score(scores, tags, mask)

    def best(self, scores: Scores, mask: Mask) -> tuple[Tags, Float[Tensor, "B"]]:
        """The most probable tags (0 behind the mask), and log p of all of them together (Viterbi 1967).

        delta_{t+1}[d] = max_c (delta_t[c] + T[c, d]) + x_{t+1}[d], and the way back along the c that were best.
        """
        scores = _real(scores, mask)
        follows, stay = exact(self.transitions), torch.arange(scores.shape[2], device=scores.device)
        delta, ways = exact(self.start) + scores[:, 0], []  # B C
        for t in range(1, scores.shape[1]):
            reached, came_from = (delta[:, :, None] + follows).max(1)  # B C
            real = mask[:, t, None]
            delta = torch.where(real, reached + scores[:, t], delta)
            ways.append(torch.where(real, came_from, stay))  # behind the end every tag comes from itself
        top, tag = (delta + exact(self.end)).max(1)  # B
        tags = [tag]
        for came_from in reversed(ways):
            tags.append(came_from.gather(1, tags[-1][:, None]).squeeze(1))
        log_probs = top.masked_fill(~mask[:, 0], 0.0) - self._total(self._forward(scores, mask)[-1], mask)
        return torch.stack(tags[::-1], dim=1).masked_fill(~mask, 0), log_probs

    def marginals(self, scores: Scores, mask: Mask) -> Scores:
        """log p(y_t = c | x) = alpha_t[c] + beta_t[c] - log Z, over all paths; zero behind the mask."""
        scores = _real(scores, mask)
        alphas = self._forward(scores, mask)
        through = torch.stack(alphas, dim=1) + self.ahead(scores, mask)  # B S C
        return (through - self._total(alphas[-1], mask)[:, None, None]).masked_fill(~mask[..., None], 0.0)

    def ahead(self, scores: Scores, mask: Mask) -> Scores:
        """beta_t[c] = log sum_d exp(T[c, d] + x_{t+1}[d] + beta_{t+1}[d]): all that may follow c.

        After the last word that is the end.
        """
        follows, end = exact(self.transitions), exact(self.end)
        betas = [end.expand(scores.shape[0], -1)]  # B C, from the last position to the first
        for t in range(scores.shape[1] - 1, 0, -1):
            after = torch.logsumexp(follows + (scores[:, t] + betas[-1])[:, None], dim=2)
            betas.append(torch.where(mask[:, t, None], after, end))  # the last word is followed by the end
        return torch.stack(betas[::-1], dim=1)

    def _forward(self, scores: Scores, mask: Mask) -> list[Float[Tensor, "B C"]]:
        """alpha_{t+1}[d] = log sum_c exp(alpha_t[c] + T[c, d]) + x_{t+1}[d]; behind the end it stays as it was."""
        follows = exact(self.transitions)
        alphas = [exact(self.start) + scores[:, 0]]
        for t in range(1, scores.shape[1]):
            reached = torch.logsumexp(alphas[-1][:, :, None] + follows, dim=1) + scores[:, t]
            alphas.append(torch.where(mask[:, t, None], reached, alphas[-1]))
        return alphas

    def _total(self, last: Float[Tensor, "B C"], mask: Mask) -> Float[Tensor, "B"]:
        """log Z, the sum over all paths, from the last alpha."""
        return torch.logsumexp(last + exact(self.end), dim=1).masked_fill(~mask[:, 0], 0.0)

    def _score(self, scores: Scores, tags: Tags, mask: Mask) -> Float[Tensor, "B"]:
        """s(x, y) of one path each; tags behind the mask may be anything."""
        tags = tags.long().masked_fill(~mask, 0)
        said = scores.gather(2, tags[..., None]).squeeze(2).masked_fill(~mask, 0.0).sum(1)  # B
        follows = exact(self.transitions)[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0.0).sum(1)
        last = tags.gather(1, (mask.sum(1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
        edges = exact(self.start)[tags[:, 0]] + exact(self.end)[last]
        return said + follows + edges.masked_fill(~mask[:, 0], 0.0)


def _real(scores: Scores, mask: Mask) -> Scores:
    """Scores that nothing behind the mask can reach, nor their gradients."""
    return exact(scores).masked_fill(~mask[..., None], 0.0)

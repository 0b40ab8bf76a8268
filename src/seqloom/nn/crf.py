"""A linear-chain conditional random field: tags of a sentence that are chosen together (Lafferty et al. 2001).

    p(y | x) = exp(s(x, y)) / sum_y' exp(s(x, y'))
    s(x, y)  = start[y_1] + sum_t x_t[y_t] + sum_t T[y_t, y_{t+1}] + end[y_n]

x_t[c] are the scores of an encoder, T[c, d] says how well d follows c. With all that may follow summed up beforehand
the field is read from left to right, step by step (`models/labels.py`): search does what Viterbi's algorithm would.
Sums over paths go once along the sentence, for a whole batch and all classes at a time, in logarithms and in float32
at least. Masks are prefixes: padding is at the end. No rule (BIO) forbids anything here.
"""

from __future__ import annotations

import torch
from torch import nn

from seqloom.nn.layers import exact
from seqloom.shapes import Bool, Float, Tensor

Scores = Float[Tensor, "B S C"]
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

    def alone(self, onward: Scores) -> Scores:
        """log p(y_t = d | x) of every tag, whatever the others are, from x_t + beta_t; behind the words nothing.

        p(y_t = d | x) = sum_c p(y_{t-1} = c | x) p(d | c, x), from left to right.
        """
        follows = exact(self.transitions)
        now = torch.log_softmax(exact(self.start) + onward[:, 0], dim=-1)  # B C
        found = [now]
        for here in onward[:, 1:].unbind(1):
            steps = torch.log_softmax(follows + here[:, None], dim=-1)  # B C C: from c to d
            now = torch.logsumexp(now[:, :, None] + steps, dim=1)
            found.append(now)
        return torch.stack(found, dim=1)

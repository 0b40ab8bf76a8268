"""The conditional random field against all paths, counted one by one; padding and gradients."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call

from seqloom.nn.crf import Crf

CLASSES = 3
LENGTHS = (3, 1, 4, 2)


def some_crf(classes: int = CLASSES, dtype: torch.dtype = torch.float64) -> Crf:
    crf, generator = Crf(classes), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return crf.to(dtype)


def some_scores(lengths: tuple[int, ...] = LENGTHS, classes: int = CLASSES) -> tuple[Tensor, Tensor]:
    """Scores and the mask."""
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(len(lengths), max(lengths), classes, dtype=torch.float64, generator=generator)
    return scores, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def path_score(crf: Crf, scores: Tensor, path: tuple[int, ...]) -> Tensor:
    """s(x, y), by its definition."""
    total = crf.start[path[0]] + crf.end[path[-1]] + sum(scores[t, tag] for t, tag in enumerate(path))
    return total + sum(crf.transitions[before, after] for before, after in pairwise(path))


def all_paths(crf: Crf, scores: Tensor) -> tuple[list[tuple[int, ...]], Tensor]:
    """Every path through the scores (S C) of one sentence, and log p of each."""
    paths = list(product(range(scores.shape[1]), repeat=scores.shape[0]))
    return paths, torch.stack([path_score(crf, scores, path) for path in paths]).log_softmax(0)


def close(actual: Tensor, expected: Tensor, bound: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, atol=bound, rtol=bound)


@pytest.mark.parametrize("classes", [1, 2, 3])
@torch.no_grad()
def test_what_follows_is_the_sum_over_all_rests(classes: int) -> None:
    crf, (scores, mask) = some_crf(classes), some_scores(classes=classes)
    ahead = crf.ahead(scores, mask)
    for row, length in enumerate(LENGTHS):
        for t, c in product(range(length), range(classes)):
            rests = product(range(classes), repeat=length - t - 1)
            own = crf.start[c] + scores[row, t, c]  # of the tag itself, which is no part of what follows
            totals = [path_score(crf, scores[row, t:length], (c, *rest)) - own for rest in rests]
            close(ahead[row, t, c], torch.stack(totals).logsumexp(0))


@pytest.mark.parametrize("classes", [1, 2, 3])
@torch.no_grad()
def test_a_tag_alone_is_the_sum_over_all_paths_through_it(classes: int) -> None:
    crf, (scores, mask) = some_crf(classes), some_scores(classes=classes)
    alone = crf.alone(scores + crf.ahead(scores, mask))
    for row, length in enumerate(LENGTHS):
        paths, log_probs = all_paths(crf, scores[row, :length])
        for t, c in product(range(length), range(classes)):
            through = torch.stack([p for path, p in zip(paths, log_probs, strict=True) if path[t] == c])
            close(alone[row, t, c], through.logsumexp(0))


@torch.no_grad()
def test_before_learning_every_tag_is_chosen_alone() -> None:
    crf, (scores, mask) = Crf(CLASSES).double(), some_scores()
    close(crf.alone(scores + crf.ahead(scores, mask))[mask], scores.log_softmax(-1)[mask])


@pytest.mark.parametrize("columns", [0, 3])
@torch.no_grad()
def test_nothing_behind_the_mask_matters(columns: int) -> None:
    crf, (scores, mask) = some_crf(), some_scores()
    expected = crf.ahead(scores, mask)
    wide = torch.full((len(LENGTHS), scores.shape[1] + columns, CLASSES), 1e30, dtype=torch.float64)
    wide[:, : scores.shape[1]] = scores.masked_fill(~mask[..., None], 1e30)
    seen = torch.arange(wide.shape[1]) < torch.tensor(LENGTHS)[:, None]
    close(crf.ahead(wide, seen)[:, : scores.shape[1]][mask], expected[mask])


@pytest.mark.parametrize("what", ["ahead", "alone"])
def test_gradients(what: str) -> None:
    crf, (scores, mask) = some_crf(), some_scores((3, 1, 2))
    names, parameters = zip(*((n, p.detach().requires_grad_()) for n, p in crf.named_parameters()), strict=True)

    class Asked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = crf

        def forward(self, scores: Tensor) -> Tensor:
            ahead = self.crf.ahead(scores, mask)
            return ahead if what == "ahead" else self.crf.alone(scores + ahead)

    def run(scores: Tensor, *values: Tensor) -> Tensor:
        given = {f"crf.{name}": value for name, value in zip(names, values, strict=True)}
        return functional_call(Asked(), given, (scores,))  # type: ignore[no-any-return]

    assert gradcheck(run, (scores.requires_grad_(), *parameters))

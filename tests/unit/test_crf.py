"""The conditional random field against all paths, counted one by one; padding, batch and gradients."""

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


def some_scores(lengths: tuple[int, ...] = LENGTHS, classes: int = CLASSES) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, tags and the mask."""
    generator = torch.Generator().manual_seed(2)
    shape = (len(lengths), max(lengths))
    scores = torch.randn(*shape, classes, dtype=torch.float64, generator=generator)
    tags = torch.randint(0, classes, shape, generator=generator)
    return scores, tags, torch.arange(shape[1]) < torch.tensor(lengths)[:, None]


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


# --- all paths --------------------


@pytest.mark.parametrize("classes", [1, 2, 3])
@torch.no_grad()
def test_everything_equals_its_sum_over_all_paths(classes: int) -> None:
    crf = some_crf(classes)
    scores, tags, mask = some_scores(classes=classes)
    nll, marginals = crf.nll(scores, tags, mask), crf.marginals(scores, mask)
    best, log_prob = crf.best(scores, mask)
    for row, length in enumerate(LENGTHS):
        paths, log_probs = all_paths(crf, scores[row, :length])
        said = tuple(tags[row, :length].tolist())
        close(nll[row], -log_probs[paths.index(said)])
        assert tuple(best[row, :length].tolist()) == paths[int(log_probs.argmax())]
        close(log_prob[row], log_probs.max())
        for t in range(length):
            for c in range(classes):
                through = torch.stack([p for path, p in zip(paths, log_probs, strict=True) if path[t] == c])
                close(marginals[row, t, c], through.logsumexp(0))


@torch.no_grad()
def test_the_probabilities_of_all_paths_sum_to_one() -> None:
    crf, length = some_crf(), 3
    paths = torch.tensor(list(product(range(CLASSES), repeat=length)))
    scores = some_scores((length,))[0].expand(len(paths), -1, -1)
    nll = crf.nll(scores, paths, torch.ones(len(paths), length, dtype=torch.bool))
    close((-nll).exp().sum(), torch.ones((), dtype=torch.float64))


@torch.no_grad()
def test_the_best_path_has_the_probability_that_nll_gives_it() -> None:
    crf, (scores, _, mask) = some_crf(), some_scores()
    best, log_prob = crf.best(scores, mask)
    close(log_prob, -crf.nll(scores, best, mask))
    assert not best[~mask].any()


@torch.no_grad()
def test_marginals_are_distributions() -> None:
    crf, (scores, _, mask) = some_crf(), some_scores()
    marginals = crf.marginals(scores, mask)
    close(marginals.exp().sum(-1)[mask], torch.ones(int(mask.sum()), dtype=torch.float64))
    assert not marginals[~mask].any()


@torch.no_grad()
def test_before_learning_every_tag_is_chosen_alone() -> None:
    crf, (scores, tags, mask) = Crf(CLASSES).double(), some_scores()
    alone = scores.log_softmax(-1)
    close(crf.nll(scores, tags, mask), -(alone.gather(2, tags[..., None]).squeeze(2) * mask).sum(1))
    close(crf.marginals(scores, mask)[mask], alone[mask])
    assert torch.equal(crf.best(scores, mask)[0][mask], scores.argmax(-1)[mask])


def test_marginals_are_the_gradient_of_the_sum_over_all_paths() -> None:
    crf, (scores, tags, mask) = some_crf(), some_scores()
    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(crf.nll(scores, tags, mask).sum(), scores)
    gold = torch.nn.functional.one_hot(tags, CLASSES)
    close((gradient + gold)[mask], crf.marginals(scores, mask).exp()[mask])


# --- padding, batch, gradients --------------------


def outcome(crf: Crf, scores: Tensor, tags: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """nll, marginals, best path and its log p, all without padding; then the gradients of their sum."""
    scores = scores.clone().requires_grad_()
    nll, marginals = crf.nll(scores, tags, mask), crf.marginals(scores, mask)
    best, log_prob = crf.best(scores, mask)
    wrt = torch.autograd.grad(nll.sum() + marginals.square().sum() + log_prob.sum(), (scores, *crf.parameters()))
    assert not wrt[0][~mask].any()  # exactly zero, and not NaN
    return nll, marginals[mask], best[mask], log_prob, wrt[0][mask], *wrt[1:]


@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf, 1e30])
@pytest.mark.parametrize("columns", [0, 3])
def test_nothing_behind_the_mask_matters(junk: float, columns: int) -> None:
    crf, (scores, tags, mask) = some_crf(), some_scores()
    expected = outcome(crf, scores, tags, mask)
    wide = torch.full((len(LENGTHS), scores.shape[1] + columns, CLASSES), junk, dtype=torch.float64)
    wide[:, : scores.shape[1]] = scores.masked_fill(~mask[..., None], junk)
    other = torch.full(wide.shape[:2], -7)
    other[:, : scores.shape[1]] = tags.masked_fill(~mask, 99)
    seen = torch.arange(wide.shape[1]) < torch.tensor(LENGTHS)[:, None]
    for found, wanted in zip(outcome(crf, wide, other, seen), expected, strict=True):
        close(found, wanted)


@torch.no_grad()
def test_a_batch_equals_each_alone() -> None:
    crf, (scores, tags, mask) = some_crf(), some_scores()
    nll, marginals, (best, log_prob) = crf.nll(scores, tags, mask), crf.marginals(scores, mask), crf.best(scores, mask)
    for row, length in enumerate(LENGTHS):
        alone = scores[row : row + 1, :length], mask[row : row + 1, :length]
        close(crf.nll(alone[0], tags[row : row + 1, :length], alone[1])[0], nll[row])
        close(crf.marginals(*alone)[0], marginals[row, :length])
        path, value = crf.best(*alone)
        assert torch.equal(path[0], best[row, :length])
        close(value[0], log_prob[row])


def test_a_sentence_without_words_has_one_path_of_probability_one() -> None:
    crf, (scores, tags, mask) = some_crf(), some_scores((2, 0))
    scores[1] = torch.nan
    nll, _, _, log_prob, *gradients = outcome(crf, scores, tags, mask)
    assert nll[1] == 0
    assert log_prob[1] == 0
    assert all(gradient.isfinite().all() for gradient in gradients)
    alone = outcome(crf, scores[:1], tags[:1], mask[:1])
    for found, wanted in zip(gradients, alone[4:], strict=True):
        close(found, wanted)


@pytest.mark.parametrize("what", ["nll", "best", "marginals"])
def test_gradients(what: str) -> None:
    crf, (scores, tags, mask) = some_crf(), some_scores((3, 1, 2))
    names, parameters = zip(*((n, p.detach().requires_grad_()) for n, p in crf.named_parameters()), strict=True)

    class Asked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = crf

        def forward(self, scores: Tensor) -> Tensor:
            if what == "nll":
                return self.crf.nll(scores, tags, mask)
            return self.crf.best(scores, mask)[1] if what == "best" else self.crf.marginals(scores, mask)

    def run(scores: Tensor, *values: Tensor) -> Tensor:
        given = {f"crf.{name}": value for name, value in zip(names, values, strict=True)}
        return functional_call(Asked(), given, (scores,))  # type: ignore[no-any-return]

    assert gradcheck(run, (scores.requires_grad_(), *parameters))


@torch.no_grad()
def test_sums_are_float32_whatever_the_scores_are() -> None:
    crf, (scores, tags, mask) = some_crf(dtype=torch.float32), some_scores((40, 30))
    low = scores.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = crf.nll(low, tags, mask), crf.marginals(low, mask), crf.best(low, mask)[1]
    wanted = crf.nll(low.float(), tags, mask), crf.marginals(low.float(), mask), crf.best(low.float(), mask)[1]
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        assert torch.equal(one, other)

"""Distillation by tokens: the teachers' mean probabilities are what a student learns beside its gold targets."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqloom.errors import SeqloomError
from seqloom.models.model import EncoderDecoder
from seqloom.recipe import recipe_from
from seqloom.tasks import passes
from seqloom.tasks.transduce import SearchSettings, Transduce
from toy_training import ToyBatches, ToyTask

BATCH = ToyTask().collate(ToyBatches(examples=6).examples)


def network(seed: int, dropout: float = 0.0, **decoder: object) -> EncoderDecoder:
    raw = {
        "source_embedding": {"width": 6},
        "target_embedding": {"width": 6},
        "encoder": {"width": 8, "dropout": dropout},
        "decoder": {"kind": "luong", "width": 8, "dropout": dropout, **decoder},
    }
    torch.manual_seed(seed)
    settings = EncoderDecoder.Settings.model_validate(raw)
    return EncoderDecoder(settings, source_vocabulary=12, target_vocabulary=12).double()


def task(*teachers: EncoderDecoder, weight: float = 0.5, **raw: object) -> Transduce:
    chosen = {**raw, **({"teachers": {"runs": ["a"], "weight": weight}} if teachers else {})}
    settings = Transduce.Settings.model_validate(chosen)
    ready = [teacher.eval().requires_grad_(False) for teacher in teachers]
    return Transduce(settings, vocabularies=(12, 12), searching=SearchSettings(), teachers=ready)


@pytest.mark.parametrize("decoder", [{}, {"kind": "monotonic"}], ids=["head", "speaks for itself"])
def test_the_loss_is_the_equation(decoder: dict[str, object]) -> None:
    """(1 - w) nll - w sum_v p(v) log q(v), p the mean of the teachers' probabilities, summed over real tokens."""
    student, one, other = (network(seed, **decoder) for seed in (1, 2, 3))
    assert BATCH.target is not None
    found = task(one, other, weight=0.3).loss(student, BATCH, 1)
    q, *theirs = (model.head.log_probs(*model.forced(BATCH))[BATCH.target.mask] for model in (student, one, other))
    p = (theirs[0].exp() + theirs[1].exp()) / 2
    nll = F.nll_loss(q, BATCH.target.ids[BATCH.target.mask], reduction="sum")
    torch.testing.assert_close(found.total, 0.7 * nll - 0.3 * (p * q).sum())
    torch.testing.assert_close(found.nll, nll.detach())


def test_a_student_that_knows_all_its_teacher_knows_has_nothing_to_learn() -> None:
    student, teacher = network(1), network(1)
    task(teacher, weight=1.0).loss(student, BATCH, 1).total.backward()
    for parameter in student.parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, torch.zeros_like(parameter))
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_with_r_drop_both_passes_learn_from_the_teachers() -> None:
    """Without dropout both passes are one, and with the same draw the terms add up."""
    student, teacher = network(1), network(2)
    plain, doubled = (task(teacher, r_drop=alpha).loss(student, BATCH, 1).total for alpha in (0.0, 4.0))
    torch.testing.assert_close(doubled, plain)
    student, totals = network(1, 0.3), []
    for alpha in (0.0, 1.0, 2.0):
        torch.manual_seed(5)
        totals.append(task(teacher, r_drop=alpha or 1e-9).loss(student, BATCH, 1).total)
    torch.testing.assert_close(totals[2] - totals[1], totals[1] - totals[0])
    assert totals[1] > totals[0]


def test_in_pieces_it_is_the_same_with_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    student, teacher, results = network(1), network(2), []
    assert BATCH.target is not None
    for cells in (passes.CHUNK_CELLS, 2 * 12 * BATCH.target.mask.shape[1]):  # all rows at once, or two at a time
        monkeypatch.setattr(passes, "CHUNK_CELLS", cells)
        student.zero_grad()
        total = task(teacher).loss(student, BATCH, 1).total
        total.backward()
        results.append([total.detach(), *(one.grad.clone() for one in student.parameters() if one.grad is not None)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_validation_is_plain_and_prediction_needs_no_teacher() -> None:
    student = network(1).eval()
    torch.testing.assert_close(task(network(2)).loss(student, BATCH, 1).total, task().loss(student, BATCH, 1).total)


@pytest.mark.parametrize(
    "teachers",
    [{"runs": []}, {"runs": ["a"], "weight": 0}, {"runs": ["a"], "weight": 1.5}, {"weight": 0.5}],
)
def test_what_makes_no_sense_is_refused(teachers: dict[str, object]) -> None:
    raw = {"data": {"train": "a.tsv"}, "training": {"steps": 1}, "task": {"teachers": teachers}}
    with pytest.raises(SeqloomError, match=r"task\.teachers") as caught:
        recipe_from(raw, "here")
    assert caught.value.code == "E_RECIPE"


def test_teachers_have_no_say_in_pure_risk() -> None:
    raw = {"teachers": {"runs": ["a"]}, "risk": {"metric": {"kind": "ter"}, "nll": 0}}
    with pytest.raises(SeqloomError, match="teachers"):
        recipe_from({"data": {"train": "a.tsv"}, "training": {"steps": 1}, "task": raw}, "here")

"""Labels and tags as decoders: their probabilities are those of the equations, and search finds what is best."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product

import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Tokens
from seqloom.config import Settings
from seqloom.models.model import MODELS, EncoderDecoder, Ensemble
from seqloom.search.hypotheses import LENGTHS
from seqloom.search.loop import search
from seqloom.search.strategies import Beam, Greedy, Sample
from seqloom.specials import BOS, EOS, SPECIALS

FIRST, LABELS = len(SPECIALS), 3
SOURCE = Tokens.pad([[7, 8, 9, EOS], [9, 7, EOS], [8, EOS]])


def made(**decoder: object) -> EncoderDecoder:
    raw = {
        "kind": "encoder_decoder",
        "source_embedding": {"width": 4},
        "encoder": {"kind": "rnn", "width": 4},
        "decoder": decoder,
    }
    model = MODELS.build(MODELS.settings(raw), source_vocabulary=10, target_vocabulary=FIRST + LABELS)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    assert isinstance(model, EncoderDecoder)
    return model.double().eval()


def log_prob(model: EncoderDecoder, row: int, labels: tuple[int, ...]) -> Tensor:
    batch = Batch({"source": SOURCE.rows(torch.tensor([row]))}, Tokens.pad([[*(FIRST + c for c in labels), EOS]]))
    with torch.no_grad():
        return -model.nll(batch).sum()


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_labels_are_a_distribution_and_nothing_else_can_be_said(pooling: str) -> None:
    model = made(kind="label", pooling=pooling)
    for row in range(3):
        total = sum(log_prob(model, row, (c,)).exp() for c in range(LABELS))
        assert float(total) == pytest.approx(1)
        assert log_prob(model, row, ()) == log_prob(model, row, (0, 1)) == -torch.inf


@pytest.mark.parametrize("transitions", [False, True])
def test_tags_of_a_sentence_are_a_distribution_over_as_many_as_it_has_words(transitions: bool) -> None:
    model = made(kind="tags", transitions=transitions)
    for row, words in enumerate((3, 2, 1)):
        total = sum(log_prob(model, row, labels).exp() for labels in product(range(LABELS), repeat=words))
        assert float(total) == pytest.approx(1)
        assert log_prob(model, row, (0,) * (words + 1)) == -torch.inf
        assert log_prob(model, row, (0,) * (words - 1)) == -torch.inf


def field_score(model: EncoderDecoder, scores: Tensor, labels: tuple[int, ...]) -> Tensor:
    """start + sum of scores + transitions + end: what a path is worth before it is compared with others."""
    field = model.decoder.field
    total = field.start[labels[0]] + field.end[labels[-1]] + sum(scores[t, c] for t, c in enumerate(labels))
    return total + sum(field.transitions[b, c] for b, c in pairwise(labels))


@torch.no_grad()
def test_neighbours_are_a_conditional_random_field() -> None:
    """log p by steps from left to right is that of whole paths, and a beam finds the best of all of them."""
    model = made(kind="tags", transitions=True)
    scores = model.decoder.scores(model.encode({"source": SOURCE})["source"].states)
    found = search(model, {"source": SOURCE}, Beam.Settings(size=LABELS**2))
    for row, words in enumerate((3, 2, 1)):
        paths = list(product(range(LABELS), repeat=words))
        expected = torch.stack([field_score(model, scores[row], path) for path in paths]).log_softmax(0)
        for path, value in zip(paths, expected, strict=True):
            torch.testing.assert_close(log_prob(model, row, path), value)
        assert found[row][0].tokens == tuple(FIRST + c for c in paths[int(expected.argmax())])
        assert found[row][0].log_prob == pytest.approx(float(expected.max()))


def test_a_beam_wider_than_the_labels_lists_each_once_and_nothing_impossible() -> None:
    model = made(kind="label")
    for hypotheses in search(model, {"source": SOURCE}, Beam.Settings(size=8, n_best=8)):
        assert sorted(one.tokens for one in hypotheses) == [(FIRST,), (FIRST + 1,), (FIRST + 2,)]
        assert [one.log_prob for one in hypotheses] == sorted((one.log_prob for one in hypotheses), reverse=True)
        assert not any(one.truncated for one in hypotheses)


def test_a_decoder_that_reads_nothing_has_no_embedding_of_its_labels() -> None:
    names = [name for name, _ in made(kind="label").named_parameters()]
    assert not [name for name in names if name.startswith("target_embedding")]


# --- sets of labels --------------------


def every_set() -> list[tuple[int, ...]]:
    return [tuple(chosen) for count in range(LABELS + 1) for chosen in combinations(range(LABELS), count)]


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@torch.no_grad()
def test_labels_of_a_set_are_there_or_not_by_themselves(pooling: str) -> None:
    """p(set | x) is the product of p_c of those that are there and 1 - p_c of the others; all sets sum to 1."""
    model = made(kind="labels", pooling=pooling)
    state = model.start({"source": SOURCE}, 1)
    begun = torch.full((3, 1), BOS)
    there = torch.sigmoid(model.decoder.scores(model.decoder.vectors(begun, state)))[:, 0]  # B C
    for row in range(3):
        total = 0.0
        for labels in every_set():
            kept = torch.tensor([c in labels for c in range(LABELS)])
            expected = torch.where(kept, there[row], 1 - there[row]).log().sum()
            torch.testing.assert_close(log_prob(model, row, labels), expected)
            total += float(expected.exp())
        assert total == pytest.approx(1)
        assert log_prob(model, row, (1, 0)) == log_prob(model, row, (1, 1)) == -torch.inf


@pytest.mark.parametrize("strategy", [Greedy.Settings(), Beam.Settings(size=3), Beam.Settings(size=2, stop="bound")])
@torch.no_grad()
def test_any_search_finds_the_likeliest_set(strategy: Settings) -> None:
    """Also where no beginning looks likely: of many labels, each of probability 0.1, the likeliest set is none."""
    for seed in range(5):
        model = made(kind="labels")
        torch.nn.init.normal_(model.decoder.output.bias, std=2.0, generator=torch.Generator().manual_seed(seed))
        for row, (best, *_) in enumerate(search(model, {"source": SOURCE}, strategy)):
            wanted = max(every_set(), key=lambda labels: float(log_prob(model, row, labels)))
            assert best.tokens == tuple(FIRST + c for c in wanted)
            assert best.log_prob == pytest.approx(float(log_prob(model, row, wanted)))
    model = made(kind="labels")
    model.decoder.output.weight.zero_()
    model.decoder.output.bias.fill_(math.log(0.3 / 0.7))  # the first label is likelier than the end, and yet wrong
    assert [found[0].tokens for found in search(model, {"source": SOURCE}, strategy)] == [()] * 3


@torch.no_grad()
def test_samples_of_sets_are_drawn_as_the_model_has_it() -> None:
    model = made(kind="labels")
    model.decoder.output.weight.zero_()
    model.decoder.output.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
    drawn = search(model, {"source": SOURCE.rows(torch.tensor([0]))}, Sample.Settings(samples=4000, seed=1))[0]
    for c, wanted in enumerate(torch.sigmoid(torch.tensor([0.0, 1.0, -1.0])).tolist()):
        assert sum(FIRST + c in one.tokens for one in drawn) / 4000 == pytest.approx(wanted, abs=0.03)


@torch.no_grad()
def test_several_models_of_sets_are_one() -> None:
    ensemble = Ensemble([made(kind="labels"), made(kind="labels", pooling="mean")])
    for one in search(ensemble, {"source": SOURCE}, Beam.Settings(size=8, n_best=8, length=LENGTHS.settings("none"))):
        assert len({hypothesis.tokens for hypothesis in one}) == len(one) == 8
        assert sum(math.exp(hypothesis.log_prob) for hypothesis in one) == pytest.approx(1)


# --- numbers --------------------


@torch.no_grad()
def test_a_number_is_the_level_nearest_to_the_middle_of_a_bell() -> None:
    model = MODELS.build(
        MODELS.settings({"kind": "encoder_decoder", "encoder": {"kind": "rnn", "width": 4}, "decoder": "number"}),
        source_vocabulary=10,
        target_vocabulary=FIRST + 61,
    )
    assert isinstance(model, EncoderDecoder)
    model.double().eval()
    for share in (0.0, 0.3, 0.71, 1.0):
        model.decoder.output.weight.zero_()
        model.decoder.output.bias.fill_(torch.logit(torch.tensor(share), eps=1e-9))
        found = search(model, {"source": SOURCE}, Beam.Settings(size=61, n_best=61))[0]
        likelihood = {one.tokens[0] - FIRST: one.log_prob for one in found}
        assert max(likelihood, key=lambda level: likelihood[level]) == round(10 + 40 * share)  # a sixth is the margin
        assert sum(map(math.exp, likelihood.values())) == pytest.approx(1)
        drops = [likelihood[level + 1] - likelihood[level] for level in range(60)]
        assert all(after - before == pytest.approx(drops[1] - drops[0]) for before, after in pairwise(drops))

"""Labels and tags as decoders: their probabilities are those of the equations, and search finds what is best."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Tokens
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.search.loop import search
from seqloom.search.strategies import Beam
from seqloom.specials import EOS, SPECIALS

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


def test_neighbours_are_a_conditional_random_field() -> None:
    """log p by steps from left to right is that of whole paths: -nll of the field over the same scores."""
    model = made(kind="tags", transitions=True)
    memory = model.encode({"source": SOURCE})["source"]
    scores, mask = model.decoder.scores(memory.states)[:, :3], torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]]).bool()
    for row, words in enumerate((3, 2, 1)):
        for labels in product(range(LABELS), repeat=words):
            tags = torch.tensor([[*labels, *[0] * (3 - words)]])
            expected = -model.decoder.field.nll(scores[row : row + 1], tags, mask[row : row + 1])[0]
            torch.testing.assert_close(log_prob(model, row, labels), expected.detach())
    best, values = model.decoder.field.best(scores, mask)
    found = search(model, {"source": SOURCE}, Beam.Settings(size=LABELS**2))
    for row, words in enumerate((3, 2, 1)):
        assert found[row][0].tokens == tuple(FIRST + c for c in best[row, :words].tolist())
        assert found[row][0].log_prob == pytest.approx(float(values[row].detach()))


def test_a_beam_wider_than_the_labels_lists_each_once_and_nothing_impossible() -> None:
    model = made(kind="label")
    for hypotheses in search(model, {"source": SOURCE}, Beam.Settings(size=8, n_best=8)):
        assert sorted(one.tokens for one in hypotheses) == [(FIRST,), (FIRST + 1,), (FIRST + 2,)]
        assert [one.log_prob for one in hypotheses] == sorted((one.log_prob for one in hypotheses), reverse=True)
        assert not any(one.truncated for one in hypotheses)


def test_a_decoder_that_reads_nothing_has_no_embedding_of_its_labels() -> None:
    names = [name for name, _ in made(kind="label").named_parameters()]
    assert not [name for name in names if name.startswith("target_embedding")]

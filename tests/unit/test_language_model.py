"""A language model goes on from its source: reading it, or having said it, is the same."""

from __future__ import annotations

import pytest
import torch

from seqloom.batch import Batch, Tokens
from seqloom.models.language import LanguageModel
from seqloom.models.model import MODELS
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import Beam
from seqloom.specials import EOS

VOCABULARY = 11
TEXT = [7, 9, 8, 10, 7]


@pytest.fixture(params=["transformer", "rnn"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    raw = {"kind": "language", "embedding": {"width": 8}, "decoder": {"kind": request.param, "width": 8, "layers": 2}}
    torch.manual_seed(4)
    made = MODELS.build(MODELS.settings(raw), source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert isinstance(made, LanguageModel)
    return made.double().eval()


def batch(*pairs: tuple[list[int], list[int]]) -> Batch:
    return Batch(
        {"source": Tokens.pad([[*read, EOS] for read, _ in pairs])}, Tokens.pad([[*said, EOS] for _, said in pairs])
    )


@torch.no_grad()
def test_a_text_after_its_beginning_is_the_rest_of_the_text(model: LanguageModel) -> None:
    """P(whole) = P(beginning, not ended) P(rest given beginning): token by token the same numbers, cut anywhere."""
    whole = model.nll(batch(([], TEXT)))[0]
    cuts = range(len(TEXT) + 1)
    together = model.nll(batch(*((TEXT[:cut], TEXT[cut:]) for cut in cuts)))
    for cut in cuts:
        rest = len(TEXT) + 1 - cut
        torch.testing.assert_close(together[cut, :rest], whole[cut:])
        alone = model.nll(batch((TEXT[:cut], TEXT[cut:])))[0]
        torch.testing.assert_close(alone, whole[cut:])


@torch.no_grad()
def test_search_after_a_beginning_scores_as_forced(model: LanguageModel) -> None:
    beginnings = [[], [7], [9, 8, 10]]
    sources = batch(*((read, []) for read in beginnings)).sources
    found = search(model, sources, Beam.Settings(size=3), limits=Limits(max_length=4))
    for read, hypotheses in zip(beginnings, found, strict=True):
        for one in hypotheses:
            said = [*one.tokens, *([] if one.truncated else [EOS])]
            forced = Batch(batch((read, [])).sources, Tokens.pad([said]))
            assert float(-model.nll(forced).sum()) == pytest.approx(one.log_prob, abs=1e-9)


@torch.no_grad()
def test_a_beginning_changes_what_follows(model: LanguageModel) -> None:
    one, other = (model.nll(batch((read, [8])))[0, 0] for read in ([7, 9], [9, 7]))
    assert abs(float(one - other)) > 1e-4

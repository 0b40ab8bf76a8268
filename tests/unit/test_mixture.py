"""Several scorers as one: ensembles of unlike models, weighted mixtures, language models without a source."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from seqloom.batch import Tokens
from seqloom.models.contracts import Scorer, State
from seqloom.models.heads import HEADS
from seqloom.models.mixture import Mixture, Sourceless
from seqloom.models.model import EncoderDecoder, Ensemble
from seqloom.models.tables import DECODERS
from seqloom.nn.frontends import EMBEDDINGS
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import BOS, EOS, SPECIALS, UNK

VOCABULARY = 12
TRANSFORMER = {"kind": "transformer", "width": 8, "heads": 2, "layers": 2}


def network(seed: int, **parts: object) -> EncoderDecoder:
    torch.manual_seed(seed)
    embedding = {"kind": "learned", "width": 5}
    raw = {"source_embedding": embedding, "target_embedding": embedding, **parts}
    settings = EncoderDecoder.Settings.model_validate(raw)
    made = EncoderDecoder(settings, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3)  # decided enough to disagree
    return made.double().eval()


def unlike() -> list[EncoderDecoder]:
    """Luong's LSTM, a GRU with Bahdanau's attention and another width, an Elman network without any, a Transformer."""
    return [
        network(1, encoder={"width": 6}, decoder={"kind": "luong", "width": 6}),
        network(2, encoder={"cell": "gru", "width": 4}, decoder={"kind": "bahdanau", "cell": "gru", "width": 7}),
        network(3, encoder={"cell": "elman", "width": 4}, decoder={"kind": "rnn", "cell": "elman", "width": 3}),
        network(4, encoder={"kind": "transformer", "width": 8, "heads": 2}, decoder=TRANSFORMER),
    ]


def language_model(kind: str = "rnn") -> Sourceless:
    torch.manual_seed(7)
    embedding = EMBEDDINGS.build(EMBEDDINGS.settings({"kind": "learned", "width": 4}), vocabulary=VOCABULARY)
    settings = DECODERS.settings({"kind": kind, "width": 4}).fitted(encoder=False)  # type: ignore[attr-defined]
    decoder = DECODERS.build(settings, embedding=embedding, encoder=None)
    head = HEADS.build(HEADS.settings("linear"), features=decoder.width, vocabulary=VOCABULARY, tied=None)
    return Sourceless(decoder, head).double().eval()


def sources(count: int = 5) -> dict[str, Tokens]:
    generator = torch.Generator().manual_seed(count)
    rows = [torch.randint(6, VOCABULARY, (1 + i % 4,), generator=generator).tolist() for i in range(count)]
    return {"source": Tokens.pad(rows)}


@torch.inference_mode()
def forced(scorer: Scorer, source: dict[str, Tokens], tokens: tuple[int, ...]) -> list[float]:
    state, terms = scorer.start(source, 1), []
    for last, token in itertools.pairwise([BOS, *tokens]):
        log_probs, state = scorer.step(torch.tensor([last]), state)
        terms.append(float(log_probs[0, token]))
    return terms


@torch.inference_mode()
def stepped(scorer: Scorer, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
    """Log-probabilities after two tokens; `rows` are chosen between them."""
    state: State = scorer.start(sources(), 2)
    _, state = scorer.step(torch.full((10,), BOS), state)
    if rows is not None:
        state = state.select(rows)
    return scorer.step(tokens, state)[0]


def test_an_ensemble_of_unlike_models_averages_their_probabilities() -> None:
    members, tokens = unlike(), torch.arange(10) % 6 + 6
    mean = torch.stack([stepped(member, tokens).exp() for member in members]).mean(0)
    assert torch.allclose(stepped(Ensemble(members), tokens).exp(), mean, atol=1e-12)


@pytest.mark.parametrize("kind", ["ensemble", "mixture", "language model"])
def test_law_2_joined_states_move_together(kind: str) -> None:
    made: dict[str, Scorer] = {
        "ensemble": Ensemble(unlike()),
        "mixture": Mixture([*unlike(), language_model()], [0.5, 1.0, 2.0, 0.7, 0.1], VOCABULARY),
        "language model": language_model(),
    }
    rows = torch.tensor([1, 0, 2, 2, 5, 4, 6, 7, 9, 9])  # within their sources
    tokens = torch.arange(10) % 6 + 6
    moved = stepped(made[kind], tokens[rows], rows)
    assert torch.allclose(moved, stepped(made[kind], tokens)[rows], atol=1e-12)


def test_a_mixture_is_the_weighted_sum() -> None:
    members, tokens = [*unlike()[:2], language_model()], torch.arange(10) % 6 + 6
    weights = [0.25, 1.0, 3.0]
    expected = sum(w * stepped(member, tokens) for w, member in zip(weights, members, strict=True))
    assert torch.allclose(stepped(Mixture(members, weights, VOCABULARY), tokens), expected, atol=1e-12)
    copied = tokens.clone()
    copied[3] = VOCABULARY + 2  # a word that only the advised model knows
    heard = tokens.clone()
    heard[3] = UNK
    both = (stepped(Mixture(members, weights, VOCABULARY), read) for read in (copied, heard))
    assert torch.equal(*both)


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_a_language_model_knows_no_source(kind: str) -> None:
    """And says the same to every row that read the same."""
    model = language_model(kind)
    log_probs = stepped(model, torch.full((10,), 7))
    assert torch.allclose(log_probs, log_probs[:1].expand_as(log_probs), atol=1e-12)
    assert torch.allclose(log_probs.exp().sum(1), torch.ones(10, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["beam", "diverse", "lexical"])
def test_search_with_an_ensemble_advised_by_a_language_model(kind: str) -> None:
    """Batched equals alone, and `log_prob` is the ensemble's, `score` the sum of both."""
    ensemble, critic = Ensemble(unlike()), language_model("transformer")
    advice = Mixture([critic], [0.4], VOCABULARY)
    chosen = STRATEGIES.settings({"kind": kind, "size": 3, "n_best": 2, "length": "none"})
    limits = Limits(max_length=6)
    together = search(ensemble, sources(), chosen, advice=advice, limits=limits)
    assert any(each[0].tokens for each in together)
    for number, hypotheses in enumerate(together):
        own = {name: source.rows(torch.tensor([number])) for name, source in sources().items()}
        alone = search(ensemble, own, chosen, advice=advice, limits=limits)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
        for h in hypotheses:
            said = h.tokens if h.truncated else (*h.tokens, EOS)
            log_prob = math.fsum(forced(ensemble, own, said))
            assert h.log_prob == pytest.approx(log_prob, abs=1e-10)
            assert h.score == pytest.approx(log_prob + 0.4 * math.fsum(forced(critic, own, said)), abs=1e-10)
            assert all(token >= len(SPECIALS) or token == UNK for token in h.tokens)

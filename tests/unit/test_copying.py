"""Copying: the mixture is the one of the equation, sums to 1, says what the vocabulary lacks, and is learned."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Source, Tokens
from seqloom.models import heads
from seqloom.models.contracts import State
from seqloom.models.copying import copyable
from seqloom.models.heads import HEADS, Copy
from seqloom.models.model import EncoderDecoder, Ensemble
from seqloom.nn.tape import Tape
from seqloom.search.exact import best_first
from seqloom.search.loop import Limits, search
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import BOS, EOS, UNK
from seqloom.tasks.transduce import SearchSettings, Transduce

V, FEATURES, PLACES = 9, 3, 5
COPIES = torch.tensor([[6, V, 7, V, -1], [V, V + 1, 6, -1, -1]])  # the second source ends one position earlier


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def copy_head(dtype: torch.dtype = torch.float64) -> Copy:
    torch.manual_seed(1)
    head = HEADS.build(HEADS.settings("copy"), features=FEATURES, vocabulary=V)
    assert isinstance(head, Copy)
    return head.to(dtype)


def some_features(rows: int, steps: int, places: int = PLACES, seed: int = 0) -> Tensor:
    """[h; a] as a decoder that shares its weights makes them; no weight on the second source's padding."""
    scores = drawn(rows, steps, places, seed=seed + 1)
    scores[rows // 2 :, :, PLACES - 1] = -torch.inf
    return torch.cat([drawn(rows, steps, FEATURES, seed=seed), scores.softmax(-1)], dim=-1)


def state_of(copies: Tensor = COPIES) -> State:
    source = Tokens(torch.full_like(copies, 6), torch.ones_like(copies, dtype=torch.bool), copies)
    return State({}, copyable(source, V))


# --- the equation --------------------


def by_hand(head: Copy, features: Tensor, copies: Tensor, width: int) -> Tensor:
    """p(w) = g~ p_gen(w) + (1 - g) sum of a_i with copies_i = w, for one row and step."""
    h, weights = features[:FEATURES], features[FEATURES:]
    gate = torch.sigmoid(head.pointer.gate.weight[0] @ h + head.pointer.gate.bias[0])
    generated = torch.softmax(head.weight @ h + head.bias, dim=-1)
    p = torch.zeros(width, dtype=features.dtype)
    given_back = sum(weight for weight, copy in zip(weights, copies.tolist(), strict=True) if copy < 0)
    p[:V] = (gate + (1 - gate) * given_back) * generated
    for weight, copy in zip(weights, copies.tolist(), strict=True):
        if copy >= 0:
            p[copy] += (1 - gate) * weight
    return p


@torch.no_grad()
def test_probabilities_are_those_of_the_equation_and_sum_to_one() -> None:
    head, features = copy_head(), some_features(4, 3)  # two hypotheses each
    log_probs = head.log_probs(features, state_of())
    assert log_probs.shape == (4, 3, V + 2)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(4, 3, dtype=torch.float64), atol=1e-12, rtol=0)
    for row in range(4):
        for step in range(3):
            expected = by_hand(head, features[row, step], COPIES[row // 2], V + 2)
            torch.testing.assert_close(log_probs[row, step].exp(), expected, atol=1e-12, rtol=0)
    assert (log_probs[:2, :, V + 1] == -torch.inf).all()  # the first source has one extra piece only
    assert log_probs[2:].isfinite().all()


@torch.no_grad()
def test_a_memory_that_goes_on_behind_the_source_gives_those_weights_back() -> None:
    head, features = copy_head(), some_features(2, 3, PLACES + 2)
    log_probs = head.log_probs(features, state_of())
    longer = torch.cat([COPIES, torch.full((2, 2), -1)], dim=1)
    for row in range(2):
        expected = by_hand(head, features[row, 0], longer[row], V + 2)
        torch.testing.assert_close(log_probs[row, 0].exp(), expected, atol=1e-12, rtol=0)


def gold_tokens() -> Tokens:
    """Generated only, copied only, both; padding with an id that this source cannot say."""
    return Tokens(
        torch.tensor([[8, V, 6, EOS], [V + 1, 6, V, V + 7]]), torch.tensor([[True] * 4, [True] * 3 + [False]])
    )


@pytest.mark.parametrize("cells", [V, 2 * V, 10**6])
def test_nll_is_the_log_probability_of_gold_in_chunks_or_whole(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "CHUNK_CELLS", cells)
    head, features, gold, state = copy_head(), some_features(2, 4).requires_grad_(), gold_tokens(), state_of()
    ids = gold.ids.clamp(max=V + 1)
    wanted = -head.log_probs(features, state).gather(2, ids[..., None])[..., 0] * gold.mask
    nll = head.nll(features, state, gold)
    torch.testing.assert_close(nll, wanted, atol=1e-12, rtol=0)
    found = torch.autograd.grad(nll.sum(), [features, *head.parameters()])
    expected = torch.autograd.grad(wanted.sum(), [features, *head.parameters()])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@torch.no_grad()
def test_label_smoothing_stays_with_what_is_generated() -> None:
    """(1 - e) nll + e * (mean over the vocabulary of -log p_gen)"""
    head, features, gold, state = copy_head(), some_features(2, 4), gold_tokens(), state_of()
    minimised, nll = head.losses(features, state, gold, smoothing=0.2)
    generated = torch.log_softmax(head.logits(features[..., :FEATURES]), dim=-1)[gold.mask]
    torch.testing.assert_close(minimised, 0.8 * nll - 0.2 * generated.mean(1), atol=1e-12, rtol=0)
    assert torch.equal(nll, head.losses(features, state, gold)[1])


def test_losses_and_gradients_stay_finite_at_the_ends() -> None:
    """A gate that is shut or wide open, weights that underflow to zero: what can be said never costs infinity."""
    head = copy_head(torch.float32)
    gold = Tokens(torch.tensor([[V, 6, 8]]), torch.ones(1, 3, dtype=torch.bool))
    state = state_of(torch.tensor([[V, 6, -1]]))
    for openness in (-300.0, 300.0):
        for weights in ([0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]):
            with torch.no_grad():
                head.pointer.gate.bias.fill_(openness)
            features = torch.cat([torch.zeros(1, 3, FEATURES), torch.tensor(weights).expand(1, 3, 3)], dim=-1)
            features.requires_grad_()
            nll = head.nll(features, state, gold)
            assert nll.isfinite().all(), (openness, weights)
            found = torch.autograd.grad(nll.sum(), [features, *head.parameters()])
            assert all(gradient.isfinite().all() for gradient in found), (openness, weights)
            everything = head.log_probs(features, state)
            found = torch.autograd.grad(everything.clamp(min=-1e4).sum(), [features, *head.parameters()])
            assert all(gradient.isfinite().all() for gradient in found), (openness, weights)


@torch.no_grad()
def test_halves_are_summed_as_floats() -> None:
    head, features = copy_head(torch.bfloat16), some_features(2, 3).to(torch.bfloat16)
    log_probs = head.log_probs(features, state_of())
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 3), atol=1e-2, rtol=0)


def test_the_gate_can_be_seen_and_set() -> None:
    head, features, state = copy_head(), some_features(2, 3), state_of()
    with Tape("copy.gate") as tape:
        head.log_probs(features, state)
    assert tape.steps("copy.gate")[0].shape == (2, 3)
    with Tape(replace={"copy.gate": lambda gate, step: torch.full_like(gate, 1e4)}):
        generated = head.log_probs(features, state)
    torch.testing.assert_close(generated[..., :V].exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))


def test_extras_are_counted_per_batch_and_junk_behind_the_mask_is_none() -> None:
    ids = torch.full((2, 3), 6)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    found = copyable(Tokens(ids, mask, torch.tensor([[V + 1, -1, V], [6, V + 5, V + 6]])), V)
    assert found["copies"].tolist() == [[V + 1, -1, V], [6, -1, -1]]
    assert found["extras"].tolist() == [[True, True], [False, False]]
    none = copyable(Tokens(ids, mask, torch.full((2, 3), -1)), V)
    assert none["extras"].shape == (2, 0)
    assert copyable(Tokens(ids, mask), V) == {}


# --- whole models --------------------

DECODERS: dict[str, dict[str, object]] = {
    "luong": {"kind": "luong", "width": 6, "attention": {"heads": 2}},
    "bahdanau": {"kind": "bahdanau", "width": 6, "attention": {"coverage": True}},
    "transformer": {"kind": "transformer", "width": 6, "heads": 2, "layers": 2, "dropout": 0.0},
}
every_decoder = pytest.mark.parametrize("decoder", DECODERS)


def network(kind: str = "luong", seed: int = 3, **parts: object) -> EncoderDecoder:
    raw = {
        "source_embedding": {"width": 6},
        "target_embedding": {"width": 6},
        "encoder": {"width": 6},
        "decoder": DECODERS[kind],
        "head": "copy",
        **parts,
    }
    torch.manual_seed(seed)
    model = EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=12, target_vocabulary=V)
    return model.double().eval()


def some_sources() -> dict[str, Source]:
    """Three sources with two, one and no pieces of their own."""
    ids = Tokens.pad([[9, 10, 6, 9, EOS], [11, EOS], [6, 7, EOS]])
    copies = Tokens.pad([[V, V + 1, 6, V, -1], [V, -1], [6, 7, -1]], fill=-1).ids
    return {"source": Tokens(ids.ids, ids.mask, copies)}


def rows_of(sources: Mapping[str, Source], row: int) -> dict[str, Source]:
    """One source alone, without padding."""
    source = sources["source"].rows(torch.tensor([row]))
    assert isinstance(source, Tokens)
    assert source.copies is not None
    length = int(source.lengths[0])
    return {"source": Tokens(source.ids[:, :length], source.mask[:, :length], source.copies[:, :length])}


@every_decoder
@torch.no_grad()
def test_a_source_scores_alone_as_in_a_batch_with_more_extras(decoder: str) -> None:
    model, sources = network(decoder), some_sources()
    state, read = model.start(sources, 1), [BOS, V, 6]
    states = [model.start(rows_of(sources, row), 1) for row in range(3)]
    for token in read:
        together, state = model.step(torch.full((3,), token), state)
        assert together.shape == (3, V + 2)
        torch.testing.assert_close(together.exp().sum(-1), torch.ones(3, dtype=torch.float64))
        for row, extras in enumerate((2, 1, 0)):
            alone, states[row] = model.step(torch.tensor([token]), states[row])
            assert alone.shape == (1, V + extras)
            torch.testing.assert_close(together[row : row + 1, : V + extras], alone, atol=1e-10, rtol=0)
            assert (together[row, V + extras :] == -torch.inf).all()


@every_decoder
@torch.no_grad()
def test_what_was_copied_is_read_as_unknown(decoder: str) -> None:
    model, sources = network(decoder), some_sources()
    tokens = torch.tensor([[BOS, V, V + 1], [BOS, V, 6], [BOS, 6, 7]])
    unknown = tokens.masked_fill(tokens >= V, UNK)
    copied, plain = (model.decoder(each, model.start(sources, 1))[0] for each in (tokens, unknown))
    assert torch.equal(copied, plain)


@every_decoder
@torch.no_grad()
def test_searches_find_copies_and_their_log_prob_is_that_of_forced_decoding(decoder: str) -> None:
    model, sources = network(decoder, seed=8), some_sources()
    model.head.pointer.gate.bias.fill_(-2.0)  # type: ignore[union-attr, operator]
    copied = 0
    for kind in ("greedy", "beam", "sample"):
        wanted = {"kind": kind, **({"samples": 4} if kind == "sample" else {})}
        found = search(model, sources, STRATEGIES.settings(wanted), limits=Limits(max_length=6))
        for row, hypotheses in enumerate(found):
            for one in hypotheses:
                said = [*one.tokens] if one.truncated else [*one.tokens, EOS]
                nll = model.nll(Batch(rows_of(sources, row), Tokens.pad([said])))
                assert float(-nll.sum()) == pytest.approx(one.log_prob, abs=1e-9)
                copied += sum(token >= V for token in one.tokens)
    assert copied > 10
    limits = Limits(max_length=3)
    wide = STRATEGIES.settings({"kind": "beam", "size": 40, "length": "none"})
    for one, other in zip(
        best_first(model, sources, limits=limits), search(model, sources, wide, limits=limits), strict=True
    ):
        assert one.exact
        assert one.hypothesis.tokens == other[0].tokens


@torch.no_grad()
def test_an_ensemble_of_copying_models_averages_over_all_of_w() -> None:
    one, other, sources = network(), network("transformer", seed=5), some_sources()
    last = torch.full((6,), V)

    def step(scorer: EncoderDecoder | Ensemble) -> Tensor:
        _, state = scorer.step(torch.full((6,), BOS), scorer.start(sources, 2))
        rows, kept = torch.tensor([1, 1, 4, 5]), torch.tensor([0, 2])  # the second source has left
        return scorer.step(last[:4], state.select(rows, kept))[0].exp()

    together = step(Ensemble([one, other]))
    assert together.shape == (4, V + 2)
    torch.testing.assert_close(together, (step(one) + step(other)) / 2)


@torch.no_grad()
def test_sources_that_were_not_prepared_are_only_generated() -> None:
    model = network()
    source = some_sources()["source"]
    log_probs, _ = model.step(torch.full((3,), BOS), model.start({"source": Tokens(source.ids, source.mask)}, 1))  # type: ignore[union-attr]
    assert log_probs.shape == (3, V)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"decoder": {"kind": "rnn"}}, "head: copy points with the decoder's attention"),
        ({"head": "none"}, "head: none has no probabilities for a luong decoder"),
        ({"decoder": {"kind": "monotonic"}}, "head: a monotonic decoder says its probabilities itself"),
    ],
)
def test_heads_that_do_not_fit_are_refused(parts: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        network(**parts)


# --- learning --------------------


def names_task(rows: int, seed: int) -> Batch:
    """ "A? B" -> "B . A": the words are drawn from hundreds and the vocabulary has none of them, but can say "."."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, 500, (rows, 2), generator=generator)
    ids = torch.stack([words[:, 0] % 5 + 6, words[:, 1] % 5 + 6, torch.full((rows,), EOS)], dim=1)  # all but unknown
    copies = torch.tensor([[V, V + 1, -1]]).expand(rows, -1)
    target = torch.tensor([[V + 1, 7, V, EOS]]).expand(rows, -1)
    return Batch({"source": Tokens(ids, ids > 0, copies)}, Tokens(target, target > 0))


@pytest.mark.parametrize("decoder", ["bahdanau", "transformer"])
def test_words_outside_the_vocabulary_are_learned_to_be_copied(decoder: str) -> None:
    shape = {"width": 16} if decoder == "bahdanau" else {"width": 16, "layers": 1}
    model = network(decoder, decoder={**DECODERS[decoder], **shape}, encoder={"width": 16}).float().train()
    sampled = {"sampling": {"kind": "constant", "gold": 0.9}, "label_smoothing": 0.1}  # its own copies are read, too
    task = Transduce(Transduce.Settings.model_validate(sampled), vocabularies=(12, V), searching=SearchSettings())
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(0)
    for step in range(80):
        loss = task.loss(model, names_task(16, step), step)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    found = task.predict(model.eval(), names_task(8, seed=999))
    assert [one[0].tokens for one in found] == [(V + 1, 7, V)] * 8
    assert math.exp(-float(task.loss(model, names_task(8, seed=998), 0).nll) / 32) > 0.8

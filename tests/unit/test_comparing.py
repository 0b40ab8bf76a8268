"""Two sources compared: known values of the features, what sharing an encoder promises, and what asks what."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from seqloom.batch import Batch, Tokens
from seqloom.models.comparing import BETWEEN, Between, pair_features, pair_width, parts_of
from seqloom.models.contracts import Memory
from seqloom.models.memories import FURTHER
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.nn.attention import AttentionSettings
from seqloom.nn.tape import Tape
from seqloom.specials import EOS, SPECIALS

FIRST, LABELS = len(SPECIALS), 3
ONE, TWO = Tokens.pad([[7, 8, 9, EOS], [9, 7, EOS]]), Tokens.pad([[8, EOS], [7, 9, 9, 8, EOS]])
LABEL = Tokens.pad([[FIRST, EOS], [FIRST + 1, EOS]])


def made(use: str = "shared", encoder: str = "rnn", further: int = 1, **decoder: object) -> EncoderDecoder:
    raw = {
        "kind": "encoder_decoder",
        "source_embedding": {"width": 4},
        "encoder": {"kind": encoder, "width": 4},
        "decoder": {"kind": "label", **decoder},
    }
    names = ["other", "third"][:further]
    extras = {name: (FURTHER.settings(use), 10) for name in names}
    sizes = {"source_vocabulary": 10, "target_vocabulary": FIRST + LABELS, "extras": extras}
    model = MODELS.build(MODELS.settings(raw), **sizes)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    assert isinstance(model, EncoderDecoder)
    return model.double().eval()


def batch(one: Tokens = ONE, two: Tokens = TWO) -> Batch:
    return Batch({"source": one, "other": two}, LABEL)


def decided_by(model: EncoderDecoder, pair: Batch) -> Tensor:
    """What the output layer reads of the first step: B F."""
    seen: list[Tensor] = []
    handle = model.decoder.hidden.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        model.forced(pair)
    handle.remove()
    return seen[0][:, 0]


# --- features --------------------


def test_the_features_of_two_vectors() -> None:
    u, v = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 5.0])
    assert pair_features([u, v]).tolist() == [1, -2, 3, 5, 2, 7, 3, -10]
    assert pair_width(2, 2) == 8


def test_of_three_vectors_the_first_goes_with_each() -> None:
    u, v, w = torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([-1.0])
    assert pair_features([u, v, w]).tolist() == [1, 3, 2, 3, -1, 2, -1]
    assert pair_width(3, 1) == 7


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_sources_that_change_places_change_u_and_v_and_nothing_else(pooling: str) -> None:
    model = made(compare="features", pooling=pooling)
    u, v, apart, product = decided_by(model, batch()).chunk(4, dim=1)
    other_u, other_v, other_apart, other_product = decided_by(model, batch(TWO, ONE)).chunk(4, dim=1)
    for found, wanted in ((other_u, v), (other_v, u), (other_apart, apart), (other_product, product)):
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(apart, (u - v).abs())
    assert apart.gt(1e-3).any(1).all()


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_the_same_sentence_twice_is_no_distance_apart(pooling: str) -> None:
    u, v, apart, product = decided_by(made(compare="features", pooling=pooling), batch(ONE, ONE)).chunk(4, dim=1)
    assert torch.equal(u, v)
    assert not apart.any()
    torch.testing.assert_close(product, u * u)


def test_an_encoder_of_its_own_reads_the_same_sentence_in_its_own_way() -> None:
    u, v, *_ = decided_by(made(use="encoder", compare="features"), batch(ONE, ONE)).chunk(4, dim=1)
    assert not torch.allclose(u, v)


def test_a_shared_encoder_has_no_weights_of_its_own_where_sources_are_compared() -> None:
    assert not [name for name, _ in made(compare="features").named_parameters() if name.startswith("extras")]
    marked = [name for name, _ in made(compare="none").named_parameters() if name.startswith("extras")]
    assert "extras.extra_other.mark" in marked, "one memory of both: whose states are whose must be told"


# --- attention between them --------------------


def test_every_position_looks_at_the_other_source_only() -> None:
    """By hand: with one position on either side, each finds the other, whatever the scores."""
    between = Between(AttentionSettings(), width=2, dropout=0.0).double().eval()
    s, t = torch.tensor([[[1.0, 2.0]]]).double(), torch.tensor([[[-1.0, 3.0]]]).double()
    real = torch.ones(1, 1, dtype=torch.bool)
    with torch.no_grad(), Tape(BETWEEN) as tape:
        one, two = between([Memory(s, real, ()), Memory(t, real, ())])
        for found, own, other in ((one, s, t), (two, t, s)):
            wanted = torch.relu(between.compare(torch.cat([own, other, own - other, own * other], dim=-1)))
            torch.testing.assert_close(found.states, wanted)
    assert tape.steps(BETWEEN)[0].tolist() == [[[[0, 1], [1, 0]]]]


@torch.no_grad()
def test_weights_between_are_distributions_over_the_real_positions_of_the_other() -> None:
    model, pair = made(compare="attention", pooling="mean"), batch()
    with Tape(BETWEEN) as tape:
        model.nll(pair)
    [weights] = tape.steps(BETWEEN)  # B H S S
    size = ONE.mask.shape[1]
    assert weights.shape == (2, 1, 9, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert not weights[:, :, :size, :size].any()
    assert not weights[:, :, size:, size:].any()
    assert not weights.masked_select(~torch.cat([ONE.mask, TWO.mask], dim=1)[:, None, None].expand_as(weights)).any()


@torch.no_grad()
def test_replaced_weights_between_change_the_answer() -> None:
    model, pair = made(compare="attention", pooling="max"), batch()
    plain = model.nll(pair)
    with Tape(replace={BETWEEN: lambda weights, _: weights.clone()}):
        assert torch.equal(model.nll(pair), plain)
    with Tape(replace={BETWEEN: lambda weights, _: torch.zeros_like(weights)}):
        assert not torch.allclose(model.nll(pair), plain)


def test_parts_are_the_real_positions_of_each() -> None:
    memories = [Memory(torch.zeros(*tokens.mask.shape, 2), tokens.mask, ()) for tokens in (ONE, TWO)]
    parts = parts_of(memories)
    assert parts.shape == (2, 2, 9)
    assert torch.equal(parts.any(1), torch.cat([ONE.mask, TWO.mask], dim=1))
    assert not (parts[:, 0] & parts[:, 1]).any()


# --- where a label looked --------------------


@torch.no_grad()
@pytest.mark.parametrize("further", [1, 2])
@pytest.mark.parametrize("compare", ["features", "attention"])
def test_the_weights_of_compared_sources_are_shares_of_one_whole(compare: str, further: int) -> None:
    model = made(compare=compare, further=further)
    pair = replace(batch(), sources={"source": ONE, "other": TWO, "third": ONE})
    [weights] = model.attention(pair)  # B H T S
    sizes = [4, 5, 4][: 1 + further]
    assert weights.shape[-1] == sum(sizes)
    for part in torch.split(weights, sizes, dim=-1):
        torch.testing.assert_close(part.sum(-1), torch.full_like(part[..., 0], 1 / len(sizes)))


@torch.no_grad()
def test_the_one_who_asks_is_not_looked_at() -> None:
    """c = sum a s over the document alone, and the label is decided by [c; q]."""
    model, pair = made(query="other"), batch()
    with Tape("decoder.context", "decoder.attention") as tape:
        decided = decided_by(model, pair)
    weights, memories = tape.joined("decoder.attention", dim=2)[:, 0, 0], model.encode(pair.sources)
    assert not weights[:, 4:].any()
    torch.testing.assert_close(weights.sum(1), torch.ones(2).double())
    context = (weights[:, :4, None] * memories["source"].states).sum(1)
    torch.testing.assert_close(tape.joined("decoder.context", dim=1)[:, 0], context)
    torch.testing.assert_close(decided, torch.cat([context, memories["other"].summary[-1][0]], dim=1))


@torch.no_grad()
def test_another_question_looks_elsewhere() -> None:
    model = made(query="other")
    [one], [two] = model.attention(batch(ONE, TWO)), model.attention(batch(ONE, ONE))
    assert not torch.allclose(one[..., :4], two[..., :4])


# --- flat or apart --------------------


@torch.no_grad()
def test_memories_are_apart_only_where_they_are_compared() -> None:
    apart = made(compare="features").encode(batch().sources)
    assert [*apart] == ["source", "other"]
    assert apart["other"].states.shape == (2, 5, 4)
    flat = made(compare="none").encode(batch().sources)
    assert [*flat] == ["source"]
    assert flat["source"].states.shape == (2, 9, 4)


def test_the_encoder_of_each_source_in_turn() -> None:
    shared, own = made(compare="features"), made(use="encoder", compare="features")
    assert shared.readers() == [shared.encoder, shared.encoder]
    assert own.readers()[0] is own.encoder
    assert own.readers()[1] is not own.encoder


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        ({"query": "other", "compare": "features"}, "query: either other asks or it is compared; leave query out"),
        ({"query": "other", "pooling": "mean"}, "query: it asks by the weights of attention; set pooling: attention"),
        (
            {"compare": "attention", "pooling": "last"},
            "pooling: positions that were compared have no last state; use mean, max or attention",
        ),
        ({"compare": "feature"}, 'did you mean "features"?'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(decoder: dict[str, object], said: str) -> None:
    from seqloom.config import validated
    from seqloom.errors import SeqloomError
    from seqloom.models.labels import Label

    with pytest.raises(SeqloomError) as caught:
        validated(Label.Settings, {"kind": "label", **decoder}, "r.yaml")
    assert said in caught.value.what

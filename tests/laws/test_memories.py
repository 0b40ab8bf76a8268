"""Further sources: their memories join the first one's, for decoders with attention and without."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import EXTRA_CASES, Case, build, close, fresh, gradients, model, small, some_batch

from seqloom.batch import Batch, Tokens
from seqloom.models.tables import DECODERS, ENCODERS

CASES = {case.name: case for case in EXTRA_CASES}


def with_source(batch: Batch, name: str, tokens: Tokens) -> Batch:
    return replace(batch, sources={**batch.sources, name: tokens})


@pytest.mark.parametrize("case", EXTRA_CASES, ids=str)
@torch.no_grad()
def test_the_source_comes_first_and_every_extra_follows(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    memory = generator.encode(batch.sources)["source"]
    parts = [batch.sources["source"], *(batch.sources[name] for name in case.extras)]
    assert torch.equal(memory.mask, torch.cat([part.mask for part in parts], dim=1))
    alone = generator.encoder(batch.sources["source"])
    close(memory.states[:, : alone.states.shape[1]], alone.states)
    assert not memory.states[~memory.mask].any()


@pytest.mark.parametrize("case", EXTRA_CASES, ids=str)
@torch.no_grad()
def test_every_decoder_hears_every_extra(case: Case) -> None:
    """Also through the summary alone: another tag changes every prediction."""
    generator, batch = build(case), some_batch(case=case)
    for name in case.extras:
        tokens = batch.sources[name]
        other = Tokens(torch.where(tokens.ids < 6, tokens.ids, 6 + (tokens.ids - 5) % 4), tokens.mask)
        changed = (other.ids != tokens.ids).any(1)
        assert changed.any()
        apart = (generator.nll(with_source(batch, name, other)) - generator.nll(batch)).abs().amax(1)
        assert (apart[changed] > 1e-6).all(), name
        assert not apart[~changed].any(), name


@torch.no_grad()
def test_the_order_of_a_bag_does_not_matter() -> None:
    generator, batch = build(CASES["extra->bahdanau"]), some_batch((3, 3), (2, 4))
    ids = torch.tensor([[6, 7, 8, 3], [9, 6, 7, 3]])
    mask = torch.ones_like(ids, dtype=torch.bool)
    order = torch.tensor([2, 0, 3, 1])
    one = generator.nll(with_source(batch, "tags", Tokens(ids, mask)))
    close(generator.nll(with_source(batch, "tags", Tokens(ids[:, order], mask))), one)
    sequence = build(CASES["extra=rnn"])
    apart = sequence.nll(with_source(batch, "tags", Tokens(ids[:, order], mask)))
    assert not torch.allclose(apart, sequence.nll(with_source(batch, "tags", Tokens(ids, mask))))


@torch.no_grad()
def test_attention_is_over_all_positions() -> None:
    generator, batch = build(CASES["extras=2"]), some_batch()
    [weights] = generator.attention(batch)
    assert weights.shape[-1] == sum(batch.sources[name].mask.shape[1] for name in ("source", "tags", "type"))
    close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.parametrize(
    ("name", "idle"),
    [("extra->luong", set()), ("extra->rnn", {"mark"}), ("extra->transformer", {"summaries.0", "summaries.1"})],
)
def test_what_a_decoder_does_not_read_is_not_trained(name: str, idle: set[str]) -> None:
    """A decoder without attention reads no states, a Transformer no summary; nothing else is idle."""
    generator = fresh(CASES[name]).train()
    found = gradients(generator, generator.losses(some_batch())[0].sum())
    missed = {key for key, gradient in found.items() if not gradient.any()}
    assert missed == {f"extras.extra_tags.{part}" + (".weight" if "." in part else "") for part in idle}


@torch.no_grad()
def test_copying_and_extras_go_together() -> None:
    """Law 4 for a copying model: features hold weights over the memory, so losses are what is compared."""
    raw = model(decoder=small(DECODERS, "luong"), head="copy")
    case = Case("extra,copy", raw, {"tags": {"encoder": small(ENCODERS, "bag", width=6)}})
    generator, batch = build(case), some_batch(case=case)
    target = batch.target
    assert target is not None
    batch = replace(batch, target=Tokens(target.ids.masked_fill(target.ids == 7, 10), target.mask))  # 10 is a copy
    together = generator.nll(batch)
    for row in range(len(batch)):
        alone = batch.rows(torch.tensor([row]))
        short = {name: _unpadded(source) for name, source in alone.sources.items()}
        close(generator.nll(replace(alone, sources=short)), together[row : row + 1])


def _unpadded(tokens: object) -> Tokens:
    assert isinstance(tokens, Tokens)
    length = int(tokens.lengths.max())
    copies = None if tokens.copies is None else tokens.copies[:, :length]
    return Tokens(tokens.ids[:, :length], tokens.mask[:, :length], copies)

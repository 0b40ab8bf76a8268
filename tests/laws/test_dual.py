"""A dual encoder of every encoder and pooling: vectors alone equal vectors together, and padding changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cases import SOURCE_VOCABULARY, WIDTH, Raw, close, gradients, randomised, small, some_tokens, with_words

from seqloom.batch import Batch, Tokens
from seqloom.config import kind_of
from seqloom.models.dual import POOLING, DualEncoder
from seqloom.models.model import MODELS
from seqloom.models.tables import ENCODERS
from seqloom.nn.tape import Tape
from seqloom.shapes import Tensor
from seqloom.tasks.match import Match

POOLINGS = ("last", "mean", "max", "attention")
FEW = 9  # words of targets


def dual(encoder: str = "rnn", dtype: torch.dtype = torch.float64, **changes: object) -> DualEncoder:
    """A tiny one; an encoder that asks for words reads sources alone."""
    raw: Raw = {"kind": "dual", "source_embedding": {"width": WIDTH}, "encoder": small(ENCODERS, encoder)}
    raw |= {"projection": 5, **changes}
    if ENCODERS[encoder].reads_words:
        raw |= {"sharing": "none", "target_encoder": small(ENCODERS, "bag")}
    settings = MODELS.settings(raw)
    assert isinstance(settings, DualEncoder.Settings)
    target = SOURCE_VOCABULARY if settings.one_vocabulary else FEW
    sizes = {"source_vocabulary": SOURCE_VOCABULARY, "target_vocabulary": target}
    network = randomised(MODELS.build(settings, **sizes), dtype)
    assert isinstance(network, DualEncoder)
    return network


def some_pairs() -> Batch:
    source = with_words(some_tokens((3, 1, 4, 2), SOURCE_VOCABULARY, seed=2))
    return Batch({"source": source}, some_tokens((2, 4, 1, 3), FEW, seed=3))


def both(network: DualEncoder, batch: Batch) -> Tensor:
    assert batch.target is not None
    return torch.cat([network.queries(batch.sources), network.candidates(batch.target)])


READERS = [kind for kind in ENCODERS if ENCODERS[kind].reads is None]  # of texts
every_one = pytest.mark.parametrize(("encoder", "pooling"), [(one, how) for one in READERS for how in POOLINGS])


@every_one
@torch.no_grad()
def test_vectors_alone_equal_vectors_together(encoder: str, pooling: str) -> None:
    network, batch = dual(encoder, pooling=pooling), some_pairs()
    together = both(network, batch)
    for row in range(len(batch)):
        alone = both(network, batch.rows(torch.tensor([row])))
        close(alone[0], together[row], "query")
        close(alone[1], together[len(batch) + row], "candidate")


@every_one
def test_padding_changes_no_vector_and_no_gradient(encoder: str, pooling: str) -> None:
    network, batch, task = dual(encoder, pooling=pooling), some_pairs(), Match()
    assert batch.target is not None

    def wider(tokens: Tokens) -> Tokens:
        """Two more columns, and another id behind every mask."""
        ids = torch.nn.functional.pad(tokens.ids.masked_fill(~tokens.mask, 7), (0, 2), value=6)
        mask = torch.nn.functional.pad(tokens.mask, (0, 2), value=False)
        words = None if tokens.words is None else torch.nn.functional.pad(tokens.words, (0, 2), value=-1)
        return Tokens(ids, mask, words=words)

    source = batch.sources["source"]
    assert isinstance(source, Tokens)
    padded = replace(batch, sources={"source": wider(source)}, target=wider(batch.target))
    close(both(network, padded), both(network, batch))
    one, other = (gradients(network, task.loss(network, each, 1).total) for each in (batch, padded))
    for name, gradient in one.items():
        close(other[name], gradient, name)


@pytest.mark.parametrize("sharing", ["none", "encoder", "all"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_every_parameter_learns_and_the_loss_has_its_gradient(sharing: str, similarity: str) -> None:
    """Law 8: float64 gradcheck of the in-batch loss, by every parameter at once."""
    changes = {"sharing": sharing, "similarity": similarity, "hidden": 3, "learned_temperature": True}
    network, batch, task = dual("bag", pooling="attention", **changes), some_pairs(), Match()
    names = [name for name, _ in network.named_parameters()]

    def loss(*values: Tensor) -> Tensor:
        given = dict(zip(names, values, strict=True))
        with torch.nn.utils.stateless._reparametrize_module(network, given, tie_weights=True):  # type: ignore[no-untyped-call]
            return task.loss(network, batch, 1).total

    parameters = [value.detach().clone().requires_grad_() for value in network.parameters()]
    assert torch.autograd.gradcheck(loss, parameters, fast_mode=True)
    silent = [name for name, one in gradients(network, task.loss(network, batch, 1).total).items() if not one.any()]
    assert not silent


@pytest.mark.parametrize("encoder", READERS)
@torch.no_grad()
def test_looking_changes_nothing_and_weights_are_shares(encoder: str) -> None:
    network, batch = dual(encoder, pooling="attention"), some_pairs()
    assert batch.target is not None
    with Tape(POOLING) as tape:
        watched = both(network, batch)
    close(watched, both(network, batch))
    weights, _ = tape.steps(POOLING)  # the sources', then the targets': B H 1 S
    close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert kind_of(MODELS.settings("dual")) == "dual"


@torch.no_grad()
def test_a_text_has_one_vector_on_both_sides_only_where_all_is_shared() -> None:
    tokens = some_tokens((3, 2), FEW, seed=3)
    for sharing, same in {"all": True, "encoder": False}.items():
        network = dual(sharing=sharing)
        assert torch.equal(network.queries({"source": tokens}), network.candidates(tokens)) == same

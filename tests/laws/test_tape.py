"""Law 7: weights observed or not, outputs agree; what is observed is what happened; nobody listens, nothing is kept."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from cases import ATTENTIVE_CASES, Case, build, close, every_attentive_case, every_case, some_batch, some_inputs
from torch import Tensor

from seqloom.batch import Batch
from seqloom.models.model import EncoderDecoder
from seqloom.nn.layers import spread
from seqloom.nn.tape import Tape, tap

STEPS, HYPOTHESES = 3, 2
TAPS = ("decoder.attention", "decoder.context", "decoder.states", "encoder.attention", "encoder.states", "logits")


def read(generator: EncoderDecoder, batch: Batch, pieces: int = 1) -> Tensor:
    """Log-probabilities of a few forced tokens, read in so many pieces."""
    state = generator.start(batch.sources, HYPOTHESES)
    outputs = []
    for tokens in some_inputs(len(batch) * HYPOTHESES, STEPS).chunk(pieces, dim=1):
        features, state = generator.decoder(tokens, state)
        outputs.append(generator.head.log_probs(features, state))
    return torch.cat(outputs, dim=1)


@every_case
@torch.no_grad()
def test_recorded_or_not_outputs_are_bit_equal(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    silent = read(generator, batch)
    with Tape(*TAPS) as tape:
        assert torch.equal(read(generator, batch), silent)
    assert tape.steps("logits")
    with Tape(replace=dict.fromkeys(TAPS, lambda tensor, step: tensor.clone())):
        assert torch.equal(read(generator, batch), silent)
    unheard = generator.nll(batch)
    with Tape(*TAPS):
        assert torch.equal(generator.nll(batch), unheard)


@every_attentive_case
@torch.no_grad()
def test_weights_step_by_step_equal_those_of_one_pass(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    with Tape("decoder.attention", "decoder.context") as whole:
        read(generator, batch)
    with Tape("decoder.attention", "decoder.context") as stepwise:
        read(generator, batch, pieces=STEPS)
    assert len(stepwise.steps("decoder.attention")) == STEPS
    close(stepwise.joined("decoder.attention", dim=2), whole.joined("decoder.attention", dim=2))
    close(stepwise.joined("decoder.context", dim=1), whole.joined("decoder.context", dim=1))


@every_attentive_case
@torch.no_grad()
def test_weights_are_a_distribution_over_the_real_positions(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    with Tape("decoder.attention") as tape:
        read(generator, batch)
    weights = tape.joined("decoder.attention", dim=2)  # N H T S
    mask = spread(generator.encode(batch.sources)["source"].mask, weights.shape[0])
    assert weights.shape[2:] == (STEPS, mask.shape[1])
    assert (weights >= 0).all()
    close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=weights.dtype))
    assert not weights.masked_select(~mask[:, None, None].expand_as(weights)).any()


@every_attentive_case
@torch.no_grad()
def test_weights_replaced_by_one_position_give_its_value(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    memory = generator.encode(batch.sources)["source"]
    values = generator.decoder.attention.prepare(memory.states, memory.mask)["values"]

    def look_at_first(weights: Tensor, step: int) -> Tensor:
        only = torch.zeros_like(weights)
        only[..., 0] = 1.0
        return only

    with Tape("decoder.context", "decoder.attention", replace={"decoder.attention": look_at_first}) as tape:
        replaced = read(generator, batch)
    contexts = tape.joined("decoder.context", dim=1)
    expected = spread(values[:, 0], contexts.shape[0])
    close(contexts, expected[:, None].expand_as(contexts))
    assert (tape.joined("decoder.attention", dim=2)[..., 0] == 1).all()  # what goes on is what is recorded
    assert not replaced.isnan().any()


@torch.no_grad()
def test_a_replacement_changes_what_follows_and_knows_its_step() -> None:
    generator, batch, seen = build(ATTENTIVE_CASES[0]), some_batch(), []

    def shut(weights: Tensor, step: int) -> Tensor:
        seen.append(step)
        return torch.zeros_like(weights) if step == 1 else weights

    plain = read(generator, batch, pieces=STEPS)
    with Tape(replace={"decoder.attention": shut}):
        other = read(generator, batch, pieces=STEPS)
    assert seen == list(range(STEPS))
    assert torch.equal(other[:, 0], plain[:, 0])
    assert not torch.equal(other[:, 1], plain[:, 1])


# --- nobody listens --------------------


def test_a_tap_without_a_tape_lets_the_very_tensor_pass_and_keeps_nothing() -> None:
    tensor = torch.ones(3)
    assert tap("decoder.attention", tensor) is tensor
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None


@torch.no_grad()
def test_only_what_is_listened_to_and_only_during_the_call_is_recorded() -> None:
    generator, batch = build(ATTENTIVE_CASES[0]), some_batch()
    with Tape("decoder.context") as tape:
        read(generator, batch)
    before = len(tape.steps("decoder.context"))
    read(generator, batch)
    assert len(tape.steps("decoder.context")) == before > 0
    with pytest.raises(KeyError):
        tape.steps("decoder.attention")
    with Tape("no.such.tap") as other:
        read(generator, batch)
    assert other.steps("no.such.tap") == []


def test_records_are_detached_from_the_graph() -> None:
    generator, batch = build(ATTENTIVE_CASES[0]), some_batch()
    with Tape("decoder.attention") as tape:
        read(generator, batch).sum().backward(inputs=list(generator.parameters()))
    generator.zero_grad()
    assert not any(tensor.requires_grad for tensor in tape.steps("decoder.attention"))


def test_a_tape_may_keep_gradients_and_what_passed_is_the_same() -> None:
    """What a loss on the weights needs: the recorded tensors are those of the pass, with their graph."""
    generator, batch = build(ATTENTIVE_CASES[0]), some_batch()
    with Tape("decoder.attention") as plain:
        read(generator, batch)
    with Tape("decoder.attention", keep_gradients=True) as tape:
        read(generator, batch)
    kept = tape.joined("decoder.attention", dim=2)
    assert torch.equal(kept.detach(), plain.joined("decoder.attention", dim=2))
    found = torch.autograd.grad(kept.square().sum(), list(generator.parameters()), allow_unused=True)
    assert sum(gradient is not None and bool(gradient.any()) for gradient in found) > 3


@pytest.mark.parametrize(
    "case", [case for case in ATTENTIVE_CASES if getattr(case.settings.decoder.attention, "coverage", False)], ids=str
)
@torch.no_grad()
def test_the_past_is_the_sum_of_the_weights_so_far(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    state = generator.start(batch.sources, HYPOTHESES)
    with Tape("decoder.attention") as tape:
        for tokens in some_inputs(len(batch) * HYPOTHESES, STEPS).split(1, dim=1):
            _, state = generator.decoder(tokens, state)
            seen = tape.joined("decoder.attention", dim=2)  # N H t S
            close(state.rows["past"], seen.mean(1).sum(1))


def test_a_tape_is_bound_to_one_call() -> None:
    with Tape("x") as outer:
        tap("x", torch.ones(1))
        with Tape("x") as inner:
            tap("x", torch.ones(1))
        tap("x", torch.ones(1))
    assert (len(outer.steps("x")), len(inner.steps("x"))) == (2, 1)
    with pytest.raises(AssertionError), inner:
        pass


def test_a_tape_ends_with_an_error() -> None:
    tape = Tape("x")

    def fail() -> None:
        with tape:
            raise RuntimeError("in the middle of a call")

    with pytest.raises(RuntimeError, match="middle"):
        fail()
    tap("x", torch.ones(1))
    assert tape.steps("x") == []


def test_a_tape_is_not_heard_in_other_threads() -> None:
    with Tape("x") as tape:
        worker = threading.Thread(target=tap, args=("x", torch.ones(1)))
        worker.start()
        worker.join()
    assert tape.steps("x") == []

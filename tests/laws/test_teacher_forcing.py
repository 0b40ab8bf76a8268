"""Training says what the lecture says: sum over t of -log P(y_t given y_<t, x), and the remedies for exposure bias."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    CASES,
    SOURCE_VOCABULARY,
    TABLE_CASES,
    TARGET_VOCABULARY,
    WRITING_CASES,
    Case,
    build,
    close,
    close_trees,
    every_case,
    fresh,
    gradients,
    some_batch,
    some_tokens,
    with_words,
)
from torch import Tensor

from seqloom.batch import Batch, Tokens
from seqloom.data.corpus import Pair
from seqloom.models.generator import shifted
from seqloom.models.model import EncoderDecoder
from seqloom.nn.tape import Tape
from seqloom.specials import BOS, EOS, MASK, PAD, UNK
from seqloom.tasks.sampling import Schedule
from seqloom.tasks.transduce import SearchSettings, Transduce

A, B, C, W, X, Y, Z = 6, 7, 8, 6, 7, 8, 9
every_entry = pytest.mark.parametrize("case", TABLE_CASES, ids=str)
every_writer = pytest.mark.parametrize("case", WRITING_CASES, ids=str)


def task(**raw: object) -> Transduce:
    return Transduce(
        Transduce.Settings.model_validate(raw),
        vocabularies=(SOURCE_VOCABULARY, TARGET_VOCABULARY),
        searching=SearchSettings(),
    )


def training(case: Case = TABLE_CASES[0]) -> EncoderDecoder:
    return fresh(case).train()


# --- teacher forcing --------------------


@every_writer
def test_the_lectures_pair_has_exactly_five_terms(case: Case) -> None:
    """(ABC<EOS>, WXYZ<EOS>): W, X, Y, Z and EOS are each predicted once, from the gold tokens before them."""
    generator = build(case)
    read = with_words(Tokens.pad([[A, B, C, EOS]]))
    given = some_batch([4], case=case).sources["source"]  # a picture where the model reads one
    batch = Batch({"source": read if isinstance(given, Tokens) else given}, Tokens.pad([[W, X, Y, Z, EOS]]))
    minimised, nll = generator.losses(batch)
    assert minimised.shape == nll.shape == (5,)
    loss = task().loss(training(case), batch, step=1)
    assert int(loss.count) == 5
    close(loss.total.detach(), nll.sum().detach())
    close(loss.nll, nll.sum().detach())
    state, terms = generator.start(batch.sources, 1), []
    for read, said in [(BOS, W), (W, X), (X, Y), (Y, Z), (Z, EOS)]:
        log_probs, state = generator.step(torch.tensor([read]), state)
        terms.append(-log_probs[0, said])
    close(nll, torch.stack(terms))


def test_collated_pairs_end_in_eos_on_both_sides() -> None:
    pairs = [Pair([A, B, C], [W, X, Y, Z], 0), Pair([A], [], 1)]
    batch = task().collate(pairs)
    assert batch.target is not None
    assert batch.target.ids.tolist() == [[W, X, Y, Z, EOS], [EOS, PAD, PAD, PAD, PAD]]
    assert batch.target_tokens == 6
    assert batch.sources["source"].lengths.tolist() == [4, 2]


def test_the_decoder_reads_bos_and_all_but_the_last() -> None:
    target = Tokens.pad([[W, X, EOS], [Y, EOS]])
    assert shifted(target).ids.tolist() == [[BOS, W, X], [BOS, Y, EOS]]
    assert target.ids.tolist() == [[W, X, EOS], [Y, EOS, PAD]]  # not written into


@every_case
@torch.no_grad()
def test_the_sum_of_steps_is_the_loss(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    assert batch.target is not None
    state, total = generator.start(batch.sources, 1), torch.zeros(len(batch), dtype=torch.float64)
    last = torch.full((len(batch),), BOS)
    for t in range(batch.target.ids.shape[1]):
        log_probs, state = generator.step(last, state)
        gold = batch.target.ids[:, t]
        total -= log_probs.gather(1, gold[:, None])[:, 0].where(batch.target.mask[:, t], 0.0)
        last = gold
    close(generator.nll(batch).sum(1), total)
    close(generator.losses(batch)[1].sum(), total.sum())


@every_writer
@torch.no_grad()
def test_a_history_is_what_the_decoder_reads_and_the_target_what_it_must_say(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    assert batch.target is not None
    history = Tokens(torch.full_like(batch.target.ids, MASK), batch.target.mask)
    _, nll = generator.losses(batch, history)
    state, expected = generator.start(batch.sources, 1), []
    for t in range(batch.target.ids.shape[1]):
        read = BOS if t == 0 else MASK
        log_probs, state = generator.step(torch.full((len(batch),), read), state)
        expected.append(-log_probs.gather(1, batch.target.ids[:, t : t + 1])[:, 0])
    close(nll, torch.stack(expected, dim=1)[batch.target.mask])
    close(generator.losses(batch, batch.target)[1], generator.losses(batch)[1])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@every_entry
def test_split_batches_sum_to_the_joined_loss(case: Case, smoothing: float) -> None:
    generator, batch, transduce = training(case), some_batch(case=case), task(label_smoothing=smoothing)

    def outcome(part: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = transduce.loss(generator, part, step=1)
        numbers = torch.stack([loss.total.detach(), loss.count.double(), loss.nll])
        return numbers, gradients(generator, loss.total)

    joined, wanted = outcome(batch)
    for rows in ([0], [1, 3]):
        rest = [row for row in range(len(batch)) if row not in rows]
        parts = [outcome(batch.rows(torch.tensor(part))) for part in (rows, rest)]
        close(parts[0][0] + parts[1][0], joined)
        close_trees({name: parts[0][1][name] + parts[1][1][name] for name in wanted}, wanted)


def test_evaluation_is_the_plain_nll_whatever_training_does() -> None:
    noisy = task(
        label_smoothing=0.3,
        sampling={"kind": "constant", "gold": 0.0},
        history={"mask": 1.0},
        source_noise={"drop": 0.9},
        edit_temperature=5.0,
    )
    generator, batch = build(TABLE_CASES[0]), some_batch()
    loss = noisy.loss(generator, batch, step=100)
    assert torch.equal(loss.total.detach(), loss.nll)
    close(loss.nll, generator.nll(batch).sum().detach())


# --- remedies --------------------


class AlmostAlways(Schedule):
    """Gold with a probability so near to 1 that every coin falls on it, and yet not teacher forcing's own path."""

    def gold(self, step: int) -> float:
        return math.nextafter(1.0, 0.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_sampling_that_always_takes_gold_is_teacher_forcing(case: Case, smoothing: float) -> None:
    generator, batch = training(case), some_batch(case=case)
    forced, sampled = task(label_smoothing=smoothing), task(label_smoothing=smoothing)
    sampled.sampling = AlmostAlways()
    expected, found = (one.loss(generator, batch, step=1) for one in (forced, sampled))
    close(found.total.detach(), expected.total.detach())
    close(found.nll, expected.nll)
    assert int(found.count) == int(expected.count)
    close_trees(gradients(generator, found.total), gradients(generator, expected.total))


def other_gold(target: Tokens) -> Tokens:
    """Every word another word; ends and padding stay."""
    words = target.mask & (target.ids != EOS)
    return Tokens(torch.where(words, 6 + (target.ids - 5) % 4, target.ids), target.mask)


def logits_of(transduce: Transduce, generator: EncoderDecoder, batch: Batch) -> Tensor:
    """The logits that the loss was computed from: the last thing to pass the tap."""
    torch.manual_seed(0)
    with Tape("logits") as tape:
        transduce.loss(generator, batch, step=1)
    return tape.steps("logits")[-1]


@pytest.mark.parametrize("pick", ["argmax", "sample"])
@every_writer
def test_free_running_never_reads_gold(case: Case, pick: str) -> None:
    generator, batch = training(case), some_batch(case=case)
    assert batch.target is not None
    other = Batch(batch.sources, other_gold(batch.target))
    free = task(sampling={"kind": "constant", "gold": 0.0}, sampling_pick=pick)
    assert torch.equal(logits_of(free, generator, batch), logits_of(free, generator, other))
    assert not torch.equal(logits_of(task(), generator, batch), logits_of(task(), generator, other))


@torch.no_grad()
def test_free_running_reads_its_own_best_token() -> None:
    generator, batch = training(), some_batch()
    assert batch.target is not None
    free = task(sampling={"kind": "constant", "gold": 0.0})
    state, last, terms = generator.start(batch.sources, 1), torch.full((len(batch),), BOS), []
    for t in range(batch.target.ids.shape[1]):
        log_probs, state = generator.step(last, state)
        terms.append(-log_probs.gather(1, batch.target.ids[:, t : t + 1])[:, 0])
        last = log_probs.argmax(-1)
    close(free.loss(generator, batch, step=1).nll, torch.stack(terms, dim=1)[batch.target.mask].sum())


def test_sampling_draws_repeat_with_the_seed() -> None:
    generator, batch = training(), some_batch()
    half = task(sampling={"kind": "constant", "gold": 0.5}, sampling_pick="sample")
    losses = []
    for seed in (1, 1, 2, 3, 4):
        torch.manual_seed(seed)
        losses.append(float(half.loss(generator, batch, step=1).nll))
    assert losses[0] == losses[1]
    assert len(set(losses)) > 2


def test_the_schedule_sees_the_step() -> None:
    generator, batch = training(), some_batch()
    assert batch.target is not None
    other = Batch(batch.sources, other_gold(batch.target))
    annealed = task(sampling={"kind": "linear", "steps": 10})

    def reads_gold(step: int) -> bool:
        found = []
        for each in (batch, other):
            torch.manual_seed(0)
            with Tape("logits") as tape:
                annealed.loss(generator, each, step)
            found.append(tape.steps("logits")[-1])
        return not torch.equal(*found)

    assert reads_gold(0)
    assert not reads_gold(10)


def test_word_dropout_touches_what_is_read_never_what_is_said() -> None:
    """With every word of the history unknown, the loss is that of a decoder which reads BOS and then only UNK."""
    generator, batch = training(), some_batch((3, 2), (4, 4))
    assert batch.target is not None
    words = batch.target.ids != EOS
    history = Tokens(torch.where(words, UNK, batch.target.ids), batch.target.mask)
    loss = task(history={"drop": 1.0}).loss(generator, batch, step=1)
    close(loss.nll, generator.losses(batch, history)[1].sum().detach())
    sampled = task(history={"drop": 1.0})
    sampled.sampling = AlmostAlways()
    close(sampled.loss(generator, batch, step=1).nll, loss.nll)


def test_edited_targets_are_read_and_said() -> None:
    generator, batch = training(), Batch(some_batch((3,), (4,)).sources, some_tokens((4,), TARGET_VOCABULARY))
    plain, edits = generator.losses(batch)[1].sum().detach(), task(edit_temperature=1e9)
    torch.manual_seed(0)
    losses = {round(float(edits.loss(generator, batch, step=1).nll), 9) for _ in range(20)}
    assert len(losses) > 5
    gentle = task(edit_temperature=1e-3)  # P(n > 0) = exp(-1000)
    close(gentle.loss(generator, batch, step=1).nll, plain)


def test_source_noise_changes_the_source_and_leaves_the_target() -> None:
    generator, batch = training(), some_batch()
    dropped = task(source_noise={"drop": 1.0})
    ends = Tokens.pad([[EOS]] * len(batch))
    loss = dropped.loss(generator, batch, step=1)
    close(loss.nll, generator.losses(Batch({"source": ends}, batch.target))[1].sum().detach())
    assert int(loss.count) == batch.target_tokens

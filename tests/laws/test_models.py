"""Laws 1 to 5 for every entry of every table and a covering of the decoder's options.

A state is opaque: two states are the same when everything read after them gives the same features.
"""

from __future__ import annotations

import pytest
import torch
from cases import (
    CASES,
    COMPARED_CASES,
    COVERING_CASES,
    FRAME_ENCODERS,
    JOINT_CASES,
    STACK_CASES,
    TARGET_VOCABULARY,
    WIDTH,
    WRITING_CASES,
    Case,
    build,
    close,
    close_trees,
    entry,
    every,
    every_case,
    every_encoding_case,
    every_typed_case,
    fresh,
    gradients,
    model,
    randomised,
    small,
    some_batch,
    some_inputs,
    some_tokens,
)
from torch import Tensor, nn

from seqloom.batch import Batch, Frames, Source, Tokens
from seqloom.config import kind_of
from seqloom.models.contracts import Decoder, Memory, State
from seqloom.models.heads import HEADS
from seqloom.models.model import EncoderDecoder, Ensemble
from seqloom.models.tables import DECODERS, ENCODERS
from seqloom.nn.frontends import EMBEDDINGS

STEPS = 4
FUTURE = 2  # tokens read after a state to tell it from another


def future(decoder: Decoder, state: State, rows: Tensor | None = None) -> Tensor:
    """Features of what is read next; `rows` says which rows of the full batch these are."""
    count = next(iter(state.rows.values())).shape[0] if rows is None else int(rows.max()) + 1
    tokens = some_inputs(count, FUTURE, seed=9)
    return decoder(tokens if rows is None else tokens[rows], state.clone())[0]


def started(generator: EncoderDecoder, batch: Batch, hypotheses: int = 1) -> State:
    return generator.start(batch.sources, hypotheses)


def same_features(together: Tensor, alone: Tensor, what: str) -> None:
    """Features that end in weights over the memory go on with those of its padding: all zero, of logarithms -inf."""
    width = alone.shape[-1]
    close(together[..., :width], alone, what)
    padding = together[..., width:]
    assert not padding.any() or not padding.exp().any(), what


def only(batch: Batch, row: int) -> Batch:
    """One example without any padding."""

    def cut(tokens: Source) -> Source:
        length = int(tokens.lengths[row])
        if isinstance(tokens, Frames):
            return Frames(tokens.values[row : row + 1, :length], tokens.mask[row : row + 1, :length])
        copies = None if tokens.copies is None else tokens.copies[row : row + 1, :length]
        words = None if tokens.words is None else tokens.words[row : row + 1, :length]
        return Tokens(tokens.ids[row : row + 1, :length], tokens.mask[row : row + 1, :length], copies, words=words)

    assert batch.target is not None
    target = cut(batch.target)
    assert isinstance(target, Tokens)
    return Batch({name: cut(source) for name, source in batch.sources.items()}, target)


# --- law 1: splitting --------------------


@every_typed_case
@torch.no_grad()
def test_reading_in_pieces_equals_reading_at_once(case: Case, dtype: torch.dtype) -> None:
    generator, batch = build(case, dtype), some_batch(case=case, dtype=dtype)
    state, tokens = started(generator, batch), some_inputs(len(batch), STEPS)
    whole, after = generator.decoder(tokens, state.clone())
    for cut in range(1, STEPS):
        first, between = generator.decoder(tokens[:, :cut], state.clone())
        second, end = generator.decoder(tokens[:, cut:], between)
        close(torch.cat([first, second], dim=1), whole, f"cut at {cut}")
        close(future(generator.decoder, end), future(generator.decoder, after), f"after a cut at {cut}")


@every_case
@torch.no_grad()
def test_reading_one_by_one_equals_reading_at_once(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    state, tokens = started(generator, batch, hypotheses=2), some_inputs(2 * len(batch), STEPS)
    whole, after = generator.decoder(tokens, state.clone())
    features = []
    for t in range(STEPS):
        feature, state = generator.decoder(tokens[:, t : t + 1], state)
        features.append(feature)
    close(torch.cat(features, dim=1), whole)
    close(future(generator.decoder, state), future(generator.decoder, after))


@every_case
@torch.no_grad()
def test_a_state_with_room_is_read_on_without_changing_its_shape(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    state, tokens = started(generator, batch, hypotheses=2), some_inputs(2 * len(batch), STEPS)
    whole, after = generator.decoder(tokens, state.clone())
    state = generator.held(state, STEPS + FUTURE)
    shapes = {name: tensor.shape for name, tensor in state.rows.items()}
    features = []
    for t in range(STEPS):
        feature, state = generator.decoder(tokens[:, t : t + 1], state)
        assert {name: tensor.shape for name, tensor in state.rows.items()} == shapes
        features.append(feature)
    close(torch.cat(features, dim=1), whole)
    close(future(generator.decoder, state), future(generator.decoder, after))


@every_typed_case
@torch.no_grad()
def test_ragged_rows_equal_each_row_alone(case: Case, dtype: torch.dtype) -> None:
    """A row of length 0 has read nothing: its state is the one before."""
    generator, batch = build(case, dtype), some_batch(case=case, dtype=dtype)
    lengths, tokens = torch.tensor([STEPS, 0, 2, 1]), some_inputs(len(batch), STEPS)
    features, after = generator.decoder(tokens, started(generator, batch), lengths)
    futures = future(generator.decoder, after)
    for row, length in enumerate(lengths.tolist()):
        alone = started(generator, only(batch, row))
        if length:
            expected, alone = generator.decoder(tokens[row : row + 1, :length], alone)
            same_features(features[row : row + 1, :length], expected, f"row {row}")
        same_features(futures[row : row + 1], future(generator.decoder, alone, torch.tensor([row])), f"after row {row}")


@every_case
@torch.no_grad()
def test_ragged_reading_goes_on_where_each_row_ended(case: Case) -> None:
    """A forced prefix of its own length per row, then one token each: as if every row had been read in one go."""
    generator, batch = build(case), some_batch(case=case)
    lengths, tokens = torch.tensor([2, 3, 0, 1]), some_inputs(len(batch), STEPS)
    _, state = generator.decoder(tokens[:, :3], started(generator, batch), lengths)
    following = tokens.gather(1, lengths[:, None])
    features, _ = generator.decoder(following, state)
    whole, _ = generator.decoder(tokens, started(generator, batch))
    close(features[:, 0], whole[torch.arange(len(batch)), lengths])


@every_case
@torch.no_grad()
def test_ragged_reading_in_the_middle_leaves_rows_of_length_zero_as_they_were(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    lengths, tokens = torch.tensor([2, 0, 1, 0]), some_inputs(len(batch), STEPS)
    _, state = generator.decoder(tokens[:, :2], started(generator, batch))
    _, state = generator.decoder(tokens[:, 2:], state, lengths)
    for row, length in enumerate(lengths.tolist()):
        _, alone = generator.decoder(tokens[row : row + 1, : 2 + length], started(generator, only(batch, row)))
        found = future(generator.decoder, state)[row : row + 1]
        same_features(found, future(generator.decoder, alone, torch.tensor([row])), f"row {row}")


# --- law 2: reorder --------------------


@every_typed_case
@torch.no_grad()
def test_select_commutes_with_forward(case: Case, dtype: torch.dtype) -> None:
    generator, batch, hypotheses = build(case, dtype), some_batch(case=case, dtype=dtype), 3
    tokens = some_inputs(len(batch) * hypotheses, STEPS)
    _, state = generator.decoder(tokens[:, :2], started(generator, batch, hypotheses))
    within = torch.tensor([[2, 0, 0], [1, 1, 1], [0, 2, 1], [2, 1, 0]])  # hypotheses change places within their source
    rows = (within + torch.arange(len(batch))[:, None] * hypotheses).flatten()
    then_read, end = generator.decoder(tokens[rows, 2:], state.clone().select(rows))
    read_first, after = generator.decoder(tokens[:, 2:], state.clone())
    close(then_read, read_first[rows])
    close_trees(end.rows, after.select(rows).rows)


@every_typed_case
@torch.no_grad()
def test_sources_leave_repeat_and_change_places(case: Case, dtype: torch.dtype) -> None:
    generator, batch, hypotheses = build(case, dtype), some_batch(case=case, dtype=dtype), 2
    tokens = some_inputs(len(batch) * hypotheses, STEPS)
    _, state = generator.decoder(tokens[:, :1], started(generator, batch, hypotheses))
    sources = torch.tensor([3, 1, 3])  # 0 and 2 have finished, 3 is wanted twice
    rows = (sources[:, None] * hypotheses + torch.arange(hypotheses)).flatten()
    then_read, end = generator.decoder(tokens[rows, 1:], state.clone().select(rows, sources))
    read_first, after = generator.decoder(tokens[:, 1:], state.clone())
    close(then_read, read_first[rows])
    close_trees(end.rows, after.select(rows, sources).rows)
    close_trees(end.sources, after.select(rows, sources).sources)


@every_encoding_case
@torch.no_grad()
def test_hypotheses_share_their_source_as_if_it_were_copied(case: Case) -> None:
    generator, batch, hypotheses = build(case), some_batch(case=case), 3
    memories = generator.encode(batch.sources)
    copies = torch.arange(len(batch)).repeat_interleave(hypotheses)
    rows = len(copies)
    tokens = some_inputs(rows, STEPS)
    shared, _ = generator.decoder(tokens, generator.decoder.start(memories, rows))
    copied = {name: _repeated(memory, copies) for name, memory in memories.items()}
    apart, _ = generator.decoder(tokens, generator.decoder.start(copied, rows))
    close(shared, apart)
    assert not torch.equal(shared[0], shared[hypotheses])  # sources differ, so a mix-up would show


def _repeated(memory: Memory, rows: Tensor) -> Memory:
    summary = tuple(tuple(part[rows] for part in layer) for layer in memory.summary)
    return Memory(memory.states[rows], memory.mask[rows], summary)


def test_a_cloned_state_is_independent_and_copy_overwrites_in_place() -> None:
    generator, batch = build(CASES[0]), some_batch()
    state = started(generator, batch, 2)
    clone = state.clone()
    for tensor in [*clone.rows.values(), *clone.sources.values()]:
        tensor.data.zero_()
    assert any(tensor.any() for tensor in state.rows.values())
    kept = dict(clone.rows)
    with torch.no_grad():
        clone = clone.detach()
        clone.copy_(state)
    close_trees(clone.rows, state.rows)
    close_trees(clone.sources, state.sources)
    assert all(tensor.data_ptr() == kept[name].data_ptr() for name, tensor in clone.rows.items())
    assert not any(tensor.requires_grad for tensor in clone.rows.values())


# --- law 3: padding --------------------


def widened_source(source: Source, junk: int, columns: int) -> Source:
    """As `widened`; behind the mask of frames stands NaN."""
    if isinstance(source, Tokens):
        return widened(source, junk, columns)
    rows, width, features = source.values.shape
    values = source.values.new_full((rows, width + columns, features), torch.nan)
    values[:, :width] = source.values.masked_fill(~source.mask[..., None], torch.nan)
    return Frames(values, torch.nn.functional.pad(source.mask, (0, columns)))


def widened(tokens: Tokens, junk: int, columns: int) -> Tokens:
    """The same real tokens, other ids behind the mask, more columns of padding."""
    generator = torch.Generator().manual_seed(junk)
    rows, width = tokens.ids.shape
    ids = torch.randint(0, TARGET_VOCABULARY, (rows, width + columns), generator=generator)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, :width] = tokens.mask
    ids[:, :width] = torch.where(tokens.mask, tokens.ids, ids[:, :width])
    if tokens.copies is None:
        return Tokens(ids, mask)
    copies = ids + 5  # ids of the target and behind it
    copies[:, :width] = torch.where(tokens.mask, tokens.copies, copies[:, :width])
    assert tokens.words is not None, "what has copies has words"
    words = ids % 3
    words[:, :width] = torch.where(tokens.mask, tokens.words, words[:, :width])
    return Tokens(ids, mask, copies, words=words)


@every_typed_case
def test_junk_and_more_padding_change_no_output_and_no_gradient(case: Case, dtype: torch.dtype) -> None:
    generator, batch = build(case, dtype), some_batch(case=case, dtype=dtype)
    assert batch.target is not None
    minimised, nll = generator.losses(batch, smoothing=0.1)
    expected = gradients(generator, minimised.sum())
    for columns in (0, 3):
        sources = {name: widened_source(source, 21, columns) for name, source in batch.sources.items()}
        padded = Batch(sources, widened(batch.target, 22, columns))
        again, padded_nll = generator.losses(padded, smoothing=0.1)
        close(padded_nll, nll, f"{columns} columns more")
        close_trees(gradients(generator, again.sum()), expected)
    positions = generator.nll(padded)
    assert not positions[~padded.target.mask].any()  # type: ignore[union-attr]
    close(positions[padded.target.mask], nll)  # type: ignore[union-attr]


class Listener(nn.Module):
    """A model over frames: given vectors in, tokens out."""

    def __init__(self, case: Case, frames: int) -> None:
        super().__init__()
        embedding = EMBEDDINGS.build(case.settings.target_embedding, vocabulary=TARGET_VOCABULARY)
        self.encoder = ENCODERS.build(case.settings.encoder, embedding=None, frames=frames)
        self.decoder = DECODERS.build(case.settings.decoder, embedding=embedding, encoder=self.encoder)
        self.head = HEADS.build(case.settings.head, features=self.decoder.width, vocabulary=TARGET_VOCABULARY)

    def nll(self, frames: Frames, target: Tokens) -> Tensor:
        state = self.decoder.start({"source": self.encoder(frames)}, target.ids.shape[0])
        features, state = self.decoder(target.ids.roll(1, 1), state)
        return self.head.nll(features, state, target)


HEARING_CASES = [
    case for case in CASES if kind_of(case.settings.encoder) in FRAME_ENCODERS and case not in COMPARED_CASES
]


@pytest.mark.parametrize("case", HEARING_CASES, ids=str)
def test_nan_behind_the_mask_of_frames_changes_no_output_and_no_gradient(case: Case) -> None:
    listener = randomised(Listener(case, frames=3))
    lengths, target = torch.tensor([3, 1, 4, 2]), some_tokens((2, 4, 1, 3), TARGET_VOCABULARY)
    values = torch.randn(4, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    mask = torch.arange(4) < lengths[:, None]

    def outcome(hidden: float, columns: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        padded = torch.full((4, 4 + columns, 3), hidden, dtype=torch.float64)
        padded[:, :4] = values.masked_fill(~mask[..., None], hidden)
        padded.requires_grad_()
        seen = torch.arange(4 + columns) < lengths[:, None]
        nll = listener.nll(Frames(padded, seen), target)
        wrt_frames = torch.autograd.grad(nll.sum(), padded, retain_graph=True)[0]
        assert not wrt_frames[~seen].any()  # exactly zero, and not NaN
        return nll, gradients(listener, nll.sum()), wrt_frames[:, :4]

    nll, expected, wrt_frames = outcome(0.0, columns=0)
    for hidden, columns in ((torch.nan, 0), (torch.inf, 2), (1e30, 1)):
        junk_nll, found, junk_wrt = outcome(hidden, columns)
        close(junk_nll, nll, f"{hidden} behind the mask")
        close(junk_wrt, wrt_frames)
        close_trees(found, expected)


# --- law 4: batch --------------------


@every_typed_case
@torch.no_grad()
def test_a_batch_equals_each_alone_in_any_order(case: Case, dtype: torch.dtype) -> None:
    generator, batch = build(case, dtype), some_batch(case=case, dtype=dtype)
    assert batch.target is not None
    together = generator.nll(batch)
    for row in range(len(batch)):
        alone = generator.nll(only(batch, row))
        close(together[row : row + 1, : alone.shape[1]], alone, f"row {row}")
    order = torch.tensor([2, 0, 3, 1])
    close(generator.nll(batch.rows(order)), together[order])


@pytest.mark.parametrize("kind", FRAME_ENCODERS)
@torch.no_grad()
def test_memory_of_a_batch_equals_each_alone(kind: str) -> None:
    encoders = [case.settings.encoder for case in CASES if case.settings.encoder.kind == kind]  # type: ignore[attr-defined]
    source = some_tokens((3, 1, 4, 2), 12)
    for settings in dict.fromkeys(settings.model_dump_json() for settings in encoders):
        encoder = randomised(
            ENCODERS.build(ENCODERS.settings_class(kind).model_validate_json(settings), embedding=None, frames=2)
        )
        values = torch.randn(*source.ids.shape, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        together = encoder(Frames(values, source.mask))
        assert together.states.shape[-1] == encoder.width
        assert tuple(tuple(part.shape[-1] for part in layer) for layer in together.summary) == encoder.summary_sizes
        for row, length in enumerate(source.lengths.tolist()):
            alone = encoder(Frames(values[row : row + 1, :length], source.mask[row : row + 1, :length]))
            size = alone.states.shape[1]
            close(together.states[row, :size], alone.states[0])
            assert torch.equal(together.mask[row, :size], alone.mask[0])
            assert not together.mask[row, size:].any()
            for layer, expected in zip(together.summary, alone.summary, strict=True):
                for part, wanted in zip(layer, expected, strict=True):
                    close(part[row], wanted[0])


# --- law 5: causality --------------------


@every_typed_case
@torch.no_grad()
def test_a_later_token_changes_no_earlier_prediction(case: Case, dtype: torch.dtype) -> None:
    generator, batch = build(case, dtype), some_batch(case=case, dtype=dtype)
    tokens, state = some_inputs(len(batch), STEPS), started(generator, batch)
    features, after = generator.decoder(tokens, state.clone())
    log_probs = generator.head.log_probs(features, after)
    for changed_at in range(STEPS):
        other = tokens.clone()
        other[:, changed_at:] = 6 + (tokens[:, changed_at:] - 6 + 1) % (TARGET_VOCABULARY - 6)
        changed, end = generator.decoder(other, state.clone())
        close(changed[:, :changed_at], features[:, :changed_at])
        close(generator.head.log_probs(changed, end)[:, :changed_at], log_probs[:, :changed_at])


@pytest.mark.parametrize("case", WRITING_CASES, ids=str)
@torch.no_grad()
def test_the_last_token_is_read(case: Case) -> None:
    """Causality holds trivially for a decoder that reads nothing, as those of labels do."""
    generator, batch = build(case), some_batch(case=case)
    state, tokens = started(generator, batch), some_inputs(len(batch), 1)
    features = [generator.decoder(6 + (tokens - 6 + more) % 4, state.clone())[0] for more in (0, 1)]
    assert ((features[0] - features[1]).abs().amax(-1) > 1e-3).all()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("bidirectional", "reverse"), [(False, False), (True, False), (False, True)])
def test_an_encoder_that_reads_one_way_knows_nothing_of_later_tokens(
    bidirectional: bool, reverse: bool, layers: int
) -> None:
    """And one that does not say so does: what `task.next_word` rests on."""
    source, other = _changed_at(3)
    raw = small(ENCODERS, "rnn", bidirectional=bidirectional, reverse=reverse, layers=layers)
    encoder = build(Case(f"{bidirectional=} {reverse=} {layers=}", model(encoder=raw))).encoder
    assert encoder.one_way == (not bidirectional and not reverse)
    assert torch.equal(encoder(source).states[:, :3], encoder(other).states[:, :3]) == encoder.one_way


def _changed_at(place: int) -> tuple[Tokens, Tokens]:
    source = some_tokens([5, 5], 12)
    other = Tokens(source.ids.clone(), source.mask)
    other.ids[:, place] = 6 + (source.ids[:, place] - 5) % 6
    return source, other


def test_causal_self_attention_sees_only_what_was_read() -> None:
    """Forward encoder, causal self-attention: a later source token changes no earlier memory; the full one does."""
    source, other = _changed_at(3)
    for causal in (True, False):
        raw = small(ENCODERS, "rnn", bidirectional=False, self_attention={"score": "scaled_dot", "causal": causal})
        encoder = build(Case(f"causal={causal}", model(encoder=raw))).encoder
        earlier, changed = encoder(source).states[:, :3], encoder(other).states[:, :3]
        assert torch.equal(earlier, changed) == causal == encoder.one_way


# --- the options do something --------------------


@pytest.mark.parametrize("case", [*STACK_CASES, *JOINT_CASES, *COVERING_CASES], ids=str)
def test_every_parameter_of_a_model_is_reached_by_the_loss(case: Case) -> None:
    """An option that is built and never used would show as a parameter without gradient."""
    idle: set[str] | None = None
    for seed in range(8):  # by bad luck one draw may put every input of a ReLU below zero
        generator = fresh(case, seed=seed).train()  # hard attention is for prediction only
        found = gradients(generator, generator.losses(some_batch(case=case), smoothing=0.1)[0].sum())
        missed = {name for name, gradient in found.items() if not gradient.any()}
        idle = missed if idle is None else idle & missed
        if not idle:
            break
    assert not idle


@every(DECODERS)
@torch.no_grad()
def test_an_ensemble_of_equals_is_each_of_them_and_of_others_the_mean_of_probabilities(kind: str) -> None:
    case = Case(f"ensemble of {kind}", model(decoder=small(DECODERS, kind)))
    one, other, batch = build(case), fresh(case, seed=8), some_batch(case=case)
    last = some_inputs(len(batch), 1)[:, 0]

    def step(scorer: EncoderDecoder | Ensemble) -> Tensor:
        log_probs, state = scorer.step(last, scorer.start(batch.sources, 1))
        rows = torch.tensor([1, 0, 3, 2])
        return torch.stack([log_probs, scorer.step(last, state.select(rows, rows))[0]])

    close(step(Ensemble([one, one, one])), step(one))
    close(step(Ensemble([one, other])).exp(), (step(one).exp() + step(other).exp()) / 2)


@every(HEADS)
def test_heads_of_every_kind_have_the_widths_they_were_told(kind: str) -> None:
    width = 7 if HEADS[kind].repeats else WIDTH + 1
    head = randomised(HEADS.build(entry(HEADS, kind), features=width, vocabulary=7))
    features = torch.randn(2, 3, width, dtype=torch.float64)
    log_probs = head.log_probs(features.log_softmax(-1) if HEADS[kind].repeats else features, State({}))
    assert log_probs.shape == (2, 3, 7)
    close(log_probs.exp().sum(-1), torch.ones(2, 3, dtype=torch.float64))

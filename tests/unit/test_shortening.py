"""Encoders that shorten a source; attention over what they leave is told in positions of the source."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from seqloom.batch import Batch, Frames, Tokens
from seqloom.models.memories import ExtraSource, spread_out
from seqloom.models.model import EncoderDecoder
from seqloom.models.pyramid import PyramidEncoder
from seqloom.models.subsampled import SubsampledEncoder
from seqloom.nn.tape import Tape

LENGTHS = (7, 1, 4, 2)


def some_frames(lengths: tuple[int, ...] = LENGTHS, features: int = 3) -> Frames:
    generator = torch.Generator().manual_seed(1)
    return Frames.pad([torch.randn(length, features, generator=generator) for length in lengths])


def encoder(**settings: object) -> PyramidEncoder:
    torch.manual_seed(1)
    return PyramidEncoder(PyramidEncoder.Settings.model_validate({"width": 4, **settings}), embedding=None, frames=3)


@pytest.mark.parametrize(("layers", "left"), [(1, LENGTHS), (2, (4, 1, 2, 1)), (3, (2, 1, 1, 1)), (4, (1, 1, 1, 1))])
def test_every_layer_but_the_first_halves_the_time(layers: int, left: tuple[int, ...]) -> None:
    pyramid = encoder(layers=layers)
    memory = pyramid(some_frames())
    assert tuple(memory.mask.sum(1).tolist()) == left
    assert memory.states.shape[:2] == (4, max(left))
    assert pyramid.reduction == 2 ** (layers - 1)
    assert not memory.states[~memory.mask].any()
    assert len(memory.summary) == layers


def test_the_upper_layer_reads_two_neighbours_side_by_side() -> None:
    pyramid, frames = encoder(layers=2), some_frames((4,))
    below, _ = pyramid.layers[0](frames.values, torch.tensor([4]))
    above, final = pyramid.layers[1](torch.cat([below[:, 0::2], below[:, 1::2]], dim=-1), torch.tensor([2]))
    memory = pyramid(frames)
    torch.testing.assert_close(memory.states, above)
    torch.testing.assert_close(memory.summary[1], final)


@pytest.mark.parametrize("over", ["transformer", "rnn", "convolution", "bag"])
@pytest.mark.parametrize(("halvings", "left"), [(1, (4, 1, 2, 1)), (2, (2, 1, 1, 1))])
def test_convolutions_halve_the_time_before_any_encoder(over: str, halvings: int, left: tuple[int, ...]) -> None:
    raw = {"width": 6, "halvings": halvings, "over": {"kind": over, "width": 4}}
    subsampled = SubsampledEncoder(SubsampledEncoder.Settings.model_validate(raw), embedding=None, frames=3).eval()
    frames = some_frames()
    with Tape("source.embedded") as tape:
        memory = subsampled(frames)
    assert tuple(memory.mask.sum(1).tolist()) == left
    assert subsampled.reduction == 2**halvings
    assert [one.shape for one in tape.steps("source.embedded")] == [frames.values.shape], "the source passes it once"
    for row, length in enumerate(LENGTHS):  # what is behind a source's end changes nothing of it
        alone = subsampled(Frames(frames.values[row : row + 1, :length], frames.mask[row : row + 1, :length]))
        torch.testing.assert_close(memory.states[row, : left[row]], alone.states[0])


def test_a_convolution_sees_its_window_and_no_more() -> None:
    raw = {"width": 4, "halvings": 1, "kernel": 3, "over": {"kind": "bag", "width": 4}}
    torch.manual_seed(1)
    subsampled = SubsampledEncoder(SubsampledEncoder.Settings.model_validate(raw), embedding=None, frames=3)
    frames = some_frames((6,))
    before = subsampled(frames).states[0]
    changed = Frames(frames.values.index_fill(1, torch.tensor([2]), 9.0), frames.mask)
    differs = (subsampled(changed).states[0] - before).abs().amax(-1) > 1e-6
    assert differs.tolist() == [False, True, False]  # position 2 is the middle of the second window


def test_weights_of_a_memory_are_shared_by_what_each_position_stands_for() -> None:
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    weights = torch.tensor([[0.2, 0.2, 0.6], [0.6, 0.4, 0.0]])[:, None, None]
    found = spread_out(weights, [mask], [2])[:, 0, 0]
    expected = torch.tensor([[0.1, 0.1, 0.1, 0.1, 0.6], [0.3, 0.3, 0.4, 0.0, 0.0]])
    torch.testing.assert_close(found, expected)
    further = spread_out(torch.cat([weights, weights[..., :2]], dim=-1), [mask, mask[:, :2]], [2, 1])[:, 0, 0]
    torch.testing.assert_close(further, torch.cat([expected, weights[:, 0, 0, :2]], dim=-1))


def test_a_model_tells_where_it_looked_in_frames() -> None:
    raw = {
        "source_embedding": {"kind": "projection", "width": 4},
        "target_embedding": {"width": 4},
        "encoder": {"kind": "pyramid", "width": 4, "layers": 3},
        "decoder": {"kind": "bahdanau", "width": 4},
    }
    model = EncoderDecoder(EncoderDecoder.Settings.model_validate(raw), source_vocabulary=3, target_vocabulary=9)
    frames = some_frames()
    [weights] = model.attention(Batch({"source": frames}, Tokens.pad([[7, 8, 3], [6, 3], [7, 3], [3]])))
    assert weights.shape[-1] == 7
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert not weights[~frames.mask[:, None, None].expand_as(weights)].any()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"decoder": "tags"}, "every tag belongs to one"),
        ({"decoder": "span"}, "a span begins and ends at one"),
        ({"head": "copy"}, "head: copy points at each"),
        ({"decoder": {"kind": "label", "compare": "features"}}, "compares them one by one"),
        ({"encoder": {"kind": "pyramid", "width": 5}}, "even width"),
        ({"encoder": {"kind": "subsampled", "kernel": 4}}, "use 3 or 5"),
    ],
)
def test_what_needs_every_position_is_refused(parts: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        EncoderDecoder.Settings.model_validate({"encoder": "pyramid", **parts})


def test_an_extra_is_not_shortened() -> None:
    with pytest.raises(ValidationError, match="use bag or rnn"):
        ExtraSource.Settings.model_validate({"encoder": "pyramid"})

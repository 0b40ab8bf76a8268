"""Loops that are written out, forward and backward, against the same steps left to autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqloom.models.contracts import Memory
from seqloom.models.rnn import RecurrentDecoder
from seqloom.models.rnn_encoder import RecurrentEncoder
from seqloom.models.tables import DECODERS
from seqloom.nn.frontends import EMBEDDINGS, Embedding
from seqloom.nn.recurrent import CELLS, Bidirectional, read_through
from seqloom.nn.scores import SCORES
from seqloom.nn.tape import Tape
from seqloom.nn.unrolled import step_by_step

ROWS, STEPS, POSITIONS, WIDTH = 3, 5, 4, 6
FEEDING = {"kind": "luong", "context": {"recurrence": "attentional", "readout": True}}
WAYS = {"previous": {"kind": "bahdanau"}, "current": FEEDING, "current, token": {**FEEDING, "token_readout": True}}


def decoder_of(cell: str | dict[str, object], score: str, way: str, **more: object) -> RecurrentDecoder:
    torch.manual_seed(5)
    attention = {"score": score, **({"query": "previous"} if way == "previous" else {"query": "current"})}
    raw = {"width": WIDTH, "cell": cell, "attention": attention, **WAYS[way], **more}
    source = EMBEDDINGS.build(EMBEDDINGS.settings({"kind": "learned", "width": WIDTH}), vocabulary=9)
    target = EMBEDDINGS.build(EMBEDDINGS.settings({"kind": "learned", "width": 5}), vocabulary=9)
    encoder = RecurrentEncoder(RecurrentEncoder.Settings(width=WIDTH, cell=CELLS.settings(cell)), embedding=source)
    assert isinstance(target, Embedding)
    decoder = DECODERS.build(DECODERS.settings(raw), embedding=target, encoder=encoder)
    assert isinstance(decoder, RecurrentDecoder)
    return decoder.double()


def memory_of(decoder: RecurrentDecoder) -> Memory:
    torch.manual_seed(6)
    mask = torch.tensor([[True] * POSITIONS, [True, True, False, False], [True] * 3 + [False]])
    states = torch.randn(ROWS, POSITIONS, WIDTH, dtype=torch.float64, requires_grad=True)
    summary = tuple(torch.randn(ROWS, WIDTH, dtype=torch.float64, requires_grad=True) for _ in decoder._cell(0).parts)
    return Memory(states, mask, (summary,))


def everything(decoder: RecurrentDecoder, plain: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and last state; the gradients of all that went in, of a loss that reads all of it."""
    memory = memory_of(decoder)
    tokens = torch.tensor([[1, 4, 5, 6, 7], [1, 8, 7, 6, 5], [1, 4, 4, 4, 8]])
    state = decoder.start({"source": memory}, ROWS)
    if plain:
        with step_by_step():
            features, after = decoder(tokens, state)
    else:
        features, after = decoder(tokens, state)
    found = [features, *(after.rows[name] for name in sorted(after.rows))]
    torch.manual_seed(7)
    loss = sum(((part * torch.randn(part.shape, dtype=part.dtype)).sum() for part in found), start=torch.zeros(()))
    inputs = [memory.states, *memory.summary[0], *decoder.parameters()]
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [part.detach() for part in found], [torch.zeros(()) if g is None else g for g in gradients]


def unrolled_nodes(tensor: Tensor) -> int:
    """How many loops that are written out stand in the graph of a tensor."""
    seen, left = set(), [tensor.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left.extend(next_node for next_node, _ in node.next_functions)
    return sum("Unrolled" in type(node).__name__ for node in seen)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize("cell", list(CELLS))
def test_outputs_and_gradients_are_those_of_single_steps(cell: str, score: str, way: str) -> None:
    decoder = decoder_of(cell, score, way)
    for found, wanted in zip(everything(decoder, plain=False), everything(decoder, plain=True), strict=True):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_every_elman_is_written_out(activation: str) -> None:
    decoder = decoder_of({"kind": "elman", "activation": activation}, "additive", "previous")
    for found, wanted in zip(everything(decoder, plain=False), everything(decoder, plain=True), strict=True):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("way", list(WAYS))
def test_the_summary_may_be_an_input_as_well(way: str) -> None:
    decoder = decoder_of("gru", "bilinear", way, summary_input=True)
    for found, wanted in zip(everything(decoder, plain=False), everything(decoder, plain=True), strict=True):
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("way", list(WAYS))
def test_autograd_comes_by_once(way: str) -> None:
    decoder = decoder_of("lstm", "additive", way)
    tokens, memory = torch.tensor([[1, 4, 5], [1, 8, 7], [1, 4, 4]]), memory_of(decoder)
    assert unrolled_nodes(decoder(tokens, decoder.start({"source": memory}, ROWS))[0]) == 1
    with step_by_step():
        assert unrolled_nodes(decoder(tokens, decoder.start({"source": memory}, ROWS))[0]) == 0
    with Tape("decoder.attention"):
        assert unrolled_nodes(decoder(tokens, decoder.start({"source": memory}, ROWS))[0]) == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"layers": 2}, "several layers"),
        ({"compose": "gate"}, "its composition"),
        ({"attention": {"score": "additive", "query": "previous", "coverage": True}}, "coverage"),
    ],
)
def test_what_nobody_wrote_is_left_to_autograd(options: dict[str, object], reason: str) -> None:
    decoder = decoder_of("lstm", "additive", "previous", **options)
    assert decoder.one_by_one == reason
    torch.manual_seed(6)
    summary = tuple(tuple(torch.randn(ROWS, WIDTH, dtype=torch.float64) for _ in range(2)) for _ in decoder.cells)
    memory = Memory(
        torch.randn(ROWS, 2, WIDTH, dtype=torch.float64), torch.ones(ROWS, 2, dtype=torch.bool), summary[:1]
    )
    features, _ = decoder(torch.tensor([[1, 4], [1, 5], [1, 6]]), decoder.start({"source": memory}, ROWS))
    assert unrolled_nodes(features) == 0


@pytest.mark.parametrize("way", list(WAYS))
def test_dropout_falls_on_the_same_places(way: str) -> None:
    """Of many outputs a share is nothing, and none of those that are left is as it was."""
    decoder = decoder_of("lstm", "dot", way, dropout=0.4).train()
    tokens = torch.randint(4, 9, (ROWS, 200), generator=torch.Generator().manual_seed(1))
    memory = memory_of(decoder)
    torch.manual_seed(8)
    features, _ = decoder(tokens, decoder.start({"source": memory}, ROWS))
    share = (features == 0).double().mean().item()
    assert 0.35 < share < 0.45
    features.sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in decoder.parameters())


@pytest.mark.parametrize("way", list(WAYS))
def test_products_in_fewer_bits_stay_near(way: str) -> None:
    decoder = decoder_of("lstm", "additive", way).float()
    tokens = torch.tensor([[1, 4, 5, 6, 7], [1, 8, 7, 6, 5], [1, 4, 4, 4, 8]])
    memory = memory_of(decoder)
    single = Memory(
        memory.states.float(), memory.mask, tuple(tuple(p.float() for p in parts) for parts in memory.summary)
    )
    exact, _ = decoder(tokens, decoder.start({"source": single}, ROWS))
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = decoder(tokens, decoder.start({"source": single}, ROWS))
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, atol=0.03, rtol=0.05)
    rounded.float().sum().backward()
    assert all(parameter.grad is None or parameter.grad.dtype == torch.float32 for parameter in decoder.parameters())


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("cell", list(CELLS))
def test_cells_side_by_side_read_what_each_reads_alone(cell: str, both: bool) -> None:
    torch.manual_seed(9)
    layer = Bidirectional(CELLS.settings(cell), inputs=3, width=WIDTH, both=both, learned_start=True).double()
    with torch.no_grad():
        for parameter in layer.starts.parameters():
            parameter.normal_()
    lengths = torch.tensor([4, 1, 0])
    inputs = [torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True) for _ in layer.cells]
    mask = torch.arange(4) < lengths[:, None]
    cells, states = list(layer.cells), [start(inputs[0]) for start in layer.starts]

    def judged(read: list[tuple[Tensor, tuple[Tensor, ...]]]) -> list[Tensor]:
        torch.manual_seed(10)
        parts = [part for outputs, final in read for part in (outputs * mask[..., None], *final)]
        loss = sum(((part * torch.randn(part.shape, dtype=part.dtype)).sum() for part in parts), start=torch.zeros(()))
        wanted = torch.autograd.grad(loss, [*inputs, *layer.parameters()])
        return [*(part.detach() for part in parts), *wanted]

    together = judged(read_through(cells, inputs, states, lengths))  # type: ignore[arg-type]
    apart = judged([cell(x, state, lengths) for cell, x, state in zip(cells, inputs, states, strict=True)])
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)

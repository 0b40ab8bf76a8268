"""Cells against the lecture's equations, and stacks of them against torch.nn with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.batch import Frames
from seqloom.models.rnn_encoder import RecurrentEncoder
from seqloom.nn.recurrent import CELLS, Cell, Parts, Start, reverse

INPUTS, SIZE = 3, 4
CLOSE = {"atol": 1e-10, "rtol": 1e-10}


def cell_of(kind: str, inputs: int = INPUTS, **raw: object) -> Cell:
    torch.manual_seed(3)
    return CELLS.build(CELLS.settings({"kind": kind, **raw}), inputs=inputs, size=SIZE).double()


def state_of(cell: Cell, rows: int) -> Parts:
    return tuple(torch.randn(rows, SIZE, dtype=torch.float64) for _ in cell.parts)


def equation(kind: str, x: Tensor, state: Parts, weights: tuple[Tensor, ...], f: Any = torch.tanh) -> Parts:
    """One step of MISSION.md; torch keeps two biases, whose sum is b (the GRU's candidate keeps them apart)."""
    w, u, b_w, b_u = weights
    s = state[0]
    if kind == "elman":
        return (f(x @ w.t() + s @ u.t() + b_w + b_u),)
    if kind == "lstm":
        i, forget, g, o = (x @ w.t() + s @ u.t() + b_w + b_u).chunk(4, dim=-1)
        c = forget.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    assert kind == "gru", "write the new cell's equation here"
    (r_x, z_x, n_x), (r_s, z_s, n_s) = (x @ w.t() + b_w).chunk(3, dim=-1), (s @ u.t() + b_u).chunk(3, dim=-1)
    r, z = (r_x + r_s).sigmoid(), (z_x + z_s).sigmoid()
    n = (n_x + r * n_s).tanh()
    return ((1 - z) * n + z * s,)


@pytest.mark.parametrize("kind", list(CELLS))
def test_a_step_is_the_equation(kind: str) -> None:
    cell = cell_of(kind)
    x, state = torch.randn(5, INPUTS, dtype=torch.float64), state_of(cell, 5)
    for found, wanted in zip(cell.step(x, state), equation(kind, x, state, cell.weights()), strict=True):
        torch.testing.assert_close(found, wanted, **CLOSE)


@pytest.mark.parametrize(("activation", "f"), [("tanh", torch.tanh), ("relu", torch.relu), ("sigmoid", torch.sigmoid)])
def test_elman_with_every_activation(activation: str, f: Any) -> None:
    cell = cell_of("elman", activation=activation)
    x, state = torch.randn(2, 3, INPUTS, dtype=torch.float64), state_of(cell, 2)
    outputs, final = cell(x, state)
    for t in range(3):
        state = equation("elman", x[:, t], state, cell.weights(), f)
        torch.testing.assert_close(outputs[:, t], state[0], **CLOSE)
    torch.testing.assert_close(final[0], state[0], **CLOSE)


TORCH: dict[str, type[nn.RNNBase]] = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@pytest.mark.parametrize("kind", list(CELLS))
def test_a_new_cell_is_torchs_but_for_the_forget_bias(kind: str) -> None:
    """Same seed, same weights; a fresh LSTM remembers by default (Jozefowicz 2015)."""
    cell = cell_of(kind)
    torch.manual_seed(3)
    peer = TORCH[kind](INPUTS, SIZE, batch_first=True).double()
    for name, parameter in peer.named_parameters():
        wanted = parameter.detach().clone()
        if kind == "lstm" and name == "bias_ih_l0":
            wanted[SIZE : 2 * SIZE] += 1.0
        torch.testing.assert_close(cell.get_parameter(f"kernel.{name}").detach(), wanted)


def test_the_forget_bias_is_a_setting() -> None:
    plain, remembering = cell_of("lstm", forget_bias=0.0), cell_of("lstm", forget_bias=2.5)
    difference = (remembering.weights()[2] - plain.weights()[2]).detach()
    expected = torch.zeros(4 * SIZE, dtype=torch.float64)
    expected[SIZE : 2 * SIZE] = 2.5
    torch.testing.assert_close(difference, expected)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", list(CELLS))
def test_an_encoder_is_torchs_stack_with_the_same_weights(kind: str, layers: int, bidirectional: bool) -> None:
    width = SIZE * (2 if bidirectional else 1)
    settings = RecurrentEncoder.Settings.model_validate(
        {"cell": kind, "width": width, "layers": layers, "bidirectional": bidirectional}
    )
    encoder = RecurrentEncoder(settings, embedding=None, frames=INPUTS).double().eval()
    peer = TORCH[kind](INPUTS, SIZE, layers, batch_first=True, bidirectional=bidirectional).double()
    with torch.no_grad():
        for layer, both in enumerate(encoder.layers):
            for cell, suffix in zip(both.cells, ("", "_reverse"), strict=False):
                for name, parameter in cell.kernel.named_parameters():
                    parameter.copy_(peer.get_parameter(name.replace("l0", f"l{layer}") + suffix))
    lengths = torch.tensor([5, 2, 1])
    values = torch.randn(3, 5, INPUTS, dtype=torch.float64)
    memory = encoder(Frames(values, torch.arange(5) < lengths[:, None]))
    packed = nn.utils.rnn.pack_padded_sequence(values, lengths, batch_first=True)
    outputs, final = peer(packed)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    torch.testing.assert_close(memory.states, wanted, **CLOSE)
    finals = final if isinstance(final, tuple) else (final,)
    for part, tensor in enumerate(finals):  # (layers * directions) B D
        per_layer = tensor.unflatten(0, (layers, -1))
        for layer in range(layers):
            torch.testing.assert_close(memory.summary[layer][part], torch.cat(list(per_layer[layer]), -1), **CLOSE)


@pytest.mark.parametrize("kind", list(CELLS))
@pytest.mark.parametrize("steps", [1, 4])
def test_lengths_stop_each_row_and_zero_leaves_its_state(kind: str, steps: int) -> None:
    cell = cell_of(kind)
    x, state = torch.randn(3, steps, INPUTS, dtype=torch.float64), state_of(cell, 3)
    lengths = torch.tensor([steps, 0, min(steps, 2)])
    outputs, final = cell(x, state, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = tuple(part[row : row + 1] for part in state)
        if length:
            wanted, alone = cell(x[row : row + 1, :length], alone)
            torch.testing.assert_close(outputs[row : row + 1, :length], wanted, **CLOSE)
        for part, expected in zip(final, alone, strict=True):
            torch.testing.assert_close(part[row : row + 1], expected, **CLOSE)


def test_reverse_turns_the_real_part_and_is_its_own_inverse() -> None:
    x, lengths = torch.arange(10.0).reshape(2, 5, 1), torch.tensor([3, 5])
    assert reverse(x, lengths)[..., 0].tolist() == [[2, 1, 0, 3, 4], [9, 8, 7, 6, 5]]
    assert torch.equal(reverse(reverse(x, lengths), lengths), x)


def test_reading_in_reverse_is_reading_the_reversed_source_with_memory_in_order() -> None:
    raw = {"cell": "gru", "width": SIZE, "bidirectional": False, "layers": 2}
    torch.manual_seed(0)
    backward = RecurrentEncoder(
        RecurrentEncoder.Settings.model_validate({**raw, "reverse": True}), embedding=None, frames=INPUTS
    )
    forward = RecurrentEncoder(RecurrentEncoder.Settings.model_validate(raw), embedding=None, frames=INPUTS)
    forward.load_state_dict(backward.state_dict())
    lengths = torch.tensor([4, 2])
    mask = torch.arange(4) < lengths[:, None]
    values = torch.randn(2, 4, INPUTS)
    memory = backward(Frames(values, mask))
    turned = forward(Frames(reverse(values, lengths), mask))
    torch.testing.assert_close(memory.states, reverse(turned.states, lengths))
    torch.testing.assert_close(memory.summary[-1][0], turned.summary[-1][0])


@pytest.mark.parametrize("kind", list(CELLS))
def test_a_start_is_zero_or_learned_and_one_for_all_rows(kind: str) -> None:
    cell, like = cell_of(kind), torch.zeros(3, 2, dtype=torch.float64)
    zero, learned = Start(cell, learned=False), Start(cell, learned=True).double()
    assert [part.shape for part in zero(like)] == [(3, SIZE)] * len(cell.parts)
    assert not any(part.any() for part in zero(like))
    with torch.no_grad():
        learned.values.copy_(torch.randn(learned.values.shape))
    for index, part in enumerate(learned(like)):
        assert torch.equal(part, learned.values[index].expand(3, -1))
    assert not list(zero.parameters())
